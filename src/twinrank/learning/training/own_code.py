"""Fingerprints of the user's own code in parameters: losses, nets and measures."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from twinrank.core.measures import MEASURES, measure
from twinrank.core.measures.constraints import starting
from twinrank.core.measures.measure_base import FunctionMeasure, Measure
from twinrank.core.measures.measure_sum import MeasureSum
from twinrank.core.own_losses import is_own_loss, own_loss
from twinrank.support.code_identity import code_identity
from twinrank.support.errors import InputError
from twinrank.support.imports import imported
from twinrank.support.notation import summands


def identities(parameters: Mapping[str, Any]) -> dict[str, str]:
    """A fingerprint by parameter, if its value, name or import path means code of the user's.

    >>> identities({"objective": "nDCG", "architecture": "Small"})
    {}
    """
    found = {}
    for name, value in parameters.items():
        if own := [code_identity(each) for each in _own(name.rpartition("__")[2], value)]:
            found[name] = "-".join(own)
    return found


def _own(parameter: str, value: Any) -> Iterator[Any]:
    if parameter == "architecture":
        if isinstance(value, str) and ":" in value:
            yield imported(value, parameter)
        elif callable(value):
            yield value
    elif parameter in ("objective", "validation_measure"):
        yield from _own_terms(starting(value))


def _own_terms(value: Any) -> Iterator[Any]:
    """The own losses, and the classes or functions of own measures, also of a sum."""
    if is_own_loss(value):
        yield own_loss(value) if isinstance(value, str) else value
    elif isinstance(value, str):
        with suppress(InputError):  # another word, such as "auto" or the name of a loss
            terms = [term for _, term in summands(value)]
            found = map(_own_terms, terms) if len(terms) > 1 else [_own_terms(measure(value))]
            for own in found:
                yield from own
    elif isinstance(value, MeasureSum):
        for goal in value.goals:
            yield from _own_terms(goal.measure)
    elif isinstance(value, FunctionMeasure):
        yield from (value.credit_function, value.discount_function, value.slope_function)
    elif isinstance(value, Measure) and type(value) not in MEASURES:
        yield type(value)
