"""What measures of binary relevance share: the discount 1/r, and which labels are relevant."""

from dataclasses import dataclass, replace

from twinrank.core.lists.row_weights import weighted_gains
from twinrank.core.measures.measure_base import Measure
from twinrank.support.arrays import Array, as_float, at_least_zero
from twinrank.support.errors import InputError, check_number


@dataclass(frozen=True, kw_only=True)
class ReciprocalMeasure(Measure):
    """A measure with the discount 1/r, as the paper writes all measures except nDCG."""

    def discount(self, rank: Array) -> Array:
        """1 / r."""
        return 1.0 / rank

    def slope(self, rank: Array) -> Array:
        """−1 / r²."""
        return -1.0 / rank**2


@dataclass(frozen=True, kw_only=True)
class BinaryMeasure(ReciprocalMeasure):
    """A measure of binary relevance.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    cutoff : int, optional
        Only the first `cutoff` documents of a list count.
    """

    rel: float = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(f"rel of {self.name}", self.rel)

    def relevant(self, labels: Array) -> Array:
        """Labels of at least `rel`."""
        return labels >= self.rel


@dataclass(frozen=True, kw_only=True)
class CountedMeasure(BinaryMeasure):
    """A measure that counts relevant documents, or adds up their labels.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    gain : {"binary", "linear"}, default "binary"
        A document counts 1 if it is relevant, or as much as its label.
    cutoff : int, optional
        Only the first `cutoff` documents of a list count.
    """

    gain: str = "binary"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gain not in ("binary", "linear"):
            raise InputError(argument="gain", value=self.gain, choices=["binary", "linear"])
        if self.gain == "linear" and self.rel != 1:
            raise InputError(f"rel of {self.name} has no effect with gain=linear; leave it out.")

    def gains(self, labels: Array) -> Array:
        """What each document counts; unjudged documents count 0."""
        return at_least_zero(labels) if self.gain == "linear" else as_float(self.relevant(labels))

    def relevant(self, labels: Array) -> Array:
        """Labels of at least `rel`; with a linear gain, those above 0."""
        return labels > 0 if self.gain == "linear" else super().relevant(labels)

    def weighted(self, labels: Array, weights: Array) -> tuple[Measure, Array]:
        """The form with a linear gain."""
        self.check_takes_weights()
        return replace(self, gain="linear", rel=1), weighted_gains(self.gains(labels), weights)
