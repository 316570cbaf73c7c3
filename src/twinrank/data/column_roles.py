"""Roles of a frame's columns: query, label, document id or feature."""

import re
from collections import Counter
from dataclasses import dataclass
from difflib import get_close_matches

from twinrank.data.table import ReadOptions
from twinrank.support.errors import InputError, unknown

# Names that identify a role, in lower case and without punctuation.
_NAMES = {
    "query": ("qid", "queryid", "query", "groupid", "sessionid", "searchid", "topicid"),
    "label": ("label", "relevance", "rel", "relevancelabel", "grade", "judgement", "target", "y"),
    "docid": ("docid", "documentid", "docno", "did", "itemid", "productid", "comment"),
}
# Names that pandas gives to an index: in a CSV file, after reading one, and in a Parquet file.
_INDEX = re.compile(r"|Unnamed: 0|__index_level_\d+__")


@dataclass(frozen=True)
class Roles:
    """The columns of a frame by role."""

    query: str
    label: str | None
    docid: str | None
    features: tuple[str, ...]


def choose_columns(columns: list[str], options: ReadOptions, where: str) -> Roles:
    """Choose the column of each role; an ambiguous or missing role raises an error."""
    if (repeated := _first_repeated(columns)) is not None:
        raise InputError(f"{where} has two columns named {repeated!r}; rename one of them")
    if isinstance(options.features, int):
        raise InputError(f"{where}: features= takes column names, not a number")
    named = _named(columns, options, where)
    query = named.get("query") or _guessed("query", columns, named, options, where)
    if query is None:
        raise InputError(_not_found("query", columns, where))
    label = named.get("label")
    if label is None and options.label is not False:
        label = _guessed("label", columns, named, options, where)
        if label is None:
            hint = ", or pass label=False if there are no labels"
            raise InputError(_not_found("label", columns, where) + hint)
    docid = named.get("docid") or _guessed("docid", columns, named, options, where)
    remaining = tuple(
        name
        for name in columns
        if name not in (query, label, docid, *options.ignore) and not _INDEX.fullmatch(name)
    )
    features = options.features or remaining
    if not features:
        raise InputError(f"{where} has no feature columns (its columns: {_first(columns)})")
    if len(features) > options.max_features:
        raise InputError(
            f"{where} has {len(features):,} features, more than the limit of "
            f"{options.max_features:,}; max_features= raises it"
        )
    return Roles(query, label, docid, features)


def looks_like(column: str) -> str | None:
    """Return the role that a column's name suggests, or None for a feature."""
    if _INDEX.fullmatch(column):
        return "index"
    spelling = re.sub(r"[^a-z0-9]", "", column.lower())
    return next((role for role, names in _NAMES.items() if spelling in names), None)


def _first(columns: list[str], most: int = 12) -> str:
    """List the first columns."""
    return ", ".join(map(repr, columns[:most])) + (", …" if len(columns) > most else "")


def _named(columns: list[str], options: ReadOptions, where: str) -> dict[str, str]:
    """Return the columns that the options name by role; check all column names in the options."""
    named = {role: name for role in _NAMES if isinstance(name := getattr(options, role), str)}
    features = options.features if isinstance(options.features, tuple) else ()
    for kind, name in (
        *((f"column for the {role}", name) for role, name in named.items()),
        *(("column", name) for name in (*features, *options.ignore)),
    ):
        if name not in columns:
            similar = [column for column in columns if column.lower() == name.lower()]
            similar = similar or get_close_matches(name, columns) or columns[:12]
            raise InputError(f"{where}: " + unknown(kind, name, similar))
    used = [*named.values(), *features, *set(options.ignore)]
    if (repeated := _first_repeated(used)) is not None:
        raise InputError(f"{where}: column {repeated!r} is named twice; name it once")
    return named


def _guessed(
    role: str, columns: list[str], named: dict[str, str], options: ReadOptions, where: str
) -> str | None:
    """Return the one free column whose name suggests the role, or None."""
    features = options.features if isinstance(options.features, tuple) else ()
    used = {*named.values(), *options.ignore, *features}
    candidates = [name for name in columns if looks_like(name) == role and name not in used]
    if len(candidates) > 1:
        raise InputError(
            f"{where}: {', '.join(map(repr, candidates))} could each be the {role}; "
            f"choose one: {role}={candidates[0]!r}"
        )
    return candidates[0] if candidates else None


def _not_found(role: str, columns: list[str], where: str) -> str:
    return (
        f"{where}: no column looks like the {role} (its columns: {_first(columns)}); "
        f"name it: {role}='…'"
    )


def _first_repeated(names: list[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)
