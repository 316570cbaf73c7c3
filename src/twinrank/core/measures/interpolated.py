"""Interpolated precision at a level of recall, the points of a precision-recall curve."""

from dataclasses import dataclass
from typing import ClassVar

from twinrank.core.lists import Lists
from twinrank.core.measures.binary_measures import BinaryMeasure
from twinrank.support.arrays import Array, as_float, namespace
from twinrank.support.errors import InputError


@dataclass(frozen=True, kw_only=True)
class IPrec(BinaryMeasure):
    """Interpolated precision: the highest P@j of the ranks j whose recall is at least `recall`.

    The recall is reached with ⌊recall · R + 0.9⌋ of the R relevant documents, as in trec_eval 9
    (iprec_at_recall); version 10 rounds recall · R instead. It is 0 if too few are retrieved.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    recall : float, default 0
        The level of recall, from 0 to 1.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "IPrec"
    aliases: ClassVar[tuple[str, ...]] = ("iprec",)
    recall: float = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.recall, int | float) or not 0 <= self.recall <= 1:
            raise InputError(f"recall of IPrec must lie between 0 and 1, not {self.recall!r}.")

    def credit(self, labels: Array, lists: Lists) -> Array:
        """i / j for the relevant documents up to j, the rank with the highest precision."""
        xp, position = namespace(labels), lists.positions(labels)
        relevant = as_float(self.relevant(labels))
        needed = xp.floor(self.recall * lists.sum(relevant) + 0.9)
        found = lists.cumsum(relevant)
        precision = self.cut(found / position, lists) * (found >= lists.spread(needed))
        best = lists.spread(lists.max(precision))
        at_best = as_float((precision == best) & (best > 0))
        rank = lists.spread(lists.max(at_best * position))
        return relevant * position * (position <= rank) / rank.clip(1)
