"""Thresholds for a wanted precision, and queries without a good result: risk and coverage."""

import os
from dataclasses import asdict, dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.measures import Measure
from twinrank.evaluation.calibration_error import as_labels
from twinrank.evaluation.evaluate import evaluate
from twinrank.support.arrays import Floats, as_floats
from twinrank.support.errors import InputError, check_number
from twinrank.support.files import json_types
from twinrank.support.plots import COLOURS, drawing
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, ResultTable

_CANDIDATES, _SAMPLES, _GROUPS = 400, 1000, 2000
_SHARES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


@dataclass(frozen=True)
class Threshold:
    """A threshold on predictions, and what it yields over all queries.

    Parameters
    ----------
    value : float
        Documents with at least this prediction are shown.
    precision : float
        The share of relevant documents among those that are shown.
    interval : tuple of float
        The 95 % interval of the precision: the wider of the bootstrap interval from samples of
        queries and of Wilson's interval for independent documents, on each side.
    value_interval : tuple of float
        The same of the threshold itself; NaN where no sample reaches the precision.
    recall : float
        The share of the relevant documents that are shown.
    documents : int
        The number of documents that are shown.
    answered : float
        The share of queries with a document that is shown.
    """

    value: float
    precision: float
    interval: tuple[float, float]
    value_interval: tuple[float, float]
    recall: float
    documents: int
    answered: float

    def __str__(self) -> str:
        low, high = self.interval
        least, most = self.value_interval
        return (
            f"Threshold {self.value:.6g} (95 % interval {least:.4g} to {most:.4g}): precision "
            f"{self.precision:.4f} ({low:.4f} to {high:.4f}), recall {self.recall:.4f}, "
            f"{counted(self.documents, 'document')}, {self.answered:.1%} of the queries."
        )

    def to_json(self) -> dict[str, Any]:
        """The threshold as a dictionary for JSON."""
        return dict(json_types(asdict(self)))


def threshold_for_precision(
    predictions: Any,
    labels: Any,
    lists: Lists,
    precision: float,
    *,
    relevant: float = 1.0,
    guarantee: bool = False,
    random_state: int = 0,
) -> Threshold:
    """The lowest threshold at which the documents of all queries have this precision.

    Use queries on which neither the ranker nor its calibration was fitted. Unjudged documents,
    with the label −1, do not count.

    Parameters
    ----------
    predictions : array of float, shape (n_documents,)
        Grades or probabilities; scores only if they mean the same in all queries.
    labels : array, shape (n_documents,)
        The labels.
    lists : Lists
        The documents of each query.
    precision : float
        The wanted share of relevant documents among those that reach the threshold.
    relevant : float, default 1
        The lowest label that counts as relevant.
    guarantee : bool, default False
        Choose the threshold whose precision is as wanted at the lower end of its interval, not in
        the middle.
    random_state : int, default 0
        The seed of the bootstrap.

    Returns
    -------
    Threshold

    Raises
    ------
    InputError
        If no threshold reaches the precision, or shapes do not match.

    Examples
    --------
    >>> lists = Lists.from_sizes([3, 3])
    >>> found = threshold_for_precision([.9, .5, .1, .8, .3, .2], [1, 0, 0, 1, 1, 0], lists, 0.75)
    >>> found.value, found.precision, found.recall
    (0.3, 0.75, 1.0)
    """
    _check_share("precision", precision)
    p, hits, judged = _checked(predictions, labels, lists, relevant)
    generator = np.random.default_rng(random_state)
    groups = min(len(lists), _GROUPS)
    of_query = generator.permutation(len(lists)) % groups  # many queries are drawn in groups
    group, query = of_query[lists.index(p)][judged], lists.index(p)[judged]
    p, hits = p[judged], hits[judged]
    order = np.argsort(-p, kind="stable")
    ends = np.flatnonzero(np.diff(p[order], append=-np.inf))  # the last of equal predictions
    rates = np.cumsum(hits[order])[ends] / (ends + 1)
    if ends.size > _CANDIDATES:  # more would change the result less than the interval
        kept = np.unique(np.linspace(0, ends.size - 1, _CANDIDATES).astype(np.int64))
        kept = np.union1d(kept, np.flatnonzero(rates >= precision)[-1:])
        ends, rates = ends[kept], rates[kept]
    place = np.searchsorted(ends, np.argsort(order))  # the first threshold that shows a document
    cells = group * (ends.size + 1) + place  # the last column: shown at no threshold
    shape = (groups, ends.size + 1)
    shown, good = (
        np.bincount(cells, w, shape[0] * shape[1]).reshape(shape)[:, :-1].cumsum(axis=1)
        for w in (None, hits)
    )
    counts = generator.multinomial(groups, np.full(groups, 1 / groups), _SAMPLES) * 1.0
    sampled = (counts @ good) / np.maximum(counts @ shown, 1)
    low, high = _wilson(rates, ends + 1.0)  # few documents without an error prove little
    low = np.minimum(low, np.percentile(sampled, 2.5, axis=0))
    high = np.maximum(high, np.percentile(sampled, 97.5, axis=0))
    reached = low if guarantee else rates
    enough = np.flatnonzero(reached >= precision)
    if not enough.size:
        best = int(np.argmax(reached))
        what = "guaranteed" if guarantee else "reached"
        raise InputError(
            f"No threshold has precision {precision:g}: at most {reached[best]:.4f} is {what}, "
            f"by {counted(int(ends[best]) + 1, 'document')}."
        )
    at = int(enough[-1])
    passes = sampled >= precision
    last = np.where(passes.any(axis=1), ends.size - 1 - np.argmax(passes[:, ::-1], axis=1), -1)
    values = np.where(last >= 0, p[order][ends][last], np.nan)
    least, most = np.nanpercentile(values, [2.5, 97.5]) if (last >= 0).any() else (np.nan, np.nan)
    return Threshold(
        value=float(p[order][ends[at]]),
        precision=float(rates[at]),
        interval=(float(low[at]), float(high[at])),
        value_interval=(float(least), float(most)),
        recall=float(rates[at] * (ends[at] + 1) / max(hits.sum(), 1)),
        documents=int(ends[at]) + 1,
        answered=np.unique(query[order[: ends[at] + 1]]).size / len(lists),
    )


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The result of `risk_coverage`: what is lost on the queries that are answered.

    Parameters
    ----------
    measure : str
        The measure; the risk is 1 minus its mean.
    confidence : array of float, shape (n_lists,)
        The highest prediction of each query, the most confident query first.
    risk : array of float, shape (n_lists,)
        The risk if this query and those before it are answered.
    """

    measure: str
    confidence: Floats
    risk: Floats

    @property
    def area(self) -> float:
        """The mean risk over all coverages; lower is better."""
        return float(self.risk.mean())

    def at(self, coverage: float) -> tuple[float, float]:
        """The threshold on the highest prediction, and the risk, at a share of the queries."""
        _check_share("coverage", coverage)
        place = max(round(coverage * self.risk.size), 1) - 1
        return float(self.confidence[place]), float(self.risk[place])

    def table(self) -> ResultTable:
        """The risk by coverage, and the threshold of each."""
        rows = []
        for share in _SHARES:
            threshold, risk = self.at(share)
            rows.append([Cell(f"{share:.0%}"), Cell(f"{threshold:.4g}"), Cell(f"{risk:.4f}")])
        return ResultTable(
            title=f"Queries that are answered: {counted(self.risk.size, 'query')}",
            columns=["coverage", "highest prediction", "risk"],
            rows=rows,
            notes=[f"Risk: 1 − {self.measure}. Mean over all coverages: {self.area:.4f}."],
        )

    def __str__(self) -> str:
        return self.table().to_text()

    def to_json(self) -> dict[str, Any]:
        """The curve as a dictionary for JSON, at the coverages of the table."""
        points = [(share, *self.at(share)) for share in _SHARES]
        names = ("coverage", "threshold", "risk")
        return {
            "measure": self.measure,
            "area": self.area,
            "curve": [dict(zip(names, point, strict=True)) for point in points],
        }

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draw the risk against the coverage.

        Parameters
        ----------
        path : path
            The file to write, with suffix .png, .svg or .pdf.
        """
        with drawing(Path(path), 1, 1, (4.8, 3.4)) as panels:
            axes = panels[0, 0]
            coverage = np.arange(1, self.risk.size + 1) / self.risk.size
            axes.plot(coverage, self.risk, color=COLOURS[0])
            axes.axhline(self.risk[-1], color="#8a8a8a", linewidth=0.8, linestyle="--")
            risk = f"risk (1 − {self.measure})"
            axes.set(title="Risk and coverage", xlabel="share of queries answered", ylabel=risk)


def risk_coverage(
    predictions: Any,
    labels: Any,
    lists: Lists,
    *,
    measure: str | Measure = "P@1",
) -> RiskCoverage:
    """What is lost if only queries with a high enough prediction are answered.

    Queries are ordered by their highest prediction (El-Yaniv and Wiener 2010). A query without a
    relevant document has the value 0 whatever its ranking is: it should not be answered.

    Parameters
    ----------
    predictions : array of float, shape (n_documents,)
        Grades or probabilities, which also rank the documents.
    labels : array, shape (n_documents,)
        The labels; −1 means unjudged.
    lists : Lists
        The documents of each query.
    measure : str or Measure, default "P@1"
        A measure from 0 to 1. With "P@1", the risk is the share of answered queries whose first
        document is not relevant.

    Returns
    -------
    RiskCoverage

    Examples
    --------
    >>> lists = Lists.from_sizes([2, 2, 2])
    >>> curve = risk_coverage([.9, .1, .4, .3, .6, .2], [1, 0, 0, 0, 1, 0], lists)
    >>> curve.at(2 / 3)
    (0.6, 0.0)
    """
    p, _, _ = _checked(predictions, labels, lists, 1.0)
    result = evaluate(p, labels, lists, [measure], empty="zero")
    (name,) = result.values
    some = lists.sizes > 0
    confidence, values = lists.max(p)[some], result.values[name][some]
    if (values > 1).any():
        raise InputError(
            f"The risk is 1 minus the measure, but {name} has values above 1; choose a measure "
            f"from 0 to 1, such as P@1 or nDCG@5."
        )
    order = np.argsort(-confidence, kind="stable")
    risk = 1 - np.cumsum(values[order]) / np.arange(1, order.size + 1)
    return RiskCoverage(name, confidence[order], risk)


def _checked(predictions: Any, labels: Any, lists: Lists, relevant: float) -> tuple[Any, Any, Any]:
    """Predictions, whether documents are relevant, and which are judged."""
    check_number("relevant", relevant)
    p, y = as_floats("predictions", predictions), as_labels(labels)
    lists.check(predictions=p, labels=y)
    if not p.size or not np.isfinite(p).all():
        raise InputError("predictions must be finite, for one document or more.")
    judged = y >= 0
    if not (y >= relevant).any():
        raise InputError(f"No document is relevant: no label is at least {relevant:g}.")
    return p, (y >= relevant).astype(np.float64), judged


def _wilson(rates: Any, sizes: Any) -> tuple[Floats, Floats]:
    """Wilson's 95 % interval of a share (1927)."""
    z = 1.959964
    centre = (rates + z**2 / (2 * sizes)) / (1 + z**2 / sizes)
    half = z * np.sqrt(rates * (1 - rates) / sizes + z**2 / (4 * sizes**2)) / (1 + z**2 / sizes)
    return np.asarray(centre - half), np.asarray(centre + half)


def _check_share(name: str, value: float) -> None:
    if not isinstance(value, Real) or not 0 <= value <= 1:
        raise InputError(f"{name} must lie between 0 and 1, not {value!r}.")
