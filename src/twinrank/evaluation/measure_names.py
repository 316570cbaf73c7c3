"""Names of measures in trec_eval and in ir_measures, translated to our notation."""

import ast
import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from twinrank.core.measures import Measure
from twinrank.support.errors import InputError

RUNID, GEOMETRIC = "runid", "gm_map"
COUNTS = ("num_q", "num_ret", "num_rel", "num_rel_ret")
MAIN = (RUNID, *COUNTS, "map", "Rprec", "recip_rank", "P_5", "P_10", "P_15", "P_20", "P_30",
        "P_100", "ndcg", "ndcg_cut_10")  # fmt: skip
_OFFICIAL = (
    RUNID,
    *COUNTS,
    "map",
    GEOMETRIC,
    "Rprec",
    "bpref",
    "recip_rank",
    "iprec_at_recall",
    "P",
)
SETS = {
    "official": _OFFICIAL,
    "set": (RUNID, *COUNTS, "set_P", "set_recall", "set_F"),
    "all_trec": (*_OFFICIAL, "recall", "ndcg", "success", "map_cut", "ndcg_cut", "set_P",
                 "set_recall", "set_F"),
}  # fmt: skip
"""The nicknames of trec_eval, with the measures that exist here."""

WITHOUT_CUTOFF = {
    "map": "AP(divisor=R)",
    GEOMETRIC: "AP(divisor=R)",
    "ndcg": "nDCG(gain=linear)",
    "recip_rank": "RR",
    "bpref": "Bpref",
    "set_P": "P",
    "set_recall": "Recall",
    "set_F": "SetF",
}
WITH_CUTOFF = {
    "ndcg_cut": "nDCG(gain=linear)",
    "map_cut": "AP(divisor=R)",
    "P": "P",
    "recall": "Recall",
    "success": "Success",
}
_INTERPOLATED = "iprec_at_recall"
_CUTOFFS = {"success": (1, 5, 10)}
_USUAL_CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
_LEVELS = ("0.0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0")
_IR_NAMES = {
    "R": "Recall", "SetR": "Recall", "SetP": "P", "RPrec": "Rprec", "BPref": "Bpref",
    "NumQ": "num_q", "NumRet": "num_ret", "NumRel": "num_rel", "NumRelRet": "num_rel_ret",
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A measure as it was asked for."""

    name: str
    notation: str | Measure
    judged_only: bool = False


def trec_names(name: str, *, expand: bool = True) -> dict[str, str]:
    """The measures of a trec_eval name such as `P_5`, `P.5,10`, `ndcg_cut` or `map`.

    The result maps names of trec_eval to our notation. It is empty for other names, and without
    `expand` for `P`, which is also our name of precision in the whole list.

    >>> trec_names("ndcg_cut.5,10")
    {'ndcg_cut_5': 'nDCG(gain=linear)@5', 'ndcg_cut_10': 'nDCG(gain=linear)@10'}
    >>> trec_names("nDCG@10")
    {}
    """
    if name in WITHOUT_CUTOFF:
        return {name: WITHOUT_CUTOFF[name]}
    if name.startswith(_INTERPOLATED):
        return _interpolated(name)
    match = re.fullmatch(r"([A-Za-z_]+?)(?:_(\d+)|\.(\d+(?:,\d+)*))?", name)
    if match is None or match[1] not in WITH_CUTOFF or (name == "P" and not expand):
        return {}
    family, cutoff, cutoffs = match.groups()
    if cutoff or cutoffs:
        ks: Sequence[int] = [int(k) for k in (cutoff or cutoffs).split(",")]
    else:
        ks = _CUTOFFS.get(family, _USUAL_CUTOFFS)
    return {f"{family}_{k}": f"{WITH_CUTOFF[family]}@{k}" for k in ks}


def _interpolated(name: str) -> dict[str, str]:
    """The measures of `iprec_at_recall`, `iprec_at_recall_0.10` or `iprec_at_recall.0.1,0.5`."""
    match = re.fullmatch(rf"{_INTERPOLATED}(?:[._]([\d.]+(?:,[\d.]+)*))?", name)
    if match is None:
        return {}
    try:
        levels = [float(level) for level in match[1].split(",")] if match[1] else _LEVELS
        return {f"{_INTERPOLATED}_{float(r):.2f}": f"IPrec(recall={float(r)})" for r in levels}
    except ValueError:
        return {}


def requested(names: Any) -> list[Any]:
    """The names of one or several measures, with the sets of trec_eval written out."""
    single = isinstance(names, str | Measure) or not isinstance(names, Iterable)
    listed = [names] if single else sorted(names, key=str) if isinstance(names, Set) else [*names]
    return [
        member
        for name in listed
        for member in (SETS.get(name, (name,)) if _is_text(name) else (name,))
    ]


def translated(name: Any) -> Request:
    """A measure of ir_measures, by object or name, in our notation; other names are unchanged.

    >>> translated("nDCG(dcg='exp-log2')@10").notation
    'nDCG(gain=exponential)@10'
    >>> translated("AP(rel=2,judged_only=True)@100")
    Request(name='AP(rel=2,judged_only=True)@100', notation='AP(rel=2)@100', judged_only=True)
    """
    if isinstance(name, Measure):
        return Request(str(name), name)
    text = str(name)
    text = "NumRelRet" if text == "NumRet(rel=1)" else text  # as ir_measures writes it
    match = re.fullmatch(r"\s*([A-Za-z]\w*)\s*(?:\((.*)\))?\s*(?:@\s*([\d.]+))?\s*", text)
    if match is None:
        return Request(text, text)
    options = [part.strip() for part in re.split(r",(?![^\[{]*[\]}])", match[2] or "")]
    own = _IR_NAMES.get(match[1], match[1])
    cutoff, judged = match[3], False
    written = []
    for option in filter(None, options):
        key, _, value = (piece.strip() for piece in option.partition("="))
        if key == "judged_only":
            judged = value == "True"
        elif key == "dcg":
            gains = {"log2": "linear", "exp-log2": "exponential"}
            if value.strip("'\"") not in gains:
                raise InputError(argument="dcg", value=value, choices=gains)
            written.append(f"gain={gains[value.strip(chr(39) + chr(34))]}")
        elif key == "gains":
            written.append(f"gain={_gains(value, text)}")
        else:
            written.append(option)
    if own == "IPrec" and cutoff is not None:
        written, cutoff = [*written, f"recall={cutoff}"], None
    if (
        not judged
        and own == match[1]
        and written == [o for o in options if o]
        and cutoff == match[3]
    ):
        return Request(text, text)
    inside = f"({', '.join(written)})" if written else ""
    return Request(text, f"{own}{inside}" + ("" if cutoff is None else f"@{cutoff}"), judged)


def _gains(value: str, name: str) -> list[float]:
    """A dictionary of gains as a list by grade; a grade that it leaves out is its own gain."""
    try:
        gains = {int(grade): gain for grade, gain in ast.literal_eval(value).items()}
    except (AttributeError, SyntaxError, TypeError, ValueError):
        raise InputError(
            f"Can't read the gains of {name!r}; write them as {{0: 0, 1: 3}}."
        ) from None
    return [gains.get(grade, grade) for grade in range(max(gains, default=0) + 1)]


def _is_text(name: Any) -> bool:
    return isinstance(name, str)
