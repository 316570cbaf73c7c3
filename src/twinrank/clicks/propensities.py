"""`Propensities`: the probability that a user sees a position."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.clicks.click_log import ClickLog, Floats
from twinrank.support.arrays import as_floats
from twinrank.support.errors import InputError
from twinrank.support.files import read_json, replacing
from twinrank.support.tables import Cell, ResultTable

_FORMAT = "twinrank propensities 1"


@dataclass(frozen=True)
class Propensities:
    """The probability that a user sees each position.

    `estimate_propensities` makes them from a log; pass your own values if you know them. Only
    ratios can be estimated from clicks, so estimates are scaled: the largest is 1. A common factor
    changes neither which ranker is best by unbiased credits nor which of two rankers wins.

    Parameters
    ----------
    values : sequence of float
        The probability of position 1, 2, …; above 0 and at most 1.
    method : str, default "known"
        How they were found.
    intervals : sequence of pairs of float, optional
        95 % confidence intervals.
    trust : sequence of float, optional
        The probability that position 1, 2, … makes users click an irrelevant document. With trust
        bias, P(click) = value × relevance + trust (Vardasbi et al. 2020). Clicks alone identify it
        only up to scale and offset, so it is never estimated. Default: none.

    Examples
    --------
    >>> Propensities([1, 0.5, 0.25]).at([1, 3])
    array([1.  , 0.25])
    """

    values: Sequence[float]
    method: str = "known"
    intervals: Sequence[tuple[float, float]] | None = field(default=None)
    trust: Sequence[float] | None = None

    def __post_init__(self) -> None:
        try:
            values = tuple(float(value) for value in np.asarray(self.values, np.float64).ravel())
        except (TypeError, ValueError) as error:
            raise InputError(f"Propensities must be numbers: {error}.") from error
        for i, value in enumerate(values):
            if not 0 < value <= 1:
                raise InputError(
                    f"The propensity of position {i + 1} is {value:g}; it must be above 0 and at "
                    f"most 1."
                )
        if not values:
            raise InputError("Propensities need at least one position.")
        object.__setattr__(self, "values", values)
        if self.intervals is not None:
            pairs = tuple((float(low), float(high)) for low, high in self.intervals)
            if len(pairs) != len(values):
                raise InputError(f"There are {len(values)} values but {len(pairs)} intervals.")
            object.__setattr__(self, "intervals", pairs)
        if self.trust is not None:
            object.__setattr__(self, "trust", _checked_trust(self.trust, values))

    def __len__(self) -> int:
        return len(self.values)

    def at(self, position: Any) -> Floats:
        """The propensity at each position, from 1.

        Parameters
        ----------
        position : array of int
            Positions; each must have a value.
        """
        return self._of(self.values, position)

    def trust_at(self, position: Any) -> Floats:
        """The trust bias at each position, from 1; 0 if there is none.

        Parameters
        ----------
        position : array of int
            Positions; each must have a value.
        """
        return self._of(np.zeros(len(self)) if self.trust is None else self.trust, position)

    def _of(self, values: Any, position: Any) -> Floats:
        positions = np.asarray(position, np.int64)
        if positions.size and int(positions.max()) > len(self):
            raise InputError(
                f"Position {int(positions.max())} has no propensity; there are {len(self)} values. "
                f"Leave out lower positions with log.first({len(self)})."
            )
        return np.take(np.asarray(values, np.float64), positions - 1)

    def table(self) -> ResultTable:
        """A table of positions, values and intervals."""
        columns = {"position": [str(i + 1) for i in range(len(self))]}
        columns["propensity"] = [f"{value:.4f}" for value in self.values]
        if self.intervals is not None:
            columns["95 % interval"] = [f"{low:.4f} to {high:.4f}" for low, high in self.intervals]
        if self.trust is not None:
            columns["trust"] = [f"{value:.4f}" for value in self.trust]
        rows = [[Cell(text) for text in row] for row in zip(*columns.values(), strict=True)]
        return ResultTable(f"Method: {self.method}", list(columns), rows)

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draw the propensities by position.

        Parameters
        ----------
        path : path
            A file that ends in .png, .svg or .pdf.
        """
        from twinrank.support.plots import COLOURS, drawing, use_whole_numbers

        with drawing(Path(path).expanduser(), 1, 1, (4.5, 3.0)) as axes:
            panel = axes[0, 0]
            positions = np.arange(1, len(self) + 1)
            panel.plot(positions, self.values, marker="o", color=COLOURS[0])
            if self.intervals is not None:
                low, high = np.array(self.intervals).T
                panel.fill_between(positions, low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
            panel.set_ylim(0, None)
            use_whole_numbers(panel.xaxis)
            panel.set_xlabel("position")
            panel.set_title("Propensity: how likely a position is seen")

    def to_json(self) -> dict[str, Any]:
        """The values, the method and the intervals as plain JSON."""
        pairs = self.intervals
        return {
            "format": _FORMAT,
            "method": self.method,
            "values": list(self.values),
            "intervals": None if pairs is None else [list(pair) for pair in pairs],
            "trust": None if self.trust is None else list(self.trust),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file, which `load` reads.

        Parameters
        ----------
        path : path
            The file.
        """
        with replacing(Path(path).expanduser()) as partial:
            partial.write_text(json.dumps(self.to_json(), indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Propensities":
        """Read a file that `save` wrote.

        Parameters
        ----------
        path : path
            The file.
        """
        source = Path(path).expanduser()
        content = read_json(source)
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise InputError(f"{source} does not contain propensities of TwinRank.")
        try:
            return cls(
                content["values"],
                str(content["method"]),
                content["intervals"],
                content.get("trust"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{source} is damaged: {error}.") from error

    def __str__(self) -> str:
        return self.table().to_text()


def _checked_trust(trust: Sequence[float], values: Sequence[float]) -> tuple[float, ...]:
    own = tuple(as_floats("trust", trust).ravel().tolist())
    if len(own) != len(values):
        raise InputError(f"There are {len(values)} values but trust has {len(own)}.")
    for i, (value, more) in enumerate(zip(own, values, strict=True)):
        if not 0 <= value < 1 or value + more > 1 + 1e-9:
            raise InputError(
                f"The trust of position {i + 1} is {value:g}; it must be at least 0, and with the "
                f"propensity {more:g} at most 1."
            )
    return own


def row_propensities(log: ClickLog, propensities: Any) -> tuple[Floats, Floats | None]:
    """The propensity of each row of a log, and its trust bias, if there is any."""
    if propensities is None:
        if log.propensity is None:
            raise InputError(
                "The log has no column of propensities. Pass propensities, such as those of "
                "estimate_propensities(log)."
            )
        return log.propensity, None
    known = propensities if isinstance(propensities, Propensities) else Propensities(propensities)
    return known.at(log.position), None if known.trust is None else known.trust_at(log.position)
