"""Trees with random data and parameters: what is saved can be loaded, and scores the same."""

import json

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

import twinrank as tr
from twinrank.learning.boosting.lightgbm_engine import from_bytes as read_lightgbm
from twinrank.learning.boosting.xgboost_engine import from_bytes as read_xgboost

onnxruntime = pytest.importorskip("onnxruntime")

ENGINES = ("lightgbm", "xgboost")
QUERIES, DOCUMENTS = 30, 12
NO_TREE = "No tree could be grown"


def table(random):
    """Features of many kinds, with missing, huge, constant and repeated values; and labels."""
    rows = QUERIES * DOCUMENTS
    X = random.normal(size=(rows, 5))
    X[:, 1] = random.integers(0, random.integers(2, 40), rows)
    X[:, 2] = random.choice([0.0, 1.0, -1e-30, 1e30], rows)
    X[:, 3] *= 10.0 ** random.integers(-20, 30)
    if random.random() < 0.3:
        X[:, 4] = 1.0
    if random.random() < 0.7:
        X[random.random(X.shape) < random.choice([0.02, 0.3, 0.9])] = np.nan
    score = np.nan_to_num(X[:, 0]) + np.isnan(X[:, 1]) + random.normal(size=rows)
    y = np.digitize(score, np.quantile(score, [0.5, 0.8, 0.95]))
    return X.astype(np.float32), y, np.repeat(np.arange(QUERIES), DOCUMENTS)


def lightgbm_params(random):
    choices = [
        {},
        {"boosting": "dart", "drop_rate": 0.5},
        {"extra_trees": True},
        {"linear_tree": True},
        {"zero_as_missing": True},
        {"use_missing": False},
        {"monotone_constraints": [1, -1, 0, 0, 0]},
        {"interaction_constraints": "[0,1],[2,3,4]"},
        {"lambda_l2": 1e3, "min_gain_to_split": 0.01},
        {"max_bin": 3},
        {"path_smooth": 1.0},
    ]
    return {"min_data_in_leaf": 1, **choices[random.integers(len(choices))]}


def xgboost_params(random):
    choices = [
        {},
        {"booster": "dart", "rate_drop": 0.5},
        {"gamma": 0.5},
        {"grow_policy": "lossguide", "max_depth": 0},
        {"monotone_constraints": "(1,-1,0,0,0)"},
        {"interaction_constraints": "[[0,1],[2,3,4]]"},
        {"num_parallel_tree": 3},
        {"max_bin": 3},
        {"max_cat_to_onehot": 1},
        {"min_child_weight": 0.0},
    ]
    return choices[random.integers(len(choices))]


def ranker(engine, random, categorical):
    own = lightgbm_params(random) if engine == "lightgbm" else xgboost_params(random)
    alone = {"linear_tree", "boosting", "booster"} & own.keys()
    if categorical and {"linear_tree", "monotone_constraints"} & own.keys():
        own = {}
    objectives = ["nDCG", "AP", *(["LambdaMART"] if engine == "lightgbm" else [])]
    return tr.BoostedRanker(
        str(random.choice(objectives)),
        engine=engine,
        n_estimators=int(random.integers(1, 6)),
        num_leaves=int(random.choice([2, 4, 31])),
        learning_rate=float(random.choice([0.01, 0.1, 1.0])),
        ensemble_size=1 if alone else int(random.choice([1, 2])),
        subsample=0.7,
        transforms=str(random.choice(["none", "auto"])),
        categorical_features=[1] if categorical else None,
        engine_params=own,
        random_state=int(random.integers(1000)),
    )


def refusal(call):
    """The message with which a call refuses, or None."""
    try:
        call()
    except tr.InputError as error:
        return str(error)
    return None


def check(seed, engine, folder):
    """Fit, save, load and export; return False if no tree could be grown."""
    random = np.random.default_rng(seed)
    X, y, qid = table(random)
    model = ranker(engine, random, bool(random.random() < 0.3))
    data = tr.Dataset.from_arrays(X, y, qid=qid, non_finite="keep")
    if (reason := refusal(lambda: model.fit(data))) is not None:
        assert NO_TREE in reason
        return False
    scores = model.predict(data)
    model.save(folder / "model")
    loaded = tr.BoostedRanker.load(folder / "model")
    assert np.array_equal(loaded.predict(data), scores)
    loaded.save(folder / "again")
    name = "model.txt" if engine == "lightgbm" else "model.json"
    assert (folder / "again" / name).read_bytes() == (folder / "model" / name).read_bytes()
    check_own_file(model, engine, data, scores, folder / name)
    check_onnx(model, data, scores, folder / "model.onnx")
    return True


def check_own_file(model, engine, data, scores, path):
    """The engine reads its own file, and gives the same scores if there is no transform."""
    model.export(path)
    if model.get_params()["transforms"] != "none" or model.get_params()["categorical_features"]:
        return
    if engine == "lightgbm":
        own = lgb.Booster(model_file=str(path)).predict(data.X, raw_score=True)
    else:
        own = xgb.Booster(model_file=str(path)).predict(xgb.DMatrix(data.X), output_margin=True)
    np.testing.assert_allclose(own, scores, rtol=1e-5, atol=1e-6)


def check_onnx(model, data, scores, path):
    """ONNX gives the same scores, or is refused with a reason."""
    if (reason := refusal(lambda: model.export(path))) is not None:
        assert reason.startswith("These trees cannot be exported: ")
        return
    session = onnxruntime.InferenceSession(str(path))
    parts = []
    for query in range(data.queries):
        rows = slice(*data.lists.offsets[query : query + 2])
        feeds = {session.get_inputs()[0].name: np.asarray(data.X[rows])}
        parts.append(session.run(None, feeds)[0].ravel())
    np.testing.assert_allclose(np.concatenate(parts), scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_saved_trees_score_the_same(tmp_path, engine):
    grown = [check(seed, engine, tmp_path / str(seed)) for seed in range(15)]
    assert sum(grown) > 10


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_many_saved_trees_score_the_same(tmp_path, engine):
    grown = [check(seed, engine, tmp_path / str(seed)) for seed in range(1000, 1200)]
    assert sum(grown) > 140


def test_a_split_between_missing_and_not_missing(tmp_path):
    """LightGBM gives it an infinite threshold."""
    random = np.random.default_rng(0)
    X = random.normal(size=(2000, 2))
    X[random.random(2000) < 0.3, 0] = np.nan
    y = (np.isnan(X[:, 0]) | (random.random(2000) < 0.1)).astype(int)
    qid = np.repeat(np.arange(100), 20)
    model = tr.BoostedRanker(n_estimators=5, ensemble_size=1, random_state=0).fit(X, y, qid=qid)
    model.save(tmp_path / "model")
    assert "inf" in (tmp_path / "model" / "model.txt").read_text()
    loaded = tr.BoostedRanker.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(X, qid=qid), model.predict(X, qid=qid))


@pytest.mark.parametrize("engine", ENGINES)
def test_unknown_lines_of_later_versions_are_accepted(tmp_path, engine):
    random = np.random.default_rng(0)
    X, y, qid = table(random)
    data = tr.Dataset.from_arrays(X, y, qid=qid, non_finite="keep")
    trees = {"engine": engine, "n_estimators": 2, "ensemble_size": 1, "transforms": "none"}
    tr.BoostedRanker(**trees).fit(data).save(tmp_path / "model")
    if engine == "lightgbm":
        text = (tmp_path / "model" / "model.txt").read_text()
        header, rest = text.split("feature_infos=", 1)
        changed = f"{header}new_line=1 2 3\nfeature_infos={rest}"
        assert read_lightgbm(changed.encode(), X.shape[1], ()).count == 2
        return
    content = json.loads((tmp_path / "model" / "model.json").read_bytes())
    content["learner"]["new"] = content["new"] = {"more": [1]}
    assert read_xgboost(json.dumps(content).encode(), X.shape[1], ()).count == 2


def test_linear_trees_do_not_grow_in_parallel():
    """LightGBM would end the process."""
    X, y, qid = table(np.random.default_rng(0))
    model = tr.BoostedRanker(
        "LambdaMART", ensemble_size=2, subsample=0.7, engine_params={"linear_tree": True}
    )
    with pytest.raises(tr.InputError, match="ensemble_size > 1 needs linear_tree=False"):
        model.fit(np.nan_to_num(X), y, qid=qid)
