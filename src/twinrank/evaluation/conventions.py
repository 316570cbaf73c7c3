"""Conventions: what tools agree to disagree about, named.

The same ranking has different nDCG and MAP in different tools: they differ in gains, in the divisor
of AP@k, in what a query with nothing relevant is worth, and in how equal scores are ordered.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from twinrank.measures import NAMES, Measure, measure
from twinrank.measures.measure_base import Empty
from twinrank.support.errors import InputError, unknown
from twinrank.support.notation import Term, parse

Ties = Literal["random", "stable", "docid", "average"]

_GAIN = {"exponential": "gain 2ʸ − 1", "linear": "gain y"}
_AP = {
    "min": "AP@k over min(R, k)",
    "R": "AP@k over R",
    "paper": "AP@k over the k best graded labels",
}
_EMPTY = {
    "skip": "are left out",
    "zero": "count as 0",
    "one": "count as 1",
    "error": "are refused",
}
_TIES = {
    "random": "at random",
    "stable": "in the order given",
    "docid": "by document id, the last first",
    "average": "averaged",
}


@dataclass(frozen=True)
class Convention:
    """One way of evaluating: gain, divisor of AP@k, empty lists and ties."""

    name: str
    gain: str
    divisor: str
    empty: Empty
    ties: Ties

    def measure(self, wanted: str | Measure) -> Measure:
        """The measure that a name means here; options that it spells out stay.

        >>> str(CONVENTIONS["trec"].measure("nDCG@10"))
        'nDCG(gain=linear)@10'
        >>> str(CONVENTIONS["paper"].measure("AP@5"))
        'paperAP@5'
        """
        if isinstance(wanted, Measure):
            return wanted
        term = read_name(wanted, NAMES)
        options = dict(term.options)
        if term.name in ("nDCG", "NDCG", "DCG"):
            options.setdefault("gain", self.gain)
        elif term.name in ("AP", "MAP") and "divisor" not in options:
            if self.divisor == "paper":
                return measure(str(Term("paperAP", options, term.cutoff)))
            options["divisor"] = self.divisor
        return measure(str(Term(term.name, options, term.cutoff)))

    def __str__(self) -> str:
        return (
            f"{self.name} ({_GAIN[self.gain]}; {_AP[self.divisor]}; "
            f"lists with nothing relevant {_EMPTY[self.empty]}; ties {_TIES[self.ties]})"
        )


CONVENTIONS = {
    convention.name: convention
    for convention in (
        Convention("twinrank", "exponential", "min", "skip", "random"),
        Convention("letor", "exponential", "min", "zero", "stable"),
        Convention("trec", "linear", "R", "zero", "docid"),
        Convention("lightgbm", "exponential", "min", "one", "stable"),
        Convention("paper", "exponential", "paper", "skip", "random"),
    )
}


def read_name(name: str, known: Sequence[str]) -> Term:
    """The notation of a measure, its name one of those known."""
    try:
        term = parse(name)
    except InputError as error:
        word = re.match(r"\s*(\w*)", str(name))
        if word is None or word[1] in known:
            raise
        raise InputError(f"{error} ({unknown('measure', word[1], known)})") from error
    if term.name not in known:
        raise InputError(unknown("measure", term.name, known))
    return term


def convention_of(
    name: str | Convention, empty: str | None = None, ties: str | None = None
) -> Convention:
    """The convention of this name, with another policy for empty lists or ties where given."""
    if isinstance(name, Convention):
        found = name
    elif name in CONVENTIONS:
        found = CONVENTIONS[name]
    else:
        raise InputError(unknown("convention", str(name), CONVENTIONS))
    if empty is not None and empty not in get_args(Empty):
        raise InputError(unknown("policy for empty lists", str(empty), get_args(Empty)))
    if ties is not None and ties not in get_args(Ties):
        raise InputError(unknown("way to break ties", str(ties), get_args(Ties)))
    changed = replace(found, empty=empty or found.empty, ties=ties or found.ties)  # type: ignore[arg-type]
    return changed if changed == found else replace(changed, name=f"{found.name}, changed")
