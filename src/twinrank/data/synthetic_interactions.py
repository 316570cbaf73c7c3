"""Relevance of synthetic data that rewards large models: a function of features with interactions.

The usual relevance of `synthetic_web_search` is nearly additive and noisy, so more queries and more
leaves soon stop helping. Real web search differs: on MSLR-WEB30K, LightGBM gains 0.013 in nDCG@10
from three times the queries, with hundreds of leaves.

Here relevance has an additive main part, and waves: cosines of random combinations of three signals
each. A signal is a feature on a scale on which it is about standard normal. So features determine
relevance up to noise, and the best possible ranking is known: `generate(graded=False)`.

The constants were chosen with LightGBM's lambdarank alone (40 % of the columns per tree, rate 0.1,
100 rounds, 1,000 test queries). nDCG@10 with 31 and 255 leaves is 0.662 and 0.668 for 2,000
queries, 0.673 and 0.683 for 6,000, and 0.718 for the oracle.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

NOISE = 3.0  # the standard deviation of the noise of scores
# Quantiles of the scores of 4,800 queries at the label shares of MSLR-WEB30K: see synthetic.py.
THRESHOLDS = np.array([1.067, 6.167, 10.931, 13.333])
_WAVES, _SIGNALS_PER_WAVE, _FREQUENCY, _AMPLITUDE = 100, 3, 1.0, 3.0
_WORLD = 30_000  # the seed of the waves: they are the same for all data
_FIELDS = ("body", "anchor", "title", "url", "whole_document")
_LENGTHS = ((6.0, 1.0), (1.0, 1.0), (2.0, 0.55), (1.8, 0.4), (6.1, 1.0))  # of log lengths
_MATCHES = (0.35, 0.1, 0.3, 0.1, 0.4)


def relevance(column: Mapping[str, Floats], terms: NDArray[np.int64]) -> Floats:
    """The relevance without noise, from columns by name and the number of terms of the query."""
    signals = np.clip(_signals(column, terms), -3, 3)
    return _main_part(signals) + _AMPLITUDE * _waves(signals)


def _signals(column: Mapping[str, Floats], terms: NDArray[np.int64]) -> Floats:
    """26 properties of query and page that the features show, each of about unit variance."""
    rows: list[Floats] = []
    for field, centre in zip(_FIELDS, _MATCHES, strict=True):
        most = 3.5 * np.maximum(column[f"{field}_idf"], 0.1)
        rows.append((column[f"{field}_bm25"] / most - centre) / 0.25)
    rows += [(column[f"{field}_covered_query_term_ratio"] - 0.5) / 0.4 for field in _FIELDS]
    for field, (centre, scale) in zip(_FIELDS, _LENGTHS, strict=True):
        rows.append((np.log1p(column[f"{field}_stream_length"]) - centre) / scale)
    for name, centre, scale in (("pagerank", -2.0, 2.5), ("siterank", 0.2, 2.5)):
        share = np.clip(column[name] / 65535, 1e-4, 1 - 1e-4)
        rows.append((np.log(share / (1 - share)) - centre) / scale)
    for name, centre, scale in (
        ("inlinks", 2.2, 3.0),
        ("quality_score", 1.8, 1.6),
        ("quality_score_2", 2.0, 1.6),
        ("url_slashes", 1.3, 0.4),
        ("url_clicks", 1.0, 2.0),
        ("url_dwell_time", 1.0, 2.0),
        ("query_url_clicks", 0.5, 2.0),
    ):
        rows.append((np.log1p(column[name]) - centre) / scale)
    idf = column["whole_document_idf"] / np.maximum(terms, 1)
    rows += [2 * (np.log1p(terms) - 1), (idf - 3) / 1.5]
    return np.stack(rows)


def _main_part(z: Floats) -> Floats:
    """The additive part: text, popularity, quality, length and depth."""
    text = z[4] + 0.5 * (z[0] + z[2] + z[7]) + 0.4 * z[5] + 0.3 * z[1] + 0.2 * z[3]
    page = 0.2 * (z[15] + z[16] + z[17]) + 0.25 * z[18] + 0.15 * (z[21] + z[22]) + 0.3 * z[23]
    main: Floats = 0.9 * (text + page - 0.25 * np.abs(z[10]) - 0.2 * (z[19] + z[20]))
    return main


def _waves(z: Floats) -> Floats:
    """The sum of cosines, of about unit variance."""
    rng = np.random.default_rng(_WORLD)
    total = np.zeros(z.shape[1])
    for _ in range(_WAVES):
        signals = rng.choice(len(z), _SIGNALS_PER_WAVE, replace=False)
        weights = rng.normal(0, _FREQUENCY, _SIGNALS_PER_WAVE)
        total += rng.normal() * np.cos(weights @ z[signals] + rng.uniform(0, 2 * np.pi))
    scaled: Floats = np.sqrt(2 / _WAVES) * total
    return scaled
