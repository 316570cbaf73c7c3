"""DCG and nDCG (Järvelin & Kekäläinen 2002)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.lists.row_weights import weighted_gains
from twinrank.core.measures.measure_base import Measure, Swaps, additive, shared
from twinrank.support.arrays import Array, all_true, at_least_zero, is_tensor, namespace
from twinrank.support.errors import InputError

_HIGHEST = 100
"""The highest label with an exponential gain: sums of 2¹⁰⁰ fit in float32."""


@dataclass(frozen=True, kw_only=True)
class GainMeasure(Measure):
    """A measure of graded labels.

    Parameters
    ----------
    gain : {"exponential", "linear"} or list of float, default "exponential"
        2ʸ − 1, y, or a list by label as LightGBM's `label_gain`: `gain=[0, 1, 3, 7]` gives label 3
        the gain 7.
    cutoff : int, optional
        Only the first `cutoff` documents of a list count.
    """

    gain: str | tuple[float, ...] = "exponential"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.gain, list):
            object.__setattr__(self, "gain", tuple(self.gain))
        if isinstance(self.gain, tuple):
            if not self.gain or min(self.gain) < 0:
                raise InputError(f"gain of {self.name} must list numbers ≥ 0, one per label.")
        elif self.gain not in ("exponential", "linear"):
            known = ("exponential", "linear", "a list such as [0, 1, 3]")
            raise InputError(argument="gain", value=self.gain, choices=known)

    @property
    def counts_not_relevant(self) -> bool:
        """True if grade 0 has a gain, so that the ideal order depends on all its documents."""
        return isinstance(self.gain, tuple) and self.gain[0] > 0

    def gains(self, labels: Array) -> Array:
        """The gain of each label; unjudged documents (label −1) have the gain 0."""
        xp, judged, labels = namespace(labels), labels >= 0, at_least_zero(labels)
        if self.gain == "exponential":
            if not all_true(labels <= _HIGHEST):
                raise InputError(
                    f"The exponential gain 2ʸ − 1 of {self} takes labels up to {_HIGHEST}, but "
                    f"there is a label {float(labels.max()):g}; use gain=linear or list the gains."
                )
            return xp.exp2(labels) - 1.0
        if self.gain == "linear":
            return labels
        grade = labels.long() if is_tensor(labels) else labels.astype(np.int64)
        known = len(self.gain)
        listed = (grade == labels) & (grade < known)
        if not all_true(listed):
            missing = float(labels[~listed][0])
            raise InputError(
                f"{self} lists the gains of labels 0…{known - 1}, but not of {missing:g}."
            )
        if not is_tensor(labels):
            return np.asarray(self.gain, labels.dtype)[grade] * judged
        gains = xp.zeros_like(labels)  # a table would be copied to the device in every call
        for number, gain in enumerate(self.gain):
            gains = xp.where(grade == number, gain, gains)
        return gains * judged

    def ideal_gains(self, labels: Array, lists: Lists) -> Array:
        """The gains of every list in descending order."""
        if isinstance(self.gain, tuple):  # a higher label may have a lower gain
            return lists.sort(self.gains(labels))
        return self.gains(lists.sort(labels))

    def weighted(self, labels: Array, weights: Array) -> tuple[Measure, Array]:
        """The form with a linear gain."""
        self.check_takes_weights()
        return replace(self, gain="linear"), weighted_gains(self.gains(labels), weights)

    def relevant(self, labels: Array) -> Array:
        """Labels with a positive gain."""
        return self.gains(labels) > 0 if isinstance(self.gain, tuple) else labels > 0


@dataclass(frozen=True, kw_only=True)
class DCG(GainMeasure):
    """Discounted cumulative gain: DCG@k = Σ_{j≤k} gain_j / log2(1 + j).

    Parameters
    ----------
    gain : {"exponential", "linear"} or list of float, default "exponential"
        2ʸ − 1, y, or a list by label.
    discounting : {"standard", "letor"}, default "standard"
        1 / log2(1 + rank), or 1 / log2(rank) from rank 2 on and 1 before, as in LETOR's scripts.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "DCG"
    sums_gains: ClassVar[bool] = True
    discounting: str = "standard"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.discounting not in ("standard", "letor"):
            raise InputError(
                argument="discounting", value=self.discounting, choices=["standard", "letor"]
            )

    def credit(self, labels: Array, lists: Lists) -> Array:
        """The gain of the document."""
        return self.gains(labels)

    def discount(self, rank: Array) -> Array:
        """1 / log2(1 + r), or in LETOR 1 / log2(max(r, 2))."""
        shifted = rank.clip(2.0) if self.discounting == "letor" else 1.0 + rank
        return 1.0 / namespace(rank).log2(shifted)

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """(credit_p − credit_q) · (D(p) − D(q)), with D = 0 beyond the cutoff."""
        return additive(self.credit(labels, lists), self.cut(self.discounts(labels, lists), lists))

    def over_ties(self, credit: Array, lists: Lists, mean: Callable[[Array], Array]) -> Array:
        """The mean gain of the tied documents."""
        return mean(credit)

    def slope(self, rank: Array) -> Array:
        """−1 / (ln 2 · (1 + r) · log2²(1 + r)); the paper omits the 1/ln 2.

        LETOR's discount has r instead of 1 + r, and is constant up to rank 2.
        """
        xp = namespace(rank)
        if self.discounting == "standard":
            return -1.0 / (math.log(2) * (1.0 + rank) * xp.log2(1.0 + rank) ** 2)
        shifted = rank.clip(2.0)
        return xp.where(rank < 2.0, 0.0, -1.0 / (math.log(2) * shifted * xp.log2(shifted) ** 2))


@dataclass(frozen=True, kw_only=True)
class NDCG(DCG):
    """Normalised DCG: nDCG@k = DCG@k / (DCG@k of the ideal order).

    Parameters
    ----------
    gain : {"exponential", "linear"} or list of float, default "exponential"
        2ʸ − 1, y, or a list by label.
    discounting : {"standard", "letor"}, default "standard"
        1 / log2(1 + rank), or 1 / log2(rank) from rank 2 on and 1 before, as in LETOR's scripts.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "nDCG"
    aliases: ClassVar[tuple[str, ...]] = ("NDCG",)
    sums_gains: ClassVar[bool] = True

    def credit(self, labels: Array, lists: Lists) -> Array:
        """The document's share of the ideal DCG@k."""
        ideal = self.ideal_gains(labels, lists) * self.discounts(labels, lists)
        return shared(self.gains(labels), lists.sum(lists.first(ideal, self.cutoff)), lists)
