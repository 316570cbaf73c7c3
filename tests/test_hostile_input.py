"""Input that attacks: models and outputs from strangers, values at the limits."""

import json
import os
import sys

import numpy as np
import pytest

import twinrank as tr
from twinrank.learning.boosting.engines import thread_count
from twinrank.support.terminal import printable

DATA = tr.synthetic_web_search(queries=12)
NET = {"architecture": "MLP(width=4, depth=1)", "ensemble_size": 1, "epochs": 1}
TREES = {"n_estimators": 3, "num_leaves": 4, "ensemble_size": 1, "transforms": "none"}
RANKERS = {
    "net": tr.Ranker(**NET),
    "lightgbm": tr.BoostedRanker(**TREES),
    "xgboost": tr.BoostedRanker(engine="xgboost", **TREES),
    "blend": tr.Blend([tr.Ranker(**NET), tr.BoostedRanker(**TREES)]),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model folder of each kind, and what its configuration contains."""
    folders = {}
    for name, ranker in RANKERS.items():
        if name == "xgboost":
            pytest.importorskip("xgboost")
        folder = tmp_path_factory.mktemp("models") / name
        ranker.fit(DATA).save(folder)
        folders[name] = folder, (folder / "config.json").read_bytes()
    return folders


@pytest.fixture(params=RANKERS)
def model(saved, request):
    """The folder of a model, restored after the test."""
    folder, config = saved[request.param]
    files = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    yield RANKERS[request.param], folder, json.loads(config)
    for path, content in files.items():
        path.unlink(missing_ok=True)
        path.write_bytes(content)


def flipped(content, place):
    changed = bytearray(content)
    changed[place] ^= 1
    return bytes(changed)


def same_json(first, second):
    try:
        return json.loads(first) == json.loads(second)
    except ValueError:
        return False


def test_a_flipped_bit_in_a_model_is_noticed(model):
    ranker, folder, _ = model
    random = np.random.default_rng(0)
    for path in sorted(folder.iterdir()):
        if path.is_dir() or path.name == "history.jsonl":
            continue
        content = path.read_bytes()
        for place in random.integers(0, len(content), 12).tolist():
            path.write_bytes(flipped(content, place))
            if path.suffix == ".json" and same_json(path.read_bytes(), content):
                continue  # the last digit of a number may not matter
            with pytest.raises(tr.InputError):
                type(ranker).load(folder)
        path.write_bytes(content)


def test_models_without_checksums_load(model):
    ranker, folder, config = model
    for name in ("crc32", "has_crc32", "checksums"):
        del config[name]
    (folder / "config.json").write_text(json.dumps(config))
    same = type(ranker).load(folder).predict(DATA)
    assert np.array_equal(same, ranker.predict(DATA))


@pytest.mark.parametrize("value", [[1], -(10**30)])
def test_parameters_of_wrong_types_are_refused_with_their_names(model, value):
    ranker, folder, config = model
    config["crc32"] = None
    parameters = config["provenance"]["parameters"]
    for name in parameters:
        changed = {**config["provenance"], "parameters": {**parameters, name: value}}
        (folder / "config.json").write_text(json.dumps({**config, "provenance": changed}))
        try:
            loaded = type(ranker).load(folder)
        except tr.InputError as error:
            assert "config.json is damaged" in str(error)  # noqa: PT017
            continue
        assert loaded.predict(DATA).shape == (DATA.documents,)


@pytest.mark.parametrize("name", ["n_jobs", "verbose", "random_state", "learning_rate"])
def test_the_message_names_the_parameter(saved, name, tmp_path):
    folder, content = saved["lightgbm"]
    config = json.loads(content)
    config["provenance"]["parameters"][name] = [1]
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"crc32": None}))
    (tmp_path / "model" / "model.txt").write_bytes((folder / "model.txt").read_bytes())
    with pytest.raises(
        tr.InputError, match=rf"config.json is damaged: Parameter {name} cannot be \[1\]\."
    ):
        tr.BoostedRanker.load(tmp_path / "model")


LIGHTGBM = [
    ("num_leaves=4", "num_leaves=5"),
    ("num_leaves=4", "num_leaves=2000000000"),
    ("left_child=1", "left_child=0"),
    ("left_child=1", "left_child=7"),
    ("left_child=1", "left_child=-9"),
    ("split_feature=", "split_feature=900 "),
    ("split_feature=", "split_feature=-"),
    ("decision_type=2", "decision_type=1"),
    ("leaf_value=", "leaf_value=1 "),
    ("leaf_value=", "leaf_value=1e999 "),
    ("num_cat=0", "num_cat=3"),
    ("is_linear=0", "is_linear=1"),
    ("tree_sizes=", "tree_sizes=1"),
    ("max_feature_idx=", "max_feature_idx=9"),
    ("Tree=1", "Tree=7"),
    ("num_class=1", "num_class=900"),
    ("end of trees", "end of threes"),
]


@pytest.mark.parametrize(("before", "after"), LIGHTGBM)
def test_lightgbm_never_sees_a_wrong_structure(saved, before, after):
    from twinrank.learning.boosting.lightgbm_engine import from_bytes

    content = (saved["lightgbm"][0] / "model.txt").read_text()
    assert from_bytes(content.encode(), DATA.features, ()).count
    changed = content.replace(before, after, 1)
    assert changed != content
    with pytest.raises(tr.InputError, match=r"model\.txt is damaged"):
        from_bytes(changed.encode(), DATA.features, ())


def test_every_kind_of_lightgbm_model_passes(tmp_path):
    forest = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}
    for objective, engine_params, categorical in (
        ("LambdaMART", forest, None),
        ("nDCG", {"linear_tree": True}, None),
        ("nDCG", {"boosting": "dart", "monotone_constraints": [1] * DATA.features}, None),
        ("nDCG", {"cat_smooth": 1, "min_data_per_group": 1}, [0, 1, 2]),
    ):
        ranker = tr.BoostedRanker(objective, **TREES, engine_params=engine_params)
        data = DATA
        if categorical:
            X = np.array(DATA.X)
            X[:, categorical] = np.abs(X[:, categorical]) % 40 // 1
            data = tr.Dataset.from_arrays(X, DATA.y, group=DATA.lists.sizes)
            ranker.set_params(categorical_features=categorical)
        ranker.fit(data).save(tmp_path / "model")
        assert np.array_equal(
            tr.BoostedRanker.load(tmp_path / "model").predict(data), ranker.predict(data)
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("left_children", 10**6),
        ("left_children", 0),
        ("right_children", -5),
        ("split_indices", 10**6),
        ("parents", 3),
        ("split_type", 1),
        ("split_conditions", float("nan")),
        ("categories_nodes", 0),
        ("default_left", 7),
    ],
)
@pytest.mark.parametrize("place", ["root", "leaf"])
def test_xgboost_never_sees_a_wrong_structure(saved, name, value, place):
    from twinrank.learning.boosting.tree_check import check_xgboost

    content = (saved["xgboost"][0] / "model.json").read_bytes()
    assert check_xgboost(content, "model.json") == DATA.features
    model = json.loads(content)
    tree = model["learner"]["gradient_booster"]["model"]["trees"][0]
    first = 0 if place == "root" else tree["left_children"].index(-1)
    tree[name][first : first + 1] = [value]
    with pytest.raises(tr.InputError, match=r"model\.json is damaged"):
        check_xgboost(json.dumps(model).encode(), "model.json")


@pytest.mark.skipif(sys.platform == "win32", reason="has no pipes with names")
def test_pipes_are_no_models(model):
    ranker, folder, _ = model
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(tr.InputError, match=r"pipe|not a model"):
            type(ranker).load(folder)
        path.unlink()
        path.write_bytes(content)


def test_the_number_of_threads_is_bounded(saved):
    assert 0 < thread_count(1_000_000) <= max(os.cpu_count(), 64)
    assert (thread_count(None), thread_count(-1), thread_count(2)) == (0, 0, 2)
    ranker = tr.BoostedRanker.load(saved["lightgbm"][0]).set_params(n_jobs=1_000_000)
    assert np.array_equal(ranker.predict(DATA), RANKERS["lightgbm"].predict(DATA))


def test_unjudged_documents_are_no_surprise():
    y = DATA.y.copy()
    y[3] = -1
    with pytest.raises(tr.InputError, match=r"y\[3\] is −1, which means unjudged. Leave"):
        tr.Ranker(**NET).fit(DATA.X, y, group=DATA.lists.sizes)


def test_a_score_that_is_not_finite_is_an_error():
    parameters = NET | {"architecture": "MLP(width=4, depth=1, norm=layer)", "transforms": "Clip"}
    ranker = tr.Ranker(**parameters).fit(DATA)
    X = DATA.X.copy()
    X[5] = np.inf
    with pytest.raises(tr.InputError, match="score of document 5 is not finite: its features are"):
        ranker.predict(X, group=DATA.lists.sizes)


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def test_no_escape_reaches_the_terminal(tmp_path, cli):
    name = tmp_path / f"a{ESCAPES}.csv"
    rows = "".join(f"q{i // 4}{ESCAPES},{i % 3},{i},{i * i % 7}\n" for i in range(40))
    name.write_text(f"qid,label,bm25{ESCAPES},b\n{rows}")
    model = tmp_path / f"run{ESCAPES}"
    train = ["train", name, "--trees", "--rounds", 2, "--out", model]
    for words in (
        ["inspect", name],
        ["inspect", name, "--json"],
        [*train, "--set", "engine_params={min_data_in_leaf = 1}"],
        ["predict", model, name, "-o", tmp_path / f"s{ESCAPES}.csv"],
        ["evaluate", name, "--model", model],
        ["inspect", tmp_path / f"absent{ESCAPES}.csv"],
    ):
        _, out, err = cli(*words)
        assert out + err
        assert not set(out + err) & set(ESCAPES.replace("owned", "")[:1] + "\x07\x9b\u202e"), words
    assert printable("é\n\t\033[1mbold\033[0m") == "é\n\t\033[1mbold\033[0m"
