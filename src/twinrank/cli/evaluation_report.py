"""The HTML report of twinrank evaluate: systems compared, and their rankings query by query."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.cli.calibration_results import (
    Calibrations,
    calibration_table,
    reliability_figures,
)
from twinrank.cli.evaluated_systems import ScoredSystems
from twinrank.cli.output_options import command_line
from twinrank.evaluation.comparison import Comparison
from twinrank.experiments.report.query_rankings import (
    RankedQuery,
    choice_note,
    chosen_queries,
    ranked_query,
)
from twinrank.experiments.report.report_content import ReportContent
from twinrank.experiments.report.report_page import write_report
from twinrank.learning.training.matched_data import matched_columns
from twinrank.support.quantities import counted
from twinrank.support.versions import versions

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.learning.estimators.base_ranker import BaseRanker


def write_evaluation_report(
    path: Path,
    systems: ScoredSystems,
    comparison: Comparison,
    queries: int,
    calibrations: Calibrations,
) -> None:
    """Write the report, with at most `queries` single queries."""
    data, measure = systems.data, comparison.measures[0]
    sizes = np.asarray(data.lists.sizes)
    values = {name: result.values[measure] for name, result in systems.results.items()}
    chosen = chosen_queries(values, queries)
    content = ReportContent(
        title=f"{counted(len(values), 'system')} on {Path(data.name).name}",
        comparison=comparison,
        evaluations=systems.results,
        list_sizes=sizes,
        list_grades=data.lists.max(data.y),
        command=command_line(),
        versions=versions(),
        queries=_ranked(systems, values, chosen),
        feature_names=data.feature_names or (),
        queries_note=choice_note(len(chosen), data.queries),
        figures=reliability_figures(calibrations),
        tables=[("Calibration", calibration_table(calibrations))] if calibrations else (),
    )
    write_report(path, content)


def _ranked(
    systems: ScoredSystems, values: dict[str, Any], chosen: npt.NDArray[np.int64]
) -> list[RankedQuery]:
    part = systems.data.select(chosen)
    known = {n: attributions_of(r, part) for n, r in systems.rankers.items() if r is not None}
    if len(known) < len(systems.rankers):
        known = {}  # scores from a file have no model to explain them
    return [
        ranked_query(
            systems.data,
            number,
            systems.scores,
            {name: by_query[number] for name, by_query in values.items()},
            {name: attributed[rows] for name, attributed in known.items()},
        )
        for number, rows in zip(chosen.tolist(), part.lists, strict=True)
    ]


def attributions_of(ranker: "BaseRanker", data: "Dataset") -> npt.NDArray[np.float64]:
    """What each feature of the data adds to each score, 0 if the ranker does not use it.

    SHAP values of trees, attributions of nets, and the weighted sum of both for a blend.
    """
    found: Any = ranker
    if ranker.kind not in ("trees", "net"):
        factors = np.array(found.model_.weights) / np.array(found.model_.scales)
        parts = [attributions_of(part, data) for part in found.rankers_.values()]
        return np.asarray(np.tensordot(factors, parts, axes=1))
    trees = ranker.kind == "trees"
    own = np.asarray(found.contributions(data)[:, :-1] if trees else found.attributions(data))
    names = getattr(ranker, "feature_names_in_", None)
    columns = matched_columns(data, own.shape[1], names, type(ranker).__name__)
    if columns is None:
        return own
    values = np.zeros((data.documents, data.features))
    values[:, columns] = own
    return values
