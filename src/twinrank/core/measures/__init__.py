"""Measures and their registry. Internal: import public names from `twinrank`."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from twinrank.core.loss_names import BUILT_IN_LOSSES, OWN_LOSSES
from twinrank.core.measures.ap import AP, PaperAP
from twinrank.core.measures.bpref import Bpref
from twinrank.core.measures.dcg import DCG, NDCG
from twinrank.core.measures.err import ERR, NERR
from twinrank.core.measures.interpolated import IPrec
from twinrank.core.measures.measure_base import FunctionMeasure, Measure
from twinrank.core.measures.measure_sum import Goal, MeasureSum
from twinrank.core.measures.precision import Judged, Precision, Recall, RPrecision, SetF
from twinrank.core.measures.rbp import RBP
from twinrank.core.measures.rr import RR, Success
from twinrank.core.measures.variety import ERRIA, NERRIA, AlphaDCG, AlphaNDCG, VarietyMeasure
from twinrank.support.errors import InputError, unknown
from twinrank.support.imports import import_registered
from twinrank.support.notation import Term, check_options, parse, summands

MEASURES: tuple[type[Measure], ...] = (
    NDCG, DCG, AP, PaperAP, Precision, Recall, RPrecision, RR, Success, NERR, ERR, RBP, Judged,
    Bpref, IPrec, SetF, AlphaNDCG, AlphaDCG, NERRIA, ERRIA,
)  # fmt: skip

__all__ = [
    "MEASURES",
    "Measure",
    "MeasureSum",
    "measure",
    "measure_with",
    "names",
    "register_measure",
]

_BUILT_IN = {name: kind for kind in MEASURES for name in (kind.name, *kind.aliases)}
_OWN: dict[str, type[Measure] | FunctionMeasure] = {}


def measure(name: str | Measure) -> Measure:
    """Create a measure from its name, such as `nDCG@10`, `nDCG(gain=linear)@5` or `P(rel=2)@3`.

    Parameters
    ----------
    name : str or Measure
        `Name`, `Name@k`, `Name(option=value, …)` or `Name(option=value, …)@k`. `twinrank measures`
        lists the names and their options; `register_measure` adds your own. A `Measure` is
        returned unchanged. A weighted sum, `0.7 * nDCG@10 + 0.3 * P@5`, is a measure too, and
        `nDCG(label=click)@10` is nDCG of the column of labels called click. Measures of variety
        take a column for each sub-topic: `alpha_nDCG(label=[car, cat])@10`.

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
    return name if isinstance(name, Measure) else measure_with(name, _from_term)


def measure_with(
    text: str, build: Callable[[Term], Measure], read: Callable[[str], Term] = parse
) -> Measure:
    """A measure, or a sum of measures, in our notation; `build` makes the measure of each term."""
    terms = summands(text) if isinstance(text, str) else [(1.0, text)]
    goals = []
    for weight, part in terms:
        try:
            term = read(part)
            options = dict(term.options)
            label = options.pop("label", None)
            own = build(Term(term.name, options, term.cutoff))
            if isinstance(label, tuple):
                own = _of_subtopics(own, label)
        except InputError as error:
            if len(terms) == 1:
                raise
            raise InputError(
                *error.parts, f" {text!r} is a sum, which takes measures with weights above 0."
            ) from error
        name = tuple(map(str, label)) if isinstance(label, tuple) else str(label)
        goals.append(Goal(weight, own, None if label is None else name))
    if len(goals) == 1 and goals[0].label is None and goals[0].weight == 1:
        return goals[0].measure
    return MeasureSum(goals=tuple(goals))


def _of_subtopics(own: Measure, labels: tuple[Any, ...]) -> Measure:
    """The measure for sub-topics that have a column of labels each."""
    if not isinstance(own, VarietyMeasure):
        known = ", ".join(kind.name for kind in MEASURES if issubclass(kind, VarietyMeasure))
        raise InputError(
            f"{own} takes a single column of labels; a list is for measures of sub-topics: {known}."
        )
    if own.subtopics != 1 or len({*map(str, labels)}) < len(labels):
        raise InputError(f"label of {own.name} names each column once, without subtopics.")
    return replace(own, subtopics=len(labels))


def _from_term(term: Term) -> Measure:
    """The measure of a single term."""
    if term.name not in names():
        raise InputError(unknown("measure", term.name, names()))
    kind = _BUILT_IN.get(term.name) or _OWN[term.name]
    if isinstance(kind, FunctionMeasure):
        check_options(term.name, term, ())
        return kind.at(term.cutoff)
    check_options(kind.name, term, [f.name for f in fields(kind) if f.name != "cutoff"])
    return kind(cutoff=term.cutoff, **term.options)


def names() -> tuple[str, ...]:
    """The names of all measures: built in and registered, here or by modules in TWINRANK_IMPORT."""
    import_registered()
    return (*_BUILT_IN, *_OWN)


def register_measure(own: Measure | type[Measure]) -> None:
    """Make your own measure known by its name, such as `"Attention@10"`.

    The name then works wherever a measure is written by name. The command line and the processes of
    a study import the modules that the environment variable `TWINRANK_IMPORT` lists; register your
    measure in one of these.

    Parameters
    ----------
    own : Measure or subclass of Measure
        A measure of `Measure.from_functions`, which may get another cutoff by `@k`; or a class,
        whose fields are options. A measure of the same name is replaced, if it is not built in.

    Raises
    ------
    InputError
        If the name is that of a built-in measure or of a loss, or is not a word.

    Examples
    --------
    >>> own = Measure.from_functions("Top", lambda labels, lists: labels > 1, lambda rank: 1 / rank)
    >>> register_measure(own)
    >>> str(measure("Top@3"))
    'Top@3'
    """
    if isinstance(own, Measure) and not isinstance(own, FunctionMeasure):
        own = type(own)
    if not isinstance(own, FunctionMeasure | type) or own is Measure:
        raise InputError(f"register_measure takes a Measure, not {own!r}.")
    known = (own.title,) if isinstance(own, FunctionMeasure) else (own.name, *own.aliases)
    for name in known:
        if parse(name).name != name:
            raise InputError(f"The name of a measure must be a word, not {name!r}.")
        if name in OWN_LOSSES or name in BUILT_IN_LOSSES:
            raise InputError(f"{name} is the name of a loss; choose another name.")
        if name in _BUILT_IN:
            raise InputError(f"{name} is a built-in measure; choose another name.")
    _OWN.update(dict.fromkeys(known, own))
