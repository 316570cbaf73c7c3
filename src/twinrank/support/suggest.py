"""'Did you mean …?' for names that people type."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(kind: str, name: str, choices: Iterable[str]) -> str:
    """Say that `name` is no known `kind`, with the nearest names or, failing that, all of them.

    >>> unknown("strategy", "type4", ["type1", "type2", "type3"])
    "unknown strategy 'type4'; did you mean type3, type2 or type1?"
    >>> unknown("kernel", "x", ["torch", "numba"])
    "unknown kernel 'x'; choose from torch, numba"
    """
    known = list(choices)
    by_lower = {choice.lower(): choice for choice in reversed(known)}  # the first spelling wins
    near = [by_lower[match] for match in get_close_matches(name.lower(), by_lower, n=3)]
    if not near:
        return f"unknown {kind} {name!r}; choose from {', '.join(known)}"
    listed = near[0] if len(near) == 1 else f"{', '.join(near[:-1])} or {near[-1]}"
    return f"unknown {kind} {name!r}; did you mean {listed}?"
