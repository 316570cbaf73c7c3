"""The memory that the binned data of trees needs, checked before training."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Transform
from twinrank.learning.boosting.engines import TreeSettings, thread_count
from twinrank.support.compiled import threads
from twinrank.support.errors import Argument, InputError, Parts
from twinrank.support.memory import available_memory, memory_in_use
from twinrank.support.quantities import counted, duration, format_bytes

_CHECKED = 200_000_000  # bytes; a training that needs less is not checked
_SLOW = 2e8  # values; fewer are binned within seconds
_PER_VALUE = 60e-9  # seconds to transform and bin a value, on one core
_BINS = (127, 63, 31, 15)
"""Values of `max_bin` that are tried; with at most 15, a value takes half a byte."""
_SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)  # of the queries


def check_memory(
    engine: Any, settings: TreeSettings, train: Dataset, others: int, transform: Transform
) -> str:
    """Raise InputError if training needs more memory than there is; else describe large training.

    `others` is the number of documents of the evaluation sets.
    """
    documents, columns = train.documents, transform.outputs(train.features)

    def needed(share: float = 1.0, columns: int = columns, **engine_params: Any) -> int:
        own = replace(settings, engine_params={**settings.engine_params, **engine_params})
        return int(engine.memory_of(own, int(share * documents), others, columns))

    most = needed()
    if most < _CHECKED:
        return ""
    before, left = memory_in_use(), available_memory()
    size = f"{counted(documents, 'document')} with {columns:,} columns"
    if left is None or most <= left:
        if documents * columns < _SLOW:
            return ""
        available = "" if left is None else f" ({format_bytes(before + left)} is available)"
        cores = thread_count(settings.n_jobs) or threads()
        wait = duration(documents * columns * _PER_VALUE / cores)
        return (
            f"{size}: about {format_bytes(before + most)} of memory{available}, and {wait} "
            f"before the first round."
        )
    savings: list[Parts] = []
    for remedies in _remedies(settings, train.features, columns, savings):
        for words, change in remedies:
            if (least := needed(**change)) <= left:
                savings.append([*words, f" ({format_bytes(before + least)})"])
                break
    listed = [part for saving in savings for part in (*saving, "; ")][:-1]
    advice: Parts = [" These need no more: ", *listed, "."] if listed else []
    raise InputError(
        f"Training needs about {format_bytes(before + most)} of memory, but "
        f"{format_bytes(before + left)} is available: {size}.",
        *advice,
        " If this is wrong, set the variable TWINRANK_MEMORY to what the process may take, such "
        "as 8GB.",
    )


def _remedies(
    settings: TreeSettings, features: int, columns: int, savings: Sequence[Parts]
) -> Iterator[list[tuple[Parts, dict[str, Any]]]]:
    """Ways to need less memory, with what they change; the mildest of each kind comes first.

    Two together are only for data that neither makes small enough, as `savings` says by then: raw
    features with fewer bins, or with a share of the queries that is larger than the share alone.
    """
    raw = Argument("transforms", "none")
    bins = () if "max_bin" in settings.engine_params else _BINS
    fewer = [(Argument("engine_params", {"max_bin": most}), {"max_bin": most}) for most in bins]
    if columns > features:
        yield [([raw], {"columns": features})]
    yield [([option], change) for option, change in fewer]
    if columns > features and not savings:
        yield [
            ([raw, " and ", option], {"columns": features, **change}) for option, change in fewer
        ]
    shares: list[tuple[Parts, dict[str, Any]]] = [
        (
            [
                f"{100 * part:g} % of the queries, ",
                Argument("sample_queries", part, f"data.split({part:g})[0]"),
            ],
            {"share": part},
        )
        for part in _SHARES
    ]
    yield shares
    if columns > features and len(savings) < 2:
        yield [([raw, " with ", *words], {"columns": features, **share}) for words, share in shares]
