"""The memory that the binned data of trees needs, checked before training."""

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
_FEW_BINS = {"max_bin": 15}


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
    if columns > train.features and (least := needed(columns=train.features)) <= left:
        savings.append([Argument("transforms", "none"), f" ({format_bytes(before + least)})"])
    if "max_bin" not in settings.engine_params and (least := needed(**_FEW_BINS)) <= left:
        savings.append([Argument("engine_params", _FEW_BINS), f" ({format_bytes(before + least)})"])
    shares = [percent for percent in range(90, 0, -10) if needed(percent / 100) <= left]
    if shares:
        part = f"data.split({shares[0] / 100:g})[0] or fewer files"
        savings.append([f"{shares[0]} % of the queries, with {part}"])
    listed = [part for saving in savings for part in (*saving, "; ")][:-1]
    advice: Parts = [" These need no more: ", *listed, "."] if listed else []
    raise InputError(
        f"Training needs about {format_bytes(before + most)} of memory, but "
        f"{format_bytes(before + left)} is available: {size}.",
        *advice,
        " If this is wrong, set the variable TWINRANK_MEMORY to what the process may take, such "
        "as 8GB.",
    )
