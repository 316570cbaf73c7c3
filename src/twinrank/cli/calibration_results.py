"""What twinrank evaluate shows of calibrated models: errors, and the reliability diagram."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from twinrank.evaluation.calibration_error import (
    CalibrationEvaluation,
    evaluate_calibration,
    plot_reliability,
)
from twinrank.support.plots import drawing
from twinrank.support.tables import Cell, ResultTable

if TYPE_CHECKING:
    from twinrank.cli.evaluated_systems import ScoredSystems

Calibrations = Mapping[str, Mapping[str, CalibrationEvaluation]]


def calibrations_of(systems: "ScoredSystems") -> Calibrations:
    """The calibration of each calibrated model, by its name and target."""
    data = systems.data
    return {
        name: {
            target: evaluate_calibration(
                own(systems.scores[name], data.lists),
                data.y,
                data.lists,
                target=target,
                relevant=own.relevant,
            )
            for target, own in ranker.model_.calibration.items()
        }
        for name, ranker in systems.rankers.items()
        if ranker is not None and ranker.model_.calibration
    }


def calibration_table(found: Calibrations) -> ResultTable:
    """A row for each model and target."""
    rows = [
        [
            Cell(f"{name}: {target}"),
            *(Cell(f"{v:.4f}") for v in (own.error, own.noise, own.squared_error, own.auc)),
        ]
        for name, by_target in found.items()
        for target, own in by_target.items()
    ]
    return ResultTable(
        title="Calibration",
        columns=["model", "ECE", "if perfect", "squared error", "AUC"],
        rows=rows,
        notes=[
            "ECE: mean of |predicted − observed| over 15 bins. If perfect: what perfect "
            "predictions have on average. AUC: over the documents of all queries."
        ],
    )


def _by_target(found: Calibrations) -> dict[str, dict[str, CalibrationEvaluation]]:
    """The calibration of each model that has the target, by target."""
    targets = dict.fromkeys(target for by_target in found.values() for target in by_target)
    return {
        target: {name: own[target] for name, own in found.items() if target in own}
        for target in targets
    }


def draw_calibrations(calibrations: Calibrations, path: Path) -> None:
    """Draw a reliability diagram for each target to a file."""
    by_target = _by_target(calibrations)
    with drawing(path, 1, len(by_target), (4.4 * len(by_target), 4.2)) as panels:
        for axes, own in zip(panels[0], by_target.values(), strict=True):
            plot_reliability(axes, own)


def reliability_figures(found: Calibrations) -> list[tuple[str, str, str]]:
    """A reliability diagram for each target, as figures of a report."""
    from twinrank.experiments.report.svg import svg_axes

    figures = []
    for target, own in _by_target(found).items():
        with svg_axes((5.0, 3.6)) as (axes, drawn):
            plot_reliability(axes[0], own)
        errors = ", ".join(f"{name} has an ECE of {each.error:.4f}" for name, each in own.items())
        about = f"Observed against predicted {target}, in bins of equal size. {errors}."
        figures.append((f"Reliability: {target}", drawn.svg, about))
    return figures
