"""What `quality.py` trains: the variants, and the settings that each of them is tried with.

Every variant has the same number of trials. Trees of all makes share one grid; nets share one for
the size of the net, the batch and the regularisation, in which ours try noise, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from twinrank.losses import NAMES

Setting = Mapping[str, Any]

VALIDATION = "nDCG@5"
"""By which settings, epochs and variants are chosen."""

TREE_GRID: tuple[Setting, ...] = tuple(
    {"num_leaves": leaves, "learning_rate": rate} for leaves, rate in product((7, 15), (0.05, 0.1))
)
ROUNDS: Setting = {"n_estimators": 300, "early_stopping": 50}
TREES: Setting = {**ROUNDS, "members": 1}
NOISE: Mapping[str, Setting] = {
    "τ=0": {"perturbation": 0.0, "samples": 1},
    "τ=1": {"perturbation": 1.0, "samples": 5},
    "τ=2": {"perturbation": 2.0, "samples": 5},
}
WAYS: Mapping[str, tuple[str, ...]] = {
    "type1": ("τ=0", "τ=1"),
    "type2": ("τ=0", "τ=1"),
    "type3": ("τ=0", "τ=1", "τ=2"),
    "swap": ("τ=1",),
}
"""The strategies of trees, and the noise that each is tried with."""
MEMBERS = 5
"""Of the committees, which are tried with the noise that is best in validation."""
BAGGED: Setting = {"bagging_fraction": 0.7, "bagging_freq": 1, "bagging_by_query": True}
"""What gives LambdaMART, which draws nothing at random, something to average over seeds."""

SHAPE = "architecture"
NETS: Setting = {"epochs": 80, "early_stopping": 12, "learning_rate": 3e-3}
_SMALL, _WIDE = (f"MLP(width={w}, depth=3, dropout={d})" for w, d in ((64, 0.3), (100, 0.5)))
NET_GRID: tuple[Setting, ...] = (
    {SHAPE: _SMALL, "batch_documents": 500},
    {SHAPE: _WIDE, "batch_documents": 500},
    {SHAPE: _SMALL, "batch_documents": 2000},
    {SHAPE: _SMALL, "batch_documents": 500, "weight_decay": 1e-3},
)
NOISY_NET_GRID: tuple[Setting, ...] = (
    {**NET_GRID[0], **NOISE["τ=2"]},
    {**NET_GRID[1], **NOISE["τ=2"]},
    {**NET_GRID[2], **NOISE["τ=2"]},
    {**NET_GRID[0], **NOISE["τ=0"]},
)
"""For ours: in the place of weight decay, no noise."""

DEFAULTS = ("nDCG-type3, τ=2, five members", "nDCG-type3, five members")
"""What BoostedRanker and Ranker are on data of this size, as their lines are called."""
CATBOOST = "CatBoost YetiRank"
LAMBDAMART = "LambdaMART"
RANK_NDCG = "XGBoost rank:ndcg"


@dataclass(frozen=True)
class Variant:
    """A line of the tables: a method of the study, what is fixed of it, and what is tried."""

    name: str
    method: str
    ours: bool
    fixed: Setting = field(default_factory=dict)
    grid: tuple[Setting, ...] = TREE_GRID
    varies: bool = True
    """Whether seeds make a difference that members don't average out already."""

    def parameters(self, trial: int) -> dict[str, Any]:
        """The parameters of one of the trials, but for a net's architecture."""
        found = {**self.fixed, **self.grid[trial]}
        found.pop(SHAPE, None)
        return found

    def method_of(self, trial: int) -> str:
        """The study's name of one of the trials, which says a net's architecture."""
        shape = self.grid[trial].get(SHAPE)
        return self.method if shape is None else f"{self.method} ({shape})"


def tree_variants() -> list[Variant]:
    """The peers, then ours: measures by strategies, with and without noise."""
    peers = {LAMBDAMART: LAMBDAMART, "rank_xendcg": "rank_xendcg", RANK_NDCG: "rank:ndcg"}
    found = [
        Variant(name, method, False, TREES, varies=name == "rank_xendcg")
        for name, method in peers.items()
    ]
    bagged = {**TREES, "engine_params": BAGGED}
    found.append(Variant("LambdaMART, bagged", LAMBDAMART, False, bagged))
    found.append(Variant(CATBOOST, CATBOOST, False, ROUNDS))
    for measure, strategy in product(("nDCG", "AP", "nERR"), WAYS):
        name = f"{measure}-{strategy}"
        found += [
            Variant(f"{name}, {noise}", f"{name} (Boosted)", True, {**TREES, **NOISE[noise]})
            for noise in WAYS[strategy]
        ]
    found += [
        Variant(
            f"{measure}-type3, τ=2, five members",
            f"{measure}-type3 (Boosted)",
            True,
            {**TREES, **NOISE["τ=2"], "members": MEMBERS},
            varies=False,
        )
        for measure in ("nDCG", "AP", "nERR")
    ]
    return found


def net_variants() -> list[Variant]:
    """LambdaMART to compare with, the baseline losses, and ours: measures by strategies."""
    found = [Variant(LAMBDAMART, LAMBDAMART, False, TREES, varies=False)]
    found += [Variant(name, name, False, NETS, NET_GRID) for name in NAMES]
    ours = product(("P", "AP", "nDCG", "nERR@10"), ("type1", "type2", "type3", "swap"))
    # No swap changes the precision of a whole list.
    names = [f"{m}-{s}" for m, s in ours if (m, s) != ("P", "swap")]
    found += [Variant(name, name, True, NETS, NOISY_NET_GRID) for name in names]
    several = tuple(
        {**one, SHAPE: f"{one[SHAPE][:-1]}, members={MEMBERS})"} for one in NOISY_NET_GRID
    )
    return found + [
        Variant(f"{name}, five members", name, True, NETS, several, varies=False)
        for name in ("P-type3", "P-type2", "nDCG-type3")  # the best two in validation, the default
    ]


def quick(variants: list[Variant]) -> list[Variant]:
    """A few of them: LambdaMART and, of ours, nDCG and AP through type3."""
    return [
        v
        for v in variants
        if v.name == LAMBDAMART or "nDCG-type3" in v.name or "AP-type3" in v.name
    ]
