"""Logs of clicks larger than memory: summed by document and position while they are read.

Credits and propensities need only how often a document was shown and clicked at each position. Rows
are read in chunks that end with an impression, and each chunk is checked and summed. What stays in
memory are the sums, a chunk, and eight bytes per impression, with which rows of an impression in
two chunks are detected.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from twinrank.clicks.click_log import ClickLog, Ints
from twinrank.clicks.log_reading import Columns, len_of, log_rows
from twinrank.clicks.log_rows import Ids, LogRows, Place
from twinrank.clicks.row_numbers import number_pairs
from twinrank.data.dataset import Dataset
from twinrank.support.errors import InputError

CHUNK = 4_000_000  # documents that are shown
_BATCH = 500_000
_CELL = ["query", "docid", "place"]
_GROUP = ["query", "randomised"]


def summed_log(pl: Any, rows: Any, data: Dataset | None, columns: Columns, where: str) -> ClickLog:
    """Sum the rows of a lazy frame of polars."""
    known = rows.collect_schema().names()
    rows = rows.select([name for name in columns if name in known])
    cells, groups = _Sums(pl, _CELL), _Sums(pl, _GROUP)
    seen: list[Any] = []
    start = 0
    count, documents = len_of(pl, rows, columns.docid)
    most = max(CHUNK * count // max(documents, 1), 1)  # a row may show many documents
    for frame in _chunks(pl, rows, columns.impression, most):
        checked = log_rows(frame, columns, None, where, start)
        start += len(frame)
        _add(pl, checked, cells, groups)
        seen.append(frame[columns.impression].unique().hash(0).to_numpy())
    if not seen:
        raise InputError(f"{where} has no rows.")
    hashes = np.sort(np.concatenate(seen))
    if (hashes[1:] == hashes[:-1]).any():
        raise InputError(
            f"{where} cannot be summed, because the rows of an impression are not together. Sort "
            f"the log by {columns.impression!r}, or use other ids in each file."
        )
    return _log(cells.total(), groups.total(), data, where)


def _chunks(pl: Any, rows: Any, impression: str, most: int) -> Iterator[Any]:
    """Frames of at least so many rows that end with an impression."""
    waiting: list[Any] = []
    for batch in rows.collect_batches(chunk_size=min(_BATCH, most), maintain_order=True):
        waiting.append(batch)
        if sum(map(len, waiting)) < most:
            continue
        frame = pl.concat(waiting)
        last = frame[impression][-1]
        cut = int((frame[impression] == last).arg_max() or 0)
        if cut == 0:
            waiting = [frame]
            continue
        yield frame[:cut]
        waiting = [frame[cut:]]
    if sum(map(len, waiting)):
        yield pl.concat(waiting)


class _Sums:
    """Sums by key; new ones are merged when they are as many as the old."""

    def __init__(self, pl: Any, keys: list[str]) -> None:
        self._pl, self._keys = pl, keys
        self._merged: Any = None
        self._new: list[Any] = []

    def add(self, frame: Any) -> None:
        """Add a frame with keys and values."""
        self._new.append(frame)
        if self._merged is None or sum(map(len, self._new)) > len(self._merged):
            self.total()

    def total(self) -> Any:
        """All sums."""
        if self._new:
            frames = self._new if self._merged is None else [self._merged, *self._new]
            values = self._pl.all().exclude(*self._keys)
            grouped = self._pl.concat(frames).group_by(self._keys, maintain_order=True)
            self._merged, self._new = grouped.agg(values.sum()), []
        return self._merged


def _add(pl: Any, rows: LogRows, cells: _Sums, groups: _Sums) -> None:
    """Add the sums of checked rows."""
    random = np.zeros(rows.weight.size, np.bool_) if rows.randomised is None else rows.randomised
    place = 2 * rows.position + random[rows.impression]
    cell, heads = number_pairs(rows.pairs[0], place)
    weight = rows.weight[rows.impression]

    def texts(ids: Ids, at: Ints) -> Any:
        return pl.Series(ids.texts(), dtype=pl.String).gather(ids.codes[at])

    content = {
        "query": texts(rows.query, heads),
        "docid": texts(rows.docid, heads),
        "place": place[heads],
        "displays": np.bincount(cell, weight),
        "clicks": np.bincount(cell, weight * rows.clicked),
    }
    if rows.propensity is not None:
        content["propensity"] = np.bincount(cell, weight * rows.propensity)
    cells.add(pl.DataFrame(content))
    assert rows.impressions is not None  # checked rows have them
    owner = rows.query.codes[rows.impressions.first]
    group, heads = number_pairs(owner, random.astype(np.int64))
    groups.add(
        pl.DataFrame(
            {
                "query": pl.Series(rows.query.texts(), dtype=pl.String).gather(owner[heads]),
                "randomised": random[heads],
                "weight": np.bincount(group, rows.weight),
                "marked": np.full(heads.size, rows.randomised is not None, np.float64),
            }
        )
    )


def _log(cells: Any, groups: Any, data: Dataset | None, where: str) -> ClickLog:
    """The log of sums: each query is one impression, or two if some were in random order."""
    import polars as pl

    cells = cells.filter(pl.col("displays") > 0).with_columns(randomised=pl.col("place") % 2 == 1)
    groups = groups.filter(pl.col("weight") > 0).with_row_index("number")
    if len(cells) == 0:
        raise InputError(f"{where}: all weights are 0.")
    numbers = cells.join(groups, on=_GROUP, how="left", maintain_order="left")
    displays, place = cells["displays"].to_numpy(), Place(where)
    query, docid = (Ids(cells[name].to_list(), name, place) for name in ("query", "docid"))
    return LogRows(
        place,
        numbers["number"].to_numpy().astype(np.int64),
        query,
        docid,
        cells["place"].to_numpy() // 2,
        cells["clicks"].to_numpy() / displays,
        groups["weight"].to_numpy(),
        cells["propensity"].to_numpy() / displays if "propensity" in cells.columns else None,
        groups["randomised"].to_numpy() if groups["marked"].sum() else None,
        displays=displays,
    ).log(data, None, None)
