"""Several columns of labels: clicks, orders, margins; the first is the main one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists.row_weights import query_and_document_weights
from twinrank.core.measures import Measure, MeasureSum
from twinrank.data.table import Floats, Table
from twinrank.support.arrays import as_float, to_numpy
from twinrank.support.errors import Argument, InputError

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset


def main_label(y: Any, labels: Mapping[str, Any] | None) -> Any:
    """The labels that `y` or the first of several columns has."""
    if labels is None:
        return y
    if y is not None or not isinstance(labels, Mapping) or not labels:
        raise InputError(
            "Pass y, or ",
            Argument("labels"),
            " as a mapping of names to arrays, of which the first is the main one.",
        )
    return next(iter(labels.values()))


def with_columns(table: Table, labels: Mapping[str, Any] | None) -> Table:
    """The table with named columns of labels, whose values are in the order of the source."""
    if labels is None:
        return table
    found: dict[str, Floats] = {}
    for name, values in labels.items():
        column = np.asarray(to_numpy(values), np.float64)
        if column.shape != table.y.shape:
            raise InputError(
                f"labels[{name!r}] has shape {column.shape} but the data has {table.y.size} "
                f"documents; it needs one label per document. Documents cannot be dropped here: "
                f"leave them out before."
            )
        if not (np.isfinite(column) & (column >= -1)).all():
            wrong = column[~(np.isfinite(column) & (column >= -1))][0]
            raise InputError(f"labels[{name!r}] has {wrong:g}; labels must be at least 0, or −1.")
        ordered = column if table.rows is None else column[table.rows]
        found[str(name)] = ordered.astype(np.float32)
    return replace(table, labels=found)


def check_columns(names: Sequence[str], data: "Dataset") -> None:
    """Raise InputError if a further column of labels is not among the columns of the data."""
    for name in names[1:]:
        if name not in (data.feature_names or ()) or names.count(name) > 1:
            raise InputError(
                f"{data.name}: no column {name!r} besides the main label for ",
                Argument("label"),
                ".",
            )


def split_columns(data: "Dataset", names: Sequence[str]) -> "Dataset":
    """The data with the main label and further columns, which it has as features, by name."""
    from twinrank.data.dataset import Dataset, with_features

    check_columns(names, data)
    known = data.feature_names or ()
    places = [known.index(name) for name in names[1:]]
    for name, place in zip(names[1:], places, strict=True):
        if place in data.categories:
            raise InputError(f"Column {name!r} has text, but labels are numbers.")
    columns = {
        names[0]: data.y,
        **{n: data.X[:, p] for n, p in zip(names[1:], places, strict=True)},
    }
    kept = np.setdiff1d(np.arange(data.features), places)
    if not kept.size:
        raise InputError(f"{data.name} has no features besides the columns of labels.")
    texts = {i: data.categories[c] for i, c in enumerate(kept.tolist()) if c in data.categories}
    rest = with_features(data, data.X[:, kept], [known[c] for c in kept], texts)
    table = with_columns(rest._table, columns)
    rows = data._table.rows
    said = [f"Column {name!r} " for name in names]
    notes = tuple(n for n in table.notes if not str(n[0] if n else "").startswith(tuple(said)))
    return Dataset(replace(table, rows=rows, notes=notes), data.name)


def label_array(measure: Any, data: "Dataset") -> npt.NDArray[Any]:
    """The labels that a measure needs: one per document, or a row with the main one first."""
    if not isinstance(measure, MeasureSum) or not measure.labels:
        return data.y
    missing = [name for name in measure.labels if name not in data.labels]
    if missing:
        known = f"; its columns: {', '.join(data.labels)}" if data.labels else ""
        goal = next(own for own in measure.goals if missing[0] in own.columns)
        raise InputError(
            f"{goal} needs a column of labels called {missing[0]!r}, which the data lacks"
            f"{known}. Load it with ",
            Argument("label", ["click", missing[0]]),
            ", or pass it in labels={…} of Dataset.from_arrays.",
        )
    return np.column_stack([data.y, *(data.labels[name] for name in measure.labels)])


def training_labels(
    measure: Any, data: "Dataset", weighted: bool = True
) -> tuple[Any, npt.NDArray[Any]]:
    """A measure and labels for training: those of `label_array`, unless documents have weights.

    Labels have the columns that a sum of measures would compute in every step. Without `weighted`,
    the weights of documents are left out.
    """
    labels = label_array(measure, data)
    if weighted and data.row_weights is not None and isinstance(measure, Measure):
        documents = query_and_document_weights(data.row_weights, data.lists)[1]
        measure, labels = measure.weighted(as_float(labels), documents)
    if isinstance(measure, MeasureSum):
        measure, labels = measure.prepared(labels, data.lists)
    return measure, labels
