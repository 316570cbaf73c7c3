"""An additive two-tower model of clicks: trees or a net for relevance, a number per position.

    logit P(click) = f(features) + b_position

Both are fitted to the clicks at once (Guo et al. 2019): each round adds a tree to f, and then takes
a Newton step on b; a net and b take common steps of Adam. A strong logger shows relevant documents
at the top, so that a model which is wrong about relevance gets the bias wrong as well. Weights that
count each position of a document equally often, however often it was shown there, act against this
(Hager et al. 2025, 2506.20501).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.clicks.click_log import ClickLog, Floats
from twinrank.clicks.position_bias import Cells
from twinrank.clicks.regression_em import check_identified
from twinrank.clicks.relevance_trees import tree_features, trees_for
from twinrank.support.errors import InputError

_ROUNDS = 150
_MOST = 20.0
"""The weight of a display is at most so many times the smallest, which bounds the variance."""


@dataclass(frozen=True, eq=False)
class TwoTower:
    """The fitted model: the probability of a click at position 1, and the bias of positions."""

    relevance: Floats  # of all documents
    bias: Floats  # logits; 0 at position 1


def fit_two_tower(log: ClickLog, tower: Any = "trees", random_state: int = 0) -> TwoTower:
    """Fit the model to a log with features; InputError if bias and relevance cannot be told.

    The tower of relevance is "trees", "net" or a torch module.
    """
    if log.data is None:
        raise InputError(
            "A two-tower model predicts relevance from features, and the log has none. Pass data "
            "to load_clicks."
        )
    cells = Cells.of(log, log.document, log.positions)
    documents = np.unique(log.document)
    check_identified(log, cells, documents, log.positions)
    rate, weight = cells.clicks / cells.shown, display_weights(cells) * cells.shown
    if not isinstance(tower, str) or tower == "net":
        from twinrank.clicks.two_tower_net import fit_net

        raw, bias = fit_net(log.data.X, documents, cells, rate, weight, tower, random_state)
        return TwoTower(_sigmoid(raw + bias[0]), bias - bias[0])
    if tower != "trees":
        raise InputError(argument="tower", value=tower, choices=("trees", "net"))
    import lightgbm

    bias = np.zeros(log.positions)

    def objective(raw: Floats, _: Any) -> tuple[Floats, Floats]:
        """The slope and the curvature of the loss in f, after a step on the bias."""
        p = _sigmoid(raw[cells.group] + bias[cells.position])
        slope, curve = weight * (p - rate), weight * p * (1 - p)
        by_position = [np.bincount(cells.position, each, bias.size) for each in (slope, curve)]
        bias[:] -= by_position[0] / np.maximum(by_position[1], 1e-9)
        p = _sigmoid(raw[cells.group] + bias[cells.position])
        slope, curve = weight * (p - rate), weight * p * (1 - p)
        return tuple(np.bincount(cells.group, each, raw.size) for each in (slope, curve))  # type: ignore[return-value]

    X = tree_features(log.data)
    data = lightgbm.Dataset(X[documents], np.zeros(documents.size))
    parameters = {**trees_for(documents.size), "objective": objective, "seed": random_state}
    model = lightgbm.train(parameters, data, num_boost_round=_ROUNDS)
    raw = np.asarray(model.predict(X, raw_score=True, num_threads=1))
    return TwoTower(_sigmoid(raw + bias[0]), bias - bias[0])


def display_weights(cells: Cells) -> Floats:
    """The weight of one display in each cell: so large that all cells of a document count equally.

    It is bounded, and 1 on average.
    """
    weight = 1 / cells.shown
    weight = np.minimum(weight, _MOST * weight.min())
    return np.asarray(weight * cells.shown.sum() / (weight @ cells.shown))


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))
