"""Which column of a frame is what: as asked for, or guessed by name."""

import re
from collections import Counter
from dataclasses import dataclass
from difflib import get_close_matches

from twinrank.data.table import ReadOptions
from twinrank.support.errors import InputError, unknown

# What columns are called, in small letters and without signs.
_CALLED = {
    "query": ("qid", "queryid", "query", "groupid", "sessionid", "searchid", "topicid"),
    "label": ("label", "relevance", "rel", "relevancelabel", "grade", "judgement", "target", "y"),
    "docid": ("docid", "documentid", "docno", "did", "itemid", "productid", "comment"),
}
# An index, as pandas calls it in a CSV file, on reading that, and in a Parquet file.
_INDEX = re.compile(r"|Unnamed: 0|__index_level_\d+__")


@dataclass(frozen=True)
class Roles:
    """The columns of a frame by what they hold."""

    query: str
    label: str | None
    docid: str | None
    features: tuple[str, ...]


def choose_columns(columns: list[str], reading: ReadOptions, where: str) -> Roles:
    """Which columns hold what; an error says what is unclear, and which choice settles it."""
    if (twice := _first_repeated(columns)) is not None:
        raise InputError(f"{where} has two columns called {twice!r}; rename one of them")
    if isinstance(reading.features, int):
        raise InputError(f"{where}: features= takes the names of columns, not a number")
    asked = _asked(columns, reading, where)
    query = asked.get("query") or _guessed("query", columns, asked, reading, where)
    if query is None:
        raise InputError(_not_found("query", columns, where))
    label = asked.get("label")
    if label is None and reading.label is not False:
        label = _guessed("label", columns, asked, reading, where)
        if label is None:
            also = ", or label=False if there is none"
            raise InputError(_not_found("label", columns, where) + also)
    docid = asked.get("docid") or _guessed("docid", columns, asked, reading, where)
    rest = tuple(
        name
        for name in columns
        if name not in (query, label, docid, *reading.ignore) and not _INDEX.fullmatch(name)
    )
    features = reading.features or rest
    if not features:
        raise InputError(f"{where} has no columns left for features (its columns: {some(columns)})")
    if len(features) > reading.max_features:
        raise InputError(
            f"{where} has {len(features):,} features, beyond the limit of "
            f"{reading.max_features:,}; max_features= raises it"
        )
    return Roles(query, label, docid, features)


def looks_like(column: str) -> str | None:
    """What a column would be taken for, if not for a feature."""
    if _INDEX.fullmatch(column):
        return "index"
    spelled = re.sub(r"[^a-z0-9]", "", column.lower())
    return next((role for role, called in _CALLED.items() if spelled in called), None)


def some(columns: list[str], most: int = 12) -> str:
    """The first few columns."""
    return ", ".join(map(repr, columns[:most])) + (", …" if len(columns) > most else "")


def _asked(columns: list[str], reading: ReadOptions, where: str) -> dict[str, str]:
    """The columns that were asked for by role, after a check of everything asked for."""
    asked = {role: name for role in _CALLED if isinstance(name := getattr(reading, role), str)}
    features = reading.features if isinstance(reading.features, tuple) else ()
    for what, name in (
        *((f"column for the {role}", name) for role, name in asked.items()),
        *(("column", name) for name in (*features, *reading.ignore)),
    ):
        if name not in columns:
            near = [c for c in columns if c.lower() == name.lower()]
            near = near or get_close_matches(name, columns) or columns[:12]
            raise InputError(f"{where}: " + unknown(what, name, near))
    if (twice := _first_repeated([*asked.values(), *features, *set(reading.ignore)])) is not None:
        raise InputError(f"{where}: column {twice!r} is asked for twice, in different roles")
    return asked


def _guessed(
    role: str, columns: list[str], asked: dict[str, str], reading: ReadOptions, where: str
) -> str | None:
    features = reading.features if isinstance(reading.features, tuple) else ()
    taken = {*asked.values(), *reading.ignore, *features}
    near = [name for name in columns if looks_like(name) == role and name not in taken]
    if len(near) > 1:
        raise InputError(
            f"{where}: {', '.join(map(repr, near))} could each be the {role}; "
            f"say which one: {role}={near[0]!r}"
        )
    return near[0] if near else None


def _not_found(role: str, columns: list[str], where: str) -> str:
    return (
        f"{where}: no column looks like the {role} (its columns: {some(columns)}); "
        f"say which one it is: {role}='…'"
    )


def _first_repeated(names: list[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)
