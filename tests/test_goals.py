"""Several goals: sums of measures over columns of labels, from data to a trained ranker."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

import twinrank as tr
from twinrank.core.measures import MeasureSum
from twinrank.data.label_columns import label_array
from twinrank.learning.boosting.newton import Newton

SUM = "0.7 * nDCG(label=a)@3 + 0.3 * P(gain=linear, label=b)@2"
LISTS = tr.Lists.from_sizes([5, 4, 6])


@pytest.fixture
def case():
    random = np.random.default_rng(0)
    labels = {name: random.integers(0, 3, 15).astype(float) for name in "ab"}
    for column in labels.values():
        column[[0, 5, 9]] = 2  # every list counts for every goal
    return random.normal(size=15).astype(np.float32), labels


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(1)
    X = random.normal(size=(300, 4)).astype(np.float32)
    noisy = X[:, :2] + random.normal(size=(300, 2))
    labels = {name: np.clip(np.rint(noisy[:, i] + 1), 0, 3) for i, name in enumerate("ab")}
    return tr.Dataset.from_arrays(X, group=[10] * 30, labels=labels)


# The measure


def test_the_notation_of_sums():
    own = tr.measure(SUM)
    assert isinstance(own, MeasureSum)
    assert own.labels == ("a", "b")
    assert str(own) == "0.7 * nDCG(label=a)@3 + 0.3 * P(label=b, gain=linear)@2"
    assert tr.measure(str(own)) == own
    assert tr.measure("1 * nDCG@5") == tr.measure("nDCG@5")
    assert str(tr.measure("nDCG(label=a)")) == "nDCG(label=a)"
    assert str(tr.measure("nDCG + 2*AP@5")) == "1 * nDCG + 2 * AP@5"


@pytest.mark.parametrize("weight", ["1e+06", "1e6", "0.123456789", "1e-07", "1e+22", "2", "0.1"])
def test_weights_keep_their_digits(weight):
    own = tr.measure(f"{weight} * nDCG@5 + AP")
    assert own.goals[0].weight == float(weight)
    assert tr.measure(str(own)) == own


def test_weights_are_written_short():
    assert str(tr.measure("1e+06 * nDCG + 2.0 * AP+0.5*RR")) == "1000000 * nDCG + 2 * AP + 0.5 * RR"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nDCG@5 - AP", "Can't read 'nDCG@5 - AP'. Write a sum .* with weights above 0"),
        ("nDCG + ", "Write a sum as weight"),
        ("x * nDCG", "weights above 0"),
        ("0 * nDCG + P@5", "weights above 0"),
        ("0.5 * nDGC + P@5", "Did you mean 'nDCG'"),
    ],
)
def test_sums_that_cannot_be_read(text, message):
    with pytest.raises(tr.InputError, match=message):
        tr.measure(text)
    for ranker in (tr.BoostedRanker, tr.Ranker):
        with pytest.raises(tr.InputError, match=message):
            ranker(objective=text).check_parameters()


@pytest.mark.parametrize("text", ["nDCG + LambdaMART", "nDCG + ListNet"])
def test_a_measure_has_no_losses_as_terms(text):
    with pytest.raises(tr.InputError, match="is a sum, which takes measures with weights above 0"):
        tr.measure(text)


def test_a_sum_is_evaluated_with_its_terms(case):
    scores, labels = case
    found = tr.evaluate(scores, labels, LISTS, [SUM, "nDCG@3"])
    a = tr.evaluate(scores, labels["a"], LISTS, ["nDCG@3"]).values["nDCG@3"]
    b = tr.evaluate(scores, labels["b"], LISTS, ["P(gain=linear)@2"]).values["P(gain=linear)@2"]
    assert found.values[SUM] == pytest.approx(0.7 * np.nan_to_num(a) + 0.3 * np.nan_to_num(b))
    assert np.array_equal(found.values["nDCG(label=a)@3"], a, equal_nan=True)
    assert np.array_equal(found.values["P(label=b, gain=linear)@2"], b, equal_nan=True)
    assert np.array_equal(found.values["nDCG@3"], a, equal_nan=True)  # the first column is the main
    own = tr.measure(SUM)
    columns = np.column_stack([labels["a"], labels["a"], labels["b"]])
    ranks = tr.exact_ranks(scores, LISTS)
    assert own.at_ranks(ranks, columns, LISTS)[0] == pytest.approx(found.values[SUM])
    linear = tr.evaluate(
        scores, labels, LISTS, ["nDCG(label=a)@3"], convention="trec", ties="stable"
    )
    same = tr.evaluate(scores, labels["a"], LISTS, ["nDCG@3"], convention="trec", ties="stable")
    assert linear.means["nDCG(label=a)@3"] == same["nDCG@3"]


def test_a_list_without_one_goal_counts_for_the_other():
    lists = tr.Lists.from_sizes([2, 2, 2])
    labels = {"a": [1, 0, 0, 0, 0, 0], "b": [0, 1, 1, 0, 0, 0]}
    labels = {name: np.array(values, float) for name, values in labels.items()}
    scores = np.array([2.0, 1, 2, 1, 2, 1])
    text = "RR + 0.5 * RR(label=b)"
    found = tr.evaluate(scores, labels, lists, [text])
    assert np.array_equal(found.values[text], [1.25, 0.5, np.nan], equal_nan=True)
    assert found.empty_lists[text] == 1
    zero = tr.evaluate(scores, labels, lists, [text], empty="zero")
    assert zero.values[text].tolist() == [1.25, 0.5, 0]
    with pytest.raises(tr.InputError, match="1 of 3 lists have no relevant document"):
        tr.evaluate(scores, labels, lists, [text], empty="error")


def test_a_column_that_is_not_there(case, data):
    scores, labels = case
    with pytest.raises(tr.InputError, match="column of labels called 'c'"):
        tr.evaluate(scores, labels, LISTS, ["nDCG(label=c)"])
    with pytest.raises(tr.InputError, match="called 'a', but the data has a single one"):
        tr.evaluate(scores, labels["a"], LISTS, ["nDCG(label=a)"])
    with pytest.raises(tr.InputError, match=r"'c', which the data lacks; its columns: a, b"):
        tr.BoostedRanker("nDCG(label=c)", n_estimators=1).fit(data)


# The gradient


@pytest.mark.parametrize("strategy", ["type1", "type2", "type3"])
def test_a_goal_on_a_column_has_the_gradient_of_that_column(case, strategy):
    scores, labels = case
    columns = np.column_stack([labels["a"], labels["b"]])
    for name in ("nDCG@3", "AP", "P@2"):
        head, at, cutoff = name.partition("@")
        own = f"{head}(label=b){at}{cutoff}"
        found, expected = (
            _gradient(tr.DirectLoss(measure, strategy), scores, y)
            for measure, y in ((own, columns), (name, labels["b"]))
        )
        assert found == pytest.approx(expected, abs=1e-12)


def test_the_gradient_of_a_sum_is_that_of_its_definition(case):
    scores, labels = case
    columns = np.column_stack([labels["a"], labels["b"]])
    text = "0.7 * nDCG@3 + 0.3 * nDCG(gain=linear, label=b)"
    found = _gradient(tr.DirectLoss(text, "type1"), scores, columns)
    parts = [
        _gradient(tr.DirectLoss(measure, "type1"), scores, labels[name])
        for measure, name in (("nDCG@3", "a"), ("nDCG(gain=linear)", "b"))
    ]
    assert found == pytest.approx(0.7 * parts[0] + 0.3 * parts[1], abs=1e-12)
    # type3 compares what documents are worth: 0.7 · share of DCG@3 + 0.3 · share of DCG
    own = tr.measure(text)
    worth, g = np.zeros(15), np.zeros(15)
    for rows in LISTS:
        ranks = tr.exact_ranks(scores[rows], tr.Lists.from_sizes([rows.stop - rows.start]))
        for weight, y, k in ((0.7, 2.0 ** labels["a"][rows] - 1, 3), (0.3, labels["b"][rows], 99)):
            ideal = (np.sort(y)[::-1] / np.log2(2 + np.arange(y.size)))[:k].sum()
            worth[rows] += weight * y / ideal
            slope = 1 / (np.log(2) * (1 + ranks) * np.log2(1 + ranks) ** 2)
            g[rows] += weight * y / ideal * slope * (ranks <= k) / len(LISTS)
    assert own.order(columns, LISTS) == pytest.approx(worth)
    expected = np.zeros(15)
    for rows in LISTS:
        y, w, own_g = scores[rows].astype(float), worth[rows], g[rows]
        u = np.sign(w[:, None] - w[None, :])
        sigma = 1 / (1 + np.exp(u * (y[:, None] - y[None, :])))
        expected[rows] = -2 * ((own_g[:, None] + own_g[None, :]) * u * sigma).sum(axis=1)
    found = _gradient(tr.DirectLoss(text, "type3"), scores, columns)
    assert found == pytest.approx(expected, rel=1e-6)


def test_credits_that_are_shared_change_nothing(case):
    scores, labels = case
    columns = np.column_stack([labels["a"], labels["b"]])
    columns[3] = -1  # unjudged
    terms = [(0.7, "nDCG@3", 0), (2, "AP@4", 1), (0.3, "nDCG@3", 1), (0.1, "DCG(gain=linear)", 0)]
    text = " + ".join(
        f"{w} * {name.replace('@', '(label=b)@') if i else name}" for w, name, i in terms
    )
    own = tr.measure(text)
    ready, prepared = own.prepared(columns, LISTS)
    ranks = tr.exact_ranks(scores, LISTS)
    expected = [
        tr.measure(name).at_ranks(ranks, columns[:, i], LISTS, gradient=True)
        for _, name, i in terms
    ]
    known = [(own, columns), (ready, prepared), (ready, torch.as_tensor(prepared))]
    for total_of, given in known:
        ranked = torch.as_tensor(ranks) if isinstance(given, torch.Tensor) else ranks
        found = total_of.at_ranks(ranked, given, LISTS, gradient=True)
        for place in (0, 1):
            total = sum(w * e[place] for (w, _, _), e in zip(terms, expected, strict=True))
            assert np.asarray(found[place]) == pytest.approx(total, abs=1e-12)
    newton = Newton.of(text, perturbation=0.5, samples=3)
    alone = newton.rank_gradient(scores, np.maximum(columns, 0), LISTS)
    shared = replace(newton, measure=ready).rank_gradient(scores, prepared, LISTS)
    assert shared == pytest.approx(alone, abs=1e-6)
    order = own.order(columns, LISTS)
    for rows in LISTS:
        both = np.sign(np.subtract.outer(order[rows], order[rows]))
        assert np.array_equal(
            np.sign(np.subtract.outer(prepared[rows, 2], prepared[rows, 2])), both
        )


def _gradient(loss, scores, labels):
    y = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    loss(y, torch.as_tensor(labels), LISTS).backward()
    return y.grad.numpy()


@pytest.mark.parametrize(
    ("objective", "columns"),
    [(SUM, 1), (SUM, 2), (SUM, 4), (SUM, 5), ("AP + AP(label=b)", 3), ("nDCG + AP", 2)],
)
@pytest.mark.parametrize("loss", [tr.DirectLoss, tr.LossSum])
def test_labels_with_other_columns_than_those_of_the_goals_are_refused(loss, objective, columns):
    scores, labels = torch.zeros(15, requires_grad=True), torch.ones(15, columns)
    own = loss(objective if loss is tr.DirectLoss else f"{objective} + ListNet")
    with pytest.raises(tr.InputError, match=rf"labels has {columns} column.* needs .*main label"):
        own(scores, labels, LISTS)


def test_trees_have_the_gradient_of_the_column(case):
    scores, labels = case
    columns = np.column_stack([labels["a"], labels["b"]])
    options = {"perturbation": 0.1, "samples": 2}
    expected = Newton.of("nDCG@3", **options)(scores, labels["b"], LISTS)
    newton = Newton.of("nDCG(label=b)@3", **options)
    found = newton(scores, columns, LISTS)
    assert np.allclose(found, expected, atol=1e-6)
    part = Newton.of("nDCG@3", **options)(scores, labels["b"], LISTS, queries=np.array([0, 2]))
    own = type(newton)(**{**vars(newton), "labels": columns})
    assert np.allclose(own(scores, labels["a"], LISTS, queries=np.array([0, 2])), part, atol=1e-6)


# Rankers


@pytest.mark.parametrize("engine", ["lightgbm", "xgboost"])
def test_trees_on_a_column_are_those_of_its_labels(data, engine):
    pytest.importorskip(engine)
    options = {"n_estimators": 5, "ensemble_size": 1, "engine": engine, "n_jobs": 1}
    own = tr.BoostedRanker("nDCG(label=b)@5", **options).fit(data)
    alone = tr.Dataset.from_arrays(data.X, data.labels["b"], group=data.lists.sizes)
    same = tr.BoostedRanker("nDCG@5", **options).fit(alone)
    assert np.allclose(own.predict(data), same.predict(data), atol=1e-6)


def test_a_net_on_a_column_is_that_of_its_labels(data):
    options = {"epochs": 2, "ensemble_size": 1, "architecture": "Small(width=4)"}
    own = tr.Ranker("nDCG(label=b)@5", **options).fit(data)
    alone = tr.Dataset.from_arrays(data.X, data.labels["b"], group=data.lists.sizes)
    same = tr.Ranker("nDCG@5", **options).fit(alone)
    assert np.allclose(own.predict(data), same.predict(data), atol=1e-5)


def test_a_sum_serves_both_goals_and_is_saved(data, tmp_path):
    train, test = data.split(0.6)
    text, values = "0.5 * nDCG@5 + 0.5 * nDCG(label=b)@5", {}
    for objective in ("nDCG@5", "nDCG(label=b)@5", text):
        options = {"n_estimators": 20, "ensemble_size": 1, "validation_measure": text}
        ranker = tr.BoostedRanker(objective, **options).fit(train, eval_set=test)
        values[objective] = tr.evaluate(ranker.predict(test), test.labels, test.lists, text)[text]
        assert ranker.score(test) == ranker.best_score_ == pytest.approx(values[objective])
    assert values[text] > max(values["nDCG@5"], values["nDCG(label=b)@5"])
    ranker.save(tmp_path / "model")
    loaded = tr.load_model(tmp_path / "model")
    assert loaded.objective == text
    assert np.array_equal(loaded.predict(test), ranker.predict(test))


def test_a_run_notices_that_a_column_has_changed(data, tmp_path):
    options = {"n_estimators": 2, "ensemble_size": 1}
    tr.BoostedRanker("nDCG(label=b)@5", **options).fit(data, run=tmp_path / "run")
    labels = {"a": data.labels["a"], "b": data.labels["b"][::-1]}
    other = tr.Dataset.from_arrays(data.X, group=data.lists.sizes, labels=labels)
    again = tr.BoostedRanker("nDCG(label=b)@5", **{**options, "n_estimators": 3})
    with pytest.raises(tr.InputError, match="train data has changed"):
        again.fit(other, run=tmp_path / "run", resume=True)


# Data


def test_columns_follow_their_documents(data):
    qid = np.array([1, 2, 1, 2, 1])
    labels = {"click": [0, 1, 2, 3, 4], "order": [5, 6, 7, 8, 9]}
    own = tr.Dataset.from_arrays(np.arange(5.0)[:, None], qid=qid, labels=labels)
    assert own.y.tolist() == own.labels["click"].tolist() == [0, 2, 4, 1, 3]
    assert own.labels["order"].tolist() == [5, 7, 9, 6, 8]
    assert own.select([1]).labels["order"].tolist() == [6, 8]
    assert tr.Dataset.from_arrays([[1.0]], [1], group=[1]).labels == {}
    assert label_array(tr.measure("P(label=order)"), own)[:, 1].tolist() == [5, 7, 9, 6, 8]
    for wrong, message in (
        ({"a": [1, 2]}, "a has|shape"),
        ({"a": [1] * 5, "b": [1, 2]}, r"labels\['b'\] has shape"),
        ({"a": [1] * 5, "b": [1, 2, 3, 4, np.nan]}, r"labels\['b'\] has nan"),
        ([1] * 5, "labels as a mapping"),
    ):
        with pytest.raises(tr.InputError, match=message):
            tr.Dataset.from_arrays(np.zeros((5, 1)), qid=qid, labels=wrong)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_files_have_several_columns_of_labels(data, tmp_path, suffix):
    path = tmp_path / f"data.{suffix}"
    data.save(path)
    own = tr.load(path, label=["a", "b"], cache=False)
    assert own.features == data.features
    assert list(own.labels) == ["a", "b"]
    for name in "ab":
        assert np.array_equal(own.labels[name], data.labels[name])
    assert np.array_equal(own.X, data.X)
    with pytest.raises(tr.InputError, match="no column 'c' besides the main label"):
        tr.load(path, label=["a", "c"], cache=False)
    with pytest.raises(tr.InputError, match=r"several columns of labels; choose \.parquet"):
        data.save(tmp_path / "data.txt")


def test_the_command_line_trains_on_two_goals(cli, data, tmp_path):
    train, test = data.split(0.6)
    for name, part in (("train", train), ("test", test)):
        part.save(tmp_path / f"{name}.csv")
        assert pl.read_csv(tmp_path / f"{name}.csv").columns[:3] == ["qid", "a", "b"]
    text, columns = "0.5 * nDCG@5 + 0.5 * nDCG(label=b)@5", ["--label", "a", "--label", "b"]
    options = ["--trees", "--epochs", 3, "--set", "ensemble_size=1", "--objective", text]
    options += [*columns, "--out", tmp_path / "run"]
    assert cli("train", tmp_path / "train.csv", *options)[0] == 0
    words = ["evaluate", tmp_path / "run", tmp_path / "test.csv", *columns, "-m", text, "--json"]
    code, out, _ = cli(*words)
    assert code == 0
    assert list(json.loads(out)["means"]) == [text, "nDCG@5", "nDCG(label=b)@5"]
    one = ["--label", "a", "--ignore", "b", "--trees", "--objective", text, "--out", tmp_path / "x"]
    code, _, err = cli("train", tmp_path / "train.csv", *one)
    assert code == 2
    assert "--label click --label b" in err
