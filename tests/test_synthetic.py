"""The synthetic data set: its shape, its features' agreement, and what can be learnt from it."""

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from twinrank.core.lists import Lists
from twinrank.core.measures import measure
from twinrank.data.synthetic import FEATURE_NAMES, FIELDS, _generator, _list_lengths, generate
from twinrank.support.errors import InputError

SHARES = [0.514, 0.325, 0.134, 0.019, 0.008]


@pytest.fixture(scope="module")
def drawn():
    return generate(1000, 7)


@pytest.fixture(scope="module")
def column(drawn):
    """The features of the first 160 lists by name, in double precision."""
    X = drawn[0][: drawn[2][:160].sum()].astype(np.float64)
    return lambda name: X[:, FEATURE_NAMES.index(name)]


@pytest.fixture(scope="module")
def terms(drawn, column):
    """How many terms the query of each document has, from documents that have some of them."""
    sizes = drawn[2][:160]
    covered = column("whole_document_covered_query_term_number")
    ratio = column("whole_document_covered_query_term_ratio")
    of_lists = np.maximum.reduceat(covered / np.maximum(ratio, 0.1), np.cumsum(sizes) - sizes)
    return np.repeat(np.round(of_lists), sizes)


# Shape


def test_names_are_those_of_mslr_in_order():
    assert len(FEATURE_NAMES) == len(set(FEATURE_NAMES)) == 136
    assert all(name.isidentifier() for name in FEATURE_NAMES)
    # Numbers from the published list, which counts from 1.
    published = {
        1: "body_covered_query_term_number",
        5: "whole_document_covered_query_term_number",
        12: "anchor_stream_length",
        21: "body_sum_term_frequency",
        48: "title_sum_normalised_term_frequency",
        95: "whole_document_variance_tf_idf",
        99: "url_boolean_model",
        106: "body_bm25",
        125: "whole_document_lmir_jm",
        126: "url_slashes",
        130: "pagerank",
        136: "url_dwell_time",
    }
    assert {i: FEATURE_NAMES[i - 1] for i in published} == published


def test_arrays(drawn):
    X, y, sizes = drawn
    assert (X.dtype, y.dtype, sizes.dtype) == (np.float32, np.float32, np.int64)
    assert (X.shape, y.shape, sizes.shape) == ((sizes.sum(), 136), (sizes.sum(),), (1000,))
    assert X.flags.c_contiguous
    assert np.isfinite(X).all()


def test_list_lengths():
    """As published: 31,531 queries, 3,771,125 documents, at most 1,251 in a list."""
    blocks = [_list_lengths(_generator(0, block, 0)) for block in range(493)]
    sizes = np.concatenate(blocks)[:31_531]
    assert np.array_equal(sizes[:64], generate(64, 0)[2])
    assert abs(sizes.sum() / 3_771_125 - 1) < 0.02
    assert abs(np.median(sizes) - 110) < 3
    assert sizes.min() == 1
    assert 900 < sizes.max() <= 1251


@pytest.mark.parametrize("seed", [7, 8])
def test_label_shares(drawn, seed):
    y = drawn[1] if seed == 7 else generate(1000, seed)[1]
    shares = np.bincount(y.astype(int), minlength=5) / len(y)
    assert np.abs(shares - SHARES).max() < 0.015
    assert np.abs(shares - SHARES)[3:].max() < 0.003


def test_queries_differ_in_how_much_is_relevant(drawn):
    _, y, sizes = drawn
    relevant = np.add.reduceat(y > 0, np.cumsum(sizes) - sizes) / sizes
    assert relevant.std() > 0.15


def test_features_differ_between_queries_as_in_mslr(drawn):
    """Queries explain 28 % of the variance of the median feature of MSLR, by rank."""
    sizes = drawn[2][:160]
    ranks = rankdata(drawn[0][: sizes.sum()], axis=0)
    means = np.add.reduceat(ranks, np.cumsum(sizes) - sizes) / sizes[:, None]
    squares = (sizes[:, None] * (means - ranks.mean(0)) ** 2).sum(0) / sizes.sum()
    assert 0.18 < np.median(squares / ranks.var(0)) < 0.38


# Reproducible


def test_same_seed_same_bytes():
    once, again = generate(150, 2), generate(150, 2)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(once, again, strict=True))


@pytest.mark.parametrize("queries", [1, 63, 64, 65, 200])
def test_fewer_queries_are_a_prefix(drawn, queries):
    X, y, sizes = generate(queries, 7)
    assert len(sizes) == queries
    for part, whole in zip((X, y, sizes), drawn, strict=True):
        assert part.tobytes() == whole[: len(part)].tobytes()


@pytest.mark.parametrize("seed", [6, 2**32 + 7, 2**80])
def test_another_seed_gives_other_data(drawn, seed):
    X, _, sizes = generate(64, seed)
    assert sizes.tolist() != drawn[2][:64].tolist()
    assert not np.array_equal(X[:50], drawn[0][:50])


def test_blocks_of_queries_differ(drawn):
    sizes = drawn[2]
    assert sizes[:64].tolist() != sizes[64:128].tolist()


@pytest.mark.parametrize(
    ("queries", "seed", "wrong"),
    [(0, 0, "queries"), (-3, 0, "queries"), (2.5, 0, "queries"), (1, -1, "seed"), (1, "a", "seed")],
)
def test_bad_arguments(queries, seed, wrong):
    with pytest.raises(InputError, match=f"{wrong} must be a whole number"):
        generate(queries, seed)


# Features agree with each other


@pytest.mark.parametrize("name", ["stream_length", "sum_term_frequency"])
def test_whole_document_is_the_sum_of_its_fields(column, name):
    *fields, whole = (column(f"{field}_{name}") for field in FIELDS)
    assert np.array_equal(sum(fields), whole)


@pytest.mark.parametrize("field", FIELDS)
def test_coverage_and_models_agree(column, terms, field):
    covered = column(f"{field}_covered_query_term_number")
    np.testing.assert_allclose(column(f"{field}_covered_query_term_ratio"), covered / terms)
    assert np.array_equal(column(f"{field}_boolean_model"), covered == terms)
    bm25, cosine = column(f"{field}_bm25"), column(f"{field}_vector_space_model")
    assert np.array_equal(bm25 > 0, covered > 0)
    # BM25 saturates at k1 + 1 = 3.5 times the idf.
    assert (bm25 <= 3.5 * column(f"{field}_idf") + 1e-4).all()
    assert np.array_equal(cosine > 0, covered > 0)
    assert (cosine < 1 + 1e-6).all()
    for smoothing in ("abs", "dir", "jm"):
        assert (column(f"{field}_lmir_{smoothing}") < 0).all()


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kind", ["term_frequency", "normalised_term_frequency", "tf_idf"])
def test_sum_minimum_maximum_mean_and_variance_agree(column, terms, field, kind):
    total, least, most, mean, variance = (
        column(f"{field}_{spread}_{kind}") for spread in ("sum", "min", "max", "mean", "variance")
    )
    covered = column(f"{field}_covered_query_term_number")
    assert np.array_equal(least > 0, covered == terms)
    assert np.array_equal(most > 0, covered > 0)
    np.testing.assert_allclose(mean, total / terms, rtol=1e-5)
    slack = 1e-5 * most
    assert (least <= mean + slack).all()
    assert (mean <= most + slack).all()
    # Numbers of a range of width w have a variance of at most w²/4; one number has none.
    assert (variance <= (most - least + slack) ** 2 / 4 * (1 + 1e-5)).all()
    assert not variance[terms == 1].any()
    two = terms == 2
    np.testing.assert_allclose(variance[two], (most - least)[two] ** 2 / 4, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("field", FIELDS)
def test_normalised_frequencies_are_shares_of_the_length(column, field):
    length = column(f"{field}_stream_length")
    assert (column(f"{field}_sum_term_frequency") <= length).all()
    for spread, power in (("sum", 1), ("min", 1), ("max", 1), ("mean", 1), ("variance", 2)):
        expected = column(f"{field}_{spread}_term_frequency") / np.maximum(length, 1) ** power
        normalised = column(f"{field}_{spread}_normalised_term_frequency")
        np.testing.assert_allclose(normalised, expected, rtol=1e-6)


def test_counts_are_whole_and_tails_are_heavy(column):
    counts = ["pagerank", "siterank", "quality_score", "inlinks", "outlinks", "url_clicks"]
    counts += ["url_slashes", "url_length", "query_url_clicks", "body_stream_length"]
    counts += ["title_max_term_frequency"]
    for name in counts:
        values = column(name)
        assert np.array_equal(values, np.round(values))
        assert (values >= 0).all()
    for name in ("inlinks", "url_clicks", "query_url_clicks"):
        values = column(name)
        assert values.mean() > 20 * np.quantile(values, 0.75)
        assert values.max() > 100 * values.mean()
    assert column("body_stream_length").max() > 10 * np.median(column("body_stream_length"))


def test_most_pages_have_no_anchors_and_no_clicks(column):
    assert 0.6 < np.mean(column("anchor_stream_length") == 0) < 0.9
    assert 0.6 < np.mean(column("url_clicks") == 0) < 0.9
    assert np.mean(column("query_url_clicks") == 0) > 0.9
    assert not column("url_dwell_time")[column("url_clicks") == 0].any()
    assert (column("query_url_clicks") <= column("url_clicks")).all()


# What can be learnt


def ndcg(scores, y, sizes):
    values = measure("nDCG@5")(scores.astype(np.float64), y, Lists.from_sizes(sizes))
    return np.nanmean(values)


def standardised(X, sizes):
    """Each feature with mean 0 and variance 1 within each list."""
    starts, X = np.cumsum(sizes) - sizes, X.astype(np.float64)
    X -= np.repeat(np.add.reduceat(X, starts) / sizes[:, None], sizes, 0)
    deviation = np.sqrt(np.add.reduceat(X**2, starts) / sizes[:, None])
    return X / np.repeat(np.maximum(deviation, 1e-9), sizes, 0)


@pytest.mark.slow
def test_trees_are_at_most_a_little_better_than_a_line_which_beats_chance(drawn):
    """Relevance is mostly additive, and the scale of features depends on the query."""
    X, y, sizes = drawn[0], drawn[1], drawn[2][:500]
    train, test = slice(0, sizes[:300].sum()), slice(sizes[:300].sum(), sizes.sum())
    Z = standardised(X[: test.stop], sizes)
    line = Ridge(10.0).fit(Z[train], y[train]).predict(Z[test])
    trees = HistGradientBoostingRegressor(max_iter=30, early_stopping=False, random_state=0)
    with threadpool_limits(1):  # its threads wait for each other for long on a busy machine
        tree = trees.fit(X[train], y[train]).predict(X[test])
    chance = np.random.default_rng(0).random(len(tree))
    by_tree, by_line, by_chance = (ndcg(s, y[test], sizes[300:]) for s in (tree, line, chance))
    assert 0.12 < by_chance < 0.22
    assert by_chance + 0.15 < by_line
    assert abs(by_tree - by_line) < 0.04
    assert by_tree < 0.6


def test_one_feature_tells_nothing(drawn):
    X, y, _ = drawn
    outlinks = np.log1p(X[:, FEATURE_NAMES.index("outlinks")])
    assert abs(np.corrcoef(outlinks, y)[0, 1]) < 0.01


# With interactions


@pytest.fixture(scope="module")
def interacting():
    return generate(300, 7, interactions=True)


def test_interactions_change_labels_only(drawn, interacting):
    X, y, sizes = interacting
    assert np.array_equal(sizes, drawn[2][:300])
    assert X.tobytes() == drawn[0][: len(X)].tobytes()
    assert not np.array_equal(y, drawn[1][: len(y)])
    shares = np.bincount(y.astype(int), minlength=5) / len(y)
    assert np.abs(shares - SHARES).max() < 0.03


def test_fewer_queries_with_interactions_are_a_prefix(interacting):
    _, y, sizes = generate(70, 7, interactions=True)
    assert y.tobytes() == interacting[1][: len(y)].tobytes()
    assert np.array_equal(sizes, interacting[2][:70])


def test_no_ranking_is_better_than_that_of_the_relevance(interacting):
    """Labels are noisy grades of it, so it ranks far better than one feature, but not perfectly."""
    X, y, sizes = interacting
    relevance = generate(300, 7, interactions=True, graded=False)[1]
    best = max(ndcg(x, y, sizes) for x in X.T)
    assert best + 0.2 < ndcg(relevance, y, sizes) < 0.85
    assert np.all(np.diff([relevance[y == grade].mean() for grade in range(5)]) > 0.5)
