"""Trees that score each document alone: the mode per-document, and distillation into it."""

import json

import numpy as np
import pytest

import twinrank as tr
from twinrank.learning.estimators import distill
from twinrank.learning.estimators.distill import STUDENT, TEACHER, soft_labels


@pytest.fixture(scope="module")
def sets():
    return tr.synthetic_web_search(queries=60).split(0.7, random_state=0)


@pytest.fixture(scope="module")
def teacher(sets):
    return tr.BoostedRanker(n_estimators=20, ensemble_size=1).fit(sets[0])


def test_scores_do_not_depend_on_other_documents(sets):
    train, test = sets
    ranker = tr.BoostedRanker(mode="per-document", n_estimators=5).fit(train)
    order = np.random.default_rng(0).permutation(test.documents)[:50]
    np.testing.assert_array_equal(ranker.predict(test.X[order]), ranker.predict(test)[order])
    assert tr.BoostedRanker(mode="per-document").check_parameters()["transforms"] == "none"


def test_the_other_defaults_are_those_of_the_default_mode():
    own, usual = (tr.BoostedRanker(mode=m).check_parameters() for m in ("per-document", "default"))
    assert {name for name in usual if own[name] != usual[name]} == {"mode", "transforms"}


def test_the_engines_own_objectives_keep_their_defaults():
    own, usual = (
        tr.BoostedRanker("LambdaMART", mode=m).check_parameters()
        for m in ("per-document", "default")
    )
    assert {name for name in usual if own[name] != usual[name]} == {"mode"}


def test_transforms_within_a_query_are_refused(sets):
    ranker = tr.BoostedRanker(mode="per-document", transforms="none | QueryZScore")
    with pytest.raises(tr.InputError, match="depends on the other documents of a query"):
        ranker.fit(sets[0])
    tr.BoostedRanker(mode="per-document", transforms="SignedLog1p", n_estimators=2).fit(sets[0])


def test_soft_labels_by_hand():
    lists = tr.Lists.from_sizes([2, 1])
    share = 1 / (1 + np.exp(-1))
    labels = soft_labels([1.0, 3.0, 7.0], np.array([1, 0, 0]), lists)
    np.testing.assert_allclose(labels, [1 + 1 - share, share, 0.5])
    alone = soft_labels([1.0, 3.0, 7.0], np.array([-1, -1, -1]), lists)
    np.testing.assert_allclose(alone, [4 * (1 - share), 4 * share, 2])


@pytest.mark.parametrize("judged", [True, False])
def test_a_student_follows_its_teacher(sets, teacher, judged, tmp_path):
    train, test = sets
    data = train
    if not judged:
        data = tr.Dataset.from_arrays(train.X, group=train.lists.sizes, unjudged="keep")
    student = teacher.distill(data, test, max_trees=40, max_leaves=7)
    assert student.booster_.num_trees() <= 40
    means = student.distillation_.means
    chance = np.random.default_rng(0).random(test.documents)
    assert means[STUDENT]["nDCG@10"] > tr.measure("nDCG@10")(chance, test.y, test.lists).mean()
    assert means[TEACHER]["nDCG@10"] == pytest.approx(
        tr.evaluate(teacher.predict(test), test.y, test.lists)["nDCG@10"]
    )
    within = [
        np.corrcoef(student.predict(test)[rows], teacher.predict(test)[rows])[0, 1]
        for rows in test.lists
    ]
    assert np.mean(within) > 0.5
    done = student.export(tmp_path / "out", format="elasticsearch-ltr", data=test)
    assert done.trees == student.booster_.num_trees()


def test_copies_score_queries_that_they_have_not_seen(sets, monkeypatch):
    """The scores of a fold are those of a ranker that is trained on the others."""
    train, test = sets
    teacher = tr.BoostedRanker(n_estimators=5, ensemble_size=1, random_state=4).fit(train)
    part = np.random.default_rng(7).permutation(train.queries) % 2
    expected = np.empty(train.documents)
    for fold in (0, 1):
        copy = tr.BoostedRanker(n_estimators=5, ensemble_size=1, random_state=4 + fold)
        copy.fit(train.select(np.flatnonzero(part != fold)), eval_set=test)
        own = part[np.repeat(np.arange(train.queries), train.lists.sizes)] == fold
        expected[own] = copy.predict(train)[own]
    seen = []

    def kept(scores, labels, lists):
        seen.append(scores)
        return soft_labels(scores, labels, lists)

    monkeypatch.setattr(distill, "soft_labels", kept)
    student = teacher.distill(train, test, cv=2, max_trees=5, random_state=7)
    np.testing.assert_allclose(seen[0], expected, rtol=1e-6)
    assert np.abs(seen[0] - teacher.predict(train)).max() > 0.01
    assert student.booster_.num_trees() <= 5


def test_the_engine_is_the_teachers_unless_it_is_set(sets, teacher, tmp_path):
    pytest.importorskip("xgboost")
    train, test = sets
    assert teacher.distill(train, test, max_trees=3).engine == "lightgbm"
    student = teacher.distill(train, test, max_trees=3, max_leaves=5, engine="xgboost")
    done = student.export(tmp_path / "model.json", "xgboost", test)
    assert (done.trees, done.leaves <= 15) == (3, True)
    assert student.distill(train, test, max_trees=3).engine == "xgboost"


@pytest.mark.parametrize("kind", ["net", "blend", "xgboost", "ensemble"])
def test_limits_hold_for_every_teacher(sets, tmp_path, kind):
    train, test = sets
    fast = {"n_estimators": 4, "ensemble_size": 2}
    rankers = {
        "net": lambda: tr.Ranker(epochs=1, ensemble_size=1),
        "blend": lambda: tr.Blend(
            {"trees": tr.BoostedRanker(**fast), "net": tr.Ranker(epochs=1, ensemble_size=1)}
        ),
        "xgboost": lambda: tr.BoostedRanker(engine="xgboost", **fast),
        "ensemble": lambda: tr.BoostedRanker(**fast),
    }
    teacher = rankers[kind]().fit(train, eval_set=test)
    done = teacher.distill(train, test, max_trees=7, max_leaves=4).export(
        tmp_path / "out", "opensearch-ltr", test
    )
    assert 0 < done.trees <= 7
    assert done.leaves <= 4 * done.trees


def test_distilling_needs_judged_queries(sets, teacher):
    train = sets[0]
    data = tr.Dataset.from_arrays(train.X, group=train.lists.sizes, unjudged="keep")
    with pytest.raises(tr.InputError, match="no relevant document"):
        teacher.distill(data)
    with pytest.raises(tr.InputError, match=r"cv trains copies .* no relevant document"):
        teacher.distill(data, sets[1], cv=2)
    with pytest.raises(tr.InputError, match="cv must be a whole number of at least 2"):
        teacher.distill(train, sets[1], cv=1)
    with pytest.raises(tr.InputError, match="cv=99 needs as many queries, but there are 42"):
        teacher.distill(train, sets[1], cv=99)


def test_from_training_to_a_search_engine_on_the_command_line(cli, sets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, data in zip(("train.txt", "test.txt"), sets, strict=True):
        data.save(tmp_path / name)
    fast = ("--epochs", "4", "--quiet")
    cli("train", "train.txt", "--per-document", "--out", "plain", *fast)
    cli("export", "plain", "--format", "vespa", "--check", "test.txt")
    assert (tmp_path / "vespa" / "vespa.json").is_file()
    cli("train", "train.txt", "--trees", "--out", "usual", *fast)
    options = ("--format", "solr", "--check", "test.txt", "--max-trees", "10")
    code, _, errors = cli("export", "usual", *options)
    assert (code, "need --distill" in errors) == (2, True)
    code, _, errors = cli("export", "usual", "--format", "solr")
    assert (code, "--per-document" in errors, "--distill" in errors) == (2, True, True)
    assert not (tmp_path / "solr").exists()
    code, out, errors = cli("export", "usual", "-o", "trees.joblib", "--distill", "train.txt")
    assert (code, "ends in .onnx or .txt" in errors, "round" in errors) == (2, True, False)
    code, out, errors = cli("export", "usual", "--format", "solor", "--distill", "train.txt")
    assert (code, "Did you mean 'solr'" in errors, "round" in errors) == (2, True, False)
    code, out, errors = cli("export", "usual", *options, "--distill", "train.txt", "--cv", "2")
    assert [line for line in errors.splitlines() if "opy" in line] == ["Copy 1 of 2", "Copy 2 of 2"]
    assert "Distilled trees\nround" in errors
    assert (code, "student" in out + errors, "too high" in errors) == (0, True, True)
    assert (tmp_path / "solr" / "model.json").is_file()
    options = ("--format", "vespa", "-o", "small", "--max-trees", "3", "--json")
    out = cli("export", "usual", *options, "--distill", "train.txt")[1]
    assert json.loads(out)["rows"] > sets[0].documents  # its rows are compared, too


@pytest.mark.parametrize("other", ["--paper", "--blend"])
def test_one_mode_at_a_time(cli, other):
    code, _, errors = cli("train", "--per-document", other)
    assert (code, f"remove {other}" in errors) == (2, True)
