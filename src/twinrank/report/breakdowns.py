"""Where methods differ: by cutoff, by length of list, by highest label."""

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from twinrank.evaluation.result import mean_of
from twinrank.report.content import ReportContent
from twinrank.report.report_figures import Lines

Floats = npt.NDArray[np.float64]
_CUTOFF = re.compile(r"(?P<name>.+)@(?P<cutoff>\d+)")
_GRADES = 8  # labels that are shown one by one


def by_cutoff(content: ReportContent) -> dict[str, Lines]:
    """The mean of every measure that has several cutoffs, by the measure's name."""
    families: dict[str, dict[int, str]] = {}
    for measure in content.measures:
        if found := _CUTOFF.fullmatch(measure):
            families.setdefault(found["name"], {})[int(found["cutoff"])] = measure
    lines = {}
    for name, members in families.items():
        cutoffs = sorted(members)
        values = {
            method: [mean_of(by[members[k]]) for k in cutoffs]
            for method, by in content.values.items()
        }
        lines[name] = Lines([str(k) for k in cutoffs], values, "cutoff")
    return {name: one for name, one in lines.items() if len(one.places) > 1}


def by_length(content: ReportContent) -> Lines | None:
    """The mean of the main measure by quartile of list length."""
    if content.list_sizes is None or not content.values:
        return None
    sizes = np.asarray(content.list_sizes)
    if not sizes.size:
        return None
    inner = np.unique(np.quantile(sizes, [0.25, 0.5, 0.75], method="inverted_cdf"))
    groups = np.searchsorted(inner, sizes, side="left")  # a bound belongs to the group below
    names = {}
    for group in np.unique(groups):
        low, high = sizes[groups == group].min(), sizes[groups == group].max()
        names[int(group)] = f"{low:,}" if low == high else f"{low:,}–{high:,}"
    return _grouped(content, groups, names, "documents in the list")


def by_grade(content: ReportContent) -> Lines | None:
    """The mean of the main measure by the highest label in the list."""
    if content.list_grades is None or not content.values:
        return None
    grades = np.asarray(content.list_grades, np.float64)
    found = np.unique(grades)
    if not found.size:
        return None
    if found.size > _GRADES:  # labels that are measurements: quartiles of them
        found = np.unique(np.quantile(grades, [0.25, 0.5, 0.75, 1], method="inverted_cdf"))
        names = {i: f"≤ {grade:g}" for i, grade in enumerate(found)}
    else:
        names = {i: f"{grade:g}" for i, grade in enumerate(found)}
    return _grouped(content, np.searchsorted(found, grades), names, "highest label in the list")


def _grouped(
    content: ReportContent, groups: npt.NDArray[np.int64], names: Mapping[int, str], about: str
) -> Lines | None:
    """Means within groups of queries; groups that no method has a value for are left out."""
    measure = content.main_measure
    if not measure:
        return None
    means = {
        method: [mean_of(by[measure][groups == group]) for group in names]
        for method, by in content.values.items()
    }
    known = ~np.isnan(np.array(list(means.values()))).all(axis=0)
    if not known.any():
        return None
    counts = [int((groups == group).sum()) for group in names]
    places = [
        f"{name}\n({count:,})"
        for name, count, kept in zip(names.values(), counts, known, strict=True)
        if kept
    ]
    values = {
        method: [value for value, kept in zip(found, known, strict=True) if kept]
        for method, found in means.items()
    }
    return Lines(places, values, f"{about} (queries)")
