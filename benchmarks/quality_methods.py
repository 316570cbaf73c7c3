"""What `quality.py` trains: the variants, and the settings that each of them is tried with.

Every variant has the same number of trials. Trees of all makes share one grid; nets share one
for the size of the net, the batch and the regularisation, and where a method ranks with noise, half
of its trials have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

Setting = Mapping[str, Any]

TREE_GRID: tuple[Setting, ...] = tuple(
    {"num_leaves": leaves, "learning_rate": rate} for leaves, rate in product((7, 15), (0.05, 0.1))
)
TREES: Setting = {"n_estimators": 300, "early_stopping": 50}
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

CATBOOST = "CatBoost YetiRank"
LAMBDAMART = "LambdaMART"


@dataclass(frozen=True)
class Variant:
    """A line of the tables: a method of the study, what is fixed of it, and what is tried."""

    name: str
    method: str
    ours: bool
    fixed: Setting = field(default_factory=dict)
    grid: tuple[Setting, ...] = TREE_GRID

    def parameters(self, trial: int) -> dict[str, Any]:
        """The parameters of one of the trials."""
        return {**self.fixed, **self.grid[trial]}


def tree_variants() -> list[Variant]:
    """The peers, then ours: measures by strategies, with and without noise."""
    peers = {LAMBDAMART: LAMBDAMART, "rank_xendcg": "rank_xendcg", "XGBoost rank:ndcg": "rank:ndcg"}
    found = [Variant(name, method, False, TREES) for name, method in peers.items()]
    found.append(Variant(CATBOOST, CATBOOST, False, TREES))
    for measure, strategy in product(("nDCG", "AP", "nERR"), WAYS):
        name = f"{measure}-{strategy}"
        found += [
            Variant(f"{name}, {noise}", f"{name} (Boosted)", True, {**TREES, **NOISE[noise]})
            for noise in WAYS[strategy]
        ]
    return found


def net_variants() -> list[Variant]:
    """LambdaMART to compare with, the baseline losses, and ours."""
    raise NotImplementedError


def quick(variants: list[Variant]) -> list[Variant]:
    """A few of them: LambdaMART and, of ours, nDCG and AP through type3."""
    return [
        v
        for v in variants
        if v.name == LAMBDAMART or "nDCG-type3" in v.name or "AP-type3" in v.name
    ]
