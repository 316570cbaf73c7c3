"""Curves of a training: the objective and the measure by epoch, or by round of trees."""

from pathlib import Path
from typing import Any

from twinrank.display.plots import COLOURS, drawing
from twinrank.training.plan import RESERVED


def draw_history(history: list[dict[str, Any]], measure: str, path: Path) -> None:
    """Draw the loss, where there is one, and the measure on every evaluation set."""
    step = "epoch" if "epoch" in history[-1] else "round"
    sets = [name for name in history[-1] if name not in RESERVED]
    panels = [*(["loss"] if "loss" in history[-1] else []), *(["sets"] if sets else [])]
    if not panels:
        return
    with drawing(path, 1, len(panels), (4.5 * len(panels), 3.2)) as axes:
        for axis, panel in zip(axes[0], panels, strict=True):
            if panel == "loss":
                _plot(axis, history, step, "loss", color=COLOURS[0])
                axis.set(title="Training objective", xlabel=step, ylabel="loss")
                continue
            for i, name in enumerate(sets):
                _plot(axis, history, step, name, color=COLOURS[i % len(COLOURS)], label=name)
            axis.set(title=measure, xlabel=step, ylabel=f"mean {measure}")
            axis.legend()


def _plot(axis: Any, history: list[dict[str, Any]], step: str, name: str, **look: Any) -> None:
    shown = [record for record in history if record.get(name) is not None]
    marker = "o" if len(shown) < 30 and name != "loss" else None
    steps, values = [record[step] for record in shown], [record[name] for record in shown]
    axis.plot(steps, values, marker=marker, markersize=3, **look)
