"""The noise of trees: how much, and whether it should change during training.

As in quality_ensembles.py, half of the validation queries select the round, the others evaluate it.

    python benchmarks/quality_noise.py MQ2008 MQ2007-partial
"""

from collections.abc import Callable, Mapping

from quality_ensembles import ROUNDS, Array, Trainings, length, of_trees, run
from twinrank.study.source import Source


def noise(perturbation: float, samples: float) -> dict[str, float]:
    """The arguments of an objective of trees."""
    return {"perturbation": perturbation, "samples": round(samples)}


# The noise of a round, from the share of training that is done, 0 to 1.
NOISES: Mapping[str, Callable[[float], dict[str, float]]] = {
    "τ = 2, 5 samples": lambda _: noise(2, 5),
    "τ = 2, 20 samples": lambda _: noise(2, 20),
    "τ = 2, 2 to 8 samples": lambda done: noise(2, 2 + 6 * done),
    "τ = 2, 1 to 20 samples": lambda done: noise(2, 1 + 19 * done),
    "τ = 4, 5 samples": lambda _: noise(4, 5),
    "τ = 4, 20 samples": lambda _: noise(4, 20),
    "τ = 4 to 1, 5 samples": lambda done: noise(4 - 3 * done, 5),
}


def trained(source: str, fold: int, seed: int, name: str, label: str, share: float) -> Array:
    """One training, in its own process."""
    sets, rounds = Source.from_text(source).sets(fold), length(ROUNDS, share)
    return of_trees(sets["train"], sets["validation"], name, seed, rounds, NOISES[label])


def noises(share: float) -> Trainings:
    """Trees with each kind of noise."""
    return {
        f"{name}, {label}": (trained, name, label, share)
        for name in ("AP-type3", "nDCG-type3")
        for label in NOISES
    }


if __name__ == "__main__":
    run(__doc__ or "", noises)
