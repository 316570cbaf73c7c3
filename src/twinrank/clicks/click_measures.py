"""Which measures clicks can estimate: those whose credit is linear in the labels."""

from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.measures import Measure, MeasureSum, measure
from twinrank.core.measures.constraints import starting
from twinrank.support.errors import Argument, InputError

_INSTEAD = {"P": "P(gain=linear)", "RBP": "RBP(gain=linear)"}
_PROBE = np.array([[0.0, 0.3, 2.0, 0.7, 0.0, 1.2], [1.5, 0.2, 0.0, 0.4, 0.9, 0.1]])
_LINEAR_LOSSES = ("MSE",)


def is_linear(known: Measure) -> bool:
    """True if the credits of a sum of labels are the sum of the credits."""
    if isinstance(known, MeasureSum):
        return all(is_linear(goal.measure) for goal in known.goals)
    lists = Lists.from_sizes([_PROBE.shape[1]])

    def credit(labels: Any) -> Any:
        if not known.on_any_array:
            import torch

            return np.asarray(known.credit(torch.from_numpy(labels), lists), np.float64)
        return np.asarray(known.credit(labels, lists), np.float64)

    try:
        first, second, both = credit(_PROBE[0]), credit(_PROBE[1]), credit(_PROBE.sum(axis=0))
    except InputError:  # such as a list of gains, which needs whole labels
        return False
    return bool(np.allclose(first + second, both, rtol=1e-9, atol=1e-12))


def check_linear(name: str | Measure) -> Measure:
    """Return the measure; InputError with the reason if clicks cannot estimate it."""
    known = measure(name)
    if is_linear(known):
        return known
    cutoff = "" if known.cutoff is None else f"@{known.cutoff}"
    instead = _INSTEAD.get(known.name, "DCG(gain=linear)") + cutoff
    raise InputError(f"Clicks cannot estimate {known}: {_reason(known)}. Use {instead}.")


def _reason(known: Measure) -> str:
    if known.name == "nDCG":
        return "its normaliser is the DCG of the best order, and that depends on the true labels"
    if known.name in ("DCG", "P", "RBP"):
        return (
            "the credit of clicks is right on average only, so that a measure must be linear in "
            "the labels"
        )
    return "what a document counts depends on the relevance of other documents"


def check_click_objective(objective: Any, what: str = "objective") -> None:
    """Refuse an objective that is not linear in labels that are estimated from clicks."""
    if isinstance(objective, str) and objective in _LINEAR_LOSSES:
        return
    try:
        known = measure(starting(objective))
    except (InputError, TypeError):
        raise InputError(
            "The labels are credits of clicks, for which ",
            Argument(what),
            f" must be a measure that is linear in the labels, such as DCG(gain=linear)@10, or "
            f"MSE; not {objective}.",
        ) from None
    try:
        check_linear(known)
    except InputError as error:
        raise InputError(Argument(what), ": ", *error.parts) from None
