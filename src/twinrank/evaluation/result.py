"""What an evaluation found: per list and on average, printed, saved, as a frame."""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.display.tables import Cell, Table
from twinrank.evaluation.conventions import Convention
from twinrank.support.errors import InputError
from twinrank.support.files import replacing
from twinrank.support.text import counted

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Values per measure and list; NaN where a list has nothing relevant and is left out."""

    values: Mapping[str, Floats]
    convention: Convention
    documents: int
    empty_lists: Mapping[str, int]
    query_ids: npt.NDArray[Any] | None = None
    counts: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """Of a run, by list: num_q, num_ret, num_rel, num_rel_ret, those that were asked for."""
    run: str = ""
    """The name that a run gives itself, if that was asked for (runid)."""
    absent: npt.NDArray[np.bool_] | None = None
    """Of a run: which judged queries it leaves out."""

    @property
    def lists(self) -> int:
        """The number of lists."""
        return len(next(iter(self.values.values())))

    @property
    def means(self) -> dict[str, float]:
        """The mean of each measure over the lists that count; NaN if none does."""
        return {name: mean_of(values) for name, values in self.values.items()}

    def __getitem__(self, measure: str) -> float:
        """The mean of one measure."""
        if measure not in self.values:
            raise KeyError(f"{measure} was not measured; there are {', '.join(self.values)}")
        return mean_of(self.values[measure])

    def table(self) -> Table:
        """The means as a table that states the convention."""
        rows = [
            [Cell(name), Cell(_shown(total)), Cell(f"{self.lists:,}")]
            for name, total in self._totals().items()
        ] + [
            [Cell(name), Cell(_shown(mean)), Cell(f"{int((~np.isnan(self.values[name])).sum()):,}")]
            for name, mean in self.means.items()
        ]
        size = f"{counted(self.lists, 'list')}, {counted(self.documents, 'document')}"
        return Table(
            title=f"{self.run}: {size}" if self.run else size,
            columns=["measure", "mean or sum" if self.counts else "mean", "lists"],
            rows=rows,
            notes=[f"Convention: {self.convention}.", *self._about_empty()],
        )

    def _about_empty(self) -> list[str]:
        found = self.empty_lists.values()
        least, most = min(found, default=0), max(found, default=0)
        if not most:
            return []
        number = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        rest = "" if least == most else ", depending on the measure"
        has = "has" if most == 1 else "have"
        return [f"{number} of {counted(self.lists, 'list')} {has} nothing relevant{rest}."]

    def __str__(self) -> str:
        return self.table().to_text()

    def _repr_html_(self) -> str:
        """The table, in a notebook."""
        return self.table().to_html()

    def to_frame(self) -> Any:
        """One row per list, as a polars or pandas frame, whichever is installed."""
        ids = np.arange(self.lists) if self.query_ids is None else self.query_ids
        columns = {"query": ids, **self._columns()}
        try:
            import polars
        except ImportError:
            try:
                import pandas
            except ImportError as error:
                raise InputError("to_frame needs polars or pandas: pip install polars") from error
            return pandas.DataFrame(columns)
        return polars.DataFrame(columns)

    def to_json(self, per_list: bool = True) -> dict[str, Any]:
        """Plain JSON: the convention, the means, and the values of every list."""
        plain: dict[str, Any] = {
            "convention": str(self.convention),
            "lists": self.lists,
            "documents": self.documents,
            "means": {name: _plain(mean) for name, mean in self.means.items()},
            "empty_lists": dict(self.empty_lists),
        }
        if self.counts:
            plain["counts"] = self._totals()
        if self.run:
            plain["run"] = self.run
        if per_list:
            if self.query_ids is not None:
                plain["queries"] = self.query_ids.tolist()
            plain["values"] = {
                name: [_plain(value) for value in values.tolist()]
                for name, values in self.values.items()
            }
        return plain

    def to_csv(self, per_list: bool = True) -> str:
        """One line per list, nothing where one is left out; or the means, one line per measure."""
        return _csv(self.lines(per_list))

    def lines(self, per_list: bool = True) -> list[list[Any]]:
        """The same as rows, after one of names."""
        if not per_list:
            return [["measure", "mean"], *map(list, (self._totals() | self.means).items())]
        columns = self._columns()
        found = (column.tolist() for column in columns.values())
        return [["query", *columns], *map(list, zip(self._ids(), *found, strict=True))]

    def per_list_table(self) -> Table:
        """Every list's values as a table."""
        columns = self._columns()
        found = ([Cell(_shown(v)) for v in column.tolist()] for column in columns.values())
        rows = [list(row) for row in zip((Cell(str(i)) for i in self._ids()), *found, strict=True)]
        return Table("", ["query", *columns], rows)

    def trec_lines(self, per_list: bool = False) -> list[str]:
        """Lines as trec_eval prints them: measure, query or `all`, value.

        As there, a query that the run leaves out counts in the means but has no lines of its own.
        """
        lines = []
        if per_list:
            shown = {name: values.tolist() for name, values in self._columns().items()}
            absent = np.zeros(self.lists, np.bool_) if self.absent is None else self.absent
            for i, query in enumerate(self._ids()):
                if not absent[i]:
                    lines += [_trec_line(name, query, found[i]) for name, found in shown.items()]
        lines += [f"{'runid':<22}\tall\t{self.run}"] if self.run else []
        means = self._totals() | self.means
        return lines + [_trec_line(name, "all", value) for name, value in means.items()]

    def _totals(self) -> dict[str, float]:
        return {name: int(count.sum()) for name, count in self.counts.items()}

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        """What there is to tell of each list."""
        counts = {name: count for name, count in self.counts.items() if name != "num_q"}
        return {**counts, **self.values}

    def _ids(self) -> list[Any]:
        if self.query_ids is None:
            return list(range(self.lists))
        ids: list[Any] = self.query_ids.tolist()
        return ids

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything as .json, or the values per list as .csv."""
        target = Path(path)
        if target.suffix == ".json":
            content = json.dumps(self.to_json(), indent=1, allow_nan=False, ensure_ascii=False)
        elif target.suffix == ".csv":
            content = self.to_csv()
        else:
            raise InputError(f"can't write {target}: choose a name with .json or .csv")
        with replacing(target) as partial:
            partial.write_text(content, "utf-8")


def systems_csv(found: Mapping[str, Evaluation], per_list: bool = False) -> str:
    """Several evaluations as one CSV, with a column that says whose line it is."""
    rows: list[list[Any]] = []
    for name, result in found.items():
        head, *lines = result.lines(per_list)
        rows = rows or [["system", *head]]
        rows += [[name, *line] for line in lines]
    return _csv(rows)


def mean_of(values: Floats) -> float:
    """The mean of what isn't NaN; NaN if all is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else value


def _shown(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if np.isnan(value) else f"{value:.4f}"


def _trec_line(name: str, query: object, value: float) -> str:
    return f"{name:<22}\t{query}\t{value if isinstance(value, int) else f'{value:6.4f}'}"


def _csv(rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([["" if cell != cell else cell for cell in row] for row in rows])
    return text.getvalue()
