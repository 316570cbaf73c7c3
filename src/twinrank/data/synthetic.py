"""Synthetic web search data in the shape of MSLR-WEB30K, for examples, tests and demos.

The model: A query has one to seven terms, rare or common, and an intent between informational and
navigational. A page has a match with the query's topic, a quality, a popularity, a depth in its
site and a length per field; it may be spam. Each field is a noisy view of the match. Term
frequencies are Poisson draws that depend on these, and on how often the pages of the query use each
term. So the scale of most features depends on the query, as in MSLR-WEB30K, where queries explain
about a quarter of the variance of a feature. The 125 text features are computed from the term
frequencies as their names say, so they are consistent: the whole document is the sum of its fields,
and a mean lies between minimum and maximum. The order of the features, list lengths and label
shares are those of MSLR-WEB30K (Qin & Liu, arXiv:1306.2597). The marginals (heavy tails, counts,
many zeros), the effective rank of the features and the nDCG of single features are close to those
of 5,000 of its rows; the median correlation of features within a query is lower (0.11, not 0.16).

Relevance is mostly monotone and additive in the latent properties of query and page, which many
features show with noise. Its main part is the match of the text, which counts more the better it
is. Popularity counts for pages on the topic, and more for navigational queries. Long pages and spam
are less relevant, although the text of spam matches best. Queries differ in the share of relevant
pages, and each document has noise, so no method is perfect. `interactions=True` has another
relevance for the same features (`synthetic_interactions.py`). `benchmarks/synthetic.py` compares
methods and features with those of real data.

Limits: There are no words, links or users, no position bias, no change over time, and no page
occurs twice. Results say nothing about the web or about MSLR-WEB30K. They only show that code
works and that methods can differ.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator, SeedSequence, default_rng
from numpy.typing import NDArray

from twinrank.data import synthetic_interactions
from twinrank.data.dataset import Dataset
from twinrank.data.from_arrays import table_from_arrays
from twinrank.support.errors import InputError

Floats: TypeAlias = NDArray[np.floating[Any]]
Integers: TypeAlias = NDArray[np.int64]

FIELDS = ("body", "anchor", "title", "url", "whole_document")
"""Fields in which terms are counted; the last is the sum of the others."""

_SPREADS = ("sum", "min", "max", "mean", "variance")
_TEXT = (
    *("covered_query_term_number", "covered_query_term_ratio", "stream_length", "idf"),
    *(f"{spread}_term_frequency" for spread in _SPREADS),
    *(f"{spread}_normalised_term_frequency" for spread in _SPREADS),
    *(f"{spread}_tf_idf" for spread in _SPREADS),
    *("boolean_model", "vector_space_model", "bm25", "lmir_abs", "lmir_dir", "lmir_jm"),
)
_PAGE = (
    *("url_slashes", "url_length", "inlinks", "outlinks", "pagerank", "siterank"),
    *("quality_score", "quality_score_2", "query_url_clicks", "url_clicks", "url_dwell_time"),
)
FEATURE_NAMES: tuple[str, ...] = (*(f"{a}_{b}" for b in _TEXT for a in FIELDS), *_PAGE)
"""Names of the columns; column i is feature i + 1 of MSLR-WEB30K."""

# Queries are drawn in blocks of 64, each with its own generators. So a query depends only on the
# seed and its number, and a smaller dataset is a prefix of a larger one.
_BLOCK = 64
_TERMS = 7
_NOISE = 2.0  # the standard deviation of the scores' noise
# Scores above these thresholds have labels 1, 2, 3 and 4. They are constants, so that a label does
# not depend on the other queries: quantiles of the scores of 19,200 queries (1,920 of each seed
# from 0 to 9) at the label shares of MSLR-WEB30K, 0.514, 0.325, 0.134, 0.019 and 0.008.
_THRESHOLDS = np.array([1.150, 4.151, 7.458, 9.347])


@dataclass(frozen=True)
class _Queries:
    """The query of each document."""

    navigational: Floats  # 0: any page on the topic is relevant; 1: one specific page is
    ease: Floats
    terms: Integers
    rarity: Floats  # [terms, N]: the idf in bodies, 0 for terms that the query lacks
    absent: Floats  # [terms, N]: the probability that a page does not have a term at all
    usage: Floats  # [terms, fields, N]: how often pages use a term, on a logarithmic scale
    pages: Floats  # [3, N]: what its pages share in quality, popularity and depth


@dataclass(frozen=True)
class _Pages:
    """Properties of pages: approximately standard normal, except spam, which is 0 or 1."""

    topic: Floats
    fields: Floats  # [fields, N]: the match of each field with the topic
    quality: Floats
    popularity: Floats
    depth: Floats
    spam: Floats


def synthetic_web_search(
    queries: int = 1_000, seed: int = 0, interactions: bool = False
) -> Dataset:
    """Generate synthetic web search data in the shape of MSLR-WEB30K.

    A query has about 120 documents with 136 features and labels from 0 to 4. A smaller dataset is a
    prefix of a larger one with the same seed. The data is for examples and tests; results on it say
    nothing about real search.

    Parameters
    ----------
    queries : int, default 1,000
        The number of queries, at least 1.
    seed : int, default 0
        The seed, at least 0. The same seed gives the same data.
    interactions : bool, default False
        Whether relevance depends on many interactions of features, with less noise. Then more
        queries and larger models help for long, as on real data of this size; otherwise they soon
        stop helping. The features are the same.

    Returns
    -------
    Dataset
        The data, with the names of its features.

    Raises
    ------
    InputError
        If `queries` or `seed` is not a whole number, or too small.

    Examples
    --------
    >>> synthetic_web_search(queries=20)
    Dataset(20 queries, 2,069 documents, 136 features)
    """
    X, y, sizes = generate(queries, seed, interactions)
    table = table_from_arrays(X, y, group=sizes, feature_names=FEATURE_NAMES)
    kind = "synthetic web search with interactions" if interactions else "synthetic web search"
    return Dataset(table, name=f"{kind} (seed {seed})")


def generate(
    queries: int, seed: int, interactions: bool = False, graded: bool = True
) -> tuple[Floats, Floats, Integers]:
    """Return the features [N, 136] and labels [N] in float32, and the length of each list.

    With `graded=False`, the labels are the relevance before noise and grades: the best ranking that
    is possible. The same seed gives the same bytes, up to rounding on another processor or NumPy
    version.
    """
    for name, value, least in (("queries", queries, 1), ("seed", seed, 0)):
        if not isinstance(value, int | np.integer) or value < least:
            raise InputError(f"{name} must be a whole number from {least} on, not {value!r}.")
    blocks = range(-(-queries // _BLOCK))
    sizes = np.concatenate([_list_lengths(_generator(seed, block, 0)) for block in blocks])
    offsets = np.concatenate([[0], sizes.cumsum()])
    documents = offsets[queries]
    X = np.empty((documents, len(FEATURE_NAMES)), np.float32)
    y = np.empty(documents, np.float32)
    for block in blocks:
        first, last = block * _BLOCK, (block + 1) * _BLOCK
        rng = _generator(seed, block, 1)
        features, labels = _block(rng, sizes[first:last], interactions, graded)
        start, stop = offsets[first], min(offsets[last], documents)
        X[start:stop] = features.T[: stop - start]
        y[start:stop] = labels[: stop - start]
    return X, y, sizes[:queries]


def _generator(seed: int, block: int, stream: int) -> Generator:
    """Return the generator of a block: stream 0 for list lengths, 1 for everything else."""
    return default_rng(SeedSequence(seed, spawn_key=(block, stream)))


def _list_lengths(rng: Generator) -> Integers:
    """Draw list lengths from 1 to 1,251, with median 110 and mean 120, as in MSLR-WEB30K."""
    lengths = 121 * np.exp(0.32 * rng.standard_t(6, _BLOCK)) - 11
    return lengths.clip(1, 1251).round().astype(np.int64)


def _block(
    rng: Generator, sizes: Integers, interactions: bool, graded: bool
) -> tuple[Floats, Floats]:
    """Return the features [136, N] and labels [N] of a block."""
    query = _draw_queries(rng, sizes)
    page = _draw_pages(rng, query)
    tf, length = _draw_text(rng, query, page)
    parts = (*_text_features(tf, length, query), _page_features(rng, query, page, length[3]))
    features = np.concatenate(parts, dtype=np.float32, casting="same_kind")
    noise, thresholds = _NOISE, _THRESHOLDS
    if interactions:
        columns = dict(zip(FEATURE_NAMES, features.astype(np.float64), strict=True))
        score = synthetic_interactions.relevance(columns, query.terms) + 0.75 * query.ease
        noise, thresholds = synthetic_interactions.NOISE, synthetic_interactions.THRESHOLDS
    else:
        score = _relevance(query, page, (tf > 0).sum(0) / query.terms, length)
    if not graded:
        return features, score.astype(np.float32)
    score += noise * rng.standard_normal(len(score))
    return features, np.searchsorted(thresholds, score).astype(np.float32)


def _draw_queries(rng: Generator, sizes: Integers) -> _Queries:
    """Draw queries; navigational ones have fewer and rarer terms, so features show the intent."""
    navigational = _logistic(3 * rng.standard_normal(_BLOCK) - 1)
    terms = 1 + rng.binomial(_TERMS - 1, 0.38 - 0.3 * navigational)
    rarity = rng.gamma(3, 1 + 0.5 * navigational, (_TERMS, _BLOCK)).clip(0.05, 12)
    rarity *= np.arange(_TERMS)[:, None] < terms
    absent = _logistic(2 * rng.standard_normal((_TERMS, _BLOCK)) - 2.5)
    usage = 0.7 * rng.standard_normal((_TERMS, 1, _BLOCK)) + 0.7 * rng.standard_normal((4, _BLOCK))
    pages = 0.5 * rng.standard_normal((3, _BLOCK))
    # One query per 64th of a logistic distribution keeps label shares stable for few queries.
    level = (rng.permutation(_BLOCK) + rng.uniform(0.01, 0.99, _BLOCK)) / _BLOCK
    ease = np.log(level / (1 - level))
    i = np.repeat(np.arange(_BLOCK), sizes)
    return _Queries(
        *(navigational[i], ease[i], terms[i], rarity[:, i]),
        *(absent[:, i], usage[:, :, i], pages[:, i]),
    )


def _draw_pages(rng: Generator, query: _Queries) -> _Pages:
    """Draw pages; popular pages have higher quality and lower depth, and spam has low quality."""
    documents = len(query.terms)
    topic, *others = rng.standard_normal((4, documents))
    quality, popularity, depth = np.array(others) + query.pages
    fields = 0.75 * topic + 0.65 * rng.standard_normal((4, documents))
    spam = (rng.random(documents) < 0.04).astype(np.float64)
    quality -= 1.5 * spam
    popularity = 0.8 * popularity + 0.4 * quality - 0.4 * depth
    return _Pages(topic, fields, quality, popularity, depth, spam)


def _draw_text(rng: Generator, query: _Queries, page: _Pages) -> tuple[Floats, Floats]:
    """Draw term frequencies [terms, fields, N] and lengths [fields, N]."""
    noise = rng.standard_normal((4, len(page.topic)))
    body = 434 * np.exp(0.95 * noise[0]) * (noise[0] > -2.1)
    anchor = np.exp(-1.2 + 1.6 * page.popularity + noise[1])
    title = 7 * np.exp(0.55 * noise[2]) * (noise[2] > -1.9)
    url = 2 + 5.2 * np.exp(0.3 * page.depth + 0.3 * noise[3])
    length = np.floor([body, anchor, title, url])
    # The probability that a word is a given term of the query: for a page of average match, the
    # effects of topic and spam on its logarithm, the spread between terms, and its upper limit.
    chance = _column(0.014, 0.4, 0.25, 0.05)
    topic, spam = _column(0.8, 1.0, 1.2, 1.2), _column(1.2, 0.5, 0.7, 0.3)
    spread, most = _column(0.7, 0.4, 0.2, 0.2), _column(0.12, 0.3, 0.25, 0.15)
    has_term = (rng.random((_TERMS, len(page.topic))) > query.absent)[:, None]
    own = spread * rng.standard_normal((_TERMS, len(chance), len(page.topic)))
    chance = chance * np.exp(topic * page.fields + spam * page.spam + query.usage + own) * has_term
    counts = rng.poisson(length * chance / (1 + chance / most) * (query.rarity > 0)[:, None])
    length = np.maximum(length, counts.sum(0))
    tf = np.concatenate([counts, counts.sum(1, keepdims=True)], 1, dtype=np.float64)
    return tf, np.concatenate([length, length.sum(0, keepdims=True)])


def _text_features(tf: Floats, length: Floats, query: _Queries) -> tuple[Floats, ...]:
    """Return 25 statistics of the five fields, each [5, N]; BM25 has the parameters of LETOR."""
    terms, present = query.terms, (query.rarity > 0)[:, None]
    # Names are less rare in anchors and URLs than other words.
    gap = _column(0.0, 4.6, 3.8, 5.0, -0.003) - _column(0, 1, 0, 1.5, 0) * query.navigational
    idf = present * (_column(1, 0.9, 0.9, 0.9, 1) * query.rarity[:, None] + gap)
    tf_idf = tf * idf
    covered, words = (tf > 0).sum(0), np.maximum(length, 1)
    of_tf = _spreads(tf, present, terms)
    cosine = (tf_idf * idf).sum(0) / np.sqrt((idf**2).sum(0) * (tf_idf**2).sum(0)).clip(1e-9)
    saturation = 2.5 * (0.2 + 0.8 * length / _column(700, 3, 8, 8, 719))  # k1 = 2.5, b = 0.8
    return (
        *(covered, covered / terms, length, idf.sum(0)),
        *of_tf,
        *(spread / words for spread in of_tf[:4]),
        of_tf[4] / words**2,
        *_spreads(tf_idf, present, terms),
        *(covered == terms, cosine, (3.5 * tf_idf / (tf + saturation)).sum(0)),
        *_language_models(tf, words, query.rarity[:, None]),
    )


def _spreads(values: Floats, present: NDArray[np.bool], terms: Integers) -> list[Floats]:
    """Return sum, minimum, maximum, mean and variance over the terms of the query."""
    total = values.sum(0)
    mean = total / terms
    variance = (present * (values - mean) ** 2).sum(0) / terms
    return [total, np.where(present, values, np.inf).min(0), values.max(0), mean, variance]


def _language_models(tf: Floats, words: Floats, rarity: Floats) -> list[Floats]:
    """Return log P(query | field), smoothed as in LETOR: δ = 0.7, μ = 2,000, λ = 0.1."""
    anywhere = np.exp(-4.8 - 0.9 * rarity)
    # A field of n words has about n^0.85 distinct words.
    absolute = (np.maximum(tf - 0.7, 0) + 0.7 * words**0.85 * anywhere) / words
    dirichlet = (tf + 2000 * anywhere) / (words + 2000)
    mixture = 0.9 * tf / words + 0.1 * anywhere
    return [((rarity > 0) * np.log(p)).sum(0) for p in (absolute, dirichlet, mixture)]


def _page_features(rng: Generator, query: _Queries, page: _Pages, words: Floats) -> Floats:
    """Return the 11 features of the page, given the words of its URL; outlinks are pure noise."""
    noise = rng.standard_normal((len(_PAGE), len(words)))
    popular = 0.8 * page.popularity + 0.6 * noise
    good = 0.8 * page.quality + 0.6 * noise
    clicks = np.floor(np.exp(-2.5 + 3.9 * popular[9]).clip(0, 1e7))
    share = np.exp(-5.5 + 1.5 * page.topic + 2 * query.navigational + noise[8]).clip(0, 1)
    counts = (
        1 + rng.poisson(1.8 * np.exp(0.4 * page.depth)),
        6 + 4.6 * words * np.exp(0.25 * noise[1]),
        np.exp(1.6 + 3.8 * popular[2]).clip(0, 1e9),
        np.exp(0.2 + 1.6 * noise[3]),
        65535 * _logistic(-2 + 2.5 * popular[4]),
        65535 * _logistic(0.2 + page.popularity + 2.3 * noise[5]),
        np.exp(1.8 + 1.6 * good[6]).clip(1, 255),
        np.exp(2 + 1.6 * noise[7] + 1.5 * page.spam).clip(1, 255),
        *(clicks * share, clicks),
    )
    return np.stack([*np.floor(counts), (clicks > 0) * np.exp(3 + good[10])])


def _relevance(query: _Queries, page: _Pages, ratio: Floats, length: Floats) -> Floats:
    """Return the relevance without noise; `ratio` is the share of terms found in each field."""
    text = 0.7 * page.topic + 0.4 * page.fields[2] + ratio[4] + 0.5 * ratio[2]
    text += 0.4 * np.maximum(text, 0) ** 2 * _logistic(1 + 1.5 * page.quality)
    size = np.log((20 + length[0]) / 320)
    known = page.popularity - 0.5 * page.depth + 0.5 * ratio[1:4].max(0)
    weight = (0.2 + 0.5 * query.navigational) * _logistic(2 * page.topic)
    score = (1 - 0.3 * query.navigational) * text + weight * known
    score += 0.1 * page.quality - 0.3 * size - 0.1 * size**2 - 1.5 * page.spam
    relevance: Floats = score + 0.75 * query.ease
    return relevance


def _logistic(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def _column(*values: float) -> Floats:
    return np.array(values)[:, None]
