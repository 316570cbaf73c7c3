"""A dataset at a glance, drawn."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.display.plots import COLOURS, drawing

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset


def draw_dataset(data: "Dataset", path: Path) -> None:
    """Draw list lengths, labels, relevant documents per query, and how full each feature is."""
    with drawing(path, 2, 2, (9, 6)) as axes:
        sizes, y = data.lists.sizes, data.y
        _histogram(axes[0, 0], sizes, "Documents per query", "documents")
        _labels(axes[0, 1], data)
        relevant = data.lists.sum((y > 0).astype(np.float64)).astype(np.int64)
        _histogram(axes[1, 0], relevant, "Relevant documents per query", "documents with label > 0")
        _fullness(axes[1, 1], data)


def _histogram(axes: Any, values: Any, title: str, what: str) -> None:
    bins = min(50, int(np.ptp(values)) + 1, int(2 * values.size**0.5) + 5)
    axes.hist(values, bins=bins, color=COLOURS[0])
    axes.axvline(values.mean(), color=COLOURS[1], linewidth=1.5, label=f"mean {values.mean():.1f}")
    axes.set(title=title, xlabel=what, ylabel="queries")
    axes.legend()


def _labels(axes: Any, data: "Dataset") -> None:
    shares = data.summary.labels
    axes.set(title="Labels", xlabel="label", ylabel="share of documents")
    if len(shares) > 20:
        axes.hist(data.y, bins=50, weights=np.full(data.documents, 1 / data.documents))
        return
    bars = axes.bar(list(shares), list(shares.values()), color=COLOURS[0])
    axes.bar_label(bars, fmt=lambda share: f"{share:.1%}", fontsize=8)
    axes.grid(visible=False, axis="x")


def _fullness(axes: Any, data: "Dataset") -> None:
    filled, missing = data.summary.filled, data.summary.missing
    places = np.arange(1, data.features + 1)
    axes.bar(places, filled, width=1, color=COLOURS[0], label="not zero")
    if any(missing):
        axes.bar(places, missing, width=1, bottom=filled, color=COLOURS[3], label="missing")
        axes.legend()
    axes.set(
        title="Features", xlabel="feature", ylabel="share of documents not zero", ylim=(0, 1.02)
    )
