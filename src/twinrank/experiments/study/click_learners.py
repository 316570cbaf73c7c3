"""What learns from clicks in comparisons: ours, naive clicks, LightGBM and XGBoost.

All trees have the same number of rounds and leaves and the same learning rate. With `model="net"`,
our learners train a net on the same labels; that of two-tower also predicts relevance by a net.

| learner | learns from |
|---|---|
| full | the true probability that a document is clicked if it is seen |
| known | credits with the true propensities |
| ips, dr | credits with estimated propensities, by inverse propensities or doubly robust |
| two-tower | the relevance of a two-tower model |
| naive | click rates |
| lightgbm, xgboost | LightGBM's `position`; XGBoost's `lambdarank_unbiased` |
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.clicks.click_log import ClickLog
from twinrank.clicks.position_bias import estimate_propensities
from twinrank.clicks.propensities import Propensities
from twinrank.clicks.simulation import TRUST, click_probability, examination, simulate_clicks
from twinrank.data.dataset import Dataset
from twinrank.learning.estimators.base_ranker import BaseRanker
from twinrank.learning.estimators.boosted import BoostedRanker
from twinrank.support.errors import Argument, InputError

NOISE = 0.1
_OBJECTIVE = "DCG(gain=linear)@10"
_CUTOFF = 10
_EPOCHS = 20
MODELS = ("trees", "net")
_FEWEST = 2.5  # queries of the logger
_LEAF = 20  # documents of a leaf, as in LightGBM


@dataclass(frozen=True)
class ClickSetting:
    """A simulated log, and the size of the trees that learn from it.

    The logger is LambdaMART on a share of the training queries, with Gumbel noise on its scores.
    """

    impressions: int = 100_000
    eta: float = 1.0
    share: float = 0.1
    temperature: float = 0.3
    rounds: int = 100
    leaves: int = 15
    rate: float = 0.05
    seed: int = 0
    model: str = "trees"
    users: str = "position"
    """How users click: "position", or "trust" in the first results."""

    def ranker(self) -> BaseRanker:
        """The ranker that learns: trees or a net."""
        if self.model == "trees":
            return self.trees()
        from twinrank.learning.estimators.ranker import Ranker

        return Ranker(_OBJECTIVE, epochs=_EPOCHS, random_state=self.seed)

    def trees(self, objective: str = _OBJECTIVE, **engine_params: Any) -> BoostedRanker:
        """Our trees."""
        return BoostedRanker(
            objective, n_estimators=self.rounds, num_leaves=self.leaves, learning_rate=self.rate,
            n_jobs=1, random_state=self.seed, engine_params=engine_params or None,
        )  # fmt: skip

    def logger(self, train: Dataset) -> BoostedRanker:
        """The ranker that collects the log."""
        useful = train.filter(min_documents=2, min_relevant=1)
        share = max(self.share, _FEWEST / max(useful.queries, 1))
        if share < 1:
            useful = useful.split(share, 1 - share, random_state=self.seed)[0]
        least = max(1, min(_LEAF, useful.documents // 8))  # a few queries must suffice for trees
        return self.trees("LambdaMART", min_data_in_leaf=least).fit(useful)

    def log(self, train: Dataset) -> ClickLog:
        """The log of the logger on training queries."""
        return simulate_clicks(
            train, logger=self.logger(train), model=self.users, eta=self.eta, noise=NOISE,
            impressions=self.impressions, temperature=self.temperature, random_state=self.seed,
        )  # fmt: skip

    def propensities(self, positions: int) -> Propensities:
        """The true propensities, with those of clicks from trust alone."""
        seen = examination(np.arange(1, positions + 1), self.eta)
        if self.users == "position":
            return Propensities(seen.tolist())
        trusting = TRUST * seen  # of a document that is seen and irrelevant
        return Propensities((seen * (1 - trusting)).tolist(), trust=(seen * trusting).tolist())


def check_learner(learner: str, model: str) -> None:
    """Refuse names that are unknown, and nets of other libraries."""
    if learner not in LEARNERS:
        raise InputError(argument="learner", value=learner, choices=LEARNERS)
    if model not in MODELS:
        raise InputError(argument="model", value=model, choices=MODELS)
    if model == "net" and learner in ("lightgbm", "xgboost"):
        raise InputError(f"{learner} has trees only; leave out ", Argument("model", "net"), ".")


def learn(learner: str, log: ClickLog, setting: ClickSetting) -> Any:
    """Train a learner; the result has a method `predict` for datasets.

    Parameters
    ----------
    learner : str
        A name in `LEARNERS`.
    log : ClickLog
        The log, simulated with the setting.
    setting : ClickSetting
        The setting.
    """
    check_learner(learner, setting.model)
    return LEARNERS[learner](log, setting)


def _full(log: ClickLog, setting: ClickSetting) -> Any:
    data = _features(log)
    return setting.ranker().fit(data.X, click_probability(data, NOISE), qid=data.qid)


def _credited(estimator: str, known: bool = False) -> Callable[[ClickLog, ClickSetting], Any]:
    def fit(log: ClickLog, setting: ClickSetting) -> Any:
        propensities: Any = None
        if known:
            propensities = setting.propensities(log.positions)
        elif estimator in ("ips", "dr"):
            propensities = estimate_propensities(log, resamples=0)
        tower = setting.model if estimator == "two-tower" else "trees"
        return setting.ranker().fit(log.to_dataset(propensities, estimator=estimator, tower=tower))

    return fit


class _ByRow:
    """A model of another library, which scores the rows of X."""

    def __init__(self, score: Callable[[Any], Any]) -> None:
        self._score = score

    def predict(self, data: Dataset) -> Any:
        """One score per document."""
        return self._score(data.X)


def _lightgbm(log: ClickLog, setting: ClickSetting) -> _ByRow:
    """LightGBM's lambdarank with positions; a row per display."""
    import lightgbm

    order = np.lexsort((log.position, log.impression))
    data = lightgbm.Dataset(
        _features(log).X[log.document[order]], log.clicked[order].astype(int),
        group=np.bincount(log.impression), position=log.position[order],
    )  # fmt: skip
    parameters = {
        "objective": "lambdarank", "num_leaves": setting.leaves, "learning_rate": setting.rate,
        "lambdarank_truncation_level": _CUTOFF, "num_threads": 1, "seed": setting.seed,
        "verbosity": -1,
    }  # fmt: skip
    return _ByRow(lightgbm.train(parameters, data, num_boost_round=setting.rounds).predict)


def _xgboost(log: ClickLog, setting: ClickSetting) -> _ByRow:
    """XGBoost's unbiased LambdaMART; rows are sorted by position, as it needs."""
    import xgboost

    ranker = xgboost.XGBRanker(
        objective="rank:ndcg", lambdarank_unbiased=True, lambdarank_pair_method="topk",
        lambdarank_num_pair_per_sample=_CUTOFF, n_estimators=setting.rounds,
        max_leaves=setting.leaves, grow_policy="lossguide", tree_method="hist",
        learning_rate=setting.rate, n_jobs=1, random_state=setting.seed,
    )  # fmt: skip
    order = np.lexsort((log.position, log.impression))
    X = _features(log).X[log.document[order]]
    ranker.fit(X, log.clicked[order].astype(int), qid=log.impression[order])
    return _ByRow(ranker.predict)


def _features(log: ClickLog) -> Dataset:
    assert log.data is not None  # the log is simulated on data
    return log.data


LEARNERS: dict[str, Callable[[ClickLog, ClickSetting], Any]] = {
    "full": _full,
    "known": _credited("ips", known=True),
    "ips": _credited("ips"),
    "dr": _credited("dr"),
    "two-tower": _credited("two-tower"),
    "naive": _credited("naive"),
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
}
