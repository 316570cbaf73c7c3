"""`evaluate_calibration`: whether predicted grades and probabilities hold over all queries."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.support.arrays import Floats, as_floats
from twinrank.support.errors import InputError, check_number
from twinrank.support.plots import COLOURS, drawing
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, ResultTable

TARGETS = ("grade", "probability")


@dataclass(frozen=True, eq=False)
class CalibrationEvaluation:
    """The result of `evaluate_calibration`.

    Parameters
    ----------
    target : {"grade", "probability"}
        What was predicted.
    relevant : float
        The lowest label that counts as relevant.
    error : float
        The expected calibration error (ECE; Naeini et al. 2015): the mean over all documents of
        |mean prediction − mean label| of their bin.
    noise : float
        The error that perfect predictions would have in this number of documents, about.
    squared_error : float
        The mean squared error of the predictions; of probabilities the Brier score.
    auc : float
        The area under the ROC curve of all documents of all queries together, relevant ones
        against the others; NaN if there is only one kind.
    predicted, observed, documents : array, shape (n_bins,)
        The mean prediction, the mean label or share of relevant documents, and the number of
        documents of each bin.
    by_grade : mapping of float to tuple
        For each label: its number of documents, and the mean prediction.
    """

    target: str
    relevant: float
    error: float
    noise: float
    squared_error: float
    auc: float
    predicted: Floats
    observed: Floats
    documents: Floats
    by_grade: Mapping[float, tuple[int, float]]

    def table(self) -> ResultTable:
        """The bins of the reliability diagram, and the errors as notes."""
        columns = zip(self.predicted, self.observed, self.documents, strict=True)
        rows = [
            [Cell(f"{i}"), Cell(f"{p:.4f}"), Cell(f"{o:.4f}"), Cell(f"{int(n):,}")]
            for i, (p, o, n) in enumerate(columns, 1)
        ]
        square = "Brier score" if self.target == "probability" else "mean squared error"
        grades = ", ".join(f"{g:g}: {mean:.3f} ({n:,})" for g, (n, mean) in self.by_grade.items())
        return ResultTable(
            title=f"Calibration: {self.target}, {counted(int(self.documents.sum()), 'document')}",
            columns=["bin", "predicted", "observed", "documents"],
            rows=rows,
            notes=[
                f"ECE {self.error:.4f} (perfect predictions: about {self.noise:.4f}), {square} "
                f"{self.squared_error:.4f}, AUC over all queries {self.auc:.4f}.",
                *([f"Mean prediction by grade: {grades}."] if len(self.by_grade) <= 10 else []),
            ],
        )

    def __str__(self) -> str:
        return self.table().to_text()

    def to_json(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        bins = zip(self.predicted, self.observed, self.documents, strict=True)
        names = ("predicted", "observed", "documents")
        return {
            "target": self.target,
            "relevant": self.relevant,
            "error": self.error,
            "noise": self.noise,
            "squared_error": self.squared_error,
            "auc": None if np.isnan(self.auc) else self.auc,
            "bins": [dict(zip(names, map(float, values), strict=True)) for values in bins],
            "by_grade": {
                f"{g:g}": {"documents": n, "mean": mean} for g, (n, mean) in self.by_grade.items()
            },
        }

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draw the reliability diagram: observed against predicted, and the number of documents.

        Parameters
        ----------
        path : path
            The file to write, with suffix .png, .svg or .pdf.
        """
        draw_reliability({"": self}, Path(path))


def as_labels(labels: Any) -> Floats:
    """Labels as numbers; a missing label raises an error."""
    y = as_floats("labels", labels)
    if np.isnan(y).any():
        raise InputError("labels must be numbers, not NaN; unjudged documents have the label -1.")
    return y


def evaluate_calibration(
    predictions: Any,
    labels: Any,
    lists: Lists | None = None,
    *,
    target: str = "probability",
    relevant: float = 1.0,
    bins: int = 15,
) -> CalibrationEvaluation:
    """Compare predicted grades or probabilities with labels, over the documents of all queries.

    Unjudged documents, with the label −1, do not count.

    Parameters
    ----------
    predictions : array of float, shape (n_documents,)
        What `predict(…, output="grade")` or `output="probability"` returned.
    labels : array, shape (n_documents,)
        The labels.
    lists : Lists, optional
        The documents of each query. The noise then considers that the labels of a query go
        together.
    target : {"grade", "probability"}, default "probability"
        What the predictions mean.
    relevant : float, default 1
        The lowest label that counts as relevant.
    bins : int, default 15
        The number of bins; each has about the same number of documents.

    Returns
    -------
    CalibrationEvaluation

    Raises
    ------
    InputError
        If shapes do not match, or a value is not finite or no probability.

    Examples
    --------
    >>> result = evaluate_calibration([0.1, 0.1, 0.1, 0.1, 0.9], [0, 0, 0, 1, 1], bins=2)
    >>> round(result.error, 4), result.auc
    (0.14, 0.75)
    """
    if target not in TARGETS:
        raise InputError(argument="target", value=target, choices=TARGETS)
    check_number("bins", bins, whole=True, least=1)
    check_number("relevant", relevant)
    p, y = as_floats("predictions", predictions), as_labels(labels)
    if p.shape != y.shape or p.ndim != 1:
        raise InputError(
            f"predictions has shape {p.shape} but labels has {y.shape}; both need one value per "
            f"document."
        )
    if not np.isfinite(p).all() or (target == "probability" and ((p < 0) | (p > 1)).any()):
        what = "probabilities from 0 to 1" if target == "probability" else "finite"
        raise InputError(f"predictions must be {what}; scores are not: calibrate the ranker first.")
    if lists is not None:
        lists.check(predictions=p)
    judged = y >= 0
    if not judged.any():
        raise InputError("No document is judged, so that predictions cannot be compared.")
    query = np.arange(y.size) if lists is None else lists.index(y)
    p, y, query = p[judged], y[judged], query[judged]
    wanted = (y >= relevant).astype(np.float64) if target == "probability" else y
    order = np.argsort(p, kind="stable")
    cuts = np.searchsorted(p[order], p[order][(np.arange(bins) * p.size) // bins])  # keeps ties
    first = np.unique(cuts)
    sizes = np.diff(np.append(first, p.size)).astype(np.float64)
    predicted, observed = (np.add.reduceat(v[order], first) / sizes for v in (p, wanted))
    number = np.repeat(np.arange(first.size), sizes.astype(np.int64))
    shares = sizes / p.size
    spread = _deviations(wanted[order] - observed[number], number, query[order], sizes)
    return CalibrationEvaluation(
        target=target,
        relevant=float(relevant),
        error=float(shares @ np.abs(predicted - observed)),
        noise=float(shares @ spread * np.sqrt(2 / np.pi)),
        squared_error=float(np.mean((p - wanted) ** 2)),
        auc=_auc(y >= relevant, p),
        predicted=predicted,
        observed=observed,
        documents=sizes,
        by_grade={
            float(g): (int((y == g).sum()), float(p[y == g].mean())) for g in np.unique(y)[:100]
        },
    )


def _deviations(rest: Floats, number: Any, query: Any, sizes: Floats) -> Floats:
    """The standard error of each bin's mean label; the rests of a query are added up first."""
    pairs, place = np.unique(np.stack([number, query]), axis=1, return_inverse=True)
    sums = np.bincount(place.ravel(), rest)
    return np.asarray(np.sqrt(np.bincount(pairs[0], sums**2, sizes.size)) / sizes)


def _auc(relevant: Any, predictions: Floats) -> float:
    """The share of pairs of a relevant and another document in the right order; ties count half."""
    if relevant.all() or not relevant.any():
        return float("nan")
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(relevant, predictions))


def draw_reliability(systems: Mapping[str, CalibrationEvaluation], path: Path) -> None:
    """Draw the reliability diagram of one or more systems with the same target."""
    with drawing(path, 1, 1, (4.4, 4.2)) as panels:
        plot_reliability(panels[0, 0], systems)
        panels[0, 0].set_title("Reliability")


def plot_reliability(axes: Any, systems: Mapping[str, CalibrationEvaluation]) -> None:
    """Plot observed against predicted, with a line for perfect predictions."""
    top = max(max(s.predicted.max(), s.observed.max()) for s in systems.values())
    axes.plot([0, top], [0, top], color="#666666", linewidth=0.8, linestyle="--")
    for i, (name, own) in enumerate(systems.items()):
        label = f"{name} (ECE {own.error:.4f})".strip()
        look = {"color": COLOURS[i % len(COLOURS)], "marker": "o", "markersize": 3}
        axes.plot(own.predicted, own.observed, label=label, **look)
    target = next(iter(systems.values())).target
    observed = "share of relevant documents" if target == "probability" else "mean grade"
    axes.set(xlabel=f"predicted {target}", ylabel=observed)
    axes.legend()
