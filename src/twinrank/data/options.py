"""What the user asks for when data is read: columns and their roles, missing values, limits."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from twinrank.support.errors import Argument, InputError, Parts, suggestion

MISSING = ("zero", "nan")
UNJUDGED = ("error", "keep", "drop")
NON_FINITE = ("error", "keep", "clip")
SPLIT_QUERIES = ("join", "error")
MAX_FEATURES = 100_000
_CLOSE = 0.75  # how similar a suggested column must be
_SHOWN = 12  # columns in a message

# Names that identify a role, in lower case and without punctuation.
_NAMES = {
    "query": ("qid", "queryid", "query", "groupid", "sessionid", "searchid", "topicid"),
    "label": ("label", "relevance", "rel", "relevancelabel", "grade", "judgement", "target", "y"),
    "docid": ("docid", "documentid", "docno", "did", "itemid", "productid", "comment"),
}
# Names of columns that are rarely features. They never change what a column is used for.
_WEIGHTS = ("weight", "weights", "sampleweight", "queryweight", "propensity")
_RESULTS = (
    "position", "pos", "rank", "ranking", "score", "prodscore", "productionscore", "modelscore",
    "prediction", "pred", "click", "clicked", "clickbool", "purchased", "bookingbool",
)  # fmt: skip
# Names that pandas gives to an index: in a CSV file, after reading one, and in a Parquet file.
_INDEX = re.compile(r"|Unnamed: 0|__index_level_\d+__")


def column_names(names: str | Sequence[str | int] | None) -> tuple[str, ...]:
    """Return column names as a tuple; a single string is one name."""
    return (names,) if isinstance(names, str) else tuple(str(name) for name in names or ())


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of reading data; `twinrank.load` documents each of them."""

    features: int | tuple[str, ...] | None = None
    missing: str = "zero"
    zero_based: bool = False
    unjudged: str = "error"
    non_finite: str = "error"
    max_features: int = MAX_FEATURES
    query: str | None = None
    label: str | bool | None = None
    docid: str | None = None
    weight: str | None = None
    ignore: tuple[str, ...] = ()
    categorical_features: tuple[str, ...] = ()
    split_queries: str = "join"
    more_labels: tuple[str, ...] = ()
    """Further columns of labels; they are read as features, and then split off."""
    text: tuple[str, ...] = ()
    """Columns that a model knows as text: a file without types is read accordingly."""

    def __post_init__(self) -> None:
        for name, choices in (
            ("missing", MISSING),
            ("unjudged", UNJUDGED),
            ("non_finite", NON_FINITE),
            ("split_queries", SPLIT_QUERIES),
        ):
            if (value := getattr(self, name)) not in choices:
                raise InputError(argument=name, value=value, choices=choices)
        largest = 10**7 - 1 if self.features is None else self.max_features
        for name, number in (("max_features", self.max_features), ("features", self.features)):
            if isinstance(number, int) and not 1 <= number <= largest:
                raise InputError(
                    Argument(name), f" must be 1 to {largest:,}, not {number:,}.", argument=name
                )

    @classmethod
    def of(cls, *, features: Any = None, **others: Any) -> "ReadOptions":
        """Make options from arguments of `load`, which may be lists or single names."""
        for name in ("ignore", "categorical_features", "text"):
            others[name] = column_names(others.get(name))
        known = features if isinstance(features, int | None) else column_names(features)
        if isinstance(label := others.get("label"), list | tuple):
            others["label"], *more = column_names(label) or (None,)
            others["more_labels"] = tuple(more)
        return cls(features=known, **others)

    @property
    def of_features(self) -> "ReadOptions":
        """The options with which the further columns of labels are read as features."""
        features = self.features
        if isinstance(features, tuple):
            features = (*features, *self.more_labels)
        return replace(self, features=features, more_labels=())

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain JSON, as the cache knows them."""
        return {key: value for key, value in asdict(self).items() if key != "more_labels"}

    def refuse_columns(self, problem: str) -> None:
        """Raise an error if an option names a column of data whose columns cannot be chosen."""
        for name in ("query", "label", "docid", "weight", "ignore", "categorical_features"):
            if getattr(self, name) not in (None, ()):
                raise InputError(f"{problem}; remove ", Argument(name), ".", argument=name)


@dataclass(frozen=True)
class Roles:
    """The columns of a table by role."""

    query: str
    label: str | None
    docid: str | None
    weight: str | None
    features: tuple[str, ...]

    @property
    def used(self) -> list[str]:
        """The names of all columns with a role."""
        names = (self.query, self.label, self.docid, self.weight, *self.features)
        return [name for name in names if name is not None]


def choose_columns(columns: list[str], options: ReadOptions, where: str) -> Roles:
    """Choose the column of each role; an ambiguous or missing role raises an error."""
    if (repeated := first_repeated(columns)) is not None:
        raise InputError(f"{where} has two columns named {repeated!r}; rename one of them.")
    if isinstance(options.features, int):
        raise InputError(f"{where}: ", Argument("features"), " takes column names, not a number.")
    named = _named(columns, options, where)
    query = named.get("query") or _guessed("query", columns, named, options, where)
    if query is None:
        raise InputError(*_not_found("query", columns, where))
    label = named.get("label")
    if label is None and options.label is not False:
        label = _guessed("label", columns, named, options, where)
        if label is None:
            instead = ("; if there are no labels: ", Argument("label", False), ".")
            raise InputError(*_not_found("label", columns, where)[:-1], *instead)
    docid = named.get("docid") or _guessed("docid", columns, named, options, where)
    taken = {query, label, docid, options.weight, *options.ignore}
    remaining = (name for name in columns if name not in taken and not _INDEX.fullmatch(name))
    features = options.features or tuple(remaining)
    if not features:
        raise InputError(f"{where} has no feature columns. Its columns: {_first(columns)}.")
    if len(features) > options.max_features:
        raise InputError(
            f"{where} has {len(features):,} features, more than the limit of "
            f"{options.max_features:,}; ",
            Argument("max_features"),
            " raises it.",
        )
    return Roles(query, label, docid, options.weight, features)


def role_of(column: str) -> str | None:
    """Return the role that a column's name suggests, or None for a feature."""
    if _INDEX.fullmatch(column):
        return "index"
    spelling = _spelling(column)
    return next((role for role, names in _NAMES.items() if spelling in names), None)


def odd_feature_notes(features: Iterable[str]) -> list[Parts]:
    """Return notes about features whose names suggest that they are none."""
    notes: list[Parts] = []
    for name in features:
        leave_out = Argument("ignore", [name])
        if (role := role_of(name)) is not None:
            looks = f"Column {name!r} looks like a {role} but is used as a feature. "
            notes.append([looks, leave_out, " leaves it out."])
        elif _spelling(name) in _WEIGHTS:
            looks = f"Column {name!r} is used as a feature. If it holds weights, pass "
            notes.append([looks, Argument("weight", name), "; ", leave_out, " leaves it out."])
        elif _spelling(name) in _RESULTS:
            looks = (
                f"Column {name!r} is used as a feature. If it is the result of an earlier ranking "
                f"and unknown when documents are ranked, leave it out: "
            )
            notes.append([looks, leave_out, "."])
    return notes


def _spelling(column: str) -> str:
    return re.sub(r"[^a-z0-9]", "", column.lower())


def _first(columns: list[str]) -> str:
    """List the first columns."""
    return ", ".join(map(repr, columns[:_SHOWN])) + (", …" if len(columns) > _SHOWN else "")


def _named(columns: list[str], options: ReadOptions, where: str) -> dict[str, str]:
    """Return the columns that the options name by role; check all column names in the options."""
    roles = (*_NAMES, "weight")
    named = {role: name for role in roles if isinstance(name := getattr(options, role), str)}
    features = options.features if isinstance(options.features, tuple) else ()
    known = set(columns)
    for argument, name in (
        *named.items(),
        *(("features", name) for name in features),
        *(("ignore", name) for name in options.ignore),
        *(("categorical_features", name) for name in options.categorical_features),
    ):
        if name not in known:
            raise _unknown_column(argument, name, columns, where)
    used = [*named.values(), *features, *set(options.ignore)]
    if (repeated := first_repeated(used)) is not None:
        raise InputError(f"{where}: column {repeated!r} is named twice; name it once.")
    return named


def _unknown_column(argument: str, name: str, columns: list[str], where: str) -> InputError:
    """The error for a column that is not there: similar names, those of the role, or the first."""
    similar = [column for column in columns if column.lower() == name.lower()]
    hint = suggestion(name, similar or columns, _CLOSE)
    if hint.startswith("Choose"):
        fitting = [column for column in columns if role_of(column) == argument]
        listed = "Columns that look like it" if fitting else "Its columns"
        hint = f"{listed}: {_first(fitting or columns)}."
    parts = (f"{where}: no column {name!r} for ", Argument(argument), f". {hint}")
    return InputError(*parts, argument=argument, value=name, choices=columns)


def _guessed(
    role: str, columns: list[str], named: dict[str, str], options: ReadOptions, where: str
) -> str | None:
    """Return the one free column whose name suggests the role, or None."""
    features = options.features if isinstance(options.features, tuple) else ()
    used = {*named.values(), *options.ignore, *features}
    candidates = [name for name in columns if role_of(name) == role and name not in used]
    if len(candidates) > 1:
        raise InputError(
            f"{where}: {', '.join(map(repr, candidates))} could each be the {role}; choose one: ",
            Argument(role, candidates[0]),
            ".",
        )
    return candidates[0] if candidates else None


def _not_found(role: str, columns: list[str], where: str) -> Parts:
    return (
        f"{where}: no column looks like the {role}. Its columns: {_first(columns)}. Name it: ",
        Argument(role, "…"),
        ".",
    )


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice, or None."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
