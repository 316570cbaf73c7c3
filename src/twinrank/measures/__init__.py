"""Measures: one small file each, found by name."""

from dataclasses import fields

from twinrank.measures.ap import AP, PaperAP
from twinrank.measures.dcg import DCG, NDCG
from twinrank.measures.err import ERR, NERR
from twinrank.measures.measure_base import Measure
from twinrank.measures.precision import Judged, Precision, Recall, RPrecision
from twinrank.measures.rbp import RBP
from twinrank.measures.rr import RR, Success
from twinrank.support.errors import InputError, unknown
from twinrank.support.notation import check_options, parse

MEASURES: tuple[type[Measure], ...] = (
    NDCG, DCG, AP, PaperAP, Precision, Recall, RPrecision, RR, Success, NERR, ERR, RBP, Judged,
)  # fmt: skip

__all__ = ["MEASURES", "NAMES", "Measure", "measure"]

_BY_NAME = {name: kind for kind in MEASURES for name in (kind.name, *kind.aliases)}
NAMES = tuple(_BY_NAME)


def measure(name: str | Measure) -> Measure:
    """The measure of this name: `nDCG`, `nDCG@10`, `nDCG(gain=linear)@5`, `P(rel=2)@3` and so on.

    >>> str(measure("nDCG(gain=linear)@5"))
    'nDCG(gain=linear)@5'
    >>> measure("Precision@5") == measure("P@5")
    True
    """
    if isinstance(name, Measure):
        return name
    term = parse(name)
    if term.name not in _BY_NAME:
        raise InputError(unknown("measure", term.name, _BY_NAME))
    kind = _BY_NAME[term.name]
    check_options(kind.name, term, [f.name for f in fields(kind) if f.name != "cutoff"])
    return kind(cutoff=term.cutoff, **term.options)
