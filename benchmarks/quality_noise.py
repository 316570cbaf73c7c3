"""How much noise trees should train with, and whether it should change as training goes on.

As quality_members.py, which see: half of the validation queries choose the round, the others judge.

    python benchmarks/quality_noise.py MQ2008 MQ2007-partial
"""

from collections.abc import Callable, Mapping

from quality_members import ROUNDS, Array, Trainings, length, of_trees, run
from twinrank.study.source import Source


def noise(perturbation: float, samples: float) -> dict[str, float]:
    """Both as an objective of trees takes them."""
    return {"perturbation": perturbation, "samples": round(samples)}


# What is drawn in a round, given how far training has come, from 0 to 1.
NOISES: Mapping[str, Callable[[float], dict[str, float]]] = {
    "τ = 2, 5 samples": lambda _: noise(2, 5),
    "τ = 2, 20 samples": lambda _: noise(2, 20),
    "τ = 2, 2 to 8 samples": lambda gone: noise(2, 2 + 6 * gone),
    "τ = 2, 1 to 20 samples": lambda gone: noise(2, 1 + 19 * gone),
    "τ = 4, 5 samples": lambda _: noise(4, 5),
    "τ = 4, 20 samples": lambda _: noise(4, 20),
    "τ = 4 to 1, 5 samples": lambda gone: noise(4 - 3 * gone, 5),
}


def trained(source: str, fold: int, seed: int, name: str, way: str, share: float) -> Array:
    """One training, in a process of its own."""
    sets, rounds = Source.from_text(source).sets(fold), length(ROUNDS, share)
    return of_trees(sets["train"], sets["validation"], name, seed, rounds, NOISES[way])


def noises(share: float) -> Trainings:
    """Trees with each of the ways to draw noise."""
    return {
        f"{name}, {way}": (trained, name, way, share)
        for name in ("AP-type3", "nDCG-type3")
        for way in NOISES
    }


if __name__ == "__main__":
    run(__doc__ or "", noises)
