"""Conventions: named sets of the rules in which evaluation tools differ.

The same ranking has different nDCG and MAP in different tools. They differ in the gain and the
discount, the divisor of AP@k, the value of queries without relevant documents and of lists with
fewer than k documents, and the order of equal scores.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from twinrank.core.measures import Measure, measure, measure_with, names
from twinrank.core.measures.binary_measures import BinaryMeasure
from twinrank.core.measures.measure_base import Empty
from twinrank.support.errors import InputError, unknown
from twinrank.support.notation import Term, parse

Ties = Literal["random", "stable", "docid", "average", "relevant"]

_GAIN = {"exponential": "gain 2ʸ − 1", "linear": "gain y"}
_AP = {
    "min": "AP@k over min(R, k)",
    "R": "AP@k over R",
    "paper": "AP@k over the k best graded labels",
}
_EMPTY = {
    "skip": "are skipped",
    "zero": "count as 0",
    "one": "count as 1",
    "error": "raise an error",
}
_TIES = {
    "random": "broken at random",
    "stable": "in input order",
    "docid": "by descending document id",
    "average": "averaged",
    "relevant": "with the highest label first",
}
_DISCOUNT = {"standard": "", "letor": ", ranks 1 and 2 not discounted"}


@dataclass(frozen=True)
class Convention:
    """The rules of an evaluation: gain, discount, divisor of AP@k, empty and short lists, ties.

    `short` names the measures that are 0 at a cutoff k for a list with fewer than k documents.
    """

    name: str
    gain: str
    divisor: str
    empty: Empty
    ties: Ties
    discounting: str = "standard"
    short: tuple[str, ...] = ()

    def measure(self, notation: str | Measure, level: float | None = None) -> Measure:
        """The measure of a name under this convention; options in the name take precedence.

        `level` is the lowest grade of a relevant document, for terms without the option `rel`.

        >>> str(CONVENTIONS["trec"].measure("nDCG@10"))
        'nDCG(gain=linear)@10'
        >>> str(CONVENTIONS["paper"].measure("AP@5"))
        'paperAP@5'
        >>> str(CONVENTIONS["letor"].measure("nDCG@5"))
        'nDCG(discounting=letor)@5'
        """
        if isinstance(notation, Measure):
            return notation

        def build(term: Term) -> Measure:
            own = self._of_term(term)
            if level is None or not isinstance(own, BinaryMeasure) or "rel" in term.options:
                return own
            return replace(own, rel=level)

        return measure_with(notation, build, lambda name: read_name(name, names()))

    def _of_term(self, term: Term) -> Measure:
        """The measure of a single term, with the rules of this convention."""
        options = dict(term.options)
        if term.name in ("nDCG", "NDCG", "DCG"):
            options.setdefault("gain", self.gain)
            options.setdefault("discounting", self.discounting)
        elif term.name in ("AP", "MAP") and "divisor" not in options:
            if self.divisor == "paper":
                return measure(str(Term("paperAP", options, term.cutoff)))
            options["divisor"] = self.divisor
        return measure(str(Term(term.name, options, term.cutoff)))

    def __str__(self) -> str:
        rules = [
            _GAIN[self.gain] + _DISCOUNT[self.discounting],
            _AP[self.divisor],
            f"lists without relevant documents {_EMPTY[self.empty]}",
            f"ties {_TIES[self.ties]}",
        ]
        if self.short:
            listed = ", ".join(f"{name}@k" for name in self.short)
            rules.append(f"{listed} of lists with fewer than k documents are 0")
        return f"{self.name} ({'; '.join(rules)})"


CONVENTIONS = {
    convention.name: convention
    for convention in (
        Convention("twinrank", "exponential", "min", "skip", "random"),
        Convention("all-lists", "exponential", "min", "zero", "stable"),
        Convention("letor", "exponential", "min", "zero", "stable", "letor", ("nDCG",)),
        Convention("letor3", "exponential", "min", "zero", "stable", "letor", ("nDCG", "P")),
        Convention("trec", "linear", "R", "zero", "docid"),
        Convention("lightgbm", "exponential", "min", "one", "stable"),
        Convention("paper", "exponential", "paper", "skip", "random"),
        Convention(
            "ptranking",
            "exponential",
            "paper",
            "skip",
            "relevant",
            short=("nDCG", "AP", "paperAP", "P", "nERR"),
        ),
    )
}
"""The rules of each tool by name.

"letor" are those of LETOR 4.0's script Eval-Score-4.0.pl, "letor3" those of LETOR 3.0's: there P@k
of a short list is 0 too. "ptranking" are those of the code of the paper's author in August 2020:
documents were sorted by label before they were scored, and short lists were padded with zeros.
"""


def read_name(name: str, known: Sequence[str]) -> Term:
    """Parse a measure and check that its name is known."""
    try:
        term = parse(name)
    except InputError as error:
        word = re.match(r"\s*(\w*)", str(name))
        if word is None or word[1] in known:
            raise
        raise InputError(*error.parts, " ", unknown("measure", word[1], known)) from error
    if term.name not in known:
        raise InputError(unknown("measure", term.name, known))
    return term


def convention_of(
    name: str | Convention, empty: str | None = None, ties: str | None = None
) -> Convention:
    """The convention of a name, with the rule for empty lists or ties replaced if given."""
    if not isinstance(name, Convention) and name not in CONVENTIONS:
        raise InputError(argument="convention", value=name, choices=CONVENTIONS)
    convention = name if isinstance(name, Convention) else CONVENTIONS[name]
    if empty is not None and empty not in get_args(Empty):
        raise InputError(argument="empty", value=empty, choices=get_args(Empty))
    if ties is not None and ties not in get_args(Ties):
        raise InputError(argument="ties", value=ties, choices=get_args(Ties))
    rules = {"empty": empty or convention.empty, "ties": ties or convention.ties}
    changed = replace(convention, **rules)  # type: ignore[arg-type]
    if changed == convention:
        return convention
    return replace(changed, name=f"{convention.name}, changed")
