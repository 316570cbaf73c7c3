"""Facts and figures about a dataset, for people."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.data.columns import update

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

_BLOCK = 1 << 16  # documents looked at together
_MOST_LABELS = 12


@dataclass(frozen=True)
class Summary:
    """What a dataset holds; `str` makes a page of it, `to_json` plain data."""

    name: str
    queries: int
    documents: int
    features: int
    megabytes: float  # of X in memory
    lengths: dict[str, float]  # of the lists: min, quartiles, mean, max
    labels: dict[str, float]  # label: share of the documents
    fractional_labels: bool
    unjudged: int
    queries_without_relevant: int
    constant_features: list[str]
    missing_values: int
    features_with_missing: int
    infinite_values: int
    filled: list[float]  # per feature, the share of documents where it is neither zero nor missing
    missing: list[float]  # per feature, the share of documents where it is missing
    lowest: float
    highest: float
    document_ids: bool
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """The page, as pairs of what and how much."""
        n = self.lengths
        shares = [f"{label}: {share:.1%}" for label, share in self.labels.items()]
        if len(shares) > _MOST_LABELS:
            shares = [*shares[: _MOST_LABELS - 1], f"… {len(shares)} different labels"]
        lines = [
            ("queries", f"{self.queries:,}"),
            ("documents", f"{self.documents:,}"),
            ("features", f"{self.features:,}"),
            ("features in memory", f"{self.megabytes:,.1f} MB (float32)"),
            (
                "documents per query",
                f"mean {n['mean']:.1f}, median {n['median']:.0f}, "
                f"half within {n['lower quartile']:.0f}–{n['upper quartile']:.0f}, "
                f"from {n['min']:.0f} to {n['max']:,.0f}",
            ),
            ("labels", ", ".join(shares) + (" (fractional)" if self.fractional_labels else "")),
            ("nothing relevant", _share(self.queries_without_relevant, self.queries, "queries")),
            ("feature values", f"from {self.lowest:g} to {self.highest:g}"),
            ("constant features", _listed(self.constant_features)),
            ("missing values", _values(self.missing_values, self.features_with_missing)),
            ("infinite values", f"{self.infinite_values:,}" if self.infinite_values else "none"),
            ("document ids", "yes" if self.document_ids else "no"),
        ]
        if self.unjudged:
            lines.insert(6, ("unjudged", _share(self.unjudged, self.documents, "documents")))
        return lines + [("note", note) for note in self.notes]

    def __str__(self) -> str:
        lines = self.lines()
        width = max(len(what) for what, _ in lines)
        body = [f"{what:<{width}}  {much}" for what, much in lines]
        return "\n".join([self.name, *body] if self.name else body)


def _share(count: int, whole: int, what: str) -> str:
    return f"{count:,} {what} ({count / max(whole, 1):.1%})" if count else "none"


def _listed(names: list[str], most: int = 8) -> str:
    if not names:
        return "none"
    shown = ", ".join(names[:most]) + (", …" if len(names) > most else "")
    return f"{len(names):,} ({shown})"


def _values(count: int, features: int) -> str:
    if not count:
        return "none"
    return f"{count:,} (NaN), in {features:,} feature{'s' if features > 1 else ''}"


def summarise(data: "Dataset") -> Summary:
    """Look at everything once; features are read block by block, so that maps stay maps."""
    low = np.full(data.features, np.inf, np.float32)
    high = np.full(data.features, -np.inf, np.float32)
    zeros, missing, infinite = np.zeros((3, data.features), np.int64)
    for queries in data.batches(_BLOCK).plan(0):
        update(data.take(queries), low, high, zeros, missing, infinite)
    names = data.feature_names or tuple(str(i + 1) for i in range(data.features))
    constant = np.flatnonzero((low >= high) & ((missing + infinite) % max(data.documents, 1) == 0))
    y, lists = data.y, data.lists
    values, counts = np.unique(y, return_counts=True)
    relevant = lists.sum((y > 0).astype(np.float64))
    sizes = lists.sizes if lists.sizes.size else np.zeros(1, np.int64)
    quartiles = np.quantile(sizes, [0.25, 0.5, 0.75]).tolist()
    return Summary(
        name=data.name,
        queries=data.queries,
        documents=data.documents,
        features=data.features,
        megabytes=4 * data.documents * data.features / 1e6,
        lengths={
            "min": float(sizes.min()),
            "lower quartile": quartiles[0],
            "median": quartiles[1],
            "mean": float(sizes.mean()),
            "upper quartile": quartiles[2],
            "max": float(sizes.max()),
        },
        labels={
            f"{value:g}": count / y.size
            for value, count in zip(values.tolist(), counts.tolist(), strict=True)
        },
        fractional_labels=bool((values % 1 != 0).any()),
        unjudged=int((y == -1).sum()),
        queries_without_relevant=int((relevant == 0).sum()),
        constant_features=[names[i] for i in constant],
        missing_values=int(missing.sum()),
        features_with_missing=int((missing > 0).sum()),
        infinite_values=int(infinite.sum()),
        filled=((data.documents - zeros - missing) / max(data.documents, 1)).tolist(),
        missing=(missing / max(data.documents, 1)).tolist(),
        lowest=float(low.min(initial=np.inf)),
        highest=float(high.max(initial=-np.inf)),
        document_ids=data.comments is not None,
        notes=list(data.notes),
    )
