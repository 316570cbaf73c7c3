"""`evaluate`: many measures with many cutoffs on one sort of the documents."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.evaluation.conventions import Convention, convention_of
from twinrank.evaluation.ranked import RankedLists
from twinrank.evaluation.result import Evaluation
from twinrank.lists import Lists, check_lists
from twinrank.measures import Measure
from twinrank.ranks.exact import check_finite, exact_ranks, refuse_unless
from twinrank.support.arrays import as_float, is_tensor, to_numpy
from twinrank.support.errors import InputError

Floats = npt.NDArray[np.float64]

Measures = str | Measure | Sequence[str | Measure] | Mapping[str, str | Measure]

DEFAULT = ("nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10", "nDCG", "AP", "P@5", "RR", "nERR@10")
_BLOCK = 1 << 15  # documents that are measured together, so that their values stay in the cache
_PER_THREAD = 1 << 16
_LARGEST = float(np.finfo(np.float32).max)


def evaluate(
    scores: Any,
    labels: Any,
    lists: Lists,
    measures: Measures = DEFAULT,
    *,
    convention: str | Convention = "twinrank",
    empty: str | None = None,
    ties: str | None = None,
    docids: Any = None,
    query_ids: Any = None,
    random_state: int = 0,
) -> Evaluation:
    """Measure a ranking: one value per list and measure, and their means.

    `convention` sets what tools differ in: "twinrank", "letor", "trec", "lightgbm" or "paper";
    `empty` ("skip", "zero", "one", "error") and `ties` ("random", "stable", "docid", "average")
    replace a part of it. Ties by document id need `docids`; those at random follow `random_state`.
    `measures` are names or measures, or these by the names that the result is to have for them.

    >>> lists = Lists.from_sizes([3, 2])
    >>> result = evaluate([0.3, 0.9, 0.5, 0.1, 0.2], [1, 0, 0, 0, 1], lists, ["nDCG@3", "RR"])
    >>> result.means
    {'nDCG@3': 0.75, 'RR': 0.6666666666666666}
    """
    chosen = convention_of(convention, empty, ties)
    check_lists(lists)
    arrays = [to_numpy(x.cpu() if is_tensor(x) else x) for x in (scores, labels)]
    wanted = _named(measures, chosen)
    for name, array in zip(("scores", "labels"), arrays, strict=True):
        if array.dtype.kind not in "biuf":
            raise InputError(f"{name} must be numbers, not {array.dtype}")
        lists.check(**{name: array})
    refuse_unless(arrays[0] == arrays[0], "scores are NaN", lists)
    check_finite("labels", arrays[1], lists)
    if query_ids is not None and len(query_ids) != len(lists):
        raise InputError(f"query_ids ({len(query_ids)}) and lists ({len(lists)}) must align")
    ranked = lists if isinstance(lists, RankedLists) else RankedLists(lists.offsets)
    ordered, runs = _in_rank_order(arrays[0], arrays[1], ranked, chosen, docids, random_state)
    values, filled = _measure_all(list(wanted.values()), ordered, ranked, runs)
    table = {
        name: _substituted(values[i], filled[i], chosen.empty, str(wanted[name]))
        for i, name in enumerate(wanted)
    }
    empties = {name: int((~filled[i]).sum()) for i, name in enumerate(wanted)}
    ids = None if query_ids is None else np.asarray(query_ids)
    return Evaluation(table, chosen, documents=lists.documents, empty_lists=empties, query_ids=ids)


def _named(measures: Measures, convention: Convention) -> dict[str, Measure]:
    """Measures by the names that the result has for them."""
    if isinstance(measures, str | Measure):
        measures = (measures,)
    if not measures:
        raise InputError("name at least one measure, such as measures=['nDCG@10']")
    if isinstance(measures, Mapping):
        return {name: convention.measure(one) for name, one in measures.items()}
    return {str(one): convention.measure(one) for one in measures}


def _in_rank_order(
    scores: Any,
    labels: Any,
    lists: RankedLists,
    convention: Convention,
    docids: Any,
    random_state: int,
) -> tuple[Floats, Any]:
    """Labels in rank order and, where ties are averaged, where runs of equal scores begin."""
    if convention.ties == "docid":
        return _by_docid(scores, labels, lists, docids), None
    how = "random" if convention.ties == "random" else "stable"
    generator = np.random.default_rng(random_state)
    ranks = exact_ranks(scores, lists, ties=how, generator=generator)  # type: ignore[arg-type]
    ordered = lists.arrange(labels, ranks)
    return ordered, _runs(scores, ranks, lists) if convention.ties == "average" else None


def _by_docid(scores: Any, labels: Any, lists: RankedLists, docids: Any) -> Floats:
    """Labels in trec_eval's order: by score as float32, equal ones by name, the last name first."""
    if docids is None:
        raise InputError("ties by document id need docids=, one per document")
    ids = np.asarray(docids)
    lists.check(docids=ids)
    within = np.clip(scores, -_LARGEST, _LARGEST)
    scores = np.where(np.isfinite(scores), within, scores).astype(np.float32)
    ranks = exact_ranks(scores, lists, ties="stable")
    order = lists.arrange(np.arange(lists.documents), ranks).astype(np.int64)
    starts = _runs(scores, ranks, lists)
    sizes = np.diff(np.append(starts, lists.documents))
    tied = np.flatnonzero(np.repeat(sizes > 1, sizes))
    run = np.repeat(np.arange(starts.size), sizes)[tied]
    by_name = np.argsort(ids[order[tied]].astype(np.str_), kind="stable")[::-1]
    by_run = by_name[np.argsort(run[by_name], kind="stable")]
    order[tied] = order[tied[by_run]]
    return as_float(labels[order])  # type: ignore[no-any-return]


def _runs(scores: Any, ranks: Any, lists: RankedLists) -> Any:
    """Where, in rank order, runs of equal scores begin."""
    in_order = lists.arrange(scores, ranks)
    new = np.ones(lists.documents, np.bool_)
    new[1:] = in_order[1:] != in_order[:-1]
    new[lists.offsets[:-1][lists.sizes > 0]] = True
    return np.flatnonzero(new)


def _measure_all(
    measures: list[Measure], ordered: Floats, lists: RankedLists, runs: Any
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Values and which lists aren't empty, [measures, lists], block by block on threads."""
    from twinrank.support.compiled import in_threads, spans

    values = np.empty((len(measures), len(lists)))
    filled = np.empty((len(measures), len(lists)), np.bool_)

    def run(start: int, stop: int) -> None:
        while start < stop:
            reach = lists.offsets[start] + _BLOCK
            end = int(np.searchsorted(lists.offsets, reach, side="right")) - 1
            end = min(max(end, start + 1), stop)
            block = lists.part(start, end)
            rows = slice(int(lists.offsets[start]), int(lists.offsets[end]))
            mean = None if runs is None else _mean_over(runs, rows)
            labels = ordered[rows]
            for i, one in enumerate(measures):
                found = _of_block(one, labels, block, mean)
                values[i, start:end], filled[i, start:end] = found
            start = end

    if len(lists):
        in_threads(run, spans(lists.sizes, _PER_THREAD))
    return values, filled


def _of_block(one: Measure, labels: Any, lists: RankedLists, mean: Any) -> tuple[Any, Any]:
    """Values per list, given labels in rank order, and which lists aren't empty."""
    if lists.documents == 0:
        return np.zeros(len(lists)), np.zeros(len(lists), np.bool_)
    if not one.on_any_array:
        import torch  # a user's measure may be written with torch functions

        labels = torch.from_numpy(labels.copy())
    with lists.quiet():
        credit = as_float(one.credit(labels, lists))
    lists.check(credit=credit)
    if mean is not None:
        credit = one.over_ties(credit, lists, mean)
    rows, top = lists.top(one.cutoff)
    values = top.sum(credit[rows] * one.discounts(labels, top))
    return to_numpy(values), to_numpy(lists.any(one.relevant(labels)))


def _mean_over(runs: Any, rows: slice) -> Callable[[Any], Any]:
    """Averages over the runs of equal scores within some rows."""
    first, last = np.searchsorted(runs, [rows.start, rows.stop])
    starts = runs[first:last] - rows.start
    sizes = np.diff(np.append(starts, rows.stop - rows.start))
    return lambda x: np.repeat(np.add.reduceat(x, starts) / sizes, sizes)


def _substituted(values: Floats, filled: Any, empty: str, name: str) -> Floats:
    if empty == "error" and not filled.all():
        raise InputError(
            f"{int((~filled).sum())} of {filled.size} lists have nothing relevant for {name}; "
            f"the first is list {int(np.argmin(filled))}"
        )
    return np.where(filled, values, {"skip": np.nan, "zero": 0.0, "one": 1.0, "error": 0.0}[empty])
