"""Measures and their registry. Internal: import public names from `twinrank`."""

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
    """Create a measure from its name, such as `nDCG@10`, `nDCG(gain=linear)@5` or `P(rel=2)@3`.

    Parameters
    ----------
    name : str or Measure
        `Name`, `Name@k`, `Name(option=value, …)` or `Name(option=value, …)@k`. `twinrank measures`
        lists the names and their options. A `Measure` is returned unchanged.

    Returns
    -------
    Measure

    Raises
    ------
    InputError
        If the name, an option or its value is unknown.

    Examples
    --------
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
