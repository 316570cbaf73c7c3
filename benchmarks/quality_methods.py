"""The variants that `quality.py` trains, and the grid of settings of each.

Every variant has the same number of trials. Trees of all engines share one grid. Nets share a grid
of sizes, batches and regularisation; our nets try noise as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from twinrank.losses import NAMES

Setting = Mapping[str, Any]

VALIDATION = "nDCG@5"
"""The measure that selects settings, epochs and variants."""

TREE_GRID: tuple[Setting, ...] = tuple(
    {"num_leaves": leaves, "learning_rate": rate} for leaves, rate in product((7, 15), (0.05, 0.1))
)
ROUNDS: Setting = {"n_estimators": 300, "early_stopping": 50}
TREES: Setting = {**ROUNDS, "ensemble_size": 1}
NOISE: Mapping[str, Setting] = {
    "τ=0": {"perturbation": 0.0, "samples": 1},
    "τ=1": {"perturbation": 1.0, "samples": 5},
    "τ=2": {"perturbation": 2.0, "samples": 5},
}
STRATEGIES: Mapping[str, tuple[str, ...]] = {
    "type1": ("τ=0", "τ=1"),
    "type2": ("τ=0", "τ=1"),
    "type3": ("τ=0", "τ=1", "τ=2"),
    "swap": ("τ=1",),
}
"""The strategies of trees, and the noise that each is tried with."""
ENSEMBLE_SIZE = 5
"""Ensembles are tried with the noise that is best in validation."""
BAGGED: Setting = {"bagging_fraction": 0.7, "bagging_freq": 1, "bagging_by_query": True}
"""Makes LambdaMART random, so that averaging over seeds can help it as well."""

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
"""For our nets: no noise instead of weight decay."""

DEFAULTS = ("nDCG-type3, τ=2, ensemble of five", "nDCG-type3, ensemble of five")
"""The variants that are the defaults of BoostedRanker and Ranker on data of this size."""
CATBOOST = "CatBoost YetiRank"
LAMBDAMART = "LambdaMART"
RANK_NDCG = "XGBoost rank:ndcg"


@dataclass(frozen=True)
class Variant:
    """A line of the tables: a method of a study, its fixed parameters, and its grid."""

    name: str
    method: str
    ours: bool
    fixed: Setting = field(default_factory=dict)
    grid: tuple[Setting, ...] = TREE_GRID
    varies: bool = True
    """True if results depend on the seed, and no ensemble averages that out already."""

    def parameters(self, trial: int) -> dict[str, Any]:
        """The parameters of a trial, without the architecture of a net."""
        parameters = {**self.fixed, **self.grid[trial]}
        parameters.pop(SHAPE, None)
        return parameters

    def method_of(self, trial: int) -> str:
        """The name of a trial's method in a study, with the architecture of a net."""
        shape = self.grid[trial].get(SHAPE)
        return self.method if shape is None else f"{self.method} ({shape})"


def tree_variants() -> list[Variant]:
    """Other libraries, then ours: measures by strategies, with and without noise."""
    peers = {LAMBDAMART: LAMBDAMART, "rank_xendcg": "rank_xendcg", RANK_NDCG: "rank:ndcg"}
    variants = [
        Variant(name, method, False, TREES, varies=name == "rank_xendcg")
        for name, method in peers.items()
    ]
    bagged = {**TREES, "engine_params": BAGGED}
    variants.append(Variant("LambdaMART, bagged", LAMBDAMART, False, bagged))
    variants.append(Variant(CATBOOST, CATBOOST, False, ROUNDS))
    for measure, strategy in product(("nDCG", "AP", "nERR"), STRATEGIES):
        name = f"{measure}-{strategy}"
        variants += [
            Variant(f"{name}, {noise}", f"{name} (Boosted)", True, {**TREES, **NOISE[noise]})
            for noise in STRATEGIES[strategy]
        ]
    variants += [
        Variant(
            f"{measure}-type3, τ=2, ensemble of five",
            f"{measure}-type3 (Boosted)",
            True,
            {**TREES, **NOISE["τ=2"], "ensemble_size": ENSEMBLE_SIZE},
            varies=False,
        )
        for measure in ("nDCG", "AP", "nERR")
    ]
    return variants


def net_variants() -> list[Variant]:
    """LambdaMART to compare with, the baseline losses, and ours: measures by strategies."""
    variants = [Variant(LAMBDAMART, LAMBDAMART, False, TREES, varies=False)]
    variants += [Variant(name, name, False, NETS, NET_GRID) for name in NAMES]
    ours = product(("P", "AP", "nDCG", "nERR@10"), ("type1", "type2", "type3", "swap"))
    # Swapping documents never changes the precision of a whole list.
    names = [f"{m}-{s}" for m, s in ours if (m, s) != ("P", "swap")]
    variants += [Variant(name, name, True, NETS, NOISY_NET_GRID) for name in names]
    ensembles = {**NETS, "ensemble_size": ENSEMBLE_SIZE}
    return variants + [
        Variant(f"{name}, ensemble of five", name, True, ensembles, NOISY_NET_GRID, varies=False)
        for name in ("P-type3", "P-type2", "nDCG-type3")  # the best two in validation, the default
    ]


def quick(variants: list[Variant]) -> list[Variant]:
    """LambdaMART, and our variants of nDCG and AP through type3."""
    return [
        v
        for v in variants
        if v.name == LAMBDAMART or "nDCG-type3" in v.name or "AP-type3" in v.name
    ]
