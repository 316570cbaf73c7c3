"""The notation `Name(option=value, …)@k` for measures, architectures, transforms and losses."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from twinrank.support.errors import InputError, unknown

Value = bool | int | float | str | tuple[float, ...] | tuple[str, ...] | None

_TERM = re.compile(
    r"\s*(?P<name>[A-Za-z]\w*)\s*(?:\((?P<options>.*)\))?\s*(?:@\s*(?P<cutoff>\d+))?\s*"
)
_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")
_PLUS_OUTSIDE_BRACKETS = re.compile(r"(?!(?<=[\d.][eE])\+\d)\+(?![^()]*\))")  # not that of 1e+06
_MINUS_OUTSIDE_BRACKETS = re.compile(r"(?<=[\s\d)])-(?![^()]*\))")
SUBJECT_TO = re.compile(r"\s+subject\s+to\s+")
"""What separates a goal from its constraints."""
_WORDS: dict[str, Value] = {"none": None, "true": True, "false": False}


@dataclass(frozen=True)
class Term:
    """A parsed name: `nDCG(gain=linear)@5` is Term("nDCG", {"gain": "linear"}, 5)."""

    name: str
    options: dict[str, Value] = field(default_factory=dict)
    cutoff: int | None = None

    def __str__(self) -> str:
        inside = ", ".join(f"{key}={_write(value)}" for key, value in self.options.items())
        cutoff = "" if self.cutoff is None else f"@{self.cutoff}"
        return f"{self.name}{f'({inside})' if inside else ''}{cutoff}"


def parse(text: str) -> Term:
    """Parse `Name`, `Name@k`, `Name(key=value, …)` or `Name(key=value, …)@k`.

    >>> parse("nDCG(gain=[0, 1, 3])@10")
    Term(name='nDCG', options={'gain': (0, 1, 3)}, cutoff=10)
    >>> str(parse(" RBP( p = 0.8 ) "))
    'RBP(p=0.8)'
    """
    match = _TERM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InputError(f"Can't read {text!r}. Write Name, Name@k or Name(option=value, …)@k.")
    options: dict[str, Value] = {}
    for part in _COMMA_OUTSIDE_BRACKETS.split(match["options"] or ""):
        if not part.strip():
            continue
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (equals and key and value):
            raise InputError(f"Can't read option {part.strip()!r} in {text!r}. Write key=value.")
        if key in options:
            raise InputError(f"Option {key!r} appears twice in {text!r}.")
        options[key] = _read_labels(value) if key == "label" else _read(value)
    cutoff = None if match["cutoff"] is None else int(match["cutoff"])
    if cutoff == 0:
        raise InputError(f"The cutoff in {text!r} must be at least 1.")
    return Term(match["name"], options, cutoff)


def summands(text: str) -> list[tuple[float, str]]:
    """The terms of a weighted sum and their weights; a text that is no sum is a term of weight 1.

    >>> summands("0.7 * nDCG(label=click)@10 + P@5")
    [(0.7, 'nDCG(label=click)@10'), (1.0, 'P@5')]
    """
    if SUBJECT_TO.search(text):
        raise InputError(
            f"{text!r} has constraints, which only the objective of a ranker can have. Write a "
            f"measure here."
        )
    found = []
    for part in _PLUS_OUTSIDE_BRACKETS.split(text):
        weight, star, term = part.rpartition("*")
        try:
            factor = float(weight) if star else 1.0
        except ValueError:
            factor = float("nan")
        minus = _MINUS_OUTSIDE_BRACKETS.search(term)
        if not 0 < factor < float("inf") or not term.strip() or minus:
            where = "" if part == text else f" in {text!r}"
            raise InputError(
                f"Can't read {part.strip()!r}{where}. Write a sum as weight * Name + weight * "
                f"Name, with weights above 0."
            )
        found.append((factor, term.strip()))
    return found


def check_options(name: str, term: Term, known: Sequence[str]) -> None:
    """Raise an error if a term has an option that is not known."""
    for option in term.options:
        if option not in known:
            if not known:
                raise InputError(f"{name} has no options, but '{term}' sets {option}.")
            raise InputError(unknown(f"option of {name}", option, known))


def _read(text: str) -> Value:
    if text.startswith("[") and text.endswith("]"):
        try:
            return tuple(_number(item) for item in text[1:-1].split(",") if item.strip())
        except ValueError:
            raise InputError(f"The list {text} must contain only numbers.") from None
    try:
        return _number(text)
    except ValueError:
        if not re.fullmatch(r"\w[\w.-]*", text):
            raise InputError(
                f"Can't read value {text!r}. Write a number, a word or a list such as [0, 1]."
            ) from None
        return _WORDS.get(text.lower(), text)


def _read_labels(text: str) -> Value:
    """A column of labels, or a list of them."""
    if not (text.startswith("[") and text.endswith("]")):
        return _read(text)
    names = tuple(str(_read(item.strip())) for item in text[1:-1].split(",") if item.strip())
    if not names:
        raise InputError("The list of columns of label is empty. Write label=[a, b].")
    return names


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _write(value: Value) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_write, value))}]"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)
