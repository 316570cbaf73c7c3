"""Plots of a dataset: list lengths, labels, relevant documents, filled features."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.support.errors import InputError
from twinrank.support.plots import COLOURS, drawing, use_whole_numbers
from twinrank.support.quantities import counted

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

_MOST_BARS = 50


def draw_dataset(data: "Dataset", path: Path) -> None:
    """Draw list lengths, labels, relevant documents per query and filled shares of features."""
    if data.documents == 0:
        raise InputError(f"Can't draw {path}: the dataset has no documents.")
    with drawing(path, 2, 2, (9, 6)) as axes:
        size = ", ".join(
            counted(count, noun)
            for count, noun in (
                (data.queries, "query"),
                (data.documents, "document"),
                (data.features, "feature"),
            )
        )
        name = f"{Path(data.name).name}: " if data.name else ""
        axes[0, 0].figure.suptitle(name + size, x=0.01, ha="left")
        sizes, y = data.lists.sizes, data.y
        _histogram(axes[0, 0], sizes, "Documents per query", "documents")
        _labels(axes[0, 1], data)
        relevant = data.lists.sum((y > 0).astype(np.float64)).astype(np.int64)
        _histogram(axes[1, 0], relevant, "Relevant documents per query", "documents with label > 0")
        _nothing_relevant(axes[1, 0], relevant)
        _filled(axes[1, 1], data)


def _histogram(axes: Any, values: Any, title: str, label: str) -> None:
    """Draw a histogram of integers; all bars cover equally many of them."""
    low, high = int(values.min()), int(values.max())
    bars = min(_MOST_BARS, int(2 * values.size**0.5) + 5)
    width = -(-(high - low + 1) // bars)
    edges = np.arange(low, high + width + 1, width) - 0.5
    axes.hist(values, bins=edges, color=COLOURS[0])
    axes.axvline(values.mean(), color=COLOURS[1], linewidth=1.5, label=f"mean {values.mean():.1f}")
    margin = max(2, (high - low) // 20)
    axes.set(title=title, xlabel=label, ylabel="queries", xlim=(low - margin, high + margin))
    use_whole_numbers(axes.xaxis)
    use_whole_numbers(axes.yaxis)
    _legend(axes)


def _legend(axes: Any) -> None:
    """Add a legend that is readable on top of bars."""
    axes.legend(frameon=True, framealpha=0.85, edgecolor="none", loc="upper right")


def _nothing_relevant(axes: Any, relevant: Any) -> None:
    """Add the share of queries without relevant documents, which a bar may mix with others."""
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


def _filled(axes: Any, data: "Dataset") -> None:
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
