"""`Evaluation`: the values of an evaluation per list and their means, as table, frame or file."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.core.measures import Measure
from twinrank.evaluation.conventions import Convention
from twinrank.support.arrays import Bools, Floats, Ints
from twinrank.support.errors import InputError
from twinrank.support.files import json_text, json_types, write_text
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, ResultTable, csv_text


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of `evaluate` and `evaluate_run`: values per measure and list.

    `str(result)` is a table of the means that states the convention. `result["nDCG@10"]` is the
    mean of one measure.

    Parameters
    ----------
    values : mapping of str to array of float, shape (n_lists,)
        The values of each measure, by its name. A list that is left out of the mean is NaN.
    convention : Convention
        The rules of the evaluation.
    documents : int
        The number of documents.
    empty_lists : mapping of str to int
        The number of lists without relevant documents, by measure.
    query_ids : array, shape (n_lists,), optional
        The query of each list.
    counts : mapping of str to array of int, shape (n_lists,), optional
        The counts of trec_eval that `evaluate_run` was asked for, such as `"num_rel_ret"`.
    run : str, default ""
        The name of the run, if `evaluate_run` was asked for `"runid"`.
    absent : array of bool, shape (n_lists,), optional
        The judged queries that the run does not contain.
    geometric : frozenset of str, optional
        The measures whose mean is geometric, such as gm_map. As in trec_eval, values below 0.00001
        count as 0.00001 in it.

    Examples
    --------
    >>> from twinrank import Lists, evaluate
    >>> result = evaluate([3.0, 1.0, 2.0], [0, 1, 1], Lists.from_sizes([2, 1]), ["RR"])
    >>> result.values["RR"].tolist(), result["RR"]
    ([0.5, 1.0], 0.75)
    """

    values: Mapping[str, Floats]
    convention: Convention
    documents: int
    empty_lists: Mapping[str, int]
    query_ids: npt.NDArray[Any] | None = None
    counts: Mapping[str, Ints] = field(default_factory=dict)
    run: str = ""
    absent: Bools | None = None
    geometric: frozenset[str] = frozenset()

    @property
    def lists(self) -> int:
        """The number of lists."""
        return len(next(iter(self.values.values())))

    @property
    def means(self) -> dict[str, float]:
        """The mean of each measure over the lists that are not NaN; NaN if all are."""
        return {name: self._mean(name) for name in self.values}

    def _mean(self, name: str) -> float:
        values = self.values[name]
        if name in self.geometric:
            return float(np.exp(mean_of(np.log(values.clip(min=1e-5)))))
        return mean_of(values)

    def __getitem__(self, measure: str | Measure) -> float:
        """The mean of one measure."""
        name = str(measure)
        if name not in self.values:
            raise KeyError(f"{name} was not measured; the measures are {', '.join(self.values)}")
        return self._mean(name)

    def table(self) -> ResultTable:
        """A table of the means, with the convention as a note."""
        rows = [
            [Cell(name), Cell(_format(total)), Cell(f"{self.lists:,}")]
            for name, total in self._totals().items()
        ] + [
            [
                Cell(name),
                Cell(_format(mean)),
                Cell(f"{int((~np.isnan(self.values[name])).sum()):,}"),
            ]
            for name, mean in self.means.items()
        ]
        size = f"{counted(self.lists, 'list')}, {counted(self.documents, 'document')}"
        return ResultTable(
            title=f"{self.run}: {size}" if self.run else size,
            columns=["measure", "mean or sum" if self.counts else "mean", "lists"],
            rows=rows,
            notes=[f"Convention: {self.convention}.", *self._about_empty()],
        )

    def _about_empty(self) -> list[str]:
        numbers = self.empty_lists.values()
        least, most = min(numbers, default=0), max(numbers, default=0)
        if not most:
            return []
        number = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        rest = "" if least == most else ", depending on the measure"
        has = "has" if most == 1 else "have"
        return [f"{number} of {counted(self.lists, 'list')} {has} no relevant document{rest}."]

    def __str__(self) -> str:
        return self.table().to_text()

    def _repr_html_(self) -> str:
        """The table, in a notebook."""
        return self.table().to_html()

    def to_frame(self) -> Any:
        """A data frame with one row per list.

        Returns
        -------
        polars.DataFrame or pandas.DataFrame
            A polars frame if polars is installed, otherwise a pandas frame.

        Raises
        ------
        InputError
            If neither is installed.
        """
        ids = np.arange(self.lists) if self.query_ids is None else self.query_ids
        columns = {"query": ids, **self._columns()}
        try:
            import polars
        except ImportError:
            try:
                import pandas
            except ImportError as error:
                raise InputError(
                    "to_frame needs polars or pandas; install one with pip install polars."
                ) from error
            return pandas.DataFrame(columns)
        return polars.DataFrame(columns)

    def to_json(self, per_list: bool = True) -> dict[str, Any]:
        """The result as a dictionary for JSON.

        Parameters
        ----------
        per_list : bool, default True
            Include the values of every list, not only the means.
        """
        content: dict[str, Any] = {
            "convention": str(self.convention),
            "lists": self.lists,
            "documents": self.documents,
            "means": json_types(self.means),
            "empty_lists": dict(self.empty_lists),
        }
        if self.counts:
            content["counts"] = self._totals()
        if self.run:
            content["run"] = self.run
        if per_list:
            if self.query_ids is not None:
                content["queries"] = self.query_ids.tolist()
            values = {name: values.tolist() for name, values in self.values.items()}
            content["values"] = json_types(values)
        return content

    def to_csv(self, per_list: bool = True) -> str:
        """The result as CSV.

        Parameters
        ----------
        per_list : bool, default True
            Write one line per list, with empty cells for NaN. Otherwise write the means, one line
            per measure.
        """
        return csv_text(self.lines(per_list))

    def lines(self, per_list: bool = True) -> list[list[Any]]:
        """The rows of `to_csv`; the first row has the column names."""
        if not per_list:
            return [["measure", "mean"], *map(list, (self._totals() | self.means).items())]
        columns = self._columns()
        cells = (column.tolist() for column in columns.values())
        return [["query", *columns], *map(list, zip(self._ids(), *cells, strict=True))]

    def per_list_table(self) -> ResultTable:
        """A table with the values of every list."""
        columns = self._columns()
        cells = ([Cell(_format(v)) for v in column.tolist()] for column in columns.values())
        rows = [list(row) for row in zip((Cell(str(i)) for i in self._ids()), *cells, strict=True)]
        return ResultTable("", ["query", *columns], rows)

    def trec_lines(self, per_list: bool = False) -> list[str]:
        """The output of trec_eval: lines of measure, query or `all`, and value.

        As in trec_eval, a query that the run does not contain counts in the means but has no lines,
        and a geometric mean has no lines per query.

        Parameters
        ----------
        per_list : bool, default False
            Include the lines of every query.
        """
        lines = []
        if per_list:
            columns = {
                name: values.tolist()
                for name, values in self._columns().items()
                if name not in self.geometric
            }
            absent = np.zeros(self.lists, np.bool_) if self.absent is None else self.absent
            for i, query in enumerate(self._ids()):
                if not absent[i]:
                    lines += [
                        _trec_line(name, query, values[i]) for name, values in columns.items()
                    ]
        lines += [f"{'runid':<22}\tall\t{self.run}"] if self.run else []
        means = self._totals() | self.means
        return lines + [_trec_line(name, "all", value) for name, value in means.items()]

    def _totals(self) -> dict[str, float]:
        return {name: int(count.sum()) for name, count in self.counts.items()}

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        """Counts and values per list."""
        counts = {name: count for name, count in self.counts.items() if name != "num_q"}
        return {**counts, **self.values}

    def _ids(self) -> list[Any]:
        if self.query_ids is None:
            return list(range(self.lists))
        ids: list[Any] = self.query_ids.tolist()
        return ids

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the result to a file.

        Parameters
        ----------
        path : str or path
            A name with suffix .json (everything) or .csv (the values per list).
        """
        target = Path(path)
        if target.suffix == ".json":
            content = json_text(self.to_json())
        elif target.suffix == ".csv":
            content = self.to_csv()
        else:
            raise InputError(f"Can't write {target}. Choose a name with suffix .json or .csv.")
        write_text(target, content)


def systems_csv(results: Mapping[str, Evaluation], per_list: bool = False) -> str:
    """Several evaluations as one CSV, with the system in the first column."""
    rows: list[list[Any]] = []
    for name, result in results.items():
        header, *lines = result.lines(per_list)
        rows = rows or [["system", *header]]
        rows += [[name, *line] for line in lines]
    return csv_text(rows)


def mean_of(values: Floats) -> float:
    """The mean of the values that are not NaN; NaN if all are."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def _format(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if np.isnan(value) else f"{value:.4f}"


def _trec_line(name: str, query: object, value: float) -> str:
    return f"{name:<22}\t{query}\t{value if isinstance(value, int) else f'{value:6.4f}'}"
