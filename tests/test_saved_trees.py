"""Trees with random data and parameters: what is saved can be loaded, and scores the same.

Resumed trainings give the same trees, and damaged files never end or stop the process.
"""

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.base import clone

import twinrank as tr
from twinrank.learning.boosting.lightgbm_engine import from_bytes as read_lightgbm
from twinrank.learning.boosting.xgboost_engine import from_bytes as read_xgboost
from twinrank.learning.training import run_folder
from twinrank.training import Callback, TrainingInterrupted

onnxruntime = pytest.importorskip("onnxruntime")

ENGINES = ("lightgbm", "xgboost")
QUERIES, DOCUMENTS = 30, 12
NO_TREE = "No tree could be grown"
READERS = {"lightgbm": read_lightgbm, "xgboost": read_xgboost}


@pytest.fixture(autouse=True)
def _without_curves(monkeypatch):
    """Plots take most of the time of a small run."""
    monkeypatch.setattr(run_folder, "draw_history", lambda *_: None)


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


class InterruptAfter(Callback):
    """Interrupts training after a round."""

    def __init__(self, iteration):
        self.iteration = iteration

    def on_iteration_end(self, trainer, record):
        if record["iteration"] == self.iteration:
            trainer.interrupted = True


def random_case(seed, engine):
    """A ranker with random parameters, and its data."""
    random = np.random.default_rng(seed)
    X, y, qid = table(random)
    model = ranker(engine, random, bool(random.random() < 0.3))
    return model, tr.Dataset.from_arrays(X, y, qid=qid, non_finite="keep")


def check(seed, engine, folder):
    """Fit, save, load, export and resume; return False if no tree could be grown."""
    model, data = random_case(seed, engine)
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
    check_resumed(model, data, seed, folder)
    return True


def check_resumed(model, data, seed, folder):
    """A training that is interrupted after a random round and resumed gives the same trees."""
    rounds = model.get_params()["n_estimators"]
    stop = InterruptAfter(int(np.random.default_rng(seed).integers(1, rounds + 1)))
    with suppress(TrainingInterrupted):  # after the last round there is nothing to interrupt
        clone(model).fit(data, run=folder / "run", callbacks=[stop])
    resumed = clone(model).fit(data, run=folder / "run", resume=True)
    assert resumed.model_.trees.to_bytes() == model.model_.trees.to_bytes()
    assert np.array_equal(resumed.predict(data), model.predict(data))


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


def test_trees_of_dart_are_not_kept_while_they_are_dropped():
    """LightGBM negates dropped trees, and drops some whenever the training scores are read."""
    X, y, qid = table(np.random.default_rng(0))
    own = {"boosting": "dart", "drop_rate": 1.0, "skip_drop": 0.0, "min_data_in_leaf": 1}
    model = tr.BoostedRanker(n_estimators=3, ensemble_size=1, engine_params=own)
    model.fit(np.nan_to_num(X), y, qid=qid)
    text = model.model_.trees.to_bytes().decode()
    assert "shrinkage=" in text
    assert "shrinkage=-" not in text


def test_dart_grows_the_same_trees_again():
    """LightGBM reads memory that it has not initialised, unless we read the scores first."""
    X, y, qid = table(np.random.default_rng(0))
    own = {"boosting": "dart", "drop_rate": 0.5, "min_data_in_leaf": 1}
    model = tr.BoostedRanker(n_estimators=4, ensemble_size=1, engine_params=own)
    texts = {model.fit(np.nan_to_num(X), y, qid=qid).model_.trees.to_bytes() for _ in range(10)}
    assert len(texts) == 1


def test_linear_trees_do_not_grow_in_parallel():
    """LightGBM would end the process."""
    X, y, qid = table(np.random.default_rng(0))
    model = tr.BoostedRanker(
        "LambdaMART", ensemble_size=2, subsample=0.7, engine_params={"linear_tree": True}
    )
    with pytest.raises(tr.InputError, match="ensemble_size > 1 needs linear_tree=False"):
        model.fit(np.nan_to_num(X), y, qid=qid)


# Damaged files. Engines trust their files: without a check, many of these end the process.

NUMBER = re.compile(rb"-?\b[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?")
STRANGE = (
    *(b"-1", b"0", b"1", b"nan", b"inf", b"-inf", b"99e308", b"1e300", b"null", b"x", b""),
    *(b"%d" % (sign * 2**power + more) for power in (15, 31, 32, 63, 64)
      for sign in (1, -1) for more in (-1, 0, 1)),
)  # fmt: skip


def mutated(content, random):
    """A file with one or a few random changes."""
    for _ in range(int(random.choice([1, 1, 1, 3]))):
        content = MUTATIONS[random.integers(len(MUTATIONS))](content, random)
    return content


def flip_bits(content, random):
    changed = bytearray(content)
    for place in random.integers(0, len(changed), random.integers(1, 4)) if changed else ():
        changed[place] ^= 1 << int(random.integers(8))
    return bytes(changed)


def change_lines(content, random):
    """Drop, double or swap lines; XGBoost's file has none, but commas."""
    mark = b"\n" if content.count(b"\n") > 5 else b","
    lines = content.split(mark)
    first, second = (int(i) for i in random.integers(0, len(lines), 2))
    change = random.integers(3)
    if change == 0:
        del lines[first]
    elif change == 1:
        lines.insert(second, lines[first])
    else:
        lines[first], lines[second] = lines[second], lines[first]
    return mark.join(lines)


def change_number(content, random):
    numbers = list(NUMBER.finditer(content))
    if not numbers:
        return content
    chosen = numbers[random.integers(len(numbers))]
    return content[: chosen.start()] + random.choice(STRANGE) + content[chosen.end() :]


def truncate(content, random):
    return content[: random.integers(0, len(content) + 1)]


MUTATIONS = (flip_bits, change_lines, change_number, change_number, truncate)


def trained(seed, engine):
    """A model with random parameters, without transforms, and features for it."""
    model, data = random_case(seed, engine)
    own = {"transforms": "none", "objective": "nDCG", "num_leaves": 4, "learning_rate": 0.1}
    return model.set_params(**own).fit(data).model_, data.X


def read_mutated(engine, seeds):
    """Read files with random changes, and predict with those that are accepted.

    Each seed is printed before it is tried, so that the last one of a crash is known.
    """
    cases = [trained(case, engine) for case in range(8)]
    accepted = 0
    for seed in seeds:
        random = np.random.default_rng(seed)
        model, X = cases[seed % len(cases)]
        content = mutated(model.trees.to_bytes(), random)
        print(seed, flush=True)
        with suppress(tr.InputError):
            trees = READERS[engine](content, X.shape[1], tuple(model.encoding.columns))
            assert trees.predict(X, 1).shape == (len(X),)
            accepted += 1
            assert trees.contributions(X[:5], 1).shape[0] == 5
    print("accepted", accepted, flush=True)


def read_in_a_process(engine, seeds, seconds):
    """Run `read_mutated` in a process of its own, and return how many files were accepted."""
    code = f"import test_saved_trees as t; t.read_mutated({engine!r}, {seeds!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    last = done.stdout.split("\n")[-2:]
    assert done.returncode == 0, (done.returncode, last, done.stderr[-2000:])
    return int(done.stdout.split()[-1])


@pytest.mark.parametrize("engine", ENGINES)
def test_damaged_trees_are_refused_or_predict(engine):
    assert 0 < read_in_a_process(engine, range(150), 60) < 150


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_many_damaged_trees_are_refused_or_predict(engine):
    assert 0 < read_in_a_process(engine, range(1000, 9000), 900) < 8000


def test_predicting_imports_neither_matplotlib_nor_torch(tmp_path):
    """A serving image can leave them out."""
    data = tr.synthetic_web_search(queries=20)
    tr.BoostedRanker(n_estimators=2).fit(data).save(tmp_path / "model")
    code = (
        "import sys, numpy, twinrank\n"
        f"ranker = twinrank.load_model({str(tmp_path / 'model')!r})\n"
        "ranker.predict(numpy.zeros((3, ranker.n_features_in_)), group=[3])\n"
        "print([n for n in ('matplotlib', 'torch', 'polars', 'onnx') if n in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
