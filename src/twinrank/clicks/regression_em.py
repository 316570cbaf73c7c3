"""Regression EM (Wang et al. 2018): propensities and relevance from clicks, by turns.

The E step gives the probability that a document without a click was seen, or was relevant. The M
step sets the propensity of a position to the mean of the first, and fits relevance to the second:
per document, or with features by boosted trees, one tree per step.
"""

from typing import Any

import numpy as np

from twinrank.clicks.click_log import ClickLog, Floats
from twinrank.clicks.position_bias import Cells
from twinrank.clicks.propensities import Propensities
from twinrank.clicks.relevance_trees import tree_features, trees_for
from twinrank.support.errors import InputError

_STEPS = 300
_LEAVES = 32  # of the tree that looks for overlap
_FEWEST = 20  # documents in a leaf


def regression_em(log: ClickLog, positions: int, random_state: int) -> Propensities:
    """Estimate propensities by EM; InputError if features do not overlap across positions."""
    cells = Cells.of(log, log.document, positions)
    documents = np.unique(log.document[log.position <= positions])
    check_identified(log, cells, documents, positions)
    state = _State(cells, documents.size)
    if log.data is None:
        for _ in range(_STEPS):
            state.relevance = state.step()
    else:
        _fit_trees(state, tree_features(log.data)[documents], random_state)
    values = state.propensity / state.propensity.max()
    return Propensities(values.tolist(), "em")


class _State:
    """Propensities by position and relevance by document, between steps."""

    def __init__(self, cells: Cells, documents: int) -> None:
        self.cells = cells
        self.documents = documents
        self.shown = np.bincount(cells.position, cells.shown, cells.positions)
        self.shown_documents = np.bincount(cells.group, cells.shown, documents)
        self.propensity = np.full(cells.positions, 0.9)
        self.relevance = np.full(documents, 0.5)

    def step(self) -> Floats:
        """Update the propensities; return the expected relevance of each document."""
        cells = self.cells
        p, r = self.propensity[cells.position], self.relevance[cells.group]
        unclicked, neither = cells.shown - cells.clicks, 1 - p * r
        seen = cells.clicks + unclicked * p * (1 - r) / neither
        relevant = cells.clicks + unclicked * r * (1 - p) / neither
        self.propensity = np.bincount(cells.position, seen, cells.positions) / self.shown
        self.propensity = np.clip(self.propensity, 1e-6, 1 - 1e-6)
        expected = np.bincount(cells.group, relevant, self.documents) / self.shown_documents
        return np.clip(expected, 1e-6, 1 - 1e-6)


def _fit_trees(state: _State, X: Any, random_state: int) -> None:
    """Add a tree per step, fitted to the expected relevance."""
    import lightgbm

    weight = state.shown_documents / state.shown_documents.mean()

    def objective(raw: Floats, _: Any) -> tuple[Floats, Floats]:
        state.relevance = np.clip(1 / (1 + np.exp(-raw)), 1e-6, 1 - 1e-6)
        expected = state.step()
        slope = state.relevance - expected
        return weight * slope, weight * state.relevance * (1 - state.relevance)

    data = lightgbm.Dataset(X, np.zeros(len(X)), params={"verbosity": -1})
    parameters = {**trees_for(len(X)), "objective": objective, "seed": random_state}
    lightgbm.train(parameters, data, num_boost_round=_STEPS)


def check_identified(log: ClickLog, cells: Cells, documents: Any, positions: int) -> None:
    """Refuse a log in which neither documents nor features are shared by positions."""
    problem = cells.problem()
    if problem is None:
        return
    if log.data is not None:
        from sklearn.tree import DecisionTreeRegressor

        rows = log.position <= positions
        number = np.searchsorted(documents, log.document[rows])
        X = np.nan_to_num(log.data.X[documents])[number]
        tree = DecisionTreeRegressor(
            max_leaf_nodes=_LEAVES, min_samples_leaf=_FEWEST, random_state=0
        )
        leaf = np.empty(log.position.size, np.int64)
        leaf[rows] = tree.fit(X, log.position[rows]).apply(X)
        if Cells.of(log, leaf, positions).problem() is None:
            return
    raise InputError(*problem)
