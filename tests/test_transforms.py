"""Every transform against a slow reference and others' libraries, and against its contract."""

import json
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import zscore
from sklearn.preprocessing import MinMaxScaler, QuantileTransformer, StandardScaler

from twinrank.core.lists import Lists
from twinrank.data.transforms import (
    TRANSFORMS,
    Clip,
    Compose,
    MissingIndicator,
    PiecewiseLinear,
    Quantile,
    QueryMinMax,
    QueryZScore,
    SignedLog1p,
    Standardise,
    Union,
    combined,
    from_json,
    quantiles,
    standardise,
    transform,
    transform_base,
)
from twinrank.support import compiled
from twinrank.support.errors import InputError

LARGEST = np.finfo(np.float32).max
STATISTICS = [QueryZScore(), QueryMinMax(), Standardise()]
UNIONS = [
    "QueryZScore | SignedLog1p + Standardise",
    "none | QueryZScore | MissingIndicator",
    "(none | SignedLog1p) + Standardise | Quantile(n_quantiles=20, output_distribution=normal)",
    "SignedLog1p + PiecewiseLinear(bins=3) + QueryZScore",
    "QueryZScore + (PiecewiseLinear(bins=2, subsample=50) | Clip(high=1)) + Standardise",
]
quick = settings(deadline=None, max_examples=60)
every = pytest.mark.parametrize("kind", TRANSFORMS, ids=lambda kind: kind.__name__)


# The reference: float64, one feature of one list at a time


def column_zscore(x):
    known = ~np.isnan(x)
    result = np.zeros(x.size)
    if known.any():
        away = x[known] - x[known][0]
        away -= away.mean() if away.any() else 0
        deviation = np.sqrt((away**2).mean())
        result[known] = away / deviation if deviation > 0 else 0
    return result


def column_minmax(x):
    known = ~np.isnan(x)
    result = np.zeros(x.size)
    if known.any():
        low, high = x[known].min(), x[known].max()
        result[known] = (x[known] - low) / (high - low) if high > low else 0
    return result


def column_quantile(x):
    known = np.sort(x[~np.isnan(x)])
    result = np.full(x.size, 0.5)
    if known.size and known[0] < known[-1]:
        shares = np.linspace(0, 1, min(x.size, 200))
        places = [k * (known.size - 1) / (shares.size - 1) for k in range(shares.size)]
        knots = np.interp(places, np.arange(known.size), known).astype(np.float32).astype(float)
        ours = ~np.isnan(x)
        upper = np.interp(x[ours], knots, shares)
        lower = -np.interp(-x[ours], -knots[::-1], -shares[::-1])
        result[ours] = (lower + upper) / 2
    return result


def column_bins(x, bins=8):
    known = x[~np.isnan(x)]
    if not known.size or known.min() == known.max():
        return np.zeros((x.size, 1))
    count = min(bins + 1, x.size)
    places = [k * (known.size - 1) / (count - 1) for k in range(count)]
    edges = np.interp(places, np.arange(known.size), np.sort(known)).astype(np.float32)
    edges = np.unique(edges).astype(np.float64)
    inside = (x[:, None] - edges[:-1]) / np.diff(edges)
    return np.nan_to_num(np.clip(inside, 0, 1))  # nothing is beyond the first and last edge


def per_feature(function):
    return lambda X, lists: np.hstack(
        [np.empty((len(X), 0)), *(function(x).reshape(len(X), -1) for x in X.astype(float).T)]
    )


def per_query(function):
    def reference(X, lists):
        result = np.empty(X.shape)
        for one in lists:
            for f in range(X.shape[1]):
                result[one, f] = function(X[one, f].astype(np.float64))
        return result

    return reference


REFERENCE = {
    QueryZScore: per_query(column_zscore),
    QueryMinMax: per_query(column_minmax),
    Standardise: lambda X, lists: per_query(column_zscore)(X, Lists.from_sizes([len(X)])),
    SignedLog1p: lambda X, lists: np.sign(X) * np.log1p(np.abs(X.astype(np.float64))),
    Clip: lambda X, lists: np.clip(X, -LARGEST, LARGEST),
    Quantile: per_feature(column_quantile),
    PiecewiseLinear: per_feature(column_bins),
    MissingIndicator: lambda X, lists: np.isnan(X)[:, np.isnan(X).any(axis=0)],
}


def draw_problem(draw, values):
    sizes = draw(st.lists(st.one_of(st.sampled_from([0, 1]), st.integers(2, 9)), max_size=6))
    features = draw(st.integers(0, 4))
    lists = Lists.from_sizes(np.array(sizes, np.int64))
    return draw(hnp.arrays(np.float32, (lists.documents, features), elements=values)), lists


@st.composite
def problems(draw):
    """Ragged lists; ties, constants, missing values and any finite float32."""
    few = st.sampled_from([-1.5, 0.0, 2.0, 0.1, 1e-30, 3e38, float("nan")]).map(np.float32)
    wide = st.floats(width=32, allow_nan=True, allow_infinity=False)
    X, lists = draw_problem(draw, draw(st.sampled_from([few, wide])))
    return X, lists


def random_problem(seed=0, sizes=(40, 0, 1, 75, 2, 130), features=5, missing=0.0):
    rng = np.random.default_rng(seed)
    lists = Lists.from_sizes(sizes)
    X = rng.standard_normal((lists.documents, features)) * 10.0 ** np.arange(features)
    X[rng.random(X.shape) < missing] = np.nan
    return X.astype(np.float32), lists


@every
@quick
@given(problem=problems())
def test_against_the_reference(kind, problem):
    X, lists = problem
    if kind().has_statistics and lists.documents == 0:
        return
    before = X.copy()
    actual = kind().fit(X, lists)(X, lists)
    assert actual.dtype == np.float32
    assert actual.flags.c_contiguous
    assert_allclose(actual, REFERENCE[kind](X, lists), rtol=1e-6, atol=1e-6)
    assert_array_equal(X, before)


@pytest.mark.parametrize("value", [0.1, -3.4e38, 1e-40, 16777216.0])
@pytest.mark.parametrize("chosen", STATISTICS, ids=str)
def test_a_constant_is_exactly_zero(chosen, value):
    # 0.1 × n / n is rarely 0.1, and the deviation then tiny rather than zero.
    lists = Lists.from_sizes([3, 1, 1000, 0, 70_000])
    X = np.full((lists.documents, 2), value, np.float32)
    X[5::7, 1] = np.nan
    assert_array_equal(chosen.fit(X, lists)(X, lists), np.zeros_like(X))


def test_a_small_spread_far_from_zero():
    lists = Lists.from_sizes([4, 3000])
    X = (np.float32(2**24) - np.arange(lists.documents) % 2).astype(np.float32)[:, None]
    for chosen in (QueryZScore(), Standardise().fit(X, lists)):
        assert_array_equal(chosen(X, lists), np.where(X == 2**24, 1, -1))


def test_zscore_against_scipy():
    X, lists = random_problem(missing=0.1)
    actual = QueryZScore()(X, lists)
    for one in lists:
        if one.stop - one.start > 2:
            theirs = zscore(X[one].astype(np.float64), nan_policy="omit")
            assert_allclose(actual[one], np.nan_to_num(theirs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_against_scikit_learn(missing):
    (X, lists), (other, _) = (random_problem(seed, missing=missing) for seed in (1, 2))
    scaler = StandardScaler().fit(X.astype(np.float64))
    fitted = Standardise().fit(X, lists)
    assert_allclose(fitted.mean_, scaler.mean_, rtol=1e-9)
    assert_allclose(fitted.deviation_, scaler.scale_, rtol=1e-12)
    theirs = np.nan_to_num(scaler.transform(other.astype(np.float64)))
    assert_allclose(fitted(other, lists), theirs, rtol=1e-5, atol=1e-6)
    alone = Lists.from_sizes([len(X)])
    theirs = np.nan_to_num(MinMaxScaler().fit_transform(X.astype(np.float64)))
    assert_allclose(QueryMinMax()(X, alone), theirs, rtol=1e-5, atol=1e-6)


# Properties

# Multiples of 1/8, which scales by powers of two and small shifts leave exact.
grid = st.integers(-1000, 1000).map(lambda i: np.float32(i / 8))


@st.composite
def grids(draw):
    return draw_problem(draw, grid)


@pytest.mark.parametrize("chosen", [QueryZScore(), QueryMinMax()], ids=str)
@quick
@given(problem=grids(), shift=st.integers(-50, 50), scale=st.sampled_from([0.5, 2.0, 64.0]))
def test_no_shift_or_scale_matters_within_a_query(chosen, problem, shift, scale):
    X, lists = problem
    moved = (X * scale + lists.spread(np.arange(len(lists)) * shift)[:, None]).astype(np.float32)
    assert_allclose(chosen(moved, lists), chosen(X, lists), rtol=0, atol=1e-6)


@pytest.mark.parametrize("chosen", [*STATISTICS, Clip(low=-1, high=1)], ids=str)
def test_a_second_time_changes_nothing(chosen):
    X, lists = random_problem()
    once = chosen.fit(X, lists)(X, lists)
    assert_allclose(chosen.fit(once, lists)(once, lists), once, rtol=1e-5, atol=1e-5)


@every
def test_other_lists_and_other_features_do_not_matter(kind):
    X, lists = random_problem(missing=0.1)
    fitted = kind().fit(X, lists)
    whole = fitted(X, lists)
    if kind().per_query:
        for one in lists:
            alone = fitted(X[one], Lists.from_sizes([one.stop - one.start]))
            assert_array_equal(alone, whole[one])
    half = kind().fit(X[:, 1:3], lists)(X[:, 1:3], lists)
    assert_array_equal(half, whole[:, np.isin(fitted.sources(5), [1, 2])])


@every
def test_documents_may_be_reordered(kind):
    X, lists = random_problem()
    order = np.lexsort((np.random.default_rng(3).random(len(X)), lists.index(X)))
    fitted = kind().fit(X, lists)
    assert_allclose(fitted(X[order], lists), fitted(X, lists)[order], rtol=1e-6, atol=1e-6)


def test_signed_log_keeps_order_sign_and_what_is_missing():
    x = np.array([-np.inf, -LARGEST, -1.0, -1e-30, 0.0, 1e-30, 1.0, 1e10, np.inf, np.nan])
    actual = SignedLog1p()(x.astype(np.float32)[:, None], Lists.from_sizes([10])).ravel()
    assert_array_equal(actual[:-1], np.sort(actual[:-1]))
    assert_array_equal(np.sign(actual[:-1]), np.sign(x[:-1]))
    assert_allclose(actual[[3, 5]], np.float32([-1e-30, 1e-30]))
    assert_array_equal(np.isnan(actual), np.isnan(x))


@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        (Clip(), [-LARGEST, -7, 3, LARGEST, np.nan]),
        (Clip(low=-5), [-5, -5, 3, LARGEST, np.nan]),
        (Clip(high=2), [-LARGEST, -7, 2, 2, np.nan]),
        (Clip(low=-5, high=2), [-5, -5, 2, 2, np.nan]),
    ],
    ids=str,
)
def test_clip(clip, expected):
    X = np.array([[-np.inf, -7, 3, np.inf, np.nan]], np.float32)
    assert_array_equal(clip(X, Lists.from_sizes([1])), np.array([expected], np.float32))


# Fitting


def test_statistics_are_those_of_the_training_data_only():
    (X, lists), (other, _) = (random_problem(seed) for seed in (1, 2))
    unfitted = Standardise()
    fitted = unfitted.fit(X, lists)
    assert unfitted == Standardise()  # a new one was made
    together = fitted(np.concatenate([X, other * 100]), lists.tile(2))
    assert_array_equal(together[: len(X)], fitted(X, lists))
    assert_allclose(together[: len(X)].mean(axis=0), 0, atol=1e-5)
    assert abs(together[len(X) :]).max() > 100


def test_what_the_training_data_does_not_tell_is_zero():
    lists = Lists.from_sizes([3])
    X = np.array([[1, np.nan, 1], [1, np.nan, 2], [1, np.nan, np.nan]], np.float32)
    fitted = Standardise().fit(X, lists)
    assert fitted.mean_ == (1.0, 0.0, 1.5)
    assert fitted.deviation_ == (0.0, 0.0, 0.5)
    X = np.array([[5, 6, 2], [1, np.nan, np.nan], [-5, -6, 1]], np.float32)
    assert_array_equal(fitted(X, lists), [[0, 0, 1], [0, 0, 0], [0, 0, -1]])


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks and tiles of a few rows, so that small data has many."""
    monkeypatch.setattr(standardise, "_TILE", 7 * 5)
    monkeypatch.setattr(quantiles, "_TILE", 7 * 5)
    monkeypatch.setattr(transform_base, "BLOCK", 40 * 5)
    monkeypatch.setattr(combined, "_BLOCK", 20 * 5)


CHAINS = ["Standardise", "SignedLog1p + Standardise", "QueryZScore + Clip(high=1) + Standardise",
          "Standardise + SignedLog1p + Standardise + QueryMinMax + Standardise"]  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS)
def test_blocks_add_up_to_the_whole(chain, small_blocks):
    X, lists = random_problem(sizes=[0, 3, 1, 90, 0, 0, 2, 2, 60, 39, 1, 4, 0], missing=0.05)
    fitted = transform(chain).fit(X, lists)
    expected = X
    for one in fitted.transforms if isinstance(fitted, Compose) else [fitted]:
        if isinstance(one, Standardise):
            known = expected.astype(np.float64)
            assert_allclose(one.mean_, np.nanmean(known, axis=0), rtol=1e-6, atol=1e-9)
            assert_allclose(one.deviation_, np.nanstd(known, axis=0), rtol=1e-6)
        expected = one(expected, lists)
    assert_array_equal(fitted(X, lists), expected)


def test_fitting_never_holds_all_transformed_rows(small_blocks, monkeypatch):
    X, lists = random_problem(sizes=[20] * 50)
    rows = []
    apply = QueryZScore.apply
    monkeypatch.setattr(
        QueryZScore, "apply", lambda self, x, *rest: (rows.append(len(x)), apply(self, x, *rest))
    )
    transform("QueryZScore + Standardise").fit(X, lists)
    assert sum(rows) == len(X)
    assert max(rows) <= 40 + lists.longest


def test_means_far_apart_merge_soundly(small_blocks):
    # Half of the documents lie at 1e7, half at −1e7: Σx² − n·mean² would lose what is between.
    X = np.repeat(np.float32([1e7, -1e7]), 500)[:, None] + np.float32([[0], [1]] * 500)
    fitted = Standardise().fit(X, Lists.from_sizes([1000]))
    exact = X.astype(np.longdouble)
    assert fitted.mean_ == (0.5,)
    assert_allclose(fitted.deviation_, float(exact.std()), rtol=1e-15)


@pytest.mark.parametrize("name", [*(k.__name__ for k in TRANSFORMS), *CHAINS[1:], *UNIONS])
def test_the_same_bits_on_any_number_of_threads(name, small_blocks, monkeypatch):
    monkeypatch.setattr(transform_base, "_PER_THREAD", 1)
    results, before = [], torch.get_num_threads()
    for sizes in ([7, 0, 300, 1, 90, 33, 2], [1, 5000]):  # shared out by lists, by features
        X, lists = random_problem(sizes=sizes, missing=0.05)
        try:
            for threads in (1, 2, 3, 5, 8):
                torch.set_num_threads(threads)
                assert compiled.threads() == threads
                fitted = transform(name).fit(X, lists)
                results.append((fitted.to_json(), fitted(X, lists).tobytes()))
        finally:
            torch.set_num_threads(before)
        assert results == [results[0]] * len(results)
        results.clear()


# Side by side


def parts_of(chosen, X, lists):
    """The result of a fitted transform, part by part, with the feature of each column."""
    if isinstance(chosen, Union):
        parts = [parts_of(branch, X, lists) for branch in chosen.transforms]
        return np.hstack([x for x, _ in parts]), np.concatenate([s for _, s in parts])
    sources = np.arange(X.shape[1])
    if isinstance(chosen, Compose):
        for step in chosen.transforms:
            X, own = parts_of(step, X, lists)
            sources = sources[own]
        return X, sources
    return chosen(X, lists), chosen.sources(X.shape[1])


@pytest.mark.parametrize("name", UNIONS)
@settings(quick, max_examples=25)
@given(problem=problems())
def test_a_union_is_its_parts_side_by_side(name, problem):
    X, lists = np.clip(problem[0], -1e9, 1e9), problem[1]
    if lists.documents == 0:
        return
    fitted = transform(name).fit(X, lists)
    expected, sources = parts_of(fitted, X, lists)
    assert_array_equal(fitted(X, lists), expected)
    assert_array_equal(fitted.sources(X.shape[1]), sources)
    assert fitted.outputs(X.shape[1]) == sources.size


@pytest.mark.parametrize("name", UNIONS)
def test_a_union_in_blocks(name, small_blocks, tmp_path):
    X, lists = random_problem(sizes=[0, 3, 1, 90, 0, 0, 2, 2, 60, 39, 1, 4, 0], missing=0.05)
    fitted = transform(name).fit(X, lists)
    expected, _ = parts_of(fitted, X, lists)
    file = tmp_path / "X"
    X.tofile(file)
    for other in (X, np.memmap(file, np.float32, "r", shape=X.shape), X.astype(np.float64)):
        assert transform(name).fit(other, lists) == fitted
        assert_array_equal(fitted(other, lists), expected)


def test_a_union_keeps_raw_values_and_names_features(small_blocks):
    X, lists = random_problem(sizes=[30] * 20, missing=0.1)
    both = transform("none | QueryZScore")
    assert both.keeps_missing
    assert_array_equal(both(X, lists)[:, :5], X)
    assert transform("A | B".replace("A", "Clip").replace("B", "none")) == Union(
        (Clip(), Compose())
    )
    assert Union((Union((Clip(),)), Clip())) == Union((Clip(), Clip()))
    X[500, 2] = np.inf
    for chain in (
        "Clip | QueryZScore",
        "(none | none) + Standardise",
        "(Clip | none) + QueryZScore + Standardise",
        "(Clip | none) + QueryMinMax",
        "(Clip | none) + Quantile",
        "(Clip | none) + QueryZScore + PiecewiseLinear",
    ):
        with pytest.raises(InputError, match=r"Feature 2 of document 500 \(list 16\) is inf"):
            transform(chain).fit(X, lists)(X, lists)
    with pytest.raises(InputError, match="at most 16777216 are possible"):
        transform(["none | none"] * 30)(X, lists)


# Quantiles


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_quantiles_against_scikit_learn(distribution):
    # 257 quantiles: multiples of 1/256, which scikit-learn's percentages do not round.
    (X, lists), (other, _) = (random_problem(seed, sizes=[100, 57, 100]) for seed in (1, 2))
    X[:, 1] = np.round(X[:, 1] / 10)  # ties
    X[[0, 1], 1] = -100, 100
    theirs = QuantileTransformer(n_quantiles=len(X), output_distribution=distribution)
    ours = Quantile(n_quantiles=len(X), output_distribution=distribution).fit(X, lists)
    theirs.fit(X.astype(np.float64))
    assert_allclose(ours(X, lists), theirs.transform(X), rtol=0, atol=2e-6)
    if distribution == "uniform":  # normal scores are interpolated otherwise between quantiles
        assert_allclose(ours(other, lists), theirs.transform(other), rtol=0, atol=2e-6)
    else:
        inside = np.abs(theirs.transform(other)) < 2
        difference = np.abs(ours(other, lists) - theirs.transform(other))
        assert difference[inside].max() < 0.02
    ends = ours(np.array([[-np.inf] * 5, [np.inf] * 5, [np.nan] * 5]), Lists.from_sizes([3]))
    expected = {"uniform": [0, 1, 0.5], "normal": [-5.1993, 5.1993, 0]}[distribution]
    assert_allclose(ends, np.repeat(expected, 5).reshape(3, 5), atol=1e-4)


def test_the_sample_is_spread_over_the_data():
    X = np.arange(10_000, dtype=np.float32)[:, None]
    lists = Lists.from_sizes([10] * 1000)
    for before in ("none", "Clip", "QueryMinMax"):
        few, all_of_them = (
            transform([before, Quantile(subsample=n)]).fit(X, lists)(X, lists)
            for n in (1000, 10_000)
        )
        assert abs(few - all_of_them).max() < (0.05 if before == "QueryMinMax" else 0.002)
    rows = quantiles._sampled_rows(10_000, 1000)
    assert_array_equal(rows // 10, np.arange(1000))
    assert len(set((rows % 10).tolist())) == 10  # not the same place of every list


def test_bins_by_hand():
    X = np.array([[0, 5, np.nan, 1], [1, 5, np.nan, 1], [2, 5, np.nan, 1], [10, 5, np.nan, 2]])
    lists = Lists.from_sizes([4])
    fitted = PiecewiseLinear(bins=3).fit(X, lists)
    assert fitted.edges_ == ((0, 1, 2, 10), (5,), (), (1, 2))
    assert fitted.sources(4).tolist() == [0, 0, 0, 1, 2, 3]
    new = np.array([[-1, 4, 1, 1.5], [1.5, 7, np.nan, 3], [14, 5, 0, np.nan], [np.nan] * 4])
    assert_array_equal(
        fitted(new, lists),
        [[-1, 0, 0, 0, 0, 0.5], [1, 0.5, 0, 0, 0, 2], [1, 1, 1.5, 0, 0, 0], [0] * 6],
    )
    for chosen in (PiecewiseLinear(), Quantile()):
        with pytest.raises(InputError, match=f"{chosen} is not fitted; call fit"):
            chosen(X, lists)
        with pytest.raises(InputError, match=f"{chosen} was fitted on 4 features, but X has 3"):
            chosen.fit(X, lists)(X[:, :3], lists)


# Arrays of all kinds


@every
def test_input_of_any_layout_is_left_alone(kind, tmp_path):
    X, lists = random_problem(missing=0.1)
    fitted = kind().fit(X, lists)
    expected = fitted(X, lists)
    file = tmp_path / "X"
    X.tofile(file)
    strided = np.zeros((2 * len(X), 3 * X.shape[1]), np.float32)
    strided[::2, ::3] = X
    for other in (
        np.memmap(file, np.float32, "r", shape=X.shape),
        np.asfortranarray(X),
        strided[::2, ::3],
        X.astype(np.float64),
        X.astype(">f4"),
        X.tolist(),
        torch.from_numpy(X),
    ):
        again = kind().fit(other, lists)
        assert again == fitted
        actual = again(other, lists)
        assert type(actual) is np.ndarray
        assert actual.flags.c_contiguous
        assert_array_equal(actual, expected)
        assert_array_equal(np.asarray(other), X)


@every
def test_into_a_given_array_and_in_place(kind, tmp_path):
    X, lists = random_problem(missing=0.1)
    fitted = Compose((kind(), SignedLog1p())).fit(X, lists)
    expected = fitted(X, lists)
    out = np.full_like(expected, 7)
    assert fitted(X, lists, out=out) is out
    assert_array_equal(out, expected)
    file = np.memmap(tmp_path / "out", np.float32, "w+", shape=expected.shape)
    assert fitted(X.astype(np.float64), lists, out=file) is file
    assert_array_equal(file, expected)
    if fitted.outputs(X.shape[1]) != X.shape[1]:
        return
    assert fitted(X, lists, out=X) is X
    assert_array_equal(X, expected)


def test_whole_numbers_are_fine():
    X = np.array([[1, 7], [3, 7]])
    assert_array_equal(QueryZScore()(X, Lists.from_sizes([2])), [[-1, 0], [1, 0]])


def test_nothing_is_fine():
    for shape, sizes in (((0, 3), []), ((0, 3), [0, 0]), ((4, 0), [3, 1])):
        X, lists = np.empty(shape, np.float32), Lists.from_sizes(np.array(sizes, np.int64))
        for kind in TRANSFORMS:
            some = np.zeros((2, shape[1]), np.float32)
            chosen = kind().fit(some, Lists.from_sizes([2]))
            assert chosen(X, lists).shape == (len(X), chosen.outputs(shape[1]))
            assert Union((chosen, Compose()))(X, lists).shape == (
                len(X),
                chosen.outputs(shape[1]) + shape[1],
            )
    for kind in (Standardise, Quantile, PiecewiseLinear):
        with pytest.raises(InputError, match=f"{kind.__name__} needs at least one document"):
            kind().fit(X[:0], Lists.from_sizes(np.array([0])))


# Errors


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize("chosen", [*STATISTICS, Quantile(), PiecewiseLinear()], ids=str)
def test_infinities_are_named(chosen, first, bad, small_blocks):
    X, lists = random_problem(sizes=[30, 0, 50, 9], missing=0.2)
    document = 30 if first else 71
    X[[document, 80], [3, 1]] = bad
    message = rf"Feature 3 of document {document} \(list 2\) is {bad:g}, which {chosen} can't use"
    before = X.copy()
    with pytest.raises(InputError, match=f"{message}; add Clip before it"):
        chosen.fit(X, lists)(X, lists)
    if chosen.per_query:  # in place, what is wrong stays to be looked at
        with pytest.raises(InputError, match=message):
            chosen(X, lists, out=X)
        assert_array_equal(X[30:80, 3], before[30:80, 3])
    assert np.isfinite(Compose((Clip(), chosen)).fit(before, lists)(before, lists)).all()


def test_an_infinity_in_a_later_block(small_blocks):
    X, lists = random_problem(sizes=[30] * 20)
    X[500, 2] = np.inf
    for chain in ("QueryZScore + Standardise", "SignedLog1p + Standardise", "Standardise"):
        message = r"Feature 2 of document 500 \(list 16\) is inf"
        with pytest.raises(InputError, match=message):
            transform(chain).fit(X, lists)


def test_new_data_beyond_float32():
    lists = Lists.from_sizes([2])
    fitted = Standardise().fit(np.array([[1e-30], [2e-30]]), lists)
    with pytest.raises(InputError, match=r"document 1 \(list 0\) is 1e\+30, which Standardise"):
        fitted(np.array([[np.nan], [1e30]]), lists)
    constant = Standardise((1.0,), (0.0,))
    with pytest.raises(InputError, match="is inf, which"):
        constant(np.array([[3.0], [np.inf]]), lists)


def test_misuse():
    X, lists = random_problem(sizes=[2, 1], features=2)
    with pytest.raises(InputError, match=r"call fit\(X, lists\) on training data first"):
        Standardise()(X, lists)
    with pytest.raises(InputError, match="call fit"):
        transform("SignedLog1p + Standardise")(X, lists)
    fitted = transform("SignedLog1p + Standardise").fit(X, lists)
    with pytest.raises(InputError, match="fitted on 2 features, but X has 1"):
        fitted(X[:, :1], lists)
    with pytest.raises(InputError, match="X has 2 rows but lists has 3 documents"):
        QueryZScore()(X[:2], lists)
    with pytest.raises(InputError, match=r"shape \(documents, features\), but has shape \(3,\)"):
        QueryZScore().fit(X[:, 0], lists)
    with pytest.raises(InputError, match="lists must be Lists"):
        QueryZScore()(X, [2, 1])
    with pytest.raises(InputError, match="X must contain numbers, not <U1"):
        QueryZScore()(np.full((3, 2), "a"), lists)
    with pytest.raises(FrozenInstanceError):
        fitted.transforms[1].mean_ = None


def test_unfit_outputs():
    X, lists = random_problem(sizes=[2, 1], features=2)
    wide, fixed = np.empty((4, 2), np.float32), np.empty_like(X)
    fixed.flags.writeable = False
    for out, message in (
        ([[0.0]], "NumPy array, not list"),
        (X.astype(np.float64), r"float32 of shape \(3, 2\), not float64"),
        (wide, r"not float32 of shape \(4, 2\)"),
        (np.asfortranarray(X), "C-contiguous"),
        (fixed, "writeable"),
    ):
        with pytest.raises(InputError, match=message):
            SignedLog1p()(X, lists, out=out)
    with pytest.raises(InputError, match="out overlaps X partly"):
        SignedLog1p()(wide[:3], lists, out=wide[1:])


# Names


@pytest.mark.parametrize(
    "text",
    [*(kind.__name__ for kind in TRANSFORMS), "none", "Clip(low=-5)", "Clip(low=-1e+20, high=2.5)",
     "Clip(high=1e+22) + QueryZScore", *CHAINS, *UNIONS],
)  # fmt: skip
def test_names_round_trip(text):
    chosen = transform(text)
    assert transform(str(chosen)) == chosen
    assert transform(chosen) is chosen
    assert hash(transform(text)) == hash(chosen)
    X, lists = random_problem()
    assert str(chosen.fit(X, lists)) == str(chosen)


def test_lists_of_names():
    expected = Compose((Clip(low=-5, high=5), QueryZScore()))
    assert transform(["Clip(low=-5,high=5)", QueryZScore()]) == expected
    assert transform("Clip(low=-5,high=5)+QueryZScore") == expected
    assert Compose((Compose((Clip(low=-5, high=5),)), Compose(), QueryZScore())) == expected
    assert str(expected) == "Clip(low=-5, high=5) + QueryZScore"
    assert transform(["QueryZScore"]) == QueryZScore()
    X, lists = random_problem()
    for nothing in (transform([]), transform("none")):
        assert_array_equal(nothing(X, lists), X)
        assert not np.shares_memory(nothing(X, lists), X)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("QueryZscores", "Unknown transform 'QueryZscores'. Did you mean 'QueryZScore'"),
        ("x", "Choose from QueryZScore, Standardise"),
        ("Clip(lo=1)", "Unknown option of Clip 'lo'. Did you mean 'low'"),
        ("QueryZScore(low=1)", "QueryZScore has no options"),
        ("Standardise(mean_=[1])", "Standardise has no options"),
        ("Clip@5", "no cutoff"),
        ("", "Can't read"),
        ("SignedLog1p +", "Can't read"),
        (["Clip", 3], "not 3"),
        (None, "not None"),
        ("Clip(low=5, high=5)", "low is 5, high 5"),
        ("Clip(low=1, high=0)", "low is 1, high 0"),
        ("Clip(low=nan)", "low of Clip must be a finite float32, not nan"),
        ("Clip(high=1e39)", "high of Clip"),
        ("Clip(high=true)", "high of Clip"),
        ("Clip(high=much)", "not 'much'"),
        ("QueryZScore |", "Can't read"),
        ("(QueryZScore", "Can't read"),
        ("PiecewiseLinear(bins=0)", "bins of PiecewiseLinear must be a whole number of at least 1"),
        ("Quantile(n_quantiles=1)", "n_quantiles of Quantile .* at least 2, not 1"),
        ("Quantile(subsample=0.5)", "subsample of Quantile .* not 0.5"),
        ("Quantile(output_distribution=norm)", "Did you mean 'normal'"),
    ],
)
def test_wrong_names(wrong, message):
    with pytest.raises(InputError, match=message):
        transform(wrong)


def test_bounds_from_numpy_are_plain():
    assert repr(Clip(low=np.float32(0.5), high=np.int64(2))) == "Clip(low=0.5, high=2)"


def test_compose_takes_transforms_only():
    with pytest.raises(InputError, match="Compose needs Transform objects, not 'Clip'"):
        Compose(("Clip",))


# Saving


@pytest.mark.parametrize("name", [*(k.__name__ for k in TRANSFORMS), "none", *CHAINS, *UNIONS])
def test_json_gives_the_same_bits(name):
    X, lists = random_problem(missing=0.1)
    for chosen in (transform(name), transform(name).fit(X / 3, lists)):
        text = json.dumps(chosen.to_json(), allow_nan=False)
        again = from_json(json.loads(text))
        assert again == chosen
        assert type(again) is type(chosen)
        assert json.dumps(again.to_json()) == text
        assert pickle.loads(pickle.dumps(chosen)) == chosen
    assert_array_equal(again(X, lists), chosen(X, lists))


def nested(levels):
    data = {"name": "QueryZScore"}
    for i in range(levels):
        data = {"name": ("Compose", "Union")[i % 2], "transforms": [data]}
    return data


BINS = {"name": "PiecewiseLinear", "bins": 8, "subsample": 100, "edges": [[0.0, 1.0]]}
FITTED = {"name": "Standardise", "mean": [0.5, 1.0], "deviation": [1.0, 0.0]}


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        ([], r"an object with a name, not \[\]"),
        ({}, "an object with a name"),
        ({"name": 3}, "an object with a name"),
        ({"name": "os.system"}, "Unknown transform"),
        ({"name": "Clip", "low": 1}, "must have the keys name, low, high, not name, low"),
        ({"name": "QueryZScore", "x": 1}, "must have the keys name, not name, x"),
        ({"name": "Clip", "low": "1", "high": None}, "low of Clip must be"),
        ({"name": "Clip", "low": 2, "high": 1}, "low is 2, high 1"),
        ({"name": "Compose"}, "must have only a list of transforms"),
        ({"name": "Compose", "transforms": {}}, "must have only a list of transforms"),
        ({"name": "Compose", "transforms": [], "x": 1}, "only a list"),
        ({"name": "Compose", "transforms": [FITTED, None]}, "an object with a name, not None"),
        ({"name": "Compose", "transforms": [{"name": "Union"}]}, "saved Union must have only"),
        ({"name": "Union", "transforms": []}, "Union needs at least one transform"),
        (nested(21), "more than 20 levels"),
        (FITTED | {"mean": [0.5]}, "not 1 and 2"),
        (BINS | {"edges": 3}, "statistics of PiecewiseLinear must be a list, not 3"),
        (BINS | {"edges": [[0.0], 3]}, "feature 1, must be a list of numbers"),
        (BINS | {"edges": [[0.0, None]]}, "feature 0, must be a list of numbers"),
        (BINS | {"edges": [[0.0, float("nan")]]}, "feature 0, must be finite"),
        (BINS | {"edges": [[0.0, 1e39]]}, "feature 0, must be finite"),
        (BINS | {"edges": [[1.0, 0.0]]}, "feature 0, must not decrease"),
        (FITTED | {"mean": None}, "not None and 2"),
        (FITTED | {"mean": "ab"}, "a list of numbers, not 'ab'"),
        (FITTED | {"mean": [0.5, None]}, "feature 1: None is not a finite number"),
        (FITTED | {"mean": [[0.5], [1.0]]}, r"feature 0: \[0.5\] is no"),
        (FITTED | {"mean": [True, 1.0]}, "feature 0: True is no"),
        (FITTED | {"mean": [0.5, float("nan")]}, "feature 1: nan is no"),
        (FITTED | {"deviation": [1.0, float("inf")]}, "feature 1: inf is no"),
        (FITTED | {"deviation": [10**400, 1.0]}, "feature 0: 1000"),
        (FITTED | {"deviation": [1.0, -1e-9]}, "A deviation must be 0 or more, not -1e-09"),
    ],
)
def test_damaged_json(damaged, message):
    assert from_json(FITTED) == Standardise((0.5, 1.0), (1.0, 0.0))
    with pytest.raises(InputError, match=message):
        from_json(damaged)


# The contract of everything in the registry


@every
def test_contract(kind):
    chosen = kind()
    assert chosen == replace(chosen)
    assert kind.__doc__
    assert kind.__name__ in str(chosen)
    assert kind in REFERENCE
    X, lists = random_problem()
    fitted = chosen.fit(X, lists)
    assert type(fitted) is kind
    assert fitted.fit(X * 2, lists) == chosen.fit(X * 2, lists)  # nothing is left of the first fit
    if chosen == fitted:  # nothing to learn: needs no fit
        assert_array_equal(chosen(X, lists), fitted(X, lists))


def test_works_without_torch():
    check = (
        "import sys, numpy as np\n"
        "from twinrank.data.transforms import transform\n"
        "from twinrank.core.lists import Lists\n"
        "assert 'numba' not in sys.modules\n"
        "print(transform('QueryZScore')(np.array([[1.0], [2.0]]), Lists.from_sizes([2])).sum())\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)
