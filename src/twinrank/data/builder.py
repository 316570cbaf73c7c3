"""The builder: blocks of any source become one table, in memory or in files.

It alone checks values, drops unjudged rows, numbers texts, groups the rows of a query, and notes
what it changed. `checked` looks at one block, in any thread; `TableBuilder` joins them in order.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.core.lists.row_weights import query_and_document_weights
from twinrank.data.block import Block, Place, by_appearance, lost_digits
from twinrank.data.options import ReadOptions
from twinrank.data.store import BlockSink, Sink
from twinrank.data.table import Floats, Ints, Table, Texts
from twinrank.support.errors import Argument, InputError, Parts
from twinrank.support.quantities import counted

MOST_TEXTS = 1 << 24
"""Above this, float32 cannot hold every number."""
_LARGEST = np.finfo(np.float32).max
_ROWS = 1 << 16  # checked at a time
_SHOWN = 3  # parts in a message
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INT64 = np.iinfo(np.int64)
_LONGEST_ID = 1000
_MAY_BE_WHOLE = {"text", "Float32", "Float64", "Decimal"}  # types of ids, besides integers


def checked(block: Block, options: ReadOptions) -> Block:
    """Check the labels, weights and values of a block, and drop its unjudged rows."""
    if not block.finite and options.non_finite == "error":
        _refuse_not_finite(block)
    y = _labels(block, options.unjudged)
    X, runs, docids, weights, dropped = block.X, block.runs, block.docids, block.weights, 0
    if weights is not None and not (valid := np.isfinite(weights) & (weights >= 0)).all():
        row = int(np.argmin(valid))
        raise InputError(
            f"{block.place.weight(row)} is {weights[row]:g}, but a weight must be a finite number "
            f"≥ 0."
        )
    if block.y is not None and options.unjudged == "drop" and (y < 0).any():
        judged = y >= 0
        dropped = int((~judged).sum())
        X, y, runs = X[judged], y[judged], runs.kept(judged)
        docids = None if docids is None else docids.take(np.flatnonzero(judged))
        weights = None if weights is None else weights[judged]
    missing, infinite = block.missing, block.infinite
    for start in range(0, 0 if block.finite else len(X), _ROWS):
        rows = X[start : start + _ROWS]
        if not np.isfinite(rows).all():
            missing += int(np.isnan(rows).sum())
            infinite += int(np.isinf(rows).sum())
    if infinite and options.non_finite == "clip":
        X = np.clip(X, -_LARGEST, _LARGEST)
    inexact = block.inexact_labels or (block.y is not None and bool(lost_digits(block.y)))
    return replace(
        block,
        X=X,
        y=y,
        runs=runs,
        docids=docids,
        weights=weights,
        missing=missing,
        infinite=infinite,
        dropped=dropped,
        inexact_labels=inexact,
    )


def _refuse_not_finite(block: Block) -> None:
    for start in range(0, len(block.X), _ROWS):
        finite = np.isfinite(block.X[start : start + _ROWS])
        if not finite.all():
            row, column = np.argwhere(~finite)[0].tolist()
            value = block.X[start + row, column]
            raise InputError(
                f"{block.place.feature(start + row, column)} is {_shown(value)}, but a feature "
                f"must be a finite float32. Fix the value, or pass ",
                Argument("non_finite", "keep"),
                " or ",
                Argument("non_finite", "clip"),
                " (infinities become ±3.4e38).",
            )


def _shown(value: Any) -> str:
    if np.isfinite(value):
        return f"{value:.9g}"
    return "missing (NaN)" if np.isnan(value) else "infinite or too large"


def _labels(block: Block, unjudged: str) -> Floats:
    """Return labels as float32; an invalid label raises an error that names its row."""
    if block.y is None:
        return np.full(len(block.X), -1, np.float32)
    values = block.y
    with np.errstate(over="ignore"):
        labels: Floats = values.astype(np.float32)
    is_unjudged = values == -1
    valid = np.isfinite(labels) & ((values >= 0) | is_unjudged)
    if not valid.all():
        row = int(np.argmin(valid))
        raise InputError(
            f"{block.place.label(row)} is {_shown(values[row])}, but a label must be a finite "
            f"number ≥ 0 (or −1 for unjudged)."
        )
    if unjudged == "error" and is_unjudged.any():
        raise InputError(
            f"{block.place.label(int(np.argmax(is_unjudged)))} is −1, which means unjudged. Pass ",
            Argument("unjudged", "keep"),
            " (measures count such documents as 0) or ",
            Argument("unjudged", "drop"),
            ".",
        )
    return labels


class TableBuilder:
    """Joins the checked blocks of all parts, in order.

    Rows and runs of query ids grow in the sink. `counts` and the texts are everything else that the
    builder knows, as plain JSON. With both, another builder can continue after a finished part.
    """

    def __init__(
        self,
        sink: Sink | BlockSink,
        options: ReadOptions,
        finished: Mapping[str, Any] | None = None,
    ) -> None:
        self.sink, self.options = sink, options
        self.counts: dict[str, Any] = {
            "documents": 0, "runs": 0, "comment_bytes": 0, "id_bytes": 0, "missing": 0,
            "infinite": 0, "dropped": 0, "inexact": [], "inexact_values": 0,
            "inexact_labels": False, "numeric": [], "kinds": [], "ends": [], "texts": {},
            **(finished or {}),
        }  # fmt: skip
        self._texts = {
            int(column): {text: code for code, text in enumerate(own)}
            for column, own in self.counts.pop("texts").items()
        }

    @property
    def parts(self) -> int:
        """The number of finished parts."""
        return len(self.counts["ends"])

    def add(self, block: Block) -> None:
        """Add a checked block."""
        counts, sink, y = self.counts, self.sink, block.y
        assert y is not None
        if block.numeric is not None:
            self._number_texts(block)
        sink.append("X", block.X)
        sink.append("y", y)
        if block.docids is not None:
            sink.append("comments", block.docids.content)
            sink.append("comment_ends", block.docids.ends + counts["comment_bytes"])
            counts["comment_bytes"] += block.docids.content.size
        self._add_runs(block)
        counts["documents"] += len(y)
        for name in ("missing", "infinite", "dropped", "inexact_values", "inexact_labels"):
            counts[name] += getattr(block, name)
        if block.inexact is not None:
            self._add_columns("inexact", block.inexact)

    def end_part(self) -> None:
        """Close a part."""
        self.counts["ends"].append(self.counts["runs"])

    def state(self) -> dict[str, Any]:
        """Return what another builder needs to continue after a finished part."""
        texts = {str(column): list(known) for column, known in self._texts.items()}
        return {**self.counts, "texts": texts}

    def finish(
        self, parts: Sequence[str], features: Sequence[str] | None, notes: Iterable[Parts] = ()
    ) -> Table:
        """Group the rows by query, and return the table.

        `parts` are names for messages, `features` the names of the features.
        """
        counts, sink = self.counts, self.sink
        if not counts["documents"]:
            raise _no_documents(parts, counts["dropped"])
        if "comments" in sink and not counts["comment_bytes"]:
            sink.take("comments")
            sink.take("comment_ends")
        order, grouping = self._group(parts)
        categories = {column: tuple(own) for column, own in self._texts.items()}
        notes = [*notes, *self._value_notes(features), *grouping, *self._row_notes(features)]
        names = None if features is None or _are_numbers(features) else features
        return Table.of(sink.finish(order), names, notes, categories)

    def _add_columns(self, name: str, mask: npt.NDArray[np.bool_]) -> None:
        if mask.any():
            self.counts[name] = sorted({*self.counts[name], *np.flatnonzero(mask).tolist()})

    def _number_texts(self, block: Block) -> None:
        """Number the texts of a block as those of all blocks so far, in place."""
        assert block.numeric is not None
        X, place, numeric = block.X, block.place, self.counts["numeric"]
        self._add_columns("numeric", block.numeric)
        for column in sorted({*self._texts, *block.categories}):
            if column in numeric or block.numeric[column]:
                raise _mixed_types(place, column, column in block.categories)
            known, own = self._texts.setdefault(column, {}), block.categories.get(column)
            codes = [known.setdefault(text, len(known)) for text in own or ()]
            if len(known) >= MOST_TEXTS:
                raise InputError(
                    f"Feature {place.name(column)} has {len(known):,} texts, more than "
                    f"{MOST_TEXTS - 1:,}."
                )
            if own is None or codes != list(range(len(codes))):
                code = np.nan_to_num(X[:, column], nan=-1).astype(np.int64)
                X[:, column] = np.array([*codes, -1], np.float32)[code]

    def _add_runs(self, block: Block) -> None:
        counts, sink, runs = self.counts, self.sink, block.runs
        if runs.ids.size and runs.kind not in counts["kinds"]:
            counts["kinds"] = self._kinds(block)
        numbers, texts = runs.ids, Texts.empty(runs.ids.size)
        if numbers.dtype != np.int64:
            numbers = np.zeros(runs.ids.size, np.int64)
            texts = Texts.of(f"'{name}" for name in runs.ids)
        sink.append("run_starts", runs.starts + counts["documents"])
        sink.append("run_numbers", numbers)
        sink.append("run_texts", texts.content)
        sink.append("run_ends", texts.ends + counts["id_bytes"])
        counts["id_bytes"] += texts.content.size
        counts["runs"] += runs.starts.size
        if block.weights is not None:
            sink.append("row_weights", block.weights)

    def _add_weights(self, rows: npt.NDArray[np.float64], order: Ints | None, lists: Lists) -> None:
        """Append the weights of queries, and those of rows if they differ within a query."""
        if not rows.any():
            raise InputError("The weights of all queries are 0; at least one must be positive.")
        grouped = rows if order is None else rows[order]
        weights, documents = query_and_document_weights(grouped, lists)
        self.sink.append("weights", weights)
        if documents is not None:
            self.sink.append("row_weights", grouped)

    def _kinds(self, block: Block) -> list[str]:
        """Return the types of query ids so far; types that cannot be compared raise an error."""
        known, kind = set(self.counts["kinds"]), block.runs.kind
        others = {*known, kind} - {"integer"}
        if len(others) > 1 or ("integer" in {*known, kind} and others - _MAY_BE_WHOLE):
            raise InputError(
                f"{block.place.table}: column {block.place.query_column!r} has query ids of type "
                f"{kind} here and {' and '.join(sorted(known))} in the rows before. Give it one "
                f"type in all parts."
            )
        return sorted({*known, kind})

    def _group(self, parts: Sequence[str]) -> tuple[Ints | None, list[Parts]]:
        """Append the arrays of queries; return the order that groups rows by query, and notes."""
        sink, documents = self.sink, self.counts["documents"]
        starts, numbers = sink.take("run_starts"), sink.take("run_numbers")
        texts = Texts(sink.take("run_texts"), sink.take("run_ends"))
        if texts.content.size:
            pairs = zip(texts, numbers.tolist(), strict=True)
            numbers = as_ids([text[1:] if text else str(number) for text, number in pairs])
        runs, query_ids = by_appearance(numbers)
        spread, notes = self._spread(runs, query_ids, parts)
        begins = np.append(True, runs[1:] != runs[:-1])  # a run may continue in the next block
        order, offsets = _grouped_rows(starts[begins], runs[begins], documents)
        if "row_weights" in sink:
            self._add_weights(sink.take("row_weights"), order, Lists(offsets))
        sink.append("offsets", offsets)
        sink.append("query_ids", query_ids)
        if order is not None:
            sink.append("rows", order)
            scattered = (np.bincount(runs[begins]) > 1) & ~spread
            if count := int(scattered.sum()):
                was = f"The rows of {counted(count, 'query')} were scattered; they are now grouped."
                notes.append([was])
        return order, notes

    def _spread(
        self, runs: Ints, query_ids: npt.NDArray[Any], parts: Sequence[str]
    ) -> tuple[npt.NDArray[np.bool_], list[Parts]]:
        """Return a mask of the queries with rows in several parts, and a note about them."""
        part_of = np.searchsorted(self.counts["ends"], np.arange(runs.size), side="right")
        pairs = np.unique(runs * len(parts) + part_of)
        spread = np.bincount(pairs // len(parts)) > 1
        if not spread.any():
            return spread, []
        query = int(np.argmax(spread))
        own = [parts[i] for i in np.unique(part_of[runs == query]).tolist()]
        listed = ", ".join(own[:_SHOWN]) + (", …" if len(own) > _SHOWN else "")
        number = counted(int(spread.sum()), "query")
        example = f"query {query_ids[query]} in {listed}"
        if self.options.split_queries == "error":
            raise InputError(
                f"The rows of {number} are in several parts, for example {example}. To put them "
                f"together, pass ",
                Argument("split_queries", "join"),
                ".",
            )
        return spread, [
            [
                f"The rows of {number} were in several parts and are now together, for example "
                f"{example}. Different queries need different ids."
            ]
        ]

    def _value_notes(self, features: Sequence[str] | None) -> list[Parts]:
        """Return notes about values that lose digits or are not finite."""
        counts = self.counts
        columns = counts["inexact"]
        named = columns if features is None else [repr(features[column]) for column in columns]
        inexact = [f"Feature {name} has" for name in named]
        if counts["inexact_labels"]:
            inexact.append("The labels have")
        lose = "whole numbers beyond 2^24, which lose digits as float32."
        notes: list[Parts] = [[f"{subject} {lose}"] for subject in inexact]
        if count := counts["inexact_values"]:
            number = f"{counted(count, 'whole number')} beyond 2^24"
            notes.append([f"{number} {'loses' if count == 1 else 'lose'} digits as float32."])
        odd = {"missing": "not a number (NaN)", "infinite": "beyond a float32's range"}
        for kind, what in odd.items():
            if count := counts[kind]:
                notes.append([f"{counted(count, 'value')} {'is' if count == 1 else 'are'} {what}."])
        return notes

    def _row_notes(self, features: Sequence[str] | None) -> list[Parts]:
        """Return notes about dropped documents, and about texts that may be ids."""
        notes: list[Parts] = []
        documents = self.counts["documents"]
        if count := self.counts["dropped"]:
            was = "was" if count == 1 else "were"
            what = f"{counted(count, 'document')} without a judgement (label −1) {was} dropped."
            notes.append([what])
        for column, own in self._texts.items():
            name = str(column) if features is None else features[column]
            chosen = name in self.options.categorical_features
            if len(own) > max(documents / 2, 9) and not chosen:
                what = f"Feature {name!r} has {len(own):,} different texts in {documents:,} rows. "
                notes.append([what, "To leave an id out, pass ", Argument("ignore", [name]), "."])
        return notes


def _no_documents(parts: Sequence[str], dropped: int) -> InputError:
    where = parts[0] if len(parts) == 1 else f"{parts[0]} and the other parts"
    verb = "has" if len(parts) == 1 else "have"
    if not dropped:
        return InputError(f"{where} {verb} no documents.")
    return InputError(
        f"{where} {verb} no documents except {dropped:,} unjudged ones (label −1), which ",
        Argument("unjudged", "drop"),
        " leaves out.",
    )


def _mixed_types(place: Place, column: int, is_text: bool) -> InputError:
    assert place.features is not None
    here, before = ("text", "numbers") if is_text else ("numbers", "text")
    name = place.features[column]
    return InputError(
        f"{place.table}: column {name!r} has {here} here and {before} in the rows before. Give it "
        f"one type; ",
        Argument("categorical_features", [name]),
        " reads its values as text, ",
        Argument("ignore", [name]),
        " leaves it out.",
    )


def _are_numbers(names: Sequence[str]) -> bool:
    """True for the default names 1, 2, …, which count as no names."""
    return tuple(names) == numbered(len(names))


def numbered(count: int) -> tuple[str, ...]:
    """Return the default names of features: 1, 2, …, as in LETOR text."""
    return tuple(str(i + 1) for i in range(count))


def _grouped_rows(starts: Ints, runs: Ints, documents: int) -> tuple[Ints | None, Ints]:
    """Return the order of rows that groups them by query, and the offsets in that order.

    Run r begins at row starts[r] and belongs to query runs[r], numbered by first appearance.
    The order is None if the rows are grouped already.
    """
    sizes = np.diff(starts, append=documents)
    counts = np.zeros(int(runs.max(initial=-1)) + 1, np.int64)
    np.add.at(counts, runs, sizes)
    offsets = np.append(0, np.cumsum(counts))
    if runs.size == counts.size:
        return None, offsets
    return np.argsort(np.repeat(runs, sizes), kind="stable"), offsets


def as_ids(names: list[str]) -> npt.NDArray[Any]:
    """Return query ids as int64 if each is spelled as an integer, else as text.

    >>> as_ids(["7", "10"]), as_ids(["007", "10"])
    (array([ 7, 10]), array(['007', '10'], dtype='<U3'))
    """
    if all(_INTEGER.fullmatch(name) for name in names):
        numbers = [int(name) for name in names]
        if _INT64.min <= min(numbers, default=0) and max(numbers, default=0) <= _INT64.max:
            return np.array(numbers, dtype=np.int64)
    if (invalid := next((name for name in names if "\0" in name), None)) is not None:
        raise InputError(f"Query id {invalid!r} contains a NUL character; remove it.")
    longest = max(names, key=len, default="")
    if len(longest) > _LONGEST_ID:  # an array of text gives every id the space of the longest
        raise InputError(
            f"Query id {longest[:20]!r}… has {len(longest):,} characters; shorten it to "
            f"{_LONGEST_ID:,} at most."
        )
    return np.array(names, dtype=np.str_)
