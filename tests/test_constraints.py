"""Objectives with constraints: notation, adapted weights, selection, verdicts, resumption."""

import json
from dataclasses import replace

import numpy as np
import pytest

import twinrank as tr
from twinrank.cli.promotion_gate import gate_result
from twinrank.core.measures.constraints import constrained, starting
from twinrank.learning.training.dual_ascent import DualAscent
from twinrank.learning.training.own_code import identities
from twinrank.learning.training.settings import Plan
from twinrank.training import Callback

GOAL = "nDCG(label=b)@5"
OBJECTIVE = f"{GOAL} subject to nDCG@5 >= current - 0.05"
TREES = {"n_estimators": 30, "learning_rate": 0.2, "num_leaves": 5, "ensemble_size": 1}
NET = {"epochs": 6, "architecture": "Small(width=8)", "ensemble_size": 2}


@pytest.fixture(scope="module")
def sets():
    """Two goals in conflict: the first wants feature 0 to be high, the second feature 1."""
    random = np.random.default_rng(1)
    X = random.normal(size=(1200, 3)).astype(np.float32)
    X[:, 1] -= X[:, 0]
    noisy = X[:, :2] + 0.5 * random.normal(size=(1200, 2))
    labels = {name: np.clip(np.rint(noisy[:, i] + 1), 0, 3) for i, name in enumerate("ab")}
    train, valid = tr.Dataset.from_arrays(X, group=[10] * 120, labels=labels).split(0.5)
    return train, valid


@pytest.fixture(scope="module")
def current(sets):
    return tr.BoostedRanker("nDCG@5", **TREES).fit(sets[0], eval_set=sets[1])


def measured(ranker, data, name):
    return tr.evaluate(ranker.predict(data), data.labels, data.lists, [name])[name]


# The notation


def test_the_notation():
    own = constrained(
        "AP  subject to nDCG(label=b)@5 ≥ current-0.01 and P@1 >= .30 and RR>=current"
    )
    assert str(own) == (
        "AP subject to nDCG(label=b)@5 >= current - 0.01 and P@1 >= 0.3 and RR >= current"
    )
    assert constrained(str(own)) == own
    for bound in ("1e-06", "0.1234567", "current - 1e-06", "current + 0.1234567"):
        own_bound = constrained(f"AP subject to RR >= {bound}")
        assert str(own_bound) == f"AP subject to RR >= {bound}"
        assert constrained(str(own_bound)) == own_bound
    assert constrained("AP subject to RR >= current − 0.1").constraints[0].bound == -0.1
    assert [c.relative for c in own.constraints] == [True, False, True]
    assert own.needs_current
    assert not constrained("AP subject to P@1 >= 0.3").needs_current
    assert constrained("AP") is None
    assert constrained(tr.measure("AP")) is None
    assert starting("AP") == "AP"
    two = constrained("0.5 * AP + 2 * RR subject to P@1 >= current + 0.1").weighted([3.0])
    assert str(two) == "0.125 * AP + 0.5 * RR + 0.75 * P@1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("AP subject to nDCG@5", "Can't read the constraint 'nDCG@5'. Write measure >= number"),
        ("AP subject to nDCG@5 >= old", "Can't read the constraint"),
        ("AP subject to nDCG@5 >= 0.1.2", "Can't read the constraint"),
        ("AP subject to nDCG@5 <= 0.3", "Can't read the constraint"),
        *(
            (f"AP subject to nDCG@5 >= {bound}", "Can't read the constraint")
            for bound in ("current / 2", "current x 0.9", "current 0.5", "current * 0.9")
        ),
        ("AP subject to nDGC@5 >= 0.3", "Did you mean 'nDCG'"),
        ("APP subject to nDCG@5 >= 0.3", "Did you mean 'AP'"),
        ("AP subject to P@1 >= 0.3 subject to RR >= 0.1", "'subject to' twice"),
        ("ListNet subject to P@1 >= 0.3", "Unknown measure 'ListNet'"),
    ],
)
def test_constraints_that_cannot_be_read(text, message):
    for ranker in (tr.BoostedRanker, tr.Ranker):
        with pytest.raises(tr.InputError, match=message):
            ranker(objective=text).check_parameters()


def test_names_in_constraints_are_no_code_of_the_user():
    for objective in (OBJECTIVE, "rank:ndcg", "AP subject to RR >= 0.1"):
        assert identities({"objective": objective}) == {}


def test_a_constraint_is_no_measure():
    message = "has constraints, which only the objective of a ranker can have"
    for use in (
        lambda: tr.measure(OBJECTIVE),
        lambda: tr.DirectLoss(OBJECTIVE),
        lambda: tr.lightgbm_objective(OBJECTIVE),
        lambda: tr.BoostedRanker(validation_measure=OBJECTIVE).check_parameters(),
        lambda: tr.evaluate([1.0, 2], [0, 1], tr.Lists.from_sizes([2]), [OBJECTIVE]),
    ):
        with pytest.raises(tr.InputError, match=message):
            use()


# The verdict


def test_the_verdict_follows_the_interval():
    lists = tr.Lists.from_sizes([2] * 200)
    labels, random = [1.0, 0.0] * 200, np.random.default_rng(0)
    old = random.normal(size=400)
    same = "RR subject to RR >= current"
    for change, slack, verdict in ((0, 0, "holds"), (0, 0.1, "fails"), (2.0, 0.0, "holds")):
        new = old + change * np.array(labels)
        objective = f"{same} + {slack}" if slack else same
        (check,) = tr.check_constraints(objective, new, labels, lists, old)
        assert check.verdict == verdict
        assert check.margin == pytest.approx(check.value - check.current - slack)
        assert check.low <= check.margin <= check.high
        assert check.queries == 200
    (check,) = tr.check_constraints(same, random.normal(size=400), labels, lists, old)
    assert check.verdict == "cannot be told"
    assert check.low < 0 < check.high
    (fixed,) = tr.check_constraints("AP subject to RR >= 0.2", old, labels, lists)
    assert (fixed.verdict, fixed.current) == ("holds", None)
    with pytest.raises(tr.InputError, match=r"^current: .* needs one entry per document"):
        tr.check_constraints(same, old, labels, lists, old[:3])
    with pytest.raises(tr.InputError, match="pass its scores as current"):
        tr.check_constraints(same, old, labels, lists)
    with pytest.raises(tr.InputError, match="has no constraints"):
        tr.check_constraints("RR", old, labels, lists)


# The weights


def test_weights_follow_the_margin():
    own = constrained("AP subject to P@1 >= 0.5 and RR >= current")
    dual = DualAscent(own, Plan(iterations=100, early_stopping=10), {"RR": np.full(4, 0.5)})
    far = {"P@1": np.array([0.0, 0.1, 0.0, np.nan]), "RR": np.array([0.9, 1.0, 0.9, 1.0])}
    assert dual.missed(far) == pytest.approx(0.5 - 0.1 / 3)
    dual.update(far)
    assert dual.weights == pytest.approx([np.exp(0.25), np.exp(-0.25)])  # 2.5 / patience
    near = {"P@1": np.array([0.4, 0.6, 0.5, np.nan]), "RR": np.array([0.4, 0.6, 0.5, 0.5])}
    fresh = DualAscent(own, Plan(iterations=100, early_stopping=10), {"RR": np.full(4, 0.5)})
    fresh.update(near)
    assert fresh.weights == pytest.approx([1, 1])
    dual.update(near)  # P@1 rises, so that it needs no more weight; RR falls
    assert dual.weights == pytest.approx([1, 1])
    for _ in range(60):
        dual.update(far)
    assert dual.weights == pytest.approx([50, 0.02])
    again = DualAscent(own, Plan(iterations=100, early_stopping=10), {"RR": np.full(4, 0.5)})
    again.restore(json.loads(json.dumps(dual.state())))
    for each in (dual, again):
        each.update(near)
    assert dual.weights == again.weights


# Rankers


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
def test_trees_keep_a_constraint(sets, current, engine):
    pytest.importorskip(engine)
    train, valid = sets
    ranker = tr.BoostedRanker(OBJECTIVE, engine=engine, **TREES)
    ranker.fit(train, eval_set=valid, current=current)
    (check,) = ranker.constraints_
    assert check.constraint == "nDCG@5 >= current - 0.05"
    assert check.data == "validation"
    assert check.value == pytest.approx(measured(ranker, valid, "nDCG@5"))
    assert check.current == pytest.approx(measured(current, valid, "nDCG@5"))
    assert check.margin >= 0
    assert check.verdict != "fails"
    assert ranker.best_score_ == pytest.approx(measured(ranker, valid, GOAL))
    assert ranker.best_score_ > measured(current, valid, GOAL)
    alone = tr.BoostedRanker(GOAL, engine=engine, **TREES, validation_measure=GOAL)
    alone.fit(train, eval_set=valid)
    assert measured(alone, valid, "nDCG@5") < check.current - 0.05  # the goals are in conflict
    history = ranker.history_
    assert history[0]["weights"] == {"nDCG@5 >= current - 0.05": 1}
    kept = history[ranker.best_iteration_ - 1]
    assert kept["validation"] == ranker.best_score_
    assert kept["goals"]["validation"]["nDCG@5"] == pytest.approx(check.value)


def test_a_net_and_a_blend_keep_a_constraint(sets, current):
    train, valid = sets
    given = {"eval_set": {"validation": valid, "train": train}, "current": current}
    objective = f"{GOAL} subject to nDCG@5 >= current - 0.1"
    net = tr.Ranker(objective, **NET).fit(train, **given)
    assert [check.data for check in net.constraints_] == ["validation", "train"]
    assert net.constraints_[0].value == pytest.approx(measured(net, valid, "nDCG@5"), abs=1e-6)
    assert len({record["weights"]["nDCG@5 >= current - 0.1"] for record in net.history_}) > 1
    rankers = {"trees": tr.BoostedRanker(objective, **TREES), "net": tr.Ranker(objective, **NET)}
    blend = tr.Blend(rankers).fit(train, **given)
    check = blend.constraints_[0]
    assert blend.selected_by == GOAL
    assert check.value == pytest.approx(measured(blend, valid, "nDCG@5"), abs=1e-6)
    assert check.margin >= 0
    best = max(
        own.best_score_ for own in blend.rankers_.values() if own.constraints_[0].margin >= 0
    )
    assert blend.best_score_ >= best - 1e-6
    rankers["net"] = tr.Ranker("AP", **NET)
    with pytest.raises(tr.InputError, match="need the same objective"):
        tr.Blend(rankers).fit(train, **given)


class _Stop(Callback):
    def __init__(self, at):
        self.at = at

    def on_iteration_end(self, trainer, record):
        trainer.interrupted = record["iteration"] == self.at


@pytest.mark.parametrize("kind", ["trees", "net"])
def test_a_resumed_training_continues_with_its_weights(sets, current, kind, tmp_path):
    train, valid = sets

    def made():
        more = {**TREES, "n_estimators": 12, "ensemble_size": 2}
        return (
            tr.BoostedRanker(OBJECTIVE, **more) if kind == "trees" else tr.Ranker(OBJECTIVE, **NET)
        )

    given = {"eval_set": valid, "current": current}
    whole = made().fit(train, **given)
    with pytest.raises(tr.training.TrainingInterrupted):
        made().fit(train, **given, run=tmp_path / "run", callbacks=[_Stop(4)])
    other = np.zeros(valid.documents)
    with pytest.raises(tr.InputError, match="The validation current has changed"):
        made().fit(train, eval_set=valid, current=other, run=tmp_path / "run", resume=True)
    resumed = made().fit(train, **given, run=tmp_path / "run", resume=True)
    drop = [{k: v for k, v in r.items() if k != "seconds"} for r in whole.history_]
    assert drop == [{k: v for k, v in r.items() if k != "seconds"} for r in resumed.history_]
    assert np.array_equal(whole.predict(valid), resumed.predict(valid))
    loaded = tr.load_model(tmp_path / "run")
    assert loaded.constraints_ == whole.constraints_
    assert loaded.objective == OBJECTIVE
    assert loaded.selected_by == GOAL


def test_the_current_ranker_may_be_scores(sets, current, tmp_path):
    train, valid = sets
    scores = current.predict(valid)
    current.save(tmp_path / "current")
    small = {**TREES, "n_estimators": 3}
    rows = np.random.default_rng(0).permutation(valid.documents)
    qid = np.repeat(np.arange(valid.queries), valid.lists.sizes)
    objective = "nDCG@3 subject to nDCG@5 >= current - 0.01"
    found = [
        tr.BoostedRanker(objective, **small)
        .fit(train, eval_set=held, current=given)
        .constraints_[0]
        .current
        for held, given in (
            (valid, current),
            (valid, tmp_path / "current"),
            (valid, scores),
            ({"validation": valid}, {"validation": scores}),
            ((valid.X[rows], valid.y[rows], qid[rows]), scores[rows]),
        )
    ]
    assert found == pytest.approx([found[0]] * 5, abs=1e-3)  # ties are ordered at random


def test_what_constraints_need(sets, current):
    train, valid = sets
    small = {**TREES, "n_estimators": 2}
    ranker = tr.BoostedRanker(OBJECTIVE, **small)
    for given, message in (
        ({"current": current}, "needs validation queries|needs an evaluation set"),
        ({}, "needs validation queries"),
        ({"eval_set": valid}, "compares with the current ranker: pass it"),
        ({"eval_set": valid, "current": np.zeros(3)}, r"current has shape \(3,\)"),
        ({"eval_set": valid, "current": {"test": np.zeros(3)}}, "current.*'test'"),
        ({"eval_set": {"a": valid, "b": valid}, "current": np.zeros(3)}, "scores by evaluation"),
    ):
        with pytest.raises(tr.InputError, match=message):
            ranker.fit(train, **given)
    ranker.fit(train, eval_set=valid, current=current)
    with pytest.raises(tr.InputError, match=r"^cross_fit trains copies .* without the current one"):
        ranker.calibrate(train, cross_fit=2)
    fixed = tr.BoostedRanker("AP subject to P@1 >= 0.1", **small).fit(train, eval_set=valid)
    assert fixed.calibrate(train, cross_fit=2).model_.calibration
    plain = tr.BoostedRanker("nDCG", **small)
    with pytest.raises(tr.InputError, match="current needs an objective with a constraint"):
        plain.fit(train, eval_set=valid, current=current)
    labels = {"a": valid.y, "b": np.zeros(valid.documents)}
    nothing = tr.Dataset.from_arrays(valid.X, group=valid.lists.sizes, labels=labels)
    other = "AP subject to nDCG(label=b) >= 0.1"
    with pytest.raises(tr.InputError, match=r"cannot check nDCG.* >= 0\.1: no query"):
        tr.BoostedRanker(other, **small).fit(train, eval_set=nothing)


def test_a_damaged_verdict_is_an_error(current):
    broken = replace(current.model_, provenance={"constraints": [{"verdict": 1}]})
    current.model_, own = broken, current.model_
    try:
        with pytest.raises(tr.InputError, match="constraints of the model are damaged"):
            _ = current.constraints_
    finally:
        current.model_ = own


def test_the_history_has_every_goal(sets):
    train, valid = sets
    text = "0.5 * nDCG@5 + 0.5 * nDCG(label=b)@5"
    for ranker in (tr.BoostedRanker(text, **TREES), tr.Ranker(text, **NET)):
        record = ranker.fit(train, eval_set=valid).history_[-1]
        goals = record["goals"]["validation"]
        assert set(goals) == {"nDCG(label=b)@5"}  # nDCG@5 is the validation measure
    own = tr.BoostedRanker(text, **TREES, validation_measure=text).fit(train, eval_set=valid)
    goals = own.history_[-1]["goals"]["validation"]
    assert 0.5 * sum(goals.values()) == pytest.approx(own.history_[-1]["validation"])


def test_a_search_takes_no_constraints(cli):
    code, _, err = cli("tune", "--trials", 1, "--model", "trees", "--fix", f"objective={OBJECTIVE}")
    assert code == 2
    assert "A search takes no constraints: search with the goal as objective" in err


def test_the_command_line(cli, sets, tmp_path):
    train, valid = sets
    train.save(tmp_path / "train.csv")
    valid.save(tmp_path / "valid.csv")
    columns = ["--label", "a", "--label", "b", "--valid", tmp_path / "valid.csv", "--trees"]
    small = [word for name in ("n_estimators=5", "ensemble_size=1") for word in ("--set", name)]
    words = ["train", tmp_path / "train.csv", *columns, *small]
    assert cli(*words, "--out", tmp_path / "old")[0] == 0
    words += ["--objective", OBJECTIVE, "--out", tmp_path / "new"]
    code, _, err = cli(*words)
    assert code == 2
    assert "pass it, or its scores of evaluation set 'validation', as --current" in err
    code, out, _ = cli(*words, "--current", tmp_path / "old")
    assert code == 0
    assert f"{GOAL} 0." in out
    assert "nDCG@5 >= current - 0.05 " in out
    assert "on validation: 0." in out
    code, _, err = cli(
        "calibrate", tmp_path / "new", tmp_path / "train.csv", *columns[:4], "--cross-fit", 2
    )
    assert code == 2
    assert "--cross-fit trains copies of the ranker without the current one" in err
    more = ["--current", tmp_path / "old", "--json"]
    code, out, _ = cli(*words[:-1], tmp_path / "again", *more)
    assert json.loads(out)["constraints"][0]["verdict"] in ("holds", "fails", "cannot be told")
    assert json.loads(out)["measure"] == GOAL


def test_the_gate_measures_the_goal(sets, current):
    train, valid = sets
    new = tr.BoostedRanker(OBJECTIVE, **TREES).fit(train, eval_set=valid, current=current)
    result = gate_result(current, new, valid)
    assert result["measure"] == GOAL
    assert result["new"] == pytest.approx(measured(new, valid, GOAL))
    assert result["passed"]  # although nDCG@5 is lower
