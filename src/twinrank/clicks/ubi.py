"""Logs of OpenSearch User Behavior Insights: its two indices as a log of clicks."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twinrank.clicks.click_log import ClickLog
from twinrank.clicks.log_reading import Columns, read_log
from twinrank.data.dataset import Dataset
from twinrank.data.readers import polars_for, read_errors
from twinrank.support.errors import InputError


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
    if positions is not None and positions < 1:
        raise InputError(f"positions must be at least 1, not {positions}.")
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
    for line, entry in _entries(path):
        name, query = entry.get("query_id"), entry.get("user_query")
        if not name or query is None:
            missing = "user_query" if name else "query_id"
            raise InputError(f"{path}: line {line} has no {missing}.")
        hits = shown.setdefault(str(name), (str(query), {}))[1]
        hits.update(dict.fromkeys(map(str, entry.get("query_response_hit_ids") or ())))
    return shown


def _clicks(path: Path, action: str) -> dict[str, set[str]]:
    """The documents of each query_id with an event of this action."""
    clicks: dict[str, set[str]] = {}
    actions: set[str] = set()
    for line, entry in _entries(path):
        actions.add(str(entry.get("action_name")))
        if entry.get("action_name") != action:
            continue
        document = ((entry.get("event_attributes") or {}).get("object") or {}).get("object_id")
        if document is None:
            raise InputError(f"{path}: line {line} has no event_attributes.object.object_id.")
        clicks.setdefault(str(entry.get("query_id")), set()).add(str(document))
    if not clicks:
        raise InputError(argument="action", value=action, choices=sorted(actions))
    return clicks


def _entries(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file with their lines, from 1."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise InputError(f"{path}: line {number} is not JSON: {error}.") from error
            if not isinstance(entry, dict):
                raise InputError(f"{path}: line {number} is not a JSON object.")
            yield number, entry.get("_source", entry)
