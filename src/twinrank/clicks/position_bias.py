"""Estimates of position bias, after a check that the log can tell it from relevance.

In the position-based model, P(click) = propensity of the position × relevance of the document. A
document that was shown at several positions compares them: its relevance is the same at each. All
such documents together give the conditional likelihood

    L(p) = Π_groups Π_k ( n_k · p_k / Σ_j n_j · p_j ) ^ clicks_k

where n_k counts how often the group's documents were shown at position k. Relevance cancels, as
strength of the opponent does in the model of Bradley and Terry. The log of L is concave in log p,
and has a finite maximum if and only if the positions are strongly connected: from each position to
each other leads a chain of groups in which the next position has a click (Ford 1957).

A group is a document of a query ("pairs": the displays that Agarwal et al. 2019 harvest), or in
randomised impressions a whole query ("random"): random order makes the expected relevance the same
at each position.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.clicks.click_log import ClickLog, Floats, Ints, summed
from twinrank.clicks.click_models import warn_of_other_models
from twinrank.clicks.propensities import Propensities
from twinrank.support.errors import Argument, DataWarning, InputError, Parts, check_number, warn
from twinrank.support.quantities import counted

METHODS = ("auto", "random", "pairs", "em")
CURVES = ("free", "power")
_BOUND = 20.0  # of log propensities, for resamples in which the maximum is infinite


def estimate_propensities(
    log: ClickLog,
    method: str = "auto",
    *,
    positions: int | None = None,
    curve: str = "free",
    resamples: int = 100,
    random_state: int = 0,
) -> Propensities:
    """Estimate how likely each position is seen.

    The model: a click has the probability (propensity of the position) × (relevance of the
    document). Only ratios of propensities can be estimated; the largest is set to 1.

    Parameters
    ----------
    log : ClickLog
        The log.
    method : {"auto", "random", "pairs", "em"}, default "auto"
        "random" compares positions in randomised impressions. "pairs" compares positions at which
        the same document was shown for the same query (Agarwal et al. 2019). "em" is regression EM
        (Wang et al. 2018): boosted trees predict relevance from features, or without features each
        document has its own. "auto" uses "random" for the impressions that the log marks as
        randomised, and "pairs" for all others, in one likelihood.
    positions : int, optional
        The number of positions, from the first. Default: all in the log.
    curve : {"free", "power"}, default "free"
        A number for each position, or the power law (1/k)^η with one number η, which suits short
        logs. "em" is always free.
    resamples : int, default 100
        The number of bootstrap resamples of queries for the 95 % intervals; 0 for none. "em" has
        no intervals.
    random_state : int, default 0
        The seed.

    Returns
    -------
    Propensities

    Raises
    ------
    InputError
        If position bias cannot be told from relevance: documents hardly change their positions.

    Warns
    -----
    DataWarning
        If another click model describes the log better; see `compare_click_models`.

    Examples
    --------
    >>> from twinrank import synthetic_web_search, simulate_clicks
    >>> log = simulate_clicks(synthetic_web_search(queries=20), impressions=20_000)
    >>> [round(value, 1) for value in estimate_propensities(log, positions=3).values]
    [1.0, 0.5, 0.3]
    """
    if method not in METHODS:
        raise InputError(argument="method", value=method, choices=METHODS)
    if curve not in CURVES:
        raise InputError(argument="curve", value=curve, choices=CURVES)
    count = log.positions if positions is None else positions
    check_number("positions", count, whole=True)
    check_number("resamples", resamples, whole=True, least=0)
    if count > log.positions:
        raise InputError(f"positions must be between 1 and {log.positions}, not {count}.")
    if method == "em":
        from twinrank.clicks.regression_em import regression_em

        propensities = regression_em(log, count, random_state)
        warn_of_other_models(log)
        return propensities
    cells, name = cells_of(log, method, count)
    if (problem := cells.problem(curve)) is not None:
        raise InputError(*problem)
    warn_of_other_models(log)
    cells = cells.informative()
    estimate = cells.maximum(curve)
    reference = int(np.argmax(estimate))
    values = np.exp(estimate - estimate[reference])
    intervals = None
    queries = np.unique(cells.query).size
    if resamples and queries == 1:
        warn(DataWarning("The documents that compare positions are of one query, so that there are "
                         "no intervals; these come from resampled queries."))  # fmt: skip
    if resamples and queries > 1:
        draws = cells.resampled(curve, resamples, random_state)
        ratios = np.exp(draws - draws[:, [reference]])
        intervals = [(float(a), float(b)) for a, b in np.quantile(ratios, [0.025, 0.975], axis=0).T]
    name += ", power law" if curve == "power" else ""
    return Propensities(values.tolist(), name, intervals)


def cells_of(log: ClickLog, method: str, positions: int) -> "tuple[Cells, str]":
    """The cells that a method compares, and the name of what it uses."""
    randomised = np.zeros(log.weight.size, np.bool_) if log.randomised is None else log.randomised
    if method == "pairs" or (method == "auto" and not randomised.any()):
        return Cells.of(log, log.document, positions), "pairs"
    if not randomised.any():
        raise InputError(
            "The log does not say which impressions were shown in random order; add a column "
            "randomised, or choose ",
            Argument("method", "pairs"),
            ".",
        )
    if method == "random" or randomised.all():
        part = log.random_part()
        return Cells.of(part, part.query, positions), "random"
    groups = np.where(randomised[log.impression], log.lists.documents + log.query, log.document)
    return Cells.of(log, groups, positions), "random and pairs"


@dataclass(frozen=True, eq=False)
class Cells:
    """Clicks and displays by group and position."""

    group: Ints
    position: Ints  # from 0
    shown: Floats
    clicks: Floats
    query: Ints  # of each group
    positions: int

    @classmethod
    def of(cls, log: ClickLog, groups: Ints, positions: int) -> "Cells":
        """Sum the rows of a log up to a position."""
        rows = log.position <= positions
        number, owner = np.unique(groups[rows], return_inverse=True)
        key, cell = np.unique(owner * positions + log.position[rows] - 1, return_inverse=True)
        weight = log.row_weight[rows]
        shown = summed(cell, weight, key.size)
        clicks = summed(cell, weight * log.clicked[rows], key.size)
        query = np.empty(number.size, np.int64)
        query[owner] = log.query[rows]
        filled = shown > 0
        group, position = key[filled] // positions, key[filled] % positions
        return cls(group, position, shown[filled], clicks[filled], query, positions)

    def informative(self) -> "Cells":
        """The groups with clicks that were shown at several positions; others cancel."""
        places = np.bincount(self.group, minlength=self.query.size)
        total = np.bincount(self.group, self.clicks, self.query.size)
        groups = (places > 1) & (total > 0)
        kept = groups[self.group]
        number = np.cumsum(groups) - 1
        return Cells(
            number[self.group[kept]],
            self.position[kept],
            self.shown[kept],
            self.clicks[kept],
            self.query[groups],
            self.positions,
        )

    def problem(self, curve: str = "free") -> Parts | None:
        """Why the log cannot tell position bias from relevance; None if it can."""
        if not self.clicks.any():
            return ("There are no clicks to compare positions by.",)
        places = np.unique(self.position)
        gaps = np.setdiff1d(np.arange(places[-1]), places) + 1
        if curve == "free" and gaps.size:
            return (
                f"No document was shown at position {_range(gaps)}; number the positions of the "
                f"log from 1 on, without gaps.",
            )
        advice: Parts = (
            "Show a small share of impressions, such as 1 %, in random order and mark them in a "
            "column randomised, or log more than one ranker.",
        )
        parts = self.components("weak")
        if parts[0].size < (min(2, self.positions) if curve == "power" else self.positions):
            listed = " | ".join(_range(part) for part in parts[:4])
            more = " | …" if len(parts) > 4 else ""
            return (
                f"Position bias cannot be told from relevance in this log: no document is shown in "
                f"both of two groups of positions ({listed}{more}). ",
                *advice,
                *self._shorter(parts),
            )
        parts = self.components("strong")
        if curve == "free" and parts[0].size < self.positions:
            return (
                f"There are too few clicks to compare all {self.positions} positions. Use a longer "
                f"log, or ",
                Argument("curve", "power"),
                ". ",
                *advice,
                *self._shorter(parts),
            )
        return None

    def _shorter(self, parts: list[Ints]) -> Parts:
        first = next(part for part in parts if 1 in part)
        depth = int(np.argmax(np.append(first, 0) != np.arange(1, first.size + 2)))
        if depth < 2:
            return ()
        return (f" The first {counted(depth, 'position')} can be compared: pass ",
                Argument("positions", depth), ".")  # fmt: skip

    def components(self, connection: str) -> list[Ints]:
        """The sets of connected positions, from 1; the largest first.

        Positions lead to groups that were shown there, and groups to positions that were clicked.
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        total = np.bincount(self.group, self.clicks, self.query.size)
        useful = total[self.group] > 0
        group = self.positions + self.group[useful]
        position, clicked = self.position[useful], self.clicks[useful] > 0
        start = np.concatenate([position, group[clicked]])
        end = np.concatenate([group, position[clicked]])
        nodes = self.positions + self.query.size
        graph = coo_array((np.ones(start.size), (start, end)), shape=(nodes, nodes))
        _, label = connected_components(graph.tocsr(), connection=connection)
        own = label[: self.positions]
        parts = [np.flatnonzero(own == each) + 1 for each in np.unique(own)]
        return sorted(parts, key=lambda part: (-part.size, part[0]))

    def maximum(self, curve: str = "free", weight: Floats | None = None) -> Floats:
        """The log propensities with the highest conditional likelihood; `weight` counts queries."""
        from scipy.optimize import minimize

        clicks = self.clicks if weight is None else self.clicks * weight[self.query][self.group]
        total = np.bincount(self.group, clicks, self.query.size)
        scale = 1 / max(clicks.sum(), 1e-300)
        at_position = np.bincount(self.position, clicks, self.positions)

        power = curve == "power"
        decay = -np.log(np.arange(1, self.positions + 1))

        def loss(parameters: Floats) -> tuple[float, Floats]:
            theta = parameters * decay if power else parameters
            part = self.shown * np.exp(theta[self.position])
            whole = np.bincount(self.group, part, self.query.size)
            value = total @ np.log(whole) - at_position @ theta
            share = (total / whole)[self.group] * part
            slope = np.bincount(self.position, share, self.positions) - at_position
            slope = np.array([slope @ decay]) if power else slope
            return value * scale, slope * scale

        first = np.zeros(1 if power else self.positions)
        limits = [(-_BOUND, _BOUND)] * first.size
        options = {"maxiter": 1000, "ftol": 1e-13, "gtol": 1e-9}
        solution = minimize(
            loss, first, jac=True, method="L-BFGS-B", bounds=limits, options=options
        )
        return np.asarray(solution.x * decay if power else solution.x, np.float64)

    def resampled(self, curve: str, resamples: int, random_state: int) -> Floats:
        """The estimates from resamples of the queries, one per row."""
        generator = np.random.default_rng(random_state)
        known, size = np.unique(self.query), int(self.query.max()) + 1
        draws = []
        for _ in range(resamples):
            drawn: Any = known[generator.integers(0, known.size, known.size)]
            weight = np.bincount(drawn, minlength=size).astype(np.float64)
            draws.append(self.maximum(curve, weight))
        return np.array(draws)


def _range(positions: Ints) -> str:
    """Positions in words, such as "1–3, 5"."""
    runs = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return ", ".join(str(run[0]) if run.size == 1 else f"{run[0]}–{run[-1]}" for run in runs)
