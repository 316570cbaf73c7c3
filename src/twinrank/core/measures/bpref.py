"""Binary preference (Buckley & Voorhees 2004)."""

from dataclasses import dataclass
from typing import ClassVar

from twinrank.core.lists import Lists
from twinrank.core.measures.binary_measures import BinaryMeasure
from twinrank.core.measures.measure_base import shared
from twinrank.support.arrays import Array, as_float, namespace


@dataclass(frozen=True, kw_only=True)
class Bpref(BinaryMeasure):
    """Binary preference: the mean of 1 − min(n_i, R) / min(N, R) over the R relevant documents.

    n_i of the N documents that are judged not relevant are ranked above document i. Unjudged
    documents (label −1) are ignored, so the measure tolerates incomplete judgements.

    Buckley & Voorhees, "Retrieval evaluation with incomplete information" (SIGIR 2004), as
    trec_eval's bpref.

    Parameters
    ----------
    rel : float, default 1
        The lowest label that counts as relevant.
    cutoff : int, optional
        Only the first `cutoff` documents count.
    """

    name: ClassVar[str] = "Bpref"

    @property
    def counts_not_relevant(self) -> bool:
        """True: N includes documents that were not retrieved."""
        return True

    def credit(self, labels: Array, lists: Lists) -> Array:
        """i · (1 − min(n_i, R) / min(N, R)) / R for a relevant document."""
        relevant = as_float(self.relevant(labels))
        against = as_float(labels >= 0) - relevant
        R, N = lists.spread(lists.sum(relevant)), lists.spread(lists.sum(against))
        smaller = namespace(relevant).minimum
        above = smaller(lists.cumsum(against), R) / smaller(N, R).clip(1)
        kept = relevant * (1.0 - above) * lists.positions(labels)
        return shared(kept, lists.sum(relevant), lists)
