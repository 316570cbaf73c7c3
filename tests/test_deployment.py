"""Models in formats of search engines: the same scores by the engines' rules, or a refusal."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

import twinrank as tr
from engine_references import REFERENCES
from test_saved_trees import ENGINES, NO_TREE, ranker, refusal, table
from twinrank.deployment import tree_list, vespa, xgboost_dump
from twinrank.deployment.forest import Feature
from twinrank.deployment.model_export import FORMATS
from twinrank.deployment.tree_list import largest_float32, next_float32

pytest.importorskip("onnxruntime")

FOLDERS = [name for name, known in FORMATS.items() if known.is_folder]
QUIET = {"verbosity": -1}
NAMES = ["bm25", "clicks", "price", "age"]
REASONS = (
    "takes a missing value as 0, but these trees do not",
    "Solr adds 1e-6 to each threshold",
    "zero_as_missing treats 0 as missing",
    "linear_tree has a linear model in each leaf",
    "holds trees that",
)


def rows(seed=0, documents=240, whole=False):
    """Features with ties, zeros and numbers between; labels; queries of 12 documents."""
    random = np.random.default_rng(seed)
    X = random.lognormal(size=(documents, 4))
    X[:, 1] = random.poisson(1.0, documents)
    X[:, 2] = np.round(X[:, 2], 1)
    y = np.digitize(X[:, 0] + X[:, 1] + random.normal(size=documents), [1.5, 3, 4])
    X = np.floor(X) if whole else X
    return tr.Dataset.from_arrays(
        X.astype(np.float32), y, group=[12] * (documents // 12), feature_names=NAMES
    )


def boosted(data, **settings):
    return tr.BoostedRanker(
        **{"n_estimators": 5, "num_leaves": 6, "transforms": "none", "random_state": 0, **settings}
    ).fit(data)


def texts(folder):
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def documents(forest_names, data):
    """Rows as dictionaries without the missing features."""
    return [
        {name: x for name, x in zip(forest_names, row, strict=True) if not np.isnan(x)}
        for row in data.X
    ]


@pytest.fixture(scope="module")
def data():
    return rows()


@pytest.fixture(scope="module", params=ENGINES)
def model(request, data):
    return boosted(data, engine=request.param)


# Scores


@pytest.mark.parametrize("name", FOLDERS)
def test_scores_by_the_engines_own_rules(model, data, tmp_path, name):
    done = model.export(tmp_path / "out", name, data)
    assert done.path == tmp_path / "out"
    assert (done.trees, done.format) == (5 * model.model_.ensemble_size, name)
    assert done.bytes == sum(path.stat().st_size for path in done.path.iterdir())
    assert done.rows > data.documents
    files = texts(tmp_path / "out")
    # 0 instead of missing values for an engine that has none
    X = data.X[:60].copy()
    X[::7, 0] = 0 if name == "ranklib" else np.nan
    probe = tr.Dataset.from_arrays(X, group=[60], feature_names=NAMES, non_finite="keep")
    scores = [REFERENCES[name](files, document) for document in documents(NAMES, probe)]
    np.testing.assert_allclose(scores, model.predict(probe), rtol=1e-5, atol=1e-6)


def check(seed, engine, folder, references=0):
    """All formats of a random model: the same scores, or a reason; the numbers of both."""
    random = np.random.default_rng(seed)
    X, y, qid = table(random)
    own = ranker(engine, random, bool(random.random() < 0.3)).set_params(transforms="none")
    data = tr.Dataset.from_arrays(X, y, qid=qid, non_finite="keep")
    if (reason := refusal(lambda: own.fit(data))) is not None:
        assert NO_TREE in reason
        return 0, 0
    written = refused = 0
    for name in FORMATS:
        path = folder / f"{seed}{engine}{name}.onnx"
        reason = refusal(lambda path=path, name=name: own.export(path, name, data))
        if reason is not None:
            assert any(known in reason for known in REASONS), reason
            assert not path.exists()
            refused += 1
            continue
        written += 1
        if own.categorical_features is None and name in REFERENCES:
            names = [f"feature_{column + 1}" for column in range(X.shape[1])]
            expected = own.predict(data)[:references]
            few = documents(names, data)[:references]
            scores = [REFERENCES[name](texts(path), document) for document in few]
            np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    return written, refused


@pytest.mark.parametrize("engine", ENGINES)
def test_random_models_in_all_formats(tmp_path, engine):
    counts = np.sum([check(seed, engine, tmp_path, 5) for seed in range(5)], axis=0)
    assert counts[0] > 15
    assert counts[1] > 3


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_many_random_models_in_all_formats(tmp_path, engine):
    counts = np.sum([check(seed, engine, tmp_path, 20) for seed in range(1000, 1100)], axis=0)
    assert counts[0] > 300


@pytest.mark.parametrize("name", FOLDERS)
def test_other_thresholds_are_an_error_and_no_file(model, data, tmp_path, monkeypatch, name):
    """A rule that is not obeyed is found, whatever the format."""
    original = tree_list.trees_of

    def moved(engine, trees):
        offset, grown = original(engine, trees)
        split = np.flatnonzero(~grown[0].is_leaf)[0]
        grown[0].value[split] += 1
        return offset, grown

    monkeypatch.setattr("twinrank.deployment.forest.trees_of", moved)
    with pytest.raises(tr.InputError, match=r"Not exported: .*scores differ from predict"):
        model.export(tmp_path / "out", name, data)
    assert not any(tmp_path.iterdir())


def test_lightgbms_thresholds_unchanged_would_change_scores(data, tmp_path, monkeypatch):
    """What private scripts do: x ≤ t is written as x < t."""
    whole = rows(whole=True)
    model = boosted(whole)
    assert model.export(tmp_path / "right", "vespa", whole).difference < 1e-5
    monkeypatch.setattr(xgboost_dump, "next_float32", lambda values: values)
    with pytest.raises(tr.InputError, match="by the rules of Vespa, scores differ"):
        model.export(tmp_path / "wrong", "vespa", whole)
    assert [path.name for path in tmp_path.iterdir()] == ["right"]


def test_thresholds_in_float32():
    largest = float(np.finfo(np.float32).max)
    given = np.array([0.1, 1.0, -0.1, 1e300, np.inf, -np.inf, 0.0, 1e-46])
    found = largest_float32(given)
    assert found.tolist() == [
        float(np.nextafter(np.float32(0.1), np.float32(0))), 1.0, float(np.float32(-0.1)) ,
        largest, np.inf, -np.inf, 0.0, 0.0,
    ]  # fmt: skip
    assert (found <= given).all()
    finite = found[:3]
    assert (next_float32(finite) > given[:3]).all()
    assert str(next_float32(np.array([-1e-45]))[0]) == "0.0"


# Third-party code


def test_xgboosts_own_dump_is_the_same(data, tmp_path):
    model = boosted(data, engine="xgboost", ensemble_size=1)
    model.export(tmp_path / "out", "elasticsearch-ltr")
    ours = json.loads((tmp_path / "out" / "model.json").read_bytes())["model"]["model"]
    booster = model.model_.trees.booster
    booster.feature_names = NAMES
    theirs = [json.loads(tree) for tree in booster.get_dump(dump_format="json")]

    def compare(own, other):
        if "leaf" in other:
            assert own["leaf"] == pytest.approx(other["leaf"], rel=1e-6)
            return
        assert own["split"] == other["split"]
        assert np.float32(own["split_condition"]) == np.float32(other["split_condition"])
        for way in ("yes", "no", "missing"):
            assert own[way] == other[way]
        for pair in zip(own["children"], other["children"], strict=True):
            compare(*pair)

    for pair in zip(ours["definition"], theirs, strict=True):
        compare(*pair)


@pytest.mark.parametrize("engine", ENGINES)
def test_treelite_reads_the_engines_own_files(data, tmp_path, engine):
    treelite = pytest.importorskip("treelite")
    model = boosted(data, engine=engine)
    path = tmp_path / ("model.txt" if engine == "lightgbm" else "model.json")
    model.export(path, engine)
    if engine == "lightgbm":
        read = treelite.frontend.load_lightgbm_model(path)
    else:
        read = treelite.frontend.load_xgboost_model(path)
    X = data.X.astype(np.float64 if engine == "lightgbm" else np.float32)
    scores = treelite.gtil.predict(read, X).ravel()
    np.testing.assert_allclose(scores, model.predict(data), rtol=1e-5, atol=1e-6)


def keys(value):
    """The keys of nested objects."""
    if isinstance(value, dict):
        return {key: keys(own) for key, own in value.items()}
    return [keys(own) for own in value] if isinstance(value, list) else type(value).__name__


def test_the_definition_has_elands_keys(data, tmp_path):
    """As eland 9.2.0 wrote it for a tree of two leaves (`Ensemble.serialize_model`)."""
    model = boosted(data, n_estimators=1, num_leaves=2, ensemble_size=1)
    model.export(tmp_path / "out", "elasticsearch")
    definition = json.loads((tmp_path / "out" / "model.json").read_bytes())["definition"]
    split = {
        "node_index": "int", "decision_type": "str", "left_child": "int", "right_child": "int",
        "split_feature": "int", "threshold": "float", "default_left": "bool",
    }  # fmt: skip
    leaf = {"node_index": "int", "leaf_value": "float"}
    about = {"feature_names": ["str"], "target_type": "str"}
    tree = {**about, "tree_structure": [split, leaf, leaf]}
    assert keys(definition) == {
        "trained_model": {
            "ensemble": {
                **about,
                "aggregate_output": {"weighted_sum": {}},
                "trained_models": [{"tree": tree}],
            }
        }
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_elands_converter_gives_the_same_scores(data, tmp_path, engine):
    """eland 9.2.0 needs pandas below 3, so that it is not among the test dependencies."""
    pytest.importorskip("eland")
    model = boosted(data, engine=engine, ensemble_size=1)
    if engine == "lightgbm":
        from eland.ml.transformers.lightgbm import LGBMRegressorTransformer as Transformer

        converter = Transformer.__new__(Transformer)
        converter._feature_names = NAMES
        dump = model.model_.trees.booster.dump_model()["tree_info"]
        trees = [converter.build_tree(number, tree) for number, tree in enumerate(dump)]
    else:
        from eland.ml.transformers.xgboost import XGBoostRegressorTransformer as Transformer

        converter = Transformer.__new__(Transformer)
        converter._feature_names, converter._model = NAMES, model.model_.trees.booster
        converter._node_decision_type, converter._objective = "lt", "none"
        trees = converter.build_forest()
    ensemble = {
        "aggregate_output": {"weighted_sum": {}},
        "trained_models": json.loads(json.dumps([tree.to_dict() for tree in trees], default=int)),
    }
    for one in ensemble["trained_models"]:
        for node in one["tree"]["tree_structure"]:
            if node.get("decision_type") == "lt":  # x < t is x ≤ the float32 before t
                below = np.nextafter(np.float32(node["threshold"]), np.float32(-np.inf))
                node |= {"decision_type": "lte", "threshold": float(below)}
    files = {"model.json": json.dumps({"definition": {"trained_model": {"ensemble": ensemble}}})}
    model.export(tmp_path / "out", "elasticsearch", data)
    ours = texts(tmp_path / "out")
    for document in documents(NAMES, data)[:50]:
        expected = REFERENCES["elasticsearch"](files, document)
        scores = REFERENCES["elasticsearch"](ours, document)
        assert scores == pytest.approx(expected, rel=1e-6, abs=1e-7)


# Missing values


@pytest.mark.parametrize("name", FOLDERS)
def test_missing_values_in_training(data, tmp_path, name):
    X = data.X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    missing = tr.Dataset.from_arrays(
        X, data.y, group=data.lists.sizes, feature_names=NAMES, non_finite="keep"
    )
    model = boosted(missing)
    if name == "ranklib":
        with pytest.raises(tr.InputError, match="takes a missing value as 0, but these trees do"):
            model.export(tmp_path / "out", name, missing)
        return
    model.export(tmp_path / "out", name, missing)
    files = texts(tmp_path / "out")
    scores = [REFERENCES[name](files, document) for document in documents(NAMES, missing)]
    np.testing.assert_allclose(scores, model.predict(missing), rtol=1e-5, atol=1e-6)


def test_ranklib_takes_missing_values_as_zero_as_lightgbm_does(data, tmp_path):
    """Without missing values in training, LightGBM sends them where 0 goes."""
    model = boosted(data)
    assert model.export(tmp_path / "out", "ranklib").notes == ()
    other = boosted(data, engine="xgboost")
    with pytest.raises(tr.InputError, match="pass rows without missing values as data"):
        other.export(tmp_path / "other", "ranklib")
    (note,) = other.export(tmp_path / "other", "ranklib", data).notes
    assert "the same only without missing values" in note


def test_older_versions_of_opensearch(data, tmp_path):
    notes = boosted(data, engine="xgboost").export(tmp_path / "out", "opensearch-ltr").notes
    assert any("before 3.2 takes missing features as 0" in note for note in notes)
    notes = boosted(data).export(tmp_path / "out", "opensearch-ltr").notes
    assert not any("before 3.2" in note for note in notes)


def test_a_split_between_missing_and_not_missing(data, tmp_path):
    """Its threshold is infinite, which JSON does not have."""
    X = data.X.copy()
    X[data.y > 0, 3] = np.nan
    missing = tr.Dataset.from_arrays(X, data.y, group=data.lists.sizes, non_finite="keep")
    model = boosted(missing)
    assert "inf" in model.model_.trees.to_bytes().decode()
    for name in FOLDERS:
        if name != "ranklib":
            assert model.export(tmp_path / name, name, missing).difference < 1e-5
            assert "Infinity" not in "".join(texts(tmp_path / name).values())


# Solr's slack


@pytest.mark.parametrize("scale", [1e-30, 1e-7, 1e-3, 1.0, 1e8])
@pytest.mark.parametrize("sign", [1, -1])
def test_solr_separates_the_same_values(data, tmp_path, scale, sign):
    X = data.X * np.float32(scale * sign)
    scaled = tr.Dataset.from_arrays(X, data.y, group=data.lists.sizes, feature_names=NAMES)
    model = boosted(scaled, engine="xgboost")
    reason = refusal(lambda: model.export(tmp_path / "out", "solr", scaled))
    if reason is not None:
        assert scale < 1e-3
        assert "Multiply the feature by 1,000" in reason
        return
    files = texts(tmp_path / "out")
    scores = [REFERENCES["solr"](files, document) for document in documents(NAMES, scaled)]
    np.testing.assert_allclose(scores, model.predict(scaled), rtol=1e-5, atol=1e-6)


def test_solr_asks_for_data(data, tmp_path):
    model = boosted(data)  # which splits clicks between 0 and 1, at 1e-35
    with pytest.raises(tr.InputError, match=r"changes the threshold 1e-35 .* Pass rows .* as data"):
        model.export(tmp_path / "out", "solr")
    assert not any(tmp_path.iterdir())
    model.export(tmp_path / "out", "solr", data)


def test_large_models_for_solr_have_a_wrapper(data, tmp_path, monkeypatch):
    monkeypatch.setattr("twinrank.deployment.solr.ZOOKEEPER", 1000)
    notes = boosted(data).export(tmp_path / "big model", "solr", data).notes
    assert any("SolrCloud refuses" in note for note in notes)
    files = texts(tmp_path / "big model")
    wrapper = json.loads(files["wrapper.json"])
    assert wrapper["params"] == {"resource": "models/big_model.json"}
    assert "@wrapper.json" in files["upload.sh"]


# Categories


def with_categories(data):
    """A column of text, a third of whose values are missing or rare."""
    random = np.random.default_rng(1)
    brand = random.choice(["a, b", 'c"d', "é", "plain", ""], data.documents)
    frame = {name: data.X[:, column] for column, name in enumerate(NAMES)}
    frame |= {"brand": brand, "kind": random.integers(0, 5, data.documents)}
    label = data.y + np.isin(brand, ["a, b", "é"]) + (brand == "")
    return frame, label


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", FOLDERS)
def test_categories_become_features_of_their_own(data, tmp_path, engine, name):
    pd = pytest.importorskip("pandas")
    frame, label = with_categories(data)
    frame = pd.DataFrame(frame)
    frame["brand"] = frame["brand"].where(frame["brand"] != "", None)
    qid = np.repeat(np.arange(data.queries), data.lists.sizes)
    parameters = {"max_cat_to_onehot": 1} if engine == "xgboost" else {"min_data_per_group": 1}
    model = tr.BoostedRanker(
        n_estimators=5, transforms="none", engine=engine, random_state=0, engine_params=parameters,
        categorical_features=["brand", "kind"],
    ).fit(frame, label, qid=qid)  # fmt: skip
    data = tr.Dataset.from_frame(frame.assign(qid=qid, label=label))
    done = model.export(tmp_path / "out", name, data)
    assert any("1 for some categories" in note for note in done.notes)
    text = "".join(texts(tmp_path / "out").values())
    assert "brand_in_1" in text
    assert '"é"' in text or '\\"é\\"' in text


def matches(query, document):
    """Whether a document matches the query of a feature."""
    if "terms" in query:
        ((field, values),) = query["terms"].items()
        return document.get(field) in values
    return query["bool"]["must_not"]["exists"]["field"] not in document


def computed(features, document):
    """The features of a document from its fields, as Elasticsearch computes them."""
    values = {}
    for feature in features:
        template = feature["template"]
        if "function_score" in template:
            field = template["function_score"]["field_value_factor"]["field"]
            values |= {feature["name"]: document[field]} if field in document else {}
        elif any(
            matches(query, document)
            for query in template["constant_score"]["filter"]["bool"]["should"]
        ):
            values[feature["name"]] = 1.0
    return values


@pytest.mark.parametrize(
    ("values", "missing", "expected"),
    [
        (("a", 'c"d'), False, 'if (attribute(my_brand) in ["a", "c\\"d"], 1, 0)'),
        (("a",), True, 'if (attribute(my_brand) in ["", "a"], 1, 0)'),
        ((1, 7), False, "if (attribute(my_brand) in [1, 7], 1, 0)"),
        ((), True, "if (isNan(attribute(my_brand)) == 1, 1, 0)"),
        (None, False, "attribute(my_brand)"),
    ],
)  # fmt: skip
def test_expressions_of_vespa(values, missing, expected):
    """An attribute without a value is NaN if it is a number, and empty if it is text."""
    is_text = "a" in (values or ())
    feature = Feature("x", 0, "my brand", values, missing, is_text)
    assert vespa._expression(feature) == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_membership_features_are_queries(data, tmp_path, engine):
    pd = pytest.importorskip("pandas")
    frame, label = with_categories(data)
    frame = pd.DataFrame(frame)
    qid = np.repeat(np.arange(data.queries), data.lists.sizes)
    parameters = {"max_cat_to_onehot": 1} if engine == "xgboost" else {"min_data_per_group": 1}
    model = tr.BoostedRanker(
        n_estimators=5, transforms="none", random_state=0, engine=engine, engine_params=parameters,
        categorical_features=["brand", "kind"],
    ).fit(frame, label, qid=qid)  # fmt: skip
    model.export(tmp_path / "out", "elasticsearch-ltr")
    files = texts(tmp_path / "out")
    features = json.loads(files["featureset.json"])["featureset"]["features"]
    assert {"brand_in_1", "kind_in_1"} <= {feature["name"] for feature in features}
    frame.loc[::10, "brand"] = "unknown"
    frame.loc[::9, "kind"] = 77
    scores = []
    for row in frame.to_dict("records"):
        document = {name: value for name, value in row.items() if value != ""}
        scores.append(REFERENCES["elasticsearch-ltr"](files, computed(features, document)))
    np.testing.assert_allclose(scores, model.predict(frame, qid=qid), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_splits_on_single_categories_need_fewer_features(tmp_path, engine):
    random = np.random.default_rng(0)
    kinds = random.integers(0, 30, 1200)
    worth = random.normal(size=30)[kinds] + 0.3 * random.normal(size=1200)
    y = np.digitize(worth, [0, 1])
    X = np.c_[kinds, random.normal(size=1200)].astype(np.float32)
    counts = []
    for most in (1, 10_000):
        model = tr.BoostedRanker(
            n_estimators=20, transforms="none", random_state=0, engine=engine,
            categorical_features=[0], engine_params={"max_cat_to_onehot": most},
        ).fit(X, y, group=[12] * 100)  # fmt: skip
        notes = " ".join(model.export(tmp_path / "out", "elasticsearch-ltr").notes)
        counts.append(int(re.search(r"compute (\d+) features that are 1", notes)[1]))
        assert ("'max_cat_to_onehot': 10000" in notes) == (most == 1)
    assert counts[1] <= 2 * 30 < counts[0]


# Names


def test_lightgbms_file_has_the_names_of_the_data(data, tmp_path):
    names = ["bm25 of title", "clicks", "price:usd", "age"]
    named = tr.Dataset.from_arrays(data.X, data.y, group=data.lists.sizes, feature_names=names)
    model = boosted(named)
    model.export(tmp_path / "model.txt")
    booster = lgb.Booster(model_file=str(tmp_path / "model.txt"))
    assert booster.feature_name() == ["bm25_of_title", "clicks", "price_usd", "age"]
    scores = booster.predict(data.X, raw_score=True)
    np.testing.assert_allclose(scores, model.predict(named), rtol=1e-6)
    text = (tmp_path / "model.txt").read_text()
    assert "Column_" not in text
    assert "bm25_of_title=" in text.partition("feature_importances:")[2]


def test_lightgbm_itself_replaces_white_space_and_refuses_json(data):
    read = lgb.Dataset(data.X, data.y, feature_name=["a b", "c", "d", "e"], params=QUIET)
    assert read.construct().get_feature_name()[0] == "a_b"
    with pytest.raises(lgb.basic.LightGBMError, match="special JSON characters"):
        lgb.Dataset(data.X, data.y, feature_name=["a:b", "c", "d", "e"], params=QUIET).construct()


def test_names_that_clash_are_refused(data, tmp_path):
    names = ["a b", "a:b", "price", "age"]
    named = tr.Dataset.from_arrays(data.X, data.y, group=data.lists.sizes, feature_names=names)
    model = boosted(named)
    with pytest.raises(tr.InputError, match=r"two features are called 'a_b'.*Rename the columns"):
        model.export(tmp_path / "model.txt")
    with pytest.raises(tr.InputError, match="two features have the same name in Vespa"):
        model.export(tmp_path / "vespa", "vespa")
    assert not any(tmp_path.iterdir())


def test_columns_of_a_transform_have_names(data, tmp_path):
    boosted(data, transforms="none | QueryZScore").export(tmp_path / "model.txt")
    names = lgb.Booster(model_file=str(tmp_path / "model.txt")).feature_name()
    assert names == [*NAMES, *(f"{name}_2" for name in NAMES)]


def test_features_without_names_are_numbered_as_in_letor(data, tmp_path):
    plain = tr.Dataset.from_arrays(data.X, data.y, group=data.lists.sizes)
    boosted(plain).export(tmp_path / "out", "ranklib")
    features = json.loads((tmp_path / "out" / "featureset.json").read_bytes())["featureset"]
    assert [f["name"] for f in features["features"]] == [f"feature_{i}" for i in range(1, 5)]


# Models


def test_a_blend_of_trees_is_one_list_of_trees(data, tmp_path):
    blend = tr.Blend(
        {
            "small": tr.BoostedRanker(n_estimators=3, transforms="none", random_state=0),
            "other": tr.BoostedRanker(n_estimators=3, transforms="none", engine="xgboost"),
        },
        weights={"small": 0.3, "other": 0.7},
    ).fit(data)
    for name in FOLDERS:
        done = blend.export(tmp_path / name, name, data)
        assert done.trees == sum(m.trees.count for m in blend.model_.models.values())


@pytest.mark.parametrize("name", FOLDERS)
def test_models_that_depend_on_the_query_are_refused(data, tmp_path, name):
    for settings, why in (
        ({"transforms": "auto"}, "scores depend on the whole query"),
        ({"transforms": "Standardise"}, "has no transforms, but these trees need Standardise"),
    ):
        with pytest.raises(tr.InputError, match=why) as refused:
            boosted(data, **settings).export(tmp_path / "out", name, data)
        assert "Train a BoostedRanker with mode='per-document'" in str(refused.value)
    net = tr.Ranker(architecture="MLP(width=4, depth=1)", transforms="Standardise", epochs=1)
    with pytest.raises(tr.InputError, match=r"contains a net|takes nets on raw numbers"):
        net.fit(data).export(tmp_path / "out", name)
    assert not any(tmp_path.iterdir())


def net(data, architecture, **settings):
    own = {"transforms": "none", "epochs": 2, "ensemble_size": 1, "random_state": 0, **settings}
    return tr.Ranker(architecture=architecture, **own).fit(data)


@pytest.mark.parametrize("name", ["elasticsearch-ltr", "opensearch-ltr"])
def test_a_linear_net_has_a_weight_for_each_feature(data, tmp_path, name):
    model = net(data, "Linear")
    done = model.export(tmp_path / "out", name, data)
    body = json.loads((tmp_path / "out" / "model.json").read_bytes())["model"]["model"]
    assert body["type"] == "model/linear"
    weights = body["definition"]
    scores = [sum(weights[name] * x for name, x in row.items()) for row in documents(NAMES, data)]
    constant = float(re.search(r"lower by (\S+)\.$", done.notes[0])[1])
    np.testing.assert_allclose(model.predict(data) - scores, constant, rtol=1e-4, atol=1e-5)
    with pytest.raises(tr.InputError, match="holds trees and linear nets"):
        net(data, "MLP(width=4, depth=1)").export(tmp_path / "deep", name)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("norm", ["batch", "none"])
def test_nets_for_solr(data, tmp_path, activation, norm):
    """Evaluated as Solr's NeuralNetworkModel does (62863bc): a document and a unit at a time."""
    model = net(data, f"MLP(width=4, depth=2, activation={activation}, norm={norm})")
    model.export(tmp_path / "out", "solr", data)
    functions = {
        "relu": lambda z: max(z, 0.0),
        "leakyrelu": lambda z: 0.01 * z if z < 0 else z,
        "tanh": np.tanh,
        "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
        "identity": lambda z: z,
    }
    layers = json.loads((tmp_path / "out" / "model.json").read_bytes())["params"]["layers"]
    scores = []
    for row in data.X[:40].tolist():
        for layer in layers:
            units = zip(layer["matrix"], layer["bias"], strict=True)
            row = [
                functions[layer["activation"]](np.dot(weights, row) + bias)
                for weights, bias in units
            ]
        scores += row
    np.testing.assert_allclose(scores, model.predict(data)[:40], rtol=1e-4, atol=1e-5)


def test_nets_that_solr_cannot_hold(data, tmp_path):
    for settings, why in (
        ({"architecture": "CE4.L(width=4)"}, "cannot hold a layer CELU"),
        ({"architecture": "MLP(width=4, norm=layer)"}, "cannot hold a layer LayerNorm"),
        ({"architecture": "Linear", "ensemble_size": 2}, "holds one net, but this model has 2"),
        ({"architecture": "MLP(width=4, context=pool)"}, "scores depend on the whole query"),
    ):
        with pytest.raises(tr.InputError, match=why):
            net(data, **settings).export(tmp_path / "out", "solr")
    assert not any(tmp_path.iterdir())


def test_negative_features_are_noted(data, tmp_path):
    X = data.X - 1
    lower = tr.Dataset.from_arrays(X, data.y, group=data.lists.sizes, feature_names=NAMES)
    (*_, note) = boosted(lower).export(tmp_path / "out", "elasticsearch-ltr", lower).notes
    assert note.startswith("Lucene refuses negative scores, and so negative features, but the data")


def test_elasticsearchs_constant_is_noted(data, tmp_path):
    model = boosted(data)
    *_, note = model.export(tmp_path / "out", "elasticsearch", data).notes
    least = float(re.search(r"adds (\S+) to all scores", note)[1])
    assert least >= -model.predict(data).min() > 0


# Files and the command


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_documented(name):
    page = (Path(__file__).parents[1] / "docs" / "deploying.md").read_text("utf-8")
    assert f"| `{name}` | " in page
    known = FORMATS[name]
    assert known.name == name
    assert known.engine and known.limits and known.target  # noqa: PT018


@pytest.mark.parametrize("name", FOLDERS)
def test_the_commands_are_valid_shell(model, data, tmp_path, name):
    shell = shutil.which("sh")
    if shell is None:
        pytest.skip("there is no shell")
    model.export(tmp_path / "My model's out", name, data)
    script = tmp_path / "My model's out" / "upload.sh"
    subprocess.run([shell, "-n", str(script)], check=True, timeout=30)
    assert "my_model_s_out" in "".join(texts(script.parent).values())


CURL = """\
#!/bin/sh
# Keep the words, and the body if there is one.
for word in "$@"; do printf '%s\\n' "$word"; done > "$LOG/$$.words"
for word in "$@"; do
  case $word in @-) cat > "$LOG/$$.body" ;; @*) cat "${word#@}" > "$LOG/$$.body" ;; esac
done
"""
_PLUGIN = ["_ltr", "_ltr/_featureset/trees_1", "_ltr/_featureset/trees_1/_createmodel"]
REQUESTS = {
    "elasticsearch-ltr": _PLUGIN,
    "opensearch-ltr": _PLUGIN,
    "ranklib": _PLUGIN,
    "elasticsearch": ["_ml/trained_models/trees_1"],
    "solr": ["schema/feature-store", "schema/model-store"],
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_commands_send_the_files(model, data, tmp_path, name):
    """upload.sh with a curl that keeps what it would send."""
    shell = shutil.which("sh")
    if shell is None:
        pytest.skip("there is no shell")
    model.export(tmp_path / "Trees 1", name, data)
    (tmp_path / "bin").mkdir()
    curl = tmp_path / "bin" / "curl"
    curl.write_text(CURL)
    curl.chmod(0o755)
    (tmp_path / "sent").mkdir()
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LOG": str(tmp_path / "sent")}
    script = tmp_path / "Trees 1" / "upload.sh"
    subprocess.run([shell, str(script), "http://engine"], env=environment, check=True, timeout=30)
    sent = {}
    for words in (tmp_path / "sent").glob("*.words"):
        (address,) = [w for w in words.read_text().splitlines() if w.startswith("http://engine/")]
        body = words.with_suffix(".body")
        sent[address.removeprefix("http://engine/")] = (
            body.read_text("utf-8") if body.exists() else ""
        )
    assert sorted(sent) == REQUESTS[name]
    files = texts(tmp_path / "Trees 1")
    last = sent[REQUESTS[name][-1]]
    if name == "ranklib":
        definition = json.loads(last)["model"]
        assert definition["name"] == "trees_1"
        assert definition["model"] == {"type": "model/ranklib", "definition": files["model.txt"]}
    else:
        assert last == files["model.json"]
    # What the comments say about deleting and searching names the same model.
    assert re.search(r"curl -X DELETE \S+/trees_1\n", files["upload.sh"])
    assert re.search(r"Search with the model.*\n?.*\n?.*trees_1", files["upload.sh"])


def test_names_that_vespa_reserves(data, tmp_path):
    names = ["count", "f", "In", "2nd"]
    same = tr.Dataset.from_arrays(data.X, data.y, group=data.lists.sizes, feature_names=names)
    boosted(same).export(tmp_path / "2026-11", "vespa", same)
    profile = texts(tmp_path / "2026-11")["model_2026_11.profile"]
    assert re.findall(r"function (\w+)\(\)", profile) == ["f_count", "f_f", "f_In", "f_2nd"]
    assert "rank-profile model_2026_11 {" in profile
    assert "attribute(count)" in profile


def test_an_earlier_export_is_replaced_and_nothing_else(model, tmp_path):
    model.export(tmp_path / "out", "vespa")
    model.export(tmp_path / "out", "elasticsearch-ltr")
    assert set(texts(tmp_path / "out")) == {"model.json", "featureset.json", "upload.sh"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(tr.InputError, match="exists and is not an export"):
        model.export(tmp_path / "mine", "vespa")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(tr.InputError, match="is a file, but this format is a folder"):
        model.export(tmp_path / "file", "vespa")


def test_unknown_formats(model, tmp_path):
    with pytest.raises(tr.InputError, match=r"Unknown format 'vesta'\. Did you mean 'vespa'"):
        model.export(tmp_path / "out", "vesta")


def test_the_command(cli, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    boosted(data, engine="xgboost").save("trees")
    np.savetxt("check.csv", np.c_[np.repeat(range(20), 12), data.y, data.X], delimiter=",",
               header=",".join(["qid", "label", *NAMES]), comments="")  # fmt: skip
    code, shown, errors = cli("export", "trees", "--format", "opensearch-ltr")
    assert code == 0
    assert shown.startswith(
        "Wrote opensearch-ltr: model.json, featureset.json, upload.sh for the OpenSearch"
    )
    assert re.search(r"\n\d+ trees, \d+ leaves, \d+ kB\. predict takes ", shown)
    assert "Note: OpenSearch before 3.2" in errors
    words = ["export", "trees", "--format", "ranklib"]
    code, _, errors = cli(*words)
    assert code == 2
    assert "pass rows without missing values as --check" in errors
    code, shown, _ = cli(*words, "--check", "check.csv", "--json")
    assert code == 0
    assert json.loads(shown)["rows"] > 240
    boosted(data, transforms="auto").save("trees")
    code, _, errors = cli("export", "trees", "--format", "vespa")
    assert code == 2
    assert "Train a BoostedRanker with --per-document, distill" in errors
    code, _, errors = cli("export", "trees", "--format", "vesta")
    assert (code, "Did you mean 'vespa'" in errors) == (2, True)
    assert not (tmp_path / "vespa").exists()
    assert not (tmp_path / "vesta").exists()


@pytest.mark.parametrize(("name", "other"), [("lightgbm", "xgboost"), ("xgboost", "lightgbm")])
def test_an_engines_file_holds_its_own_trees(data, tmp_path, name, other):
    with pytest.raises(tr.InputError, match=f"the format {name} holds trees that"):
        boosted(data, engine=other).export(tmp_path / "model", name)
    boosted(data, engine=name).export(tmp_path / "model.json", name)
    if name == "xgboost":
        xgb.Booster(model_file=str(tmp_path / "model.json"))
