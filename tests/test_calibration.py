"""Calibrated scores: the map, its road through models and exports, thresholds and abstention."""

import json
import re
from typing import NamedTuple

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import twinrank as tr
from twinrank.deployment.vespa import calibrated
from twinrank.learning.models.score_map import ScoreMap, fit_map, numbers

SINGLE = st.floats(width=32, allow_nan=False)
INCREASING = st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=6, unique=True)
DENORMAL = np.float32(1e-45)


@pytest.fixture(scope="module")
def parts():
    return tr.synthetic_web_search(queries=90).split(0.5, 0.25)


@pytest.fixture(scope="module")
def ranker(parts):
    """Trees with a map for each target."""
    options = {"n_estimators": 8, "ensemble_size": 1, "n_jobs": 1, "random_state": 0}
    own = tr.BoostedRanker(**options).fit(parts[0], eval_set=parts[1], calibrate="probability")
    return own.calibrate(parts[1], target="grade")


def copy_of(ranker):
    own = type(ranker)(**ranker.get_params())
    own._adopt(ranker.model_)
    return own


# The map


def slow_map(own, score):
    """The piecewise-linear part, by its definition."""
    x, y = own.scores.tolist(), own.values.tolist()
    if score <= x[0]:
        return y[0]
    for i in range(1, len(x)):
        if score <= x[i]:
            return y[i - 1] + (y[i] - y[i - 1]) * (score - x[i - 1]) / (x[i] - x[i - 1])
    return y[-1]


@given(
    scores=st.lists(SINGLE, min_size=1, max_size=30),
    knots=INCREASING,
    rises=st.lists(st.sampled_from([0.0, 1e-300, 1e-9, 0.1, 1.0, 7.0]), min_size=6, max_size=6),
    shifts=st.sampled_from([(), (0.3, -2.0, 1e6, 0.5)]),
)
@settings(max_examples=150, deadline=None)
def test_the_map_is_strictly_increasing(scores, knots, rises, shifts):
    values = np.cumsum(rises[: len(knots)])
    own = ScoreMap("grade", np.sort(np.array(knots, np.float64)), values, 1.0, shifts)
    with np.errstate(over="ignore"):
        near = np.nextafter(np.float32([*knots, *scores]), np.float32(np.inf))
    extremes = [np.inf, -np.inf, 0.0, -0.0, DENORMAL, -DENORMAL, 3.4e38]
    s = np.array([*scores, *knots, *near, *extremes], np.float32)
    s = s[~np.isnan(s)]
    mapped = own(s, tr.Lists.from_sizes([s.size]))
    assert mapped.dtype == np.float64
    assert np.array_equal(np.argsort(mapped, kind="stable"), np.argsort(s, kind="stable"))
    assert np.unique(mapped).size == np.unique(s).size
    assert (mapped >= 0).all()
    assert (mapped <= own.span).all()
    if not shifts:
        expected = [slow_map(own, float(x)) for x in s]
        assert mapped == pytest.approx(expected, abs=2e-6 * own.span)


def test_floats_are_numbered_in_their_order():
    ordered = np.array([-np.inf, -1, -DENORMAL, 0, DENORMAL, 2 * DENORMAL, 1, np.inf], np.float32)
    found = numbers(ordered)
    assert (np.diff(found) > 0).all()
    assert np.diff(found)[2:5].tolist() == [1, 1, 1]
    assert found[0] >= 0
    assert found[-1] < 2**32


def test_a_map_learns_a_known_probability():
    random = np.random.default_rng(0)
    s = random.normal(size=40_000).astype(np.float32)
    true = 1 / (1 + np.exp(2 - 1.5 * s.astype(float)))
    y = (random.random(s.size) < true).astype(float)
    lists = tr.Lists.from_sizes([40] * 1000)
    own = fit_map(s, y, lists, "probability")
    assert np.abs(own(s) - true).mean() < 0.01
    weights = np.where(y > 0, 3.0, 1.0)  # as if relevant documents were there three times
    weighted = fit_map(s, y, lists, "probability", weights=weights)
    odds = 3 * true / (3 * true + 1 - true)
    assert np.abs(weighted(s) - odds).mean() < 0.015


def test_a_map_with_features_of_queries_is_better_on_queries_of_different_difficulty():
    random = np.random.default_rng(1)
    level = np.repeat(random.normal(size=300), 40)
    s = (random.normal(size=level.size) + 5 * level).astype(np.float32)
    true = 1 / (1 + np.exp(2 - 1.5 * (s - 5 * level)))  # a query's mean score says nothing
    y = (random.random(s.size) < true).astype(float)
    lists = tr.Lists.from_sizes([40] * 300)
    plain = fit_map(s, y, lists, "probability")
    own = fit_map(s, y, lists, "probability", query_features=True)
    errors = [np.abs(each(s, lists) - true).mean() for each in (plain, own)]
    assert errors[1] < 0.35 * errors[0]
    with pytest.raises(tr.InputError, match="pass its documents together"):
        own(s)
    with pytest.raises(tr.InputError, match="leave out query_features"):
        fit_map(-s, y, lists, "probability", query_features=True)


@pytest.mark.parametrize(
    ("labels", "target", "message"),
    [
        ([0] * 40, "probability", "all are below grade 1"),
        ([2] * 40, "probability", "all are relevant"),
        ([2] * 40, "grade", "all are grade 2"),
        ([0, 1] * 5 + [-1] * 30, "grade", "20 judged documents or more, not 10"),
        ([0, 1] * 20, "chance", "Unknown target 'chance'"),
    ],
)
def test_data_that_cannot_calibrate(labels, target, message):
    with pytest.raises(tr.InputError, match=message):
        fit_map(np.arange(40), labels, tr.Lists.from_sizes([40]), target)


# Rankers


def test_grades_and_probabilities_keep_the_order(ranker, parts):
    test = parts[2]
    scores = ranker.predict(test)
    for output in ("grade", "probability"):
        values = ranker.predict(test, output=output)
        assert values.dtype == np.float64
        assert np.array_equal(np.argsort(values, kind="stable"), np.argsort(scores, kind="stable"))
        assert tr.evaluate(values, test.y, test.lists, ["nDCG", "AP"]).means == (
            tr.evaluate(scores, test.y, test.lists, ["nDCG", "AP"]).means
        )
    p, g = (ranker.predict(test, output=o) for o in ("probability", "grade"))
    assert abs(p.mean() - (test.y >= 1).mean()) < 0.05
    assert abs(g.mean() - test.y.mean()) < 0.1
    with pytest.raises(tr.InputError, match=r"Unknown output 'grades'\. Did you mean 'grade'"):
        ranker.predict(test, output="grades")


def test_fit_calibrates_on_the_evaluation_set(ranker, parts):
    again = copy_of(ranker).calibrate(parts[1])
    assert np.array_equal(
        again.predict(parts[2], output="probability"),
        ranker.predict(parts[2], output="probability"),
    )
    plain = tr.BoostedRanker(n_estimators=2, ensemble_size=1)
    with pytest.raises(tr.InputError, match="pass eval_set or eval_fraction"):
        plain.fit(parts[0], calibrate="grade")
    for wrong in ("probabilty", "grade(x=1)", {"level": 2}, 3):
        with pytest.raises(tr.InputError, match=r"calibrate|option of grade"):
            plain.fit(parts[0], eval_fraction=0.2, calibrate=wrong)
    plain.fit(parts[0], eval_fraction=0.3, calibrate={"target": "probability", "relevant": 2})
    assert plain.model_.calibration["probability"].relevant == 2
    with pytest.raises(tr.InputError, match="not calibrated for grade, only for probability"):
        plain.predict(parts[2], output="grade")


def test_a_net_and_a_blend(parts, tmp_path):
    small = tr.Ranker(architecture="Small(width=4)", epochs=1, ensemble_size=1, random_state=0)
    small.fit(parts[0], eval_set=parts[1], calibrate="grade", run=tmp_path / "run")
    values = small.predict(parts[2], output="grade")
    saved = tr.load_model(tmp_path / "run")
    assert np.array_equal(saved.predict(parts[2], output="grade"), values)
    trees = {"a": tr.BoostedRanker(n_estimators=2, ensemble_size=1)}
    trees["b"] = tr.BoostedRanker(n_estimators=2, ensemble_size=1, objective="AP")
    blend = tr.Blend(trees).fit(parts[0], eval_set=parts[1])
    blend.calibrate(parts[1]).save(tmp_path / "blend")
    found = tr.load_model(tmp_path / "blend").predict(parts[2], output="probability")
    assert np.array_equal(found, blend.predict(parts[2], output="probability"))


def test_cross_fitting_does_not_believe_scores_of_training_data(parts):
    train, _, test = parts
    train = train.select(slice(20))
    options = {"n_estimators": 15, "ensemble_size": 1, "n_jobs": 1, "num_leaves": 63}
    ranker = tr.BoostedRanker(**options).fit(train)
    errors = {}
    for folds in (None, 2):
        p = ranker.calibrate(train, cross_fit=folds).predict(test, output="probability")
        errors[folds] = tr.evaluate_calibration(p, test.y, test.lists).error
    assert errors[2] < 0.7 * errors[None]
    with pytest.raises(tr.InputError, match="cross_fit=1000 needs as many queries"):
        ranker.calibrate(train, cross_fit=1000)


def test_queries_are_needed_for_features_of_queries(ranker, parts, tmp_path):
    test = parts[2]
    options = {"transforms": "none", "n_estimators": 3, "ensemble_size": 1}
    own = tr.BoostedRanker(**options).fit(parts[0]).calibrate(parts[1], query_features=True)
    with pytest.raises(tr.InputError, match=r"query_features.*pass qid or group"):
        own.predict(test.X, output="probability")
    p = own.predict(test.X, qid=test.qid, output="probability")
    assert np.array_equal(p, own.predict(test, output="probability"))
    scores = own.predict(test)
    for rows in test.lists:
        order = np.argsort(scores[rows], kind="stable")
        assert np.array_equal(np.argsort(p[rows], kind="stable"), order)


def test_labels_of_clicks_have_no_probability(ranker, parts):
    log = tr.simulate_clicks(parts[1], impressions=5000)
    with pytest.raises(tr.InputError, match="calibrate for the target grade"):
        copy_of(ranker).calibrate(log.to_dataset(tr.estimate_propensities(log)))


# Saving and exports


def test_a_calibrated_model_is_saved_and_damage_is_noticed(ranker, parts, tmp_path):
    ranker.save(tmp_path / "model")
    own = tr.load_model(tmp_path / "model")
    for output in ("score", "grade", "probability"):
        expected = ranker.predict(parts[2], output=output)
        assert np.array_equal(own.predict(parts[2], output=output), expected)
    path = tmp_path / "model" / "calibration.json"
    content = path.read_text()
    path.write_text(content.replace("probability", "probabilitx"))
    with pytest.raises(tr.InputError, match=r"calibration\.json is damaged"):
        tr.load_model(tmp_path / "model")
    path.unlink()
    with pytest.raises(tr.InputError, match=r"no calibration\.json"):
        tr.load_model(tmp_path / "model")


@pytest.mark.parametrize(
    "change",
    [
        {"scores": [1, 0]},
        {"values": [0.5, 0.1]},
        {"values": [0.5, 1.5]},
        {"values": [float("nan"), 1]},
        {"scores": [0]},
        {"shifts": [1]},
        {"target": "x"},
        {"relevant": "two"},
        {"scores": None},
    ],
)
def test_maps_that_nobody_saved(change):
    good = {"target": "probability", "scores": [0, 1], "values": [0.1, 0.5]}
    good |= {"relevant": 1, "shifts": []}
    assert ScoreMap.from_json(good)(np.float32([0.5]))[0] == pytest.approx(0.3, abs=1e-6)
    with pytest.raises(tr.InputError, match="A calibration is damaged"):
        ScoreMap.from_json({**good, **change})


def test_a_model_without_calibration_has_the_files_of_before(parts, tmp_path):
    plain = tr.BoostedRanker(n_estimators=2, ensemble_size=1).fit(parts[0])
    plain.save(tmp_path / "model")
    assert not (tmp_path / "model" / "calibration.json").exists()
    assert "calibration" not in json.loads((tmp_path / "model" / "config.json").read_text())
    with pytest.raises(tr.InputError, match=r"not calibrated. Call ranker.calibrate\(data, target"):
        tr.load_model(tmp_path / "model").predict(parts[2], output="grade")


def test_onnx_has_the_values(ranker, parts, tmp_path):
    own = copy_of(ranker).calibrate(parts[1], target="grade", query_features=True)
    own.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [output.name for output in session.get_outputs()] == ["scores", "probability", "grade"]
    query = parts[2].select([3])
    _, *found = session.run(None, {"X": query.X})
    for name, values in zip(("probability", "grade"), found, strict=True):
        assert values == pytest.approx(own.predict(query, output=name), abs=1e-4)


def test_vespa_gets_the_map_and_others_say_that_they_lack_it(parts, tmp_path):
    options = {"mode": "per-document", "n_estimators": 4, "ensemble_size": 1}
    own = tr.BoostedRanker(**options).fit(parts[0]).calibrate(parts[1])
    assert own.export(tmp_path / "vespa", "vespa").notes == ()
    profile = (tmp_path / "vespa" / "vespa.profile").read_text()
    assert profile.count("{") == profile.count("}")
    assert "    summary-features {\n        probability\n    }" in profile
    expression = re.search(r"probability\(\) \{\n *expression: (.*)\n", profile)[1]
    assert expression == calibrated(own.model_.calibration["probability"])
    python = expression.replace("if (", "choose(")
    values = (own.predict(parts[2], output=output)[:100] for output in ("score", "probability"))
    for score, p in zip(*values, strict=True):
        known = {"ranker_score": float(score), "choose": lambda c, a, b: a if c else b}
        assert eval(python, known) == pytest.approx(p, abs=2e-6)
    (note,) = own.export(tmp_path / "ranklib", "ranklib").notes
    assert "not the calibrated probability" in note
    per_query = own.calibrate(parts[1], query_features=True)
    assert "Vespa cannot hold the map" in per_query.export(tmp_path / "v2", "vespa").notes[-1]


# Evaluation, thresholds, abstention


def test_the_calibration_error_by_hand():
    p = [0.1, 0.1, 0.2, 0.2, 0.8, 0.9, 0.7]
    y = [0, 1, 0, 0, 2, 1, -1]
    found = tr.evaluate_calibration(p, y, bins=3)
    assert found.documents.tolist() == [2, 2, 2]
    assert found.predicted == pytest.approx([0.1, 0.2, 0.85])
    assert found.observed.tolist() == [0.5, 0, 1]
    assert found.error == pytest.approx((0.4 + 0.2 + 0.15) / 3)
    assert found.squared_error == pytest.approx((0.01 + 0.81 + 0.08 + 0.04 + 0.01) / 6)
    assert found.auc == roc_auc_score([0, 1, 0, 0, 1, 1], p[:6])
    assert found.by_grade[2.0] == (1, 0.8)
    grades = tr.evaluate_calibration(p, y, target="grade", bins=1)
    assert grades.error == pytest.approx(abs(2.3 - 4) / 6)
    assert json.loads(json.dumps(found.to_json()))["error"] == found.error
    for wrong, message in (([1.5] * 7, "calibrate the ranker"), ([0.5], "one value per")):
        with pytest.raises(tr.InputError, match=message):
            tr.evaluate_calibration(wrong, y)


def test_perfect_predictions_have_the_error_that_is_called_noise():
    random = np.random.default_rng(0)
    errors, noises = [], []
    for _ in range(30):
        p = random.random(2000)
        found = tr.evaluate_calibration(p, random.random(2000) < p)
        errors.append(found.error)
        noises.append(found.noise)
    assert np.mean(errors) == pytest.approx(np.mean(noises), rel=0.1)


def test_a_threshold_is_the_lowest_that_yields_the_precision():
    random = np.random.default_rng(2)
    sizes = random.integers(1, 12, 60)
    lists, p = tr.Lists.from_sizes(sizes), np.round(random.random(sizes.sum()), 2)
    y = (random.random(p.size) < p).astype(float)
    y[random.random(p.size) < 0.1] = -1
    judged = y >= 0
    for wanted in (0.5, 0.7, 0.9):
        found = tr.threshold_for_precision(p, y, lists, wanted)
        rates = {t: (y[judged & (p >= t)] > 0).mean() for t in np.unique(p[judged])}
        assert found.value == min(t for t, rate in rates.items() if rate >= wanted)
        assert found.precision == pytest.approx(rates[found.value])
        shown = judged & (p >= found.value)
        assert found.documents == shown.sum()
        assert found.recall == pytest.approx((y[shown] > 0).sum() / (y > 0).sum())
        assert found.answered == pytest.approx(np.mean([shown[rows].any() for rows in lists]))
        assert found.interval[0] < found.precision < found.interval[1]
        assert found.value_interval[0] <= found.value
    safe = tr.threshold_for_precision(p, y, lists, 0.7, guarantee=True)
    assert safe.interval[0] >= 0.7
    assert safe.value >= tr.threshold_for_precision(p, y, lists, 0.7).value
    with pytest.raises(tr.InputError, match="No threshold has precision 1: at most"):
        tr.threshold_for_precision(p, y, lists, 1.0, guarantee=True)
    with pytest.raises(tr.InputError, match="between 0 and 1"):
        tr.threshold_for_precision(p, y, lists, 90)


def test_the_interval_of_a_precision_covers_the_truth():
    random = np.random.default_rng(3)
    lists, inside = tr.Lists.from_sizes([10] * 80), 0
    for seed in range(40):
        p = np.repeat([0.3, 0.8], [400, 400])
        p = random.permutation(p)
        y = (random.random(800) < p).astype(float)
        found = tr.threshold_for_precision(p, y, lists, 0.55, random_state=seed)
        inside += found.interval[0] <= (0.8 if found.value > 0.5 else 0.55) <= found.interval[1]
    assert inside >= 36


def test_risk_and_coverage_by_hand(tmp_path):
    lists = tr.Lists.from_sizes([2, 3, 1, 2])
    p, y = [0.9, 0.2, 0.4, 0.6, 0.1, 0.3, 0.8, 0.7], [0, 1, 0, 2, 0, 0, 1, 0]
    curve = tr.risk_coverage(p, y, lists)  # the first documents: wrong, right, wrong, right
    assert curve.confidence.tolist() == [0.9, 0.8, 0.6, 0.3]
    assert curve.risk == pytest.approx([1, 1 / 2, 1 / 3, 1 / 2])
    assert curve.at(0.75) == (0.6, pytest.approx(1 / 3))
    assert curve.area == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert curve.to_json()["curve"][0] == {"coverage": 1.0, "threshold": 0.3, "risk": 0.5}
    with pytest.raises(tr.InputError, match="DCG@2 has values above 1; choose a measure from 0"):
        tr.risk_coverage(p, y, lists, measure="DCG@2")
    curve.draw(tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text().startswith("<?xml")


# The command line


class Result(NamedTuple):
    code: int
    out: str
    err: str


def test_the_commands_work_together(cli, parts, tmp_path, ranker):
    def run(*words):
        return Result(*cli(*words))

    for name, part in zip(("train", "valid", "test"), parts, strict=True):
        part.save(tmp_path / f"{name}.txt")
    model, test, valid = tmp_path / "run", tmp_path / "test.txt", tmp_path / "valid.txt"
    options = ["--trees", "--epochs", "3", "--set", "ensemble_size=1", "--out", model]
    options += ["--calibrate", "probability(relevant=2)"]
    assert run("train", tmp_path / "train.txt", "--valid", valid, *options).code == 0
    asked = run("predict", model, test, "--target", "probability", "-o", "-")
    loaded = tr.load_model(model)
    expected = loaded.predict(tr.load(test), output="probability")
    assert np.array_equal(np.array(asked.out.split(), float), expected)
    refused = run("predict", model, test, "--target", "grade", "-o", "-")
    assert refused.code == 2
    assert "twinrank calibrate MODEL DATA --target grade" in refused.err
    for command in ("predict", "threshold"):
        assert "Unknown --target 'prob'" in run(command, model, test, "--target", "prob").err
    assert "grade, " in run("calibrate", model, valid, "--target", "grade").out
    assert sorted(tr.load_model(model).model_.calibration) == ["grade", "probability"]
    content = json.loads(run("evaluate", model, test, "--json").out)
    own = tr.evaluate_calibration(expected, parts[2].y, parts[2].lists, relevant=2)
    assert content["calibration"]["run"]["probability"]["error"] == pytest.approx(own.error)
    drawn = run("evaluate", model, test, "--plot", tmp_path / "reliability.png")
    assert "Calibration" in drawn.out
    assert f"Drawn to {tmp_path / 'reliability.png'}" in drawn.err
    assert (tmp_path / "reliability.png").stat().st_size > 5000
    cut = json.loads(run("threshold", model, test, "--precision", "0.2", "--json").out)
    assert cut["threshold"]["precision"] >= 0.2
    assert cut["coverage"]["measure"] == "P(rel=2)@1"
    drawn = run("threshold", model, test, "--plot", tmp_path / "a.svg")
    assert drawn.code == 0
    assert (tmp_path / "a.svg").exists()
    ranker.save(tmp_path / "other")
    report = ["--report", tmp_path / "report.html"]
    assert run("evaluate", model, tmp_path / "other", test, *report).code == 0
    assert "Reliability: probability" in (tmp_path / "report.html").read_text()


def test_infinite_scores_calibrate_with_features_of_queries():
    generator = np.random.default_rng(0)
    labels, lists = generator.integers(0, 2, 200), tr.Lists.from_sizes([10] * 20)
    scores = (labels + generator.normal(size=200)).astype(np.float32)
    scores[labels.argmax()] = np.inf
    largest = np.where(np.isinf(scores), np.finfo(np.float32).max, scores)
    maps = [
        fit_map(s, labels, lists, "probability", query_features=True) for s in (scores, largest)
    ]
    assert maps[0].to_json() == maps[1].to_json()


def test_values_that_are_no_numbers_are_named():
    lists = tr.Lists.from_sizes([2])
    for changes, message in (
        ({"predictions": ["a", "b"]}, "predictions must be an array of numbers"),
        ({"labels": [0, np.nan]}, "labels must be numbers, not NaN"),
        ({"relevant": "a"}, "relevant must be a positive number"),
    ):
        own = {"predictions": [0.1, 0.9], "labels": [0, 1], "lists": lists, **changes}
        with pytest.raises(tr.InputError, match=message):
            tr.evaluate_calibration(**own)
        with pytest.raises(tr.InputError, match=message):
            tr.threshold_for_precision(**own, precision=0.5)
    with pytest.raises(tr.InputError, match="precision must lie between 0 and 1, not"):
        tr.threshold_for_precision([0.1, 0.9], [0, 1], lists, precision="0.9")


@pytest.mark.parametrize("kind", ["trees", "blend"])
def test_resuming_a_finished_run_keeps_its_calibration(parts, tmp_path, kind):
    def own(rounds):
        trees = tr.BoostedRanker(n_estimators=rounds, ensemble_size=1, n_jobs=1)
        return trees if kind == "trees" else tr.Blend({"a": trees, "b": clone(trees)})

    run = {"eval_set": parts[1], "run": tmp_path / "run"}
    own(3).fit(parts[0], **run).calibrate(parts[1]).save(tmp_path / "run" / "model")
    maps = tr.load_model(tmp_path / "run").model_.calibration
    again = own(3).fit(parts[0], resume=True, **run)
    assert again.model_.calibration.keys() == {"probability"}
    kept = tr.load_model(tmp_path / "run").model_.calibration
    assert kept["probability"].to_json() == maps["probability"].to_json()
    if kind == "trees":
        with pytest.warns(tr.DataWarning, match="training has changed the model"):
            own(5).fit(parts[0], resume=True, **run)
        assert not tr.load_model(tmp_path / "run").model_.calibration
        for rounds, calibrate in ((6, "probability"), (7, "probability")):  # warnings would fail
            own(rounds).fit(parts[0], resume=True, calibrate=calibrate, **run)
        assert tr.load_model(tmp_path / "run").model_.calibration.keys() == {"probability"}
        with pytest.warns(tr.DataWarning, match="calibration of probability in .* is deleted"):
            own(8).fit(parts[0], resume=True, calibrate="grade", **run)


def test_what_cannot_calibrate_is_refused_before_training(parts, tmp_path):
    train, validation, _ = parts
    ranker = tr.BoostedRanker(n_estimators=2, n_jobs=1)
    clicks = tr.simulate_clicks(validation, impressions=500).to_dataset([1.0] * 10)
    for eval_set, calibrate, message in (
        (clicks, "probability", "Labels estimated from clicks"),
        (validation, "probability(relevant=9)", "documents of different relevance"),
    ):
        with pytest.raises(tr.InputError, match=message):
            ranker.fit(train, eval_set=eval_set, calibrate=calibrate, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_copies_ignore_the_name_of_the_evaluation_set(parts):
    train, validation, _ = parts
    train = train.select(slice(20))
    ranker = tr.BoostedRanker(select="dev", n_estimators=2, ensemble_size=1, n_jobs=1)
    ranker.fit(train, eval_set={"dev": validation}).calibrate(train, cross_fit=2)
    assert ranker.model_.calibration
    student = ranker.distill(train, eval_set=validation, cv=2, max_trees=2)
    assert student.booster_.num_trees() <= 2
