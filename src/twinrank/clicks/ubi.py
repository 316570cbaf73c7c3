"""Logs of OpenSearch User Behavior Insights: its two indices as a log of clicks."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinrank.clicks.click_log import ClickLog
from twinrank.clicks.log_reading import Columns, read_log
from twinrank.data.dataset import Dataset
from twinrank.data.readers import polars_for, read_errors
from twinrank.support.errors import InputError, check_number


def load_ubi(
    queries: str | os.PathLike[str],
    events: str | os.PathLike[str],
    data: Dataset | None = None,
    *,
    action: str = "click",
    positions: int | None = None,
) -> ClickLog:
    """Load a log that OpenSearch User Behavior Insights collected.

    An entry of `ubi_queries` is an impression (`query_id`) of a query (`user_query`), which shows
    the documents `query_response_hit_ids` from position 1. An entry of `ubi_events` with the same
    `query_id` and `action_name` is a click on `event_attributes.object.object_id`. Entries without
    documents, and events on other documents, are left out. If entries share a `query_id`, they are
    its pages, in the order of the file.

    Parameters
    ----------
    queries, events : path
        The documents of the indices, one JSON object per line: the objects themselves or the hits
        around them (`_source`).
    data : Dataset, optional
        The features of the documents, found by query (`user_query`) and document id.
    action : str, default "click"
        The name of the action that counts as a click.
    positions : int, optional
        The number of documents that users saw. UBI records what the engine returned, which may be
        more than the page showed. Default: all.

    Returns
    -------
    ClickLog

    Raises
    ------
    InputError
        If a line has no query_id, or no query shows a document.
    FileError
        If a file cannot be read.

    Examples
    --------
    >>> log = load_ubi("ubi_queries.ndjson", "ubi_events.ndjson")               # doctest: +SKIP
    """
    if positions is not None:
        check_number("positions", positions, whole=True, least=1)
    source = Path(queries).expanduser()
    pl = polars_for(source)
    with read_errors(pl, str(source)):
        shown = _shown(source)
    with read_errors(pl, str(events)):
        clicks = _clicks(Path(events).expanduser(), action)
    rows = [
        (name, query, document, place, document in clicks.get(name, ()))
        for name, (query, hits) in shown.items()
        for place, document in enumerate(list(hits)[:positions], 1)
    ]
    if not rows:
        raise InputError(f"{source}: no entry has documents in query_response_hit_ids.")
    names = ["impression", "query", "docid", "position", "clicked"]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    return read_log(frame, data, Columns(), None, str(source))


def _shown(path: Path) -> dict[str, tuple[str, dict[str, None]]]:
    """The query and the documents of each query_id, in order and each once."""
    shown: dict[str, tuple[str, dict[str, None]]] = {}
    for entry in _entries(path):
        name, query = entry.text("query_id"), entry.text("user_query")
        if not name or query is None:
            raise InputError(f"{entry.place} has no {'user_query' if name else 'query_id'}.")
        hits = shown.setdefault(name, (query, {}))[1]
        hits.update(dict.fromkeys(entry.texts("query_response_hit_ids")))
    return shown


def _clicks(path: Path, action: str) -> dict[str, set[str]]:
    """The documents of each query_id with an event of this action."""
    clicks: dict[str, set[str]] = {}
    actions: set[str] = set()
    for entry in _entries(path):
        name = entry.text("action_name")
        actions.add(str(name))
        if name != action:
            continue
        document = entry.inner("event_attributes").inner("object").text("object_id")
        if document is None:
            raise InputError(f"{entry.place} has no event_attributes.object.object_id.")
        clicks.setdefault(str(entry.text("query_id")), set()).add(document)
    if not actions:
        raise InputError(f"{path} has no events.")
    if not clicks:
        raise InputError(argument="action", value=action, choices=sorted(actions))
    return clicks


@dataclass(frozen=True)
class _Entry:
    """An object of a file, with its place for errors; each field is checked as it is read."""

    place: str
    content: dict[str, Any]

    def text(self, name: str) -> str | None:
        """A field that holds text or a number; None if it is missing."""
        value = self.content.get(name)
        return None if value is None else self._as_text(name, value)

    def texts(self, name: str) -> list[str]:
        """A field that holds a list of texts or numbers; empty if it is missing."""
        values = self.content.get(name)
        if not isinstance(values, list | None):
            raise self._wrong(name, "a list", values)
        return [self._as_text(name, value) for value in values or ()]

    def inner(self, name: str) -> "_Entry":
        """A field that holds an object; empty if it is missing."""
        value = self.content.get(name)
        if not isinstance(value, dict | None):
            raise self._wrong(name, "a JSON object", value)
        return _Entry(self.place, value or {})

    def _as_text(self, name: str, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._wrong(name, "text or a number", value)
        return str(value)

    def _wrong(self, name: str, kind: str, value: Any) -> InputError:
        return InputError(f"{self.place}: {name} must be {kind}, not {value!r:.60}.")


def _entries(path: Path) -> Iterator[_Entry]:
    """The objects of a file with their lines, from 1."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}: line {number}"
            try:
                content = json.loads(line.decode("utf-8"))
            except (ValueError, RecursionError) as error:
                raise InputError(f"{place} is not JSON: {error}.") from error
            if isinstance(content, dict):
                content = content.get("_source", content)
            if not isinstance(content, dict):
                raise InputError(f"{place} is not a JSON object.")
            yield _Entry(place, content)
