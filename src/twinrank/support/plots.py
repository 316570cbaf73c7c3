"""The style of all plots, and a context that saves a figure."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twinrank.support.errors import InputError
from twinrank.support.files import replacing

COLOURS = ("#2f6fab", "#d9822b", "#4c9a5f", "#b04a5a", "#7a68a6", "#8a8a8a")
FORMATS = (".png", ".svg", ".pdf")
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "svg.hashsalt": "twinrank",  # the same plot gives the same file
    "savefig.dpi": 150,
}


def use_whole_numbers(axis: Any) -> None:
    """Put the ticks of an axis at whole numbers only, even if a single one is in view."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def check_drawable(path: Path) -> None:
    """Refuse a file whose suffix is no format of plots."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"Can't draw to {path}. Choose a name with {', '.join(FORMATS)}.")


@contextmanager
def drawing(path: Path, rows: int, columns: int, size: tuple[float, float]) -> Iterator[Any]:
    """An array of axes; the figure is saved if the context ends without an error."""
    check_drawable(path)
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure.subplots(rows, columns, squeeze=False)
        with replacing(path) as partial:
            kind = path.suffix.lower()[1:]
            undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
            figure.savefig(partial, format=kind, metadata=undated.get(kind))
