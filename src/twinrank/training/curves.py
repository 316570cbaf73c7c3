"""Curves of a training: the objective and the measure by epoch."""

from pathlib import Path
from typing import Any

from twinrank.display.plots import COLOURS, drawing
from twinrank.training.plan import RESERVED


def draw_history(history: list[dict[str, Any]], measure: str, path: Path) -> None:
    """Draw the loss, and the measure on every evaluation set, by epoch."""
    sets = [name for name in history[-1] if name not in RESERVED]
    panels = 2 if sets else 1
    with drawing(path, 1, panels, (4.5 * panels, 3.2)) as axes:
        epochs = [record["epoch"] for record in history]
        axes[0, 0].plot(epochs, [record["loss"] for record in history], color=COLOURS[0])
        axes[0, 0].set(title="Training objective", xlabel="epoch", ylabel="loss")
        for i, name in enumerate(sets):
            shown = [record for record in history if record.get(name) is not None]
            axes[0, 1].plot(
                [record["epoch"] for record in shown],
                [record[name] for record in shown],
                color=COLOURS[i % len(COLOURS)],
                marker="o" if len(shown) < 30 else None,
                markersize=3,
                label=name,
            )
        if sets:
            axes[0, 1].set(title=measure, xlabel="epoch", ylabel=f"mean {measure}")
            axes[0, 1].legend()
