"""A dataset at a glance, drawn."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.display.plots import COLOURS, drawing
from twinrank.support.errors import InputError
from twinrank.support.text import counted

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

_MOST_BARS = 50


def draw_dataset(data: "Dataset", path: Path) -> None:
    """Draw list lengths, labels, relevant documents per query, and how full each feature is."""
    if data.documents == 0:
        raise InputError(f"can't draw {path}: there are no documents")
    with drawing(path, 2, 2, (9, 6)) as axes:
        whole = ", ".join(
            counted(n, what)
            for n, what in (
                (data.queries, "query"),
                (data.documents, "document"),
                (data.features, "feature"),
            )
        )
        name = f"{Path(data.name).name}: " if data.name else ""
        axes[0, 0].figure.suptitle(name + whole, x=0.01, ha="left")
        sizes, y = data.lists.sizes, data.y
        _histogram(axes[0, 0], sizes, "Documents per query", "documents")
        _labels(axes[0, 1], data)
        relevant = data.lists.sum((y > 0).astype(np.float64)).astype(np.int64)
        _histogram(axes[1, 0], relevant, "Relevant documents per query", "documents with label > 0")
        _nothing_relevant(axes[1, 0], relevant)
        _fullness(axes[1, 1], data)


def _histogram(axes: Any, values: Any, title: str, what: str) -> None:
    """Bars over whole numbers, each as many of them wide as the next."""
    low, high = int(values.min()), int(values.max())
    bars = min(_MOST_BARS, int(2 * values.size**0.5) + 5)
    width = -(-(high - low + 1) // bars)
    edges = np.arange(low, high + width + 1, width) - 0.5
    axes.hist(values, bins=edges, color=COLOURS[0])
    axes.axvline(values.mean(), color=COLOURS[1], linewidth=1.5, label=f"mean {values.mean():.1f}")
    room = max(2, (high - low) // 20)
    axes.set(title=title, xlabel=what, ylabel="queries", xlim=(low - room, high + room))
    axes.xaxis.get_major_locator().set_params(integer=True)
    _legend(axes)


def _legend(axes: Any) -> None:
    """A legend that can be read on top of bars."""
    axes.legend(frameon=True, framealpha=0.85, edgecolor="none", loc="upper right")


def _nothing_relevant(axes: Any, relevant: Any) -> None:
    """Say in the legend how many queries have nothing relevant: their bar may hold others too."""
    axes.plot([], [], " ", label=f"none: {(relevant == 0).mean():.1%} of the queries")
    _legend(axes)


def _labels(axes: Any, data: "Dataset") -> None:
    shares = data.summary.labels
    axes.set(title="Labels", xlabel="label", ylabel="share of documents")
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    if not shares or len(shares) > 20:
        weights = np.full(data.documents, 1 / data.documents)
        axes.hist(data.y, bins=_MOST_BARS, weights=weights, color=COLOURS[0])
        return
    bars = axes.bar(list(shares), list(shares.values()), color=COLOURS[0])
    axes.bar_label(bars, fmt=lambda share: f"{share:.1%}", fontsize=8)
    axes.grid(visible=False, axis="x")


def _fullness(axes: Any, data: "Dataset") -> None:
    filled, missing = np.array(data.summary.filled), np.array(data.summary.missing)
    edges = np.arange(data.features + 1) + 0.5
    axes.stairs(filled, edges, fill=True, color=COLOURS[0], label="not zero")
    if missing.any():
        top = filled + missing
        axes.stairs(top, edges, baseline=filled, fill=True, color=COLOURS[3], label="missing")
        _legend(axes)
    axes.set(
        title="Features",
        xlabel="feature",
        ylabel="documents where it is not zero",
        xlim=(0.5, data.features + 0.5),
        ylim=(0, 1.02),
    )
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
