"""Means of each method by cutoff, by list length and by highest label."""

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from twinrank.evaluation.evaluation_values import mean_of
from twinrank.experiments.report.content import ReportContent
from twinrank.experiments.report.report_figures import Lines

_CUTOFF = re.compile(r"(?P<name>.+)@(?P<cutoff>\d+)")
_MAX_GRADES = 8  # more distinct labels than this are grouped by quartile


def by_cutoff(content: ReportContent) -> dict[str, Lines]:
    """The means of every measure that has several cutoffs, by the name of the measure."""
    families: dict[str, dict[int, str]] = {}
    for measure in content.measures:
        if match := _CUTOFF.fullmatch(measure):
            families.setdefault(match["name"], {})[int(match["cutoff"])] = measure
    lines = {}
    for name, by_k in families.items():
        cutoffs = sorted(by_k)
        means = {
            method: [mean_of(values[by_k[k]]) for k in cutoffs]
            for method, values in content.values.items()
        }
        if len(cutoffs) > 1:
            lines[name] = Lines([str(k) for k in cutoffs], means, "cutoff")
    return lines


def by_length(content: ReportContent) -> Lines | None:
    """The mean of the main measure by quartile of list length."""
    if content.list_sizes is None or not content.values:
        return None
    sizes = np.asarray(content.list_sizes)
    if not sizes.size:
        return None
    bounds = np.unique(np.quantile(sizes, [0.25, 0.5, 0.75], method="inverted_cdf"))
    groups = np.searchsorted(bounds, sizes, side="left")  # a bound belongs to the group below
    names = {}
    for group in np.unique(groups):
        low, high = sizes[groups == group].min(), sizes[groups == group].max()
        names[int(group)] = f"{low:,}" if low == high else f"{low:,}–{high:,}"
    return _grouped(content, groups, names, "documents in the list")


def by_grade(content: ReportContent) -> Lines | None:
    """The mean of the main measure by the highest label of the list."""
    if content.list_grades is None or not content.values:
        return None
    highest = np.asarray(content.list_grades, np.float64)
    grades = np.unique(highest)
    if not grades.size:
        return None
    if grades.size > _MAX_GRADES:
        grades = np.unique(np.quantile(highest, [0.25, 0.5, 0.75, 1], method="inverted_cdf"))
        names = {i: f"≤ {grade:g}" for i, grade in enumerate(grades)}
    else:
        names = {i: f"{grade:g}" for i, grade in enumerate(grades)}
    return _grouped(content, np.searchsorted(grades, highest), names, "highest label in the list")


def _grouped(
    content: ReportContent, groups: npt.NDArray[np.int64], names: Mapping[int, str], x_label: str
) -> Lines | None:
    """Means of groups of queries; groups for which no method has a value are left out."""
    measure = content.main_measure
    if not measure:
        return None
    means = {
        method: [mean_of(values[measure][groups == group]) for group in names]
        for method, values in content.values.items()
    }
    has_value = ~np.isnan(np.array(list(means.values()))).all(axis=0)
    if not has_value.any():
        return None
    kept = np.flatnonzero(has_value)
    counts = [int((groups == group).sum()) for group in names]
    labels = [f"{name}\n({count:,})" for name, count in zip(names.values(), counts, strict=True)]
    return Lines(
        [labels[i] for i in kept],
        {method: [values[i] for i in kept] for method, values in means.items()},
        f"{x_label} (queries)",
    )
