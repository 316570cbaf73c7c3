"""Statistics of a dataset for people, and its fingerprint for programs."""

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.data.batches import blocks
from twinrank.data.builder import numbered
from twinrank.support.compiled import compiled
from twinrank.support.quantities import counted

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

_MOST_LABELS = 12  # listed one by one
_SAMPLED_VALUES = 1 << 22  # feature values in a fingerprint, at most
_UNITS = ("bytes", "KB", "MB", "GB", "TB")


@dataclass(frozen=True)
class Summary:
    """Statistics of a dataset; `str` formats them as text, `to_json` as plain data."""

    name: str
    queries: int
    documents: int
    features: int
    memory_bytes: int  # of X
    lengths: dict[str, float]  # documents per query: min, quartiles, mean, max; may be empty
    labels: dict[str, float]  # label: share of the documents; empty if more than 100 labels
    different_labels: int
    label_range: tuple[float, float] | None
    unjudged: int
    queries_without_relevant: int
    feature_names: list[str] | None
    categorical_features: list[str]
    constant_features: list[str]
    missing_values: int
    features_with_missing: int
    infinite_values: int
    filled: list[float]  # per feature, the share of documents where it is neither zero nor missing
    missing: list[float]  # per feature, the share of documents where it is missing
    value_range: tuple[float, float] | None  # of finite values of features that are numbers
    document_id: str | None  # the first one
    weight_range: tuple[float, float] | None  # of rows
    weights_differ: bool  # within a query
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as plain JSON."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """Return the text as pairs of a name and a value."""
        missing = ""
        if self.missing_values:
            missing = (
                f"{self.missing_values:,}, in {counted(self.features_with_missing, 'feature')}"
            )
        lines = [
            ("queries", f"{self.queries:,}"),
            ("documents", f"{self.documents:,}"),
            ("features", f"{self.features:,}"),
            ("feature names", _first(self.feature_names or [], 4)),
            ("categorical", self._some(self.categorical_features)),
            ("memory", f"{_size(self.memory_bytes)} for the features, as float32"),
            ("documents per query", self._lengths()),
            ("labels", self._labels()),
            ("unjudged", _share(self.unjudged, self.documents, "document")),
            ("nothing relevant", _share(self.queries_without_relevant, self.queries, "query")),
            ("weights", self._weights()),
            ("feature values", _range(self.value_range)),
            ("constant features", self._some(self.constant_features)),
            ("missing values", missing),
            ("infinite values", f"{self.infinite_values:,}" if self.infinite_values else ""),
            ("document ids", f"such as {self.document_id}" if self.document_id else ""),
        ]
        # Left out if there are none.
        optional = ("feature names", "categorical", "unjudged", "weights")
        shown = [(name, value or "none") for name, value in lines if value or name not in optional]
        return shown + [("note", note) for note in self.notes]

    def _lengths(self) -> str:
        if not (n := self.lengths):
            return ""
        return (
            f"{n['min']:,.0f} to {n['max']:,.0f}, mean {n['mean']:,.1f}, median "
            f"{n['median']:,.0f}, middle half {n['lower quartile']:,.0f} to "
            f"{n['upper quartile']:,.0f}"
        )

    def _labels(self) -> str:
        if self.different_labels <= _MOST_LABELS:
            return ", ".join(f"{label}: {_percent(s)}" for label, s in self.labels.items())
        return f"{self.different_labels:,} different ones, {_range(self.label_range)}"

    def _weights(self) -> str:
        differ = "different within queries" if self.weights_differ else "equal within queries"
        return f"{_range(self.weight_range)}, {differ}" if self.weight_range else ""

    def _some(self, names: Sequence[str]) -> str:
        return f"{len(names):,} of {self.features:,}: {_first(names)}" if names else ""

    def __str__(self) -> str:
        lines = self.lines()
        width = max(len(name) for name, _ in lines)
        body = [f"{name:<{width}}  {value}" for name, value in lines]
        return "\n".join([self.name, *body] if self.name else body)


def _share(count: int, total: int, noun: str) -> str:
    return f"{counted(count, noun)} ({_percent(count / total)})" if count else ""


def _percent(share: float) -> str:
    """Format a share; only 0 and 1 are shown as 0 % and 100 %.

    >>> _percent(0.125), _percent(0.0001), _percent(0.9999), _percent(1)
    ('12.5%', '<0.1%', '>99.9%', '100.0%')
    """
    if 0 < share < 0.0005:
        return "<0.1%"
    return ">99.9%" if 0.9995 <= share < 1 else f"{share:.1%}"


def _range(limits: tuple[float, float] | None) -> str:
    return "" if limits is None else f"{limits[0]:g} to {limits[1]:g}"


def _first(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _size(count: float) -> str:
    """Format a number of bytes.

    >>> _size(512), _size(1_800_000), _size(2_052_000_000)
    ('512 bytes', '1.8 MB', '2.1 GB')
    """
    unit = 0
    while count >= 999.95 and unit + 1 < len(_UNITS):
        count, unit = count / 1000, unit + 1
    return f"{count:.1f} {_UNITS[unit]}" if unit else f"{count:.0f} {_UNITS[0]}"


def summarise(data: "Dataset") -> Summary:
    """Compute the statistics; features are read in blocks, so memory maps are not copied."""
    low = np.full(data.features, np.inf, np.float32)
    high = np.full(data.features, -np.inf, np.float32)
    zeros, missing, infinite = np.zeros((3, data.features), np.int64)
    texts = sorted(data.categories)  # whose values are the numbers of texts, or -1
    for queries in blocks(data):
        X = data.take(queries)
        _update(X, low, high, zeros, missing, infinite)
        missing[texts] += (X[:, texts] < 0).sum(axis=0)
    zeros[texts] = 0
    numbers = np.setdiff1d(np.flatnonzero(low <= high), texts)
    limits = (float(low[numbers].min()), float(high[numbers].max())) if numbers.size else None
    total = max(data.documents, 1)
    constant = np.where(missing + infinite == 0, low == high, missing == total)
    names = data.feature_names or numbered(data.features)
    relevant = data.lists.sum((data.y > 0).astype(np.float64))
    values, counts = np.unique(data.y, return_counts=True)
    return Summary(
        name=data.name,
        queries=data.queries,
        documents=data.documents,
        features=data.features,
        memory_bytes=4 * data.documents * data.features,
        lengths=_lengths(data.lists.sizes),
        labels={
            _label(value): count / total
            for value, count in zip(values, counts.tolist(), strict=True)
            if values.size <= 100
        },
        different_labels=values.size,
        label_range=(float(values[0]), float(values[-1])) if values.size else None,
        unjudged=int((data.y == -1).sum()),
        queries_without_relevant=int((relevant == 0).sum()),
        feature_names=None if data.feature_names is None else list(data.feature_names),
        categorical_features=[names[i] for i in texts],
        constant_features=[names[i] for i in np.flatnonzero(constant)],
        missing_values=int(missing.sum()),
        features_with_missing=int((missing > 0).sum()),
        infinite_values=int(infinite.sum()),
        filled=((data.documents - zeros - missing) / total).tolist(),
        missing=(missing / total).tolist(),
        value_range=limits,
        document_id=_first_id(data),
        weight_range=_weight_range(data),
        weights_differ=data.row_weights is not None,
        notes=list(data.notes),
    )


def _weight_range(data: "Dataset") -> tuple[float, float] | None:
    weights = data.weights if data.row_weights is None else data.row_weights
    return (
        None
        if weights is None or not weights.size
        else (float(weights.min()), float(weights.max()))
    )


def fingerprint(data: "Dataset") -> str:
    """Return a checksum of sizes, labels and features; large data is sampled by query."""
    crc = zlib.crc32(data.y.tobytes(), zlib.crc32(data.lists.offsets.tobytes()))
    for name, values in data.labels.items():
        crc = zlib.crc32(values.tobytes(), zlib.crc32(name.encode(), crc))
    if data.row_weights is not None:
        crc = zlib.crc32(data.row_weights.tobytes(), crc)
    step = max(1, data.documents * data.features // _SAMPLED_VALUES)
    crc = zlib.crc32(data.take(np.arange(0, data.queries, step)).tobytes(), crc)
    if data.categories:
        crc = zlib.crc32(repr(sorted(data.categories.items())).encode(), crc)
    return f"{data.queries}-{data.features}-{crc:08x}"


def _lengths(sizes: Any) -> dict[str, float]:
    if sizes.size == 0:
        return {}
    lower, median, upper = np.quantile(sizes, [0.25, 0.5, 0.75]).tolist()
    return {
        "min": int(sizes.min()),
        "lower quartile": lower,
        "median": median,
        "mean": float(sizes.mean()),
        "upper quartile": upper,
        "max": int(sizes.max()),
    }


def _label(value: Any) -> str:
    """Format a label with as few digits as identify its float32."""
    short = f"{value:g}"
    return short if np.float32(short) == value else str(value)


def _first_id(data: "Dataset") -> str | None:
    ids = data.select(slice(1)).docids
    return str(ids[0]) if ids is not None and ids.size else None


@compiled
def _update(X: Any, low: Any, high: Any, zeros: Any, missing: Any, infinite: Any) -> None:
    """Update each column's finite range and its counts of zero, missing and infinite values."""
    for row in range(X.shape[0]):
        for column in range(X.shape[1]):
            value = X[row, column]
            if np.isfinite(value):
                low[column] = min(low[column], value)
                high[column] = max(high[column], value)
                zeros[column] += value == 0
            elif np.isnan(value):
                missing[column] += 1
            else:
                infinite[column] += 1
