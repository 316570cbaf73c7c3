"""`Ranker`: its input, its errors, reproducible training, saving, and scikit-learn's checks."""

import copy
import inspect
import pickle
import re
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from twinrank import (
    BoostedRanker,
    Dataset,
    DataWarning,
    DirectLoss,
    InputError,
    Ranker,
    TwinRankError,
    measure,
    synthetic_web_search,
    transform,
)
from twinrank.core.losses import NAMES as LOSS_NAMES
from twinrank.core.losses import loss as loss_by_name
from twinrank.learning.models.architecture import Architecture, architecture
from twinrank.learning.training.callbacks import Callback
from twinrank.learning.training.net_settings import loss_of

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"architecture": "CE4.L(width=4, depth=1)", "epochs": 2, "learning_rate": 0.05}
NAMES = ["bm25", "length", "clicks"]
random = np.random.default_rng(0)
SIZES = np.array([6, 9, 4, 8, 7, 5, 9, 6, 8, 5])
QID = np.repeat(np.arange(100, 110), SIZES)
X = random.normal(size=(QID.size, 3)).astype(np.float32)
Y = np.clip(np.rint(X[:, 0] + X[:, 1] + random.normal(size=QID.size) / 2), 0, 2)
Y[np.r_[0, np.cumsum(SIZES)[:-1]]] = 1  # something relevant in every query
DATA = Dataset.from_arrays(X, Y, qid=QID)
LONG = Dataset.from_arrays(X, Y, group=SIZES.reshape(-1, 2).sum(axis=1))
"""Queries that the mode "paper" keeps."""
SCATTERED = random.permutation(QID.size)


AP = measure("AP")


def small(**changes):
    return Ranker(**{**SMALL, **changes})


def weights_of(trained):
    model = getattr(trained, "model_", trained)
    return np.concatenate([t.numpy().ravel() for t in model.net.state_dict().values()])


def same(first, second):
    """True if two models have the same weights, bit for bit."""
    return np.array_equal(weights_of(first), weights_of(second))


def queries():
    return [DATA.select([i]) for i in range(DATA.queries)]


@pytest.fixture(scope="module")
def fitted():
    return small().fit(X, Y, qid=QID)


# Input


def as_pandas(x):
    return pd.DataFrame(x, columns=NAMES)


FORMS = {
    "list": lambda x: x.tolist(),
    "float64": lambda x: x.astype(np.float64),
    "objects": lambda x: x.astype(object),
    "fortran": np.asfortranarray,
    "tensor": torch.from_numpy,
    "csr_array": sp.csr_array,
    "csc_matrix": sp.csc_matrix,
    "pandas": as_pandas,
    "pandas nullable": lambda x: as_pandas(x).convert_dtypes(),
    "pandas objects": lambda x: as_pandas(x).astype(object),
    "polars": lambda x: pl.DataFrame(x, schema=NAMES),
    "polars lazy": lambda x: pl.LazyFrame(x, schema=NAMES),
    "pyarrow": lambda x: pa.table(dict(zip(NAMES, x.T, strict=True))),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_model_from_every_form_of_features(fitted, form):
    features = FORMS[form](X)
    ranker = small().fit(features, Y, qid=QID)
    assert same(ranker, fitted)
    scores = ranker.predict(features, qid=QID)
    assert np.array_equal(scores, fitted.predict(X, qid=QID))
    assert scores.dtype == np.float32
    assert hasattr(ranker, "feature_names_in_") == (
        form.split()[0] in ("pandas", "polars", "pyarrow")
    )


@pytest.mark.parametrize("column", [list, pd.Series, pl.Series, pa.array, torch.from_numpy])
def test_labels_and_queries_as_columns_of_all_kinds(fitted, column):
    assert same(small().fit(X, column(Y), qid=column(QID)), fitted)
    assert same(small().fit(X, column(Y.astype(np.int8)), group=column(SIZES)), fitted)


def test_query_ids_may_be_text(fitted):
    named = [f"query {q}" for q in QID]
    assert same(small().fit(X, Y, qid=named), fitted)
    assert same(small().fit(X, Y, qid=pd.Series(named)), fitted)


def test_a_dataset_comes_with_its_labels_and_queries(fitted):
    assert same(small().fit(DATA), fitted)
    assert np.array_equal(fitted.predict(DATA), fitted.predict(X, qid=QID))
    assert np.array_equal(fitted.rank(DATA), fitted.rank(X, group=SIZES))
    assert fitted.score(DATA) == fitted.score(X, Y, qid=QID)
    for call in (fitted.predict, fitted.rank, fitted.score, small().fit):
        with pytest.raises(InputError, match="has its own labels and queries"):
            call(DATA, qid=QID)
    with pytest.raises(InputError, match="has its own labels and queries"):
        small().fit(DATA, Y)


def test_scattered_rows_are_put_together_and_come_back_in_the_callers_order(fitted):
    shuffled = X[SCATTERED], QID[SCATTERED]
    scores = fitted.predict(shuffled[0], qid=shuffled[1])
    np.testing.assert_allclose(scores, fitted.predict(X, qid=QID)[SCATTERED], rtol=1e-4, atol=1e-6)
    assert np.array_equal(
        fitted.rank(shuffled[0], qid=shuffled[1]), fitted.rank(X, qid=QID)[SCATTERED]
    )
    order = np.argsort(np.arange(QID.size) % 2, kind="stable")  # every query in two places
    again = small().fit(X[order], Y[order], qid=QID[order])
    assert again.model_.provenance["data"]["queries"] == 10
    assert again.score(X[order], Y[order], qid=QID[order]) == again.score(X, Y, qid=QID)


def test_a_score_depends_only_on_its_query(fitted):
    alone = [fitted.predict(query.X, group=[query.documents]) for query in queries()]
    np.testing.assert_allclose(
        np.concatenate(alone), fitted.predict(X, qid=QID), rtol=1e-5, atol=1e-6
    )
    free = small(transforms="Standardise").fit(DATA)
    alone = [free.predict(row[None])[0] for row in X]
    np.testing.assert_allclose(alone, free.predict(X), rtol=1e-5, atol=1e-6)
    assert np.array_equal(free.predict(X), free.predict(X, qid=QID))


@pytest.mark.parametrize(
    "changes",
    [
        {"transforms": "QueryMinMax"},
        {"transforms": ["SignedLog1p", "QueryZScore"]},
        {"categorical_features": [2]},
        {"mode": "paper", "transforms": "none"},
    ],
)
def test_queries_are_required_if_scores_depend_on_them(changes):
    coded = Dataset.from_arrays(LONG.X.round(), LONG.y, group=LONG.lists.sizes)
    ranker = small(**changes, epochs=1).fit(coded)
    with pytest.raises(InputError, match="pass qid or group"):
        ranker.predict(X)


def test_ranks_are_those_of_the_scores(fitted):
    assert fitted.rank(DATA).dtype == np.int64
    for query in queries():
        scores = fitted.predict(query)
        expected = np.argsort(np.argsort(-scores, kind="stable")) + 1
        assert fitted.rank(query.X, group=[query.documents]).tolist() == expected.tolist()
    zeros = small(transforms="QueryZScore").fit(DATA)  # products with 0 are equal in every bit
    assert zeros.rank(np.zeros((3, 3)), group=[3]).tolist() == [1, 2, 3]


def test_unjudged_documents_count_as_zero():
    unjudged = np.where((Y == 0) & (np.arange(Y.size) % 2 == 0), -1, Y)
    assert (unjudged < 0).any()
    sets = [Dataset.from_arrays(X, y, qid=QID, unjudged="keep") for y in (Y, unjudged)]
    judged, partly_judged = (small().fit(data) for data in sets)
    assert same(judged, partly_judged)
    assert partly_judged.score(sets[1]) == partly_judged.score(X, Y, qid=QID)


def test_one_query_is_enough():
    rows = QID == 101
    ranker = small(epochs=30).fit(X[rows], Y[rows], group=[rows.sum()])
    assert ranker.score(X[rows], Y[rows], group=[rows.sum()]) > 0.8
    assert np.isfinite(weights_of(ranker)).all()


def test_only_trainable_queries_are_used(fitted):
    more = np.concatenate([X, X[:1], X[:3]])
    labels, ids = np.r_[Y, 2, 0, 0, 0], np.r_[QID, 7, 8, 8, 8]
    assert same(small().fit(more, labels, qid=ids), fitted)


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Pass either qid .* or group"),
        ({"qid": QID, "group": SIZES}, "Pass either qid .* or group"),
        ({"qid": QID[1:]}, "qid has 66 ids but X has 67 rows"),
        ({"qid": np.where(QID == 103, np.nan, QID)}, r"qid\[19\] is missing"),
        ({"qid": [None, *QID[1:]]}, r"qid\[0\] is missing"),
        ({"qid": pd.Series([pd.NA, *QID[1:]], dtype=object)}, r"qid\[0\] is missing"),
        ({"group": SIZES[1:]}, "adds up to 61 documents, but X has 67"),
        ({"y": None, "qid": QID}, "requires y to be passed"),
        ({"y": Y[1:], "qid": QID}, r"y has shape \(66,\) but X has 67 rows"),
        ({"y": Y.astype(str), "qid": QID}, "y must be numbers"),
        ({"y": Y.astype(complex), "qid": QID}, "y must be numbers"),
        ({"y": Y[:, None], "qid": QID}, r"y has shape \(67, 1\) but X has 67 rows"),
        ({"y": Y - 2, "qid": QID}, "label must be a finite number ≥ 0"),
        ({"y": np.where(Y == 2, np.nan, Y), "qid": QID}, "label must be a finite number ≥ 0"),
        ({"y": Y * 0, "qid": QID}, "Cannot train on any of 10 queries"),
        ({"y": Y * 0, "group": [67]}, "Cannot train on the only query"),
        ({"qid": np.arange(67)}, "Cannot train on any of 67 queries: each has a single document"),
        ({"X": X[0], "qid": [1, 1, 1]}, "Reshape your data"),
        ({"X": [[1, 2], [3]], "y": [0, 1], "qid": [1, 1]}, "X can't be converted to an array"),
        ({"X": X.astype(str), "qid": QID}, "matrix of numbers"),
        ({"X": X.astype(str).astype(object), "qid": QID}, "contains the text"),
        (
            {"X": as_pandas(X).assign(site="3"), "qid": QID},
            "column 'site' contains '3' in row 1",
        ),
        ({"X": as_pandas(X).set_axis(["a", "b", "a"], axis=1), "qid": QID}, "same name"),
        ({"qid": QID, "sample_weight": np.ones(9)}, "each of 10 queries or 67 documents"),
        ({"qid": QID, "sample_weight": -np.ones(10)}, "not negative, not -1"),
        ({"qid": QID, "sample_weight": np.full(10, np.nan)}, "finite"),
        ({"qid": QID, "sample_weight": np.zeros(10)}, "zero for all queries"),
        ({"qid": QID, "sample_weight": ["a"] * 10}, "must be numbers"),
        ({"qid": QID, "eval_fraction": 1.0}, "between 0 and 1"),
        ({"qid": QID, "eval_fraction": 0.001}, "cannot be cut"),
        ({"group": [67], "eval_fraction": 0.5}, "at least two queries"),
        ({"qid": QID, "eval_fraction": 0.5, "eval_set": DATA}, "not both"),
    ],
)
def test_invalid_data(arguments, message):
    with pytest.raises(InputError, match=message):
        small().fit(**{"X": X, "y": Y, **arguments})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "nDGC"}, "nDCG"),
        ({"objective": "ListNte"}, "ListNet"),
        ({"objective": "ListNet@5"}, "ListNet"),
        ({"precision": "half"}, "mixed"),
        ({"precision": "mixed", "device": "cpu"}, "needs a GPU"),
        ({"strategy": "type4"}, "type"),
        ({"alpha": -1}, "alpha"),
        ({"samples": 0}, "samples"),
        ({"architecture": "CE6"}, "CE5"),
        ({"mode": "papers"}, "paper"),
        ({"transforms": "ZScore"}, "QueryZScore"),
        ({"epochs": 0}, "epochs"),
        ({"batch_documents": 0.5}, "batch_documents"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"optimiser": "adamm"}, "adam"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"feature_noise": -1}, "feature_noise"),
        ({"early_stopping": 0}, "early_stopping"),
        ({"shuffle": "yes"}, "shuffle must be true or false"),
        ({"halve_every": "auto"}, "halve_every"),
        ({"validate_every": 0}, "validate_every"),
        ({"select": 3}, "select must be the name"),
        ({"random_state": None}, "random_state"),
        ({"categorical_features": {2: 3}}, "must be a list of columns"),
    ],
)
def test_invalid_parameters(changes, message):
    with pytest.raises(InputError, match=message):
        small(**changes).fit(DATA)


def test_an_unfitted_ranker_raises():
    for call in (small().predict, small().rank, small().score):
        with pytest.raises(NotFittedError):
            call(DATA)
    with pytest.raises(NotFittedError):
        small().save("nowhere")


def test_features_are_counted_when_predicting(fitted):
    for call in (fitted.predict, fitted.rank):
        with pytest.raises(InputError, match="X has 2 features, but Ranker is expecting 3"):
            call(X[:, :2], qid=QID)
    with pytest.raises(InputError, match="X has 2 features"):
        fitted.score(X[:, :2], Y, qid=QID)
    with pytest.raises(InputError, match="X has 2 features"):
        copy.deepcopy(fitted).partial_fit(X[:, :2], Y, qid=QID)


def test_rank_and_score_need_queries():
    free = small(transforms="Standardise").fit(DATA)
    with pytest.raises(InputError, match="qid"):
        free.rank(X)
    with pytest.raises(InputError, match="qid"):
        free.score(X, Y)


@pytest.mark.parametrize("form", ["pandas", "polars", "pyarrow"])
def test_features_are_found_by_name_if_both_data_sets_have_names(fitted, form):
    frame = FORMS[form](X)
    ranker = small().fit(frame, Y, qid=QID)
    assert ranker.feature_names_in_.tolist() == NAMES
    moved = (
        frame.select(["bm25", "clicks", "length"]) if form != "pandas" else frame.iloc[:, [0, 2, 1]]
    )
    fewer = moved.select(["bm25", "clicks"]) if form != "pandas" else moved.iloc[:, :2]
    expected = ranker.predict(X, qid=QID)  # an array has no names
    assert np.array_equal(ranker.predict(moved, qid=QID), expected)
    assert np.array_equal(ranker.rank(moved, qid=QID), ranker.rank(X, qid=QID))
    with pytest.raises(InputError, match=r"X lacks 1 feature that Ranker .*: 'length'"):
        ranker.predict(fewer, qid=QID)
    with pytest.raises(InputError, match="Evaluation set 'validation' lacks 1 feature"):
        small().fit(frame, Y, qid=QID, eval_set=(fewer, Y, QID))
    small().fit(frame, Y, qid=QID, eval_set=(moved, Y, QID))
    assert np.array_equal(fitted.predict(moved, qid=QID), fitted.predict(X[:, [0, 2, 1]], qid=QID))
    assert np.array_equal(ranker.predict(frame, qid=QID), expected)
    ranker.fit(X, Y, qid=QID)
    assert not hasattr(ranker, "feature_names_in_")


def test_column_numbers_are_not_names():
    frame = pd.DataFrame(X)
    ranker = small().fit(frame, Y, qid=QID)
    assert not hasattr(ranker, "feature_names_in_")
    expected = ranker.predict(X, qid=QID)
    np.testing.assert_array_equal(ranker.predict(frame[frame.columns[::-1]], qid=QID), expected)


# Missing values


@pytest.mark.parametrize(
    "transforms",
    ["QueryZScore", "QueryMinMax", "Standardise", "Quantile + Standardise | PiecewiseLinear"],
)
def test_transforms_with_statistics_fill_in_missing_values(transforms):
    gaps = np.where(np.arange(X.size).reshape(X.shape) % 7 == 0, np.nan, X)
    ranker = small(transforms=transforms).fit(gaps, Y, qid=QID)
    assert np.isfinite(ranker.predict(gaps, qid=QID)).all()
    nulls = pl.DataFrame(gaps, schema=NAMES).fill_nan(None)
    assert np.array_equal(ranker.predict(nulls, qid=QID), ranker.predict(gaps, qid=QID))
    gaps[20, 2] = np.inf
    where = "document 2 of query 103 is inf, which"
    mixed = SCATTERED[np.argsort(QID[SCATTERED] != 103, kind="stable")]  # 103 in another place
    nth = 1 + int(np.flatnonzero(mixed == 20)[0])
    for call in (ranker.predict, lambda x, qid: clone(ranker).fit(x, Y, qid=qid)):
        with pytest.raises(InputError, match=f"Feature 3 of {where}"):
            call(gaps, qid=QID)
        with pytest.raises(InputError, match=f"Feature 'clicks' of {where}"):
            call(as_pandas(gaps), qid=QID)
    with pytest.raises(InputError, match=f"document {nth} of query 103 is inf"):
        ranker.predict(gaps[mixed], qid=QID[mixed])
    with pytest.raises(InputError, match=f"Evaluation set 'validation': Feature 3 of {where}"):
        small(transforms=transforms).fit(DATA, eval_set=(gaps, Y, QID))


@pytest.mark.parametrize(
    "transforms",
    ["none", "SignedLog1p", ["SignedLog1p", "Clip(low=-5)"], "Standardise | (none | Quantile)"],
)
def test_other_transforms_refuse_missing_values(transforms):
    ranker = small(transforms=transforms).fit(DATA)
    gaps = X.copy()
    gaps[20, 1] = np.nan
    message = r"Feature 2 is missing \(NaN\) in query 103, and transforms="
    for call in (ranker.fit, ranker.partial_fit, ranker.score):
        with pytest.raises(InputError, match=message):
            call(gaps, Y, qid=QID)
    with pytest.raises(InputError, match="Feature 'length' is missing"):
        ranker.predict(as_pandas(gaps), qid=QID)
    with pytest.raises(InputError, match=message):
        ranker.fit(DATA, eval_set=(gaps, Y, QID))
    gaps[20, 1] = np.inf
    if "Clip(low=-5)" in transforms:
        ranker.predict(gaps, qid=QID)
    else:
        with pytest.raises(InputError, match=r"infinite .* Put Clip"):
            ranker.predict(gaps, qid=QID)


# Training


def test_default_nets_mark_missing_values(tmp_path):
    gaps = X.copy()
    gaps[::5, 1] = np.nan
    data = Dataset.from_arrays(gaps, Y, qid=QID, non_finite="keep")
    ranker = small(transforms="auto").fit(data)
    assert ranker.model_.net.features == 2 * X.shape[1] + 1
    ranker.save(tmp_path / "model")
    assert same(Ranker.load(tmp_path / "model"), ranker)
    assert small(transforms="auto").fit(X, Y, QID).model_.net.features == 2 * X.shape[1]


def test_transforms_side_by_side(tmp_path):
    union = "QueryZScore | SignedLog1p + PiecewiseLinear(bins=3) | MissingIndicator"
    gaps = np.c_[X[:, :2], X[:, 2].round()]
    gaps[3, 0] = np.nan
    coded = Dataset.from_arrays(gaps, Y, qid=QID, non_finite="keep")
    ranker = small(transforms=union, categorical_features=[2]).fit(coded)
    assert ranker.n_features_in_ == 3
    assert ranker.model_.net.features == 2 + 2 * 3 + 1 + 1  # the category appears once
    ranker.save(tmp_path / "model")
    loaded = Ranker.load(tmp_path / "model")
    assert same(loaded, ranker)
    assert loaded.transforms == union
    assert np.array_equal(loaded.predict(DATA), ranker.predict(DATA))
    assert ranker.partial_fit(coded).predict(DATA).shape == Y.shape
    with pytest.raises(InputError, match="X has 2 features, but Ranker is expecting 3"):
        ranker.predict(X[:, :2], qid=QID)


def test_noise_on_features_is_for_training_only():
    plain, noisy, again = (small(feature_noise=n).fit(DATA) for n in (0.0, 0.5, 0.5))
    assert same(noisy, again)
    assert not same(noisy, plain)
    assert np.array_equal(noisy.predict(DATA), noisy.predict(DATA))
    coded = np.abs(X).astype(int)
    only = {"categorical_features": [0, 1, 2], "objective": "ListNet"}  # draws no noise itself
    assert same(*(small(feature_noise=n, **only).fit(coded, Y, qid=QID) for n in (0.0, 0.5)))


def test_the_same_random_state_gives_the_same_weights(fitted):
    dropout = {"architecture": "MLP(width=4, depth=2, dropout=0.5)", "perturbation": 0.5}
    torch.manual_seed(1)
    first = small(**dropout).fit(DATA)
    before = torch.random.get_rng_state()
    second = small(**dropout).fit(DATA)
    assert torch.equal(before, torch.random.get_rng_state())
    assert same(first, second)
    assert not same(first, small(**dropout, random_state=1).fit(DATA))
    assert same(clone(fitted).fit(DATA), fitted)


@pytest.mark.parametrize("objective", ["nDCG@5", "AP", "P@5", "nERR", "RR"])
def test_training_improves_the_measure(objective):
    ranker = small(objective=objective, epochs=25, validation_measure=objective)
    before = clone(ranker).set_params(epochs=1, learning_rate=1e-9).fit(DATA)
    assert ranker.fit(DATA).score(DATA) > before.score(DATA)
    assert len(ranker.history_) == 25
    assert ranker.best_iteration_ == 25  # the last one, without an evaluation set
    assert ranker.best_score_ is None


def test_the_validation_measure_may_be_an_object():
    named, object_ = (small(validation_measure=m).fit(DATA, eval_set=OTHER) for m in ("AP", AP))
    assert named.best_score_ == object_.best_score_ == object_.score(*OTHER)


PAPER_VALUES = {
    "architecture": "CE4.L", "ensemble_size": 1, "perturbation": 0.0, "samples": 1,
    "learning_rate": 1e-3, "batch_documents": 1, "shuffle": False, "weight_decay": 1e-3,
    "schedule": "halve", "validate_every": 2, "early_stopping": None, "tolerance": 0.0,
    "transforms": "QueryZScore", "feature_noise": 0.0,
}  # fmt: skip
DEFAULT_VALUES = {
    "architecture": "Small", "ensemble_size": 5, "perturbation": 2.0, "samples": 5,
    "learning_rate": 3e-3, "batch_documents": 500, "shuffle": True, "weight_decay": 0.0,
    "schedule": "constant", "validate_every": 1, "early_stopping": 10, "tolerance": 1.0,
    "transforms": "QueryZScore | Quantile(output_distribution=normal) + Clip(low=-3, high=3) "
    "| MissingIndicator",
    "feature_noise": 0.2,
}  # fmt: skip


@pytest.mark.parametrize(("mode", "values"), [("paper", PAPER_VALUES), ("default", DEFAULT_VALUES)])
def test_defaults_of_a_mode(mode, values):
    ranker = Ranker(mode=mode, epochs=2)
    resolved = ranker.check_parameters(DATA.documents)
    assert {name: resolved[name] for name in values} == values
    ranker.fit(LONG)
    net = ranker.model_.net
    assert net.architecture == architecture(values["architecture"], mode)
    assert net.ensemble_size == ranker.model_.ensemble_size == values["ensemble_size"]
    provenance = ranker.model_.provenance
    assert provenance["resolved"] == values
    plan = provenance["plan"]
    assert {name: plan[name] for name in values if name in plan} == {
        name: values[name] for name in ("validate_every", "early_stopping", "tolerance")
    }
    assert {name for name, value in ranker.get_params().items() if value == "auto"} == {
        *values,
        "device",
    }
    assert same(ranker, Ranker(mode=mode, epochs=2, **values).fit(LONG))
    documented = re.findall(r"^(\w+) : .*\"auto\"", inspect.getdoc(Ranker), re.MULTILINE)
    assert set(documented) == {*values, "epochs", "device"}


def test_the_epochs_of_large_data_are_bounded():
    sizes = (1_000, 300_000, 1_000_000, 3_700_000, 10**9)
    epochs = [Ranker().check_parameters(size)["epochs"] for size in sizes]
    assert epochs == [100, 100, 30, 8, 5]
    assert Ranker(epochs=200).check_parameters(10**9)["epochs"] == 200
    assert Ranker(mode="paper").check_parameters(10**9)["epochs"] == 100


@pytest.mark.parametrize(("mode", "others"), [("paper", DEFAULT_VALUES), ("default", PAPER_VALUES)])
def test_own_values_win_in_every_mode(mode, others):
    for name, value in others.items():
        ranker = small(mode=mode, **{name: value})
        assert ranker.check_parameters()[name] == value
        ranker.fit(LONG)
    loss = loss_of(Ranker(mode=mode, perturbation=0.5, samples=3).check_parameters())
    assert (loss.perturbation, loss.samples) == (0.5, 3)
    linear = Ranker(mode=mode, architecture="Linear", epochs=1).fit(LONG).model_.net
    assert linear.architecture.depth == 0
    assert not same(small(mode="paper").fit(LONG), small(mode="paper", weight_decay=0.5).fit(LONG))


def test_a_batch_has_a_fiftieth_of_the_documents():
    data = synthetic_web_search(queries=500)
    seen = []

    def objective(scores, labels, lists):
        seen.append(len(scores))
        return scores.sum() * 0

    Ranker(objective, architecture="Linear", epochs=1).fit(data)
    assert max(seen) <= data.documents / 50
    # Queries are whole, and some are not trainable.
    assert np.mean(seen[:-1]) > 0.8 * data.documents / 50


def test_paper_mode_leaves_out_short_and_irrelevant_lists():
    """Lists with fewer than ten documents, or nothing relevant, neither train nor validate."""
    X2, group = np.r_[X, X, X[:30]], [*LONG.lists.sizes, *SIZES, 30]
    Y2 = np.r_[Y, Y, np.zeros(30)]
    mixed = Dataset.from_arrays(X2, Y2, group=group)
    weights = np.r_[np.linspace(1, 3, LONG.queries), np.ones(11)]
    note = r"leaves out 11 of 16 queries \(training\) and 1 of 6 queries \(validation\)\.$"
    validation = Dataset.from_arrays(
        np.r_[X, X[:30]], np.r_[Y, np.zeros(30)], group=[*LONG.lists.sizes, 30]
    )
    with pytest.warns(DataWarning, match=note):
        ranker = small(mode="paper").fit(mixed, sample_weight=weights, eval_set=validation)
    assert ranker.model_.provenance["data"]["queries"] == LONG.queries
    alone = small(mode="paper").fit(LONG, sample_weight=weights[:5], eval_set=LONG)
    assert same(ranker, alone)
    assert ranker.best_score_ == alone.best_score_
    with pytest.raises(InputError, match="the training data has none among 10 queries"):
        small(mode="paper").fit(DATA)
    trees = {"objective": "AP", "n_estimators": 3, "engine_params": {"min_data_in_leaf": 3}}
    trees["engine_params"]["min_sum_hessian_in_leaf"] = 0.1
    with pytest.warns(DataWarning, match=note.partition(" and")[0]):
        boosted = BoostedRanker(mode="paper", **trees).fit(mixed)
    assert boosted.model_.provenance["data"]["queries"] == LONG.queries
    assert boosted.model_.provenance["resolved"]["perturbation"] == 0


def test_an_architecture_keeps_its_own_norm_in_paper_mode():
    own = Architecture(width=4, depth=1, norm="layer")
    net = small(mode="paper", architecture=own).fit(LONG).model_.net
    assert (net.architecture.norm, net.architecture.last_norm) == ("layer", False)


def test_paper_mode_trains_to_the_end_and_keeps_the_best():
    ranker = small(mode="paper", epochs=13, learning_rate=1e-9).fit(LONG, eval_set=LONG)
    assert len(ranker.history_) == 13
    assert [r["iteration"] for r in ranker.history_ if "validation" in r] == [
        2,
        4,
        6,
        8,
        10,
        12,
        13,
    ]
    assert ranker.best_iteration_ == 2


def test_the_schedule_halves_the_learning_rate():
    ranker = small(epochs=4, schedule="halve", halve_every=2).fit(DATA)
    assert [r["learning_rate"] for r in ranker.history_] == [0.05, 0.05, 0.025, 0.025]


def test_batches_are_in_order_without_shuffling():
    seen = []

    def objective(scores, labels, lists):
        seen.append(labels.tolist())
        return scores.sum() * 0

    small(objective=objective, shuffle=False, batch_documents=1).fit(DATA)
    assert [label for step in seen for label in step] == [*DATA.y.tolist()] * 2
    small(objective=objective, batch_documents=1).fit(DATA)
    assert sorted(map(tuple, seen[20:])) == sorted(map(tuple, seen[:20]))
    assert seen[20:] != seen[:20]


def test_select_names_the_set_that_selects_the_best_epoch():
    sets = {"first": LAST, "validation": OTHER}
    for name in sets:
        ranker = small(epochs=6, select=name, tolerance=0).fit(DATA, eval_set=sets)
        values = [record[name] for record in ranker.history_]
        assert ranker.best_score_ == max(values)
        assert ranker.best_iteration_ == 1 + values.index(max(values))
    with pytest.raises(InputError, match=r"set 'frist'\. Did you mean 'first'"):
        small(select="frist").fit(DATA, eval_set=sets)
    with pytest.raises(InputError, match="select='first' needs an evaluation set"):
        small(select="first").fit(DATA)
    ranker.partial_fit(DATA)  # which has no evaluation sets
    assert ranker.select == "validation"


@pytest.mark.parametrize("name", [*LOSS_NAMES, "ApproxNDCG(alpha=3)", "LambdaRank(k=3)"])
def test_a_loss_by_name(name):
    weights = np.linspace(0.5, 1.5, 10)
    ranker = small(objective=name, epochs=15).fit(DATA, sample_weight=weights)
    untrained = small(objective=name, epochs=1, learning_rate=1e-9).fit(DATA)
    assert ranker.score(DATA) > untrained.score(DATA)
    again = small(objective=loss_by_name(name), epochs=15).fit(DATA, sample_weight=weights)
    assert same(ranker, again)


def test_wassrank_has_the_mode_of_the_ranker():
    for mode in ("default", "paper"):
        loss = loss_of(small(objective="WassRank", mode=mode).check_parameters())
        assert loss.mode == mode
        assert loss.cost == ("gain" if mode == "paper" else "label")


def test_a_callable_objective(fitted):
    loss = DirectLoss("nDCG", perturbation=2.0, samples=5)  # the default
    seen = []

    def objective(scores, labels, lists, weights=None):
        seen.append((len(lists), None if weights is None else weights.tolist()))
        return loss(scores, labels, lists, weights)

    assert same(small(objective=objective).fit(DATA), fitted)
    assert same(small(objective=loss).fit(DATA), fitted)
    assert seen == [(10, None)] * 2
    small(objective=objective, epochs=1).fit(DATA, sample_weight=np.full(10, 2.0))
    assert seen[-1] == (10, [2.0] * 10)


def test_weights_of_queries(fitted):
    weights = np.linspace(0.2, 3, 10)
    per_list = small().fit(X, Y, qid=QID, sample_weight=weights)
    assert not same(per_list, fitted)
    rows = np.repeat(weights, SIZES)
    for values in (rows, rows.tolist(), pd.Series(rows), pl.Series(rows)):
        assert same(small().fit(X, Y, qid=QID, sample_weight=values), per_list)
    assert same(small().fit(DATA, sample_weight=rows), per_list)
    assert same(small().fit(DATA, sample_weight=np.ones(10)), fitted)
    assert same(small().partial_fit(DATA, sample_weight=weights), per_list)


def test_weights_of_queries_in_the_score(fitted):
    values = np.array([fitted.score(query) for query in queries()])
    assert fitted.score(DATA) == pytest.approx(values.mean())
    weights = np.linspace(0, 3, 10)
    assert fitted.score(DATA, sample_weight=weights) == pytest.approx(
        np.average(values, weights=weights)
    )
    empty = np.where(QID == 105, 0, Y)  # nothing relevant: out of the mean
    weights[5] = 0
    assert fitted.score(X, empty, qid=QID, sample_weight=weights) == pytest.approx(
        np.average(values, weights=weights)
    )
    assert np.isnan(fitted.score(X, Y * 0, qid=QID))
    assert np.isnan(fitted.score(X, empty, qid=QID, sample_weight=np.eye(10)[5]))


def test_weights_follow_scattered_rows():
    weights = np.linspace(0.2, 3, 10)
    shuffled = X[SCATTERED], Y[SCATTERED], QID[SCATTERED]
    _, first = np.unique(shuffled[2], return_index=True)
    by_appearance = weights[np.argsort(first)]
    rows = weights[shuffled[2] - 100]
    weighted = small().fit(*shuffled, sample_weight=by_appearance)
    assert same(weighted, small().fit(*shuffled, sample_weight=rows))
    data = Dataset.from_arrays(shuffled[0], shuffled[1], qid=shuffled[2])
    assert same(weighted, small().fit(data, sample_weight=weights[data.qid - 100]))  # its own order
    part = data.select([0, 2, 5])
    small().fit(part, sample_weight=weights[part.qid - 100])


@pytest.mark.parametrize("transforms", ["QueryZScore", "Standardise"])
def test_queries_of_weight_zero_do_not_count(transforms):
    weights = np.array([1, 0, 1, 2, 0, 1, 1, 3, 1, 0.5])
    kept = np.repeat(weights > 0, SIZES)
    ranker = small(transforms=transforms)
    weighted = clone(ranker).fit(DATA, sample_weight=weights)
    positive = weights[weights > 0]
    selected = clone(ranker).fit(X[kept], Y[kept], qid=QID[kept], sample_weight=positive)
    assert same(weighted, selected)


def test_partial_fit_continues_from_the_fitted_weights():
    ranker = small(transforms="Standardise").partial_fit(as_pandas(X), Y, qid=QID)
    assert same(ranker, small(transforms="Standardise").fit(DATA))
    older, first = ranker.model_, weights_of(ranker)
    ranker.set_params(epochs=1).partial_fit(X[:20] * 2, Y[:20], qid=QID[:20])
    assert not np.array_equal(first, weights_of(ranker))
    assert ranker.model_.transform is older.transform
    assert ranker.model_.feature_names == tuple(NAMES) == tuple(ranker.feature_names_in_)
    moved = zip(older.net.parameters(), ranker.model_.net.parameters(), strict=True)
    assert all((a - b).abs().max() < 0.051 for a, b in moved)  # one step of Adam, at 0.05
    assert np.array_equal(first, weights_of(older))  # the earlier model is unchanged


def test_partial_fit_keeps_the_architecture():
    ranker = small().fit(DATA)
    before = weights_of(ranker)
    with pytest.raises(InputError, match="cannot change the architecture of a net; call fit"):
        ranker.set_params(architecture="Linear").partial_fit(DATA)
    assert np.array_equal(before, weights_of(ranker))


def test_every_partial_fit_has_its_own_random_numbers(tmp_path):
    def drawn(ranker):
        """The random numbers that the steps of a partial fit draw."""
        seen = []

        def objective(scores, labels, lists):
            seen.append(torch.rand(3).tolist())
            return scores.sum() * 0

        ranker.set_params(objective=objective).partial_fit(DATA)
        return seen

    first = drawn(small())
    ranker = small().fit(DATA)
    assert ranker.partial_fits_ == 0
    second, third = drawn(ranker), drawn(ranker)
    assert ranker.partial_fits_ == 2
    assert len({tuple(step) for step in [*first, *second, *third]}) == 3 * len(first)
    ranker.save(tmp_path / "model")
    again = Ranker.load(tmp_path / "model")
    assert again.partial_fits_ == 2
    assert drawn(again) == drawn(ranker)  # a saved model continues like the one in memory
    assert drawn(small().fit(DATA)) == second  # the same calls, the same numbers
    assert ranker.fit(DATA).partial_fits_ == 0


def test_a_failure_leaves_the_model_as_it_was():
    ranker = small().fit(DATA)
    before = weights_of(ranker)

    class Fails(Callback):
        def on_iteration_end(self, trainer, record):
            raise KeyError("my own")

    with pytest.raises(KeyError, match="my own"):
        ranker.fit(DATA, callbacks=[Fails()])
    ranker.objective = lambda scores, labels, lists: scores.sum() * float("nan")
    with pytest.raises(RuntimeError, match="The loss is nan in epoch 1, step 1"):
        ranker.partial_fit(DATA)
    assert np.array_equal(before, weights_of(ranker))


# Evaluation sets

OTHER = X[:30], Y[:30], QID[:30]
LAST = X[30:], Y[30:], QID[30:]


@pytest.mark.parametrize(
    "arguments",
    [
        {"eval_set": OTHER},
        {"eval_set": Dataset.from_arrays(OTHER[0], OTHER[1], qid=OTHER[2])},
        {"eval_set": {"validation": OTHER}},
        {"eval_set": [OTHER[:2]], "eval_qid": [OTHER[2]]},
        {"eval_set": [OTHER[:2]], "eval_group": [[6, 9, 4, 8, 3]]},
        {"eval_set": OTHER[:2], "eval_qid": OTHER[2]},
        {"eval_set": [OTHER]},
        {"eval_set": (OTHER[:2],), "eval_qid": (OTHER[2],)},
    ],
)
def test_forms_of_evaluation_sets(arguments):
    ranker = small(epochs=4, tolerance=0).fit(*LAST, **arguments)
    values = [record["validation"] for record in ranker.history_]
    assert ranker.best_score_ == max(values) == ranker.score(*OTHER)
    assert values[ranker.best_iteration_ - 1] == ranker.best_score_
    again = small(epochs=4, tolerance=0).fit(*LAST, eval_set=OTHER)
    assert ranker.best_score_ == again.best_score_


def test_several_evaluation_sets():
    sets = {"first": OTHER, "second": LAST, "third": DATA}
    named = small(tolerance=0).fit(DATA, eval_set=sets)
    assert {"first", "second", "third"} < named.history_[0].keys()
    assert named.best_score_ == max(record["first"] for record in named.history_)
    pairs = [OTHER[:2], LAST[:2]]
    listed = small().fit(DATA, eval_set=pairs, eval_qid=[OTHER[2], LAST[2]])
    as_tuple = small().fit(DATA, eval_set=tuple(pairs), eval_qid=[OTHER[2], LAST[2]])
    for ranker in (listed, as_tuple):
        assert ranker.history_[0]["validation_2"] == named.history_[0]["second"]
    chosen = small(tolerance=0).fit(DATA, eval_set={"first": OTHER, "validation": LAST})
    assert chosen.best_score_ == max(record["validation"] for record in chosen.history_)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eval_set": X}, "eval_set cannot be of type ndarray"),
        ({"eval_set": "test.txt"}, "Can't read test.txt"),
        ({"eval_set": [X]}, "An evaluation set has the wrong form"),
        ({"eval_set": [OTHER[:2]]}, r"An evaluation set has no queries\. .* eval_qid=\[qid\]"),
        (
            {"eval_set": [OTHER[:2]], "eval_qid": OTHER[2]},
            "eval_qid has 30 entries but eval_set has 1",
        ),
        (
            {"eval_set": [OTHER[:2]], "eval_group": []},
            "eval_group has 0 entries but eval_set has 1",
        ),
        ({"eval_set": [OTHER], "eval_qid": [OTHER[2]]}, "An evaluation set has the wrong form"),
        ({"eval_set": OTHER, "eval_qid": OTHER[2]}, "takes no eval_qid"),
        ({"eval_qid": [OTHER[2]]}, "eval_qid and eval_group need eval_set"),
        ({"eval_set": {"loss": OTHER}}, "cannot be called 'loss'"),
        ({"eval_set": (X[:30, :2], *OTHER[1:])}, "Evaluation set 'validation' has 2 features"),
        ({"eval_set": (X[:30], Y[:30] * 0, QID[:30])}, "no relevant document"),
        ({"eval_set": (X[:30], None, QID[:30])}, "requires y"),
    ],
)
def test_invalid_evaluation_sets(arguments, message):
    with pytest.raises(TwinRankError, match=message):
        small().fit(DATA, **arguments)


def test_eval_fraction_holds_out_queries():
    seen = []

    class Looks(Callback):
        def on_train_begin(self, trainer):
            sets = (trainer.learner.task.train.data, trainer.validation.sets["validation"])
            seen.append([data.query_ids for data in sets])

    shuffled = X[SCATTERED], Y[SCATTERED], QID[SCATTERED]
    ranker = small().fit(*shuffled, eval_fraction=0.3, callbacks=[Looks()])
    ((train, validation),) = seen
    assert (train.size, validation.size) == (7, 3)
    assert sorted([*train, *validation]) == list(range(100, 110))
    assert same(ranker, small().fit(*shuffled, eval_fraction=0.3))
    held = np.isin(QID, validation)
    assert ranker.best_score_ == pytest.approx(ranker.score(X[held], Y[held], qid=QID[held]))
    weighted = np.where(np.isin(np.arange(100, 110), validation), 0, 1.0)
    by_row = weighted[shuffled[2] - 100]
    assert same(ranker, small().fit(*shuffled, sample_weight=by_row, eval_fraction=0.3))


def test_early_stopping():
    ranker = small(epochs=50, early_stopping=2, learning_rate=1e-9).fit(DATA, eval_set=OTHER)
    assert len(ranker.history_) == ranker.best_iteration_ + 2 < 50
    assert len(small(epochs=5, early_stopping=None).fit(DATA, eval_set=OTHER).history_) == 5


def test_verbose_prints_lines_without_a_terminal(capsys):
    small(verbose=True).fit(DATA, eval_set=OTHER)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]
    assert all("validation nDCG@5 0." in line and "\x1b" not in line for line in lines)
    small().fit(DATA)
    assert capsys.readouterr() == ("", "")


# Parameters, saving and pickling


def test_parameters_are_stored_unchanged():
    ranker = small(alpha=2.0, transforms=["SignedLog1p", "QueryZScore"])
    copied = clone(ranker)
    assert copied is not ranker
    assert copied.get_params() == ranker.get_params()
    assert copied.set_params(alpha=3.0).alpha == 3.0
    assert ranker.alpha == 2.0
    with pytest.raises(ValueError, match="Invalid parameter 'aplha'"):
        ranker.set_params(aplha=1)
    ranker.fit(DATA)
    assert (
        ranker.get_params()
        == small(alpha=2.0, transforms=["SignedLog1p", "QueryZScore"]).get_params()
    )
    assert not hasattr(clone(ranker), "model_")


def test_repr_shows_changed_parameters():
    assert repr(Ranker()) == "Ranker()"
    assert repr(Ranker(objective="AP", epochs=3)) == "Ranker(epochs=3, objective='AP')"
    assert "Ranker" in small()._repr_html_()
    assert "nonsense" in small(transforms="nonsense")._repr_html_()


@pytest.mark.parametrize("architecture", ["MLP(width=4, depth=1)", "Linear", "CE5(width=3)"])
@pytest.mark.parametrize("transforms", ["Standardise", "SignedLog1p + QueryZScore"])
def test_a_saved_model_scores_the_same(tmp_path, architecture, transforms):
    ranker = small(architecture=architecture, transforms=transforms, alpha=0.5, objective="AP")
    ranker.fit(as_pandas(X), Y, qid=QID).save(tmp_path / "model")
    loaded = Ranker.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(X, qid=QID), ranker.predict(X, qid=QID))
    assert loaded.get_params() == ranker.get_params()
    assert loaded.feature_names_in_.tolist() == NAMES
    assert loaded.n_features_in_ == 3
    moved = as_pandas(X)[NAMES[::-1]].assign(further=1)
    assert np.array_equal(loaded.predict(moved, qid=QID), ranker.predict(X, qid=QID))
    assert same(clone(loaded).fit(DATA), ranker)
    loaded.partial_fit(DATA)


def test_parameters_without_a_json_type_are_saved_as_text(tmp_path):
    parameters = {
        "transforms": [transform("Clip(low=-3)"), "SignedLog1p"],
        "architecture": Architecture(width=4, depth=1, activation="tanh", norm="layer"),
        "random_state": np.int64(3),
        "learning_rate": np.float32(0.5),
        "epochs": np.int64(1),
        "categorical_features": [np.int64(2)],
    }
    coded = np.column_stack([X[:, :2], np.arange(QID.size) % 4])
    ranker = Ranker(**parameters).fit(coded, Y, qid=QID)
    ranker.save(tmp_path / "model")
    loaded = Ranker.load(tmp_path / "model")
    assert loaded.transforms == ["Clip(low=-3)", "SignedLog1p"]
    assert loaded.categorical_features == [2]
    assert loaded.random_state == 3
    assert same(clone(loaded).fit(coded, Y, qid=QID), ranker)
    coded[5, 2] = np.nan  # a missing category has its own embedding
    assert np.isfinite(loaded.predict(coded, qid=QID)).all()
    coded[5, 1] = np.nan  # a missing feature is an error
    with pytest.raises(InputError, match="Feature 2 is missing"):
        loaded.predict(coded, qid=QID)


def test_a_callable_objective_is_not_saved(tmp_path):
    ranker = small(objective=DirectLoss("AP")).fit(DATA)
    ranker.save(tmp_path / "model")
    loaded = Ranker.load(tmp_path / "model")
    assert loaded.objective == "nDCG"
    assert np.array_equal(loaded.predict(DATA), ranker.predict(DATA))


def test_pickles(fitted, tmp_path):
    joblib.dump(fitted, tmp_path / "ranker.joblib")
    for copied in (joblib.load(tmp_path / "ranker.joblib"), pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(copied.predict(DATA), fitted.predict(DATA))
        assert copied.history_ == fitted.history_
        copied.partial_fit(DATA)


def test_importing_the_library_loads_neither_torch_nor_sklearn():
    code = (
        "import sys, twinrank; twinrank.Dataset; dir(twinrank);"
        "assert not {'torch', 'sklearn'} & sys.modules.keys();"
        "twinrank.Ranker(); assert 'sklearn' in sys.modules; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# scikit-learn


class OneQuery(Ranker):
    """All rows are one query, because scikit-learn's checks have no queries."""

    def __init__(
        self,
        architecture="MLP(width=4, depth=1)",
        transforms="Standardise",
        epochs=1,
        random_state=0,
    ):
        super().__init__(
            architecture=architecture,
            transforms=transforms,
            epochs=epochs,
            random_state=random_state,
        )

    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, y, qid=_same_id(X), sample_weight=sample_weight)

    def partial_fit(self, X, y=None, sample_weight=None):
        return super().partial_fit(X, y, qid=_same_id(X), sample_weight=sample_weight)

    def score(self, X, y=None):
        return super().score(X, y, qid=_same_id(X))


def _same_id(X):
    return np.zeros(X.shape[0] if hasattr(X, "shape") else np.asarray(X).shape[0])


_WEIGHTS = "weights multiply gains: a weight of 2 is not two copies"
EXCEPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": _WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": _WEIGHTS,
}


@parametrize_with_checks([OneQuery()], expected_failed_checks=lambda _: EXCEPTIONS)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


def routed():
    ranker = small().set_fit_request(qid=True).set_score_request(qid=True)
    return ranker.set_predict_request(qid=True)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("wrap", [lambda r: r, lambda r: make_pipeline(StandardScaler(), r)])
def test_cross_validation_by_query(wrap):
    shuffled = X[SCATTERED], Y[SCATTERED], QID[SCATTERED]
    params = {"qid": shuffled[2], "groups": shuffled[2]}
    values = cross_val_score(
        wrap(routed()), *shuffled[:2], cv=GroupKFold(3), params=params, error_score="raise"
    )
    expected = []
    for train, test in GroupKFold(3).split(*shuffled):
        fitted = wrap(routed()).fit(*(a[train] for a in shuffled[:2]), qid=shuffled[2][train])
        expected.append(fitted.score(*(a[test] for a in shuffled[:2]), qid=shuffled[2][test]))
    assert values.tolist() == expected


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize("make", [np.asarray, as_pandas])
def test_grid_search_by_query(piped, make):
    estimator = make_pipeline(StandardScaler(), routed()) if piped else routed()
    prefix = "ranker__" if piped else ""
    grid = {f"{prefix}alpha": [0.5, 2.0], f"{prefix}epochs": np.array([1, 2])}
    search = GridSearchCV(estimator, grid, cv=GroupKFold(2), error_score="raise")
    search.fit(make(X), Y, qid=QID, groups=QID)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.score(make(X), Y, qid=QID) > 0
    assert search.best_estimator_.predict(make(X), qid=QID).shape == QID.shape


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_a_search_without_routing_says_which_lines_it_needs():
    search = GridSearchCV(small(), {"alpha": [0.5, 2.0]}, cv=GroupKFold(2), refit=False)
    with pytest.warns(UserWarning, match="Scoring failed") as caught:
        search.fit(X, Y, groups=QID, qid=QID)
    said = str(caught[0].message)
    assert "score needs the query of each row; pass qid or group." in said
    assert "sklearn.set_config(enable_metadata_routing=True)" in said
    assert "ranker.set_fit_request(qid=True).set_score_request(qid=True)" in said


@pytest.mark.usefixtures("routing")
def test_with_routing_score_asks_for_queries_alone():
    with pytest.raises(InputError, match=r"^score needs .* pass qid or group\.$"):
        small().fit(X, Y, QID).score(X, Y)


def test_a_pipeline_without_routing():
    pipeline = make_pipeline(StandardScaler(), small()).fit(X, Y, ranker__qid=QID)
    assert pipeline.predict(X, qid=QID).shape == QID.shape


def test_weights_count_across_steps_of_one_query():
    """A loss is a mean within its batch: in steps of one query a weight must still matter."""
    weights = np.linspace(0.1, 5, LONG.queries)
    for changes in ({"mode": "paper"}, {"batch_documents": 1}):
        unweighted = small(**changes).fit(LONG)
        assert not same(unweighted, small(**changes).fit(LONG, sample_weight=weights))
        equal = small(**changes).fit(LONG, sample_weight=np.full(LONG.queries, 3.0))
        assert same(unweighted, equal)


def test_an_objective_that_takes_no_weights():
    class Plain(torch.nn.Module):
        def forward(self, scores, labels, lists):
            return scores.sum() * 0

    def mine(scores, labels, lists):
        return scores.sum() * 0

    def anything(scores, labels, lists, **options):
        return scores.sum() * 0

    weights = np.ones(DATA.queries)
    for objective, name in ((mine, "mine"), (Plain(), "forward")):
        small(objective=objective).fit(DATA)
        with pytest.raises(InputError, match=rf"{name}\(scores, labels, lists\) does not\. Write"):
            small(objective=objective).fit(DATA, sample_weight=weights)
    small(objective=anything).fit(DATA, sample_weight=weights)


def test_a_measure_as_objective_equals_its_name():
    assert same(small(objective=measure("AP")).fit(DATA), small(objective="AP").fit(DATA))
    small(architecture="MLP(width=4, depth=1, norm=none)").fit(DATA)
