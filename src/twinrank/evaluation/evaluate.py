"""`evaluate`: many measures with many cutoffs on one sort of the documents.

Measures with a cutoff get the heads of lists (`heads.py`), all others whole lists in rank order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.evaluation.conventions import Convention, convention_of
from twinrank.evaluation.ranked import RankedLists
from twinrank.evaluation.ranking import Ranking
from twinrank.evaluation.result import Evaluation
from twinrank.evaluation.topk import Heads
from twinrank.lists import Lists, check_lists
from twinrank.measures import MEASURES, Measure
from twinrank.ranks.exact import check_finite, refuse_unless
from twinrank.support.arrays import as_float, is_tensor, to_numpy
from twinrank.support.errors import InputError

Floats = npt.NDArray[np.float64]

Measures = str | Measure | Sequence[str | Measure] | Mapping[str, str | Measure]

DEFAULT = ("nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10", "nDCG", "AP", "P@5", "RR", "nERR@10")
_BLOCK = 1 << 17  # documents that are measured together, so that their values stay in the cache
_PER_THREAD = 1 << 16
_LONGEST_HEAD = 100  # beyond that, documents are ordered by a sort
_FEW = 1 << 15  # documents that aren't worth loading the loops of `heads.py` for


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
    ranking = Ranking.of(arrays[0], ranked, chosen.ties, docids, random_state)
    values, filled = _measure_all(list(wanted.values()), ranking, ranked, arrays[1])
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


def _measure_all(
    measures: list[Measure], ranking: Ranking, lists: RankedLists, labels: Any
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Values and which lists aren't empty, [measures, lists]."""
    values = np.empty((len(measures), len(lists)))
    filled = np.empty(values.shape, np.bool_)
    left = dict(enumerate(measures))
    head = 0 if ranking.ties == "average" else _head(measures, lists)
    heads = Heads.of(ranking, as_float(labels), head) if head else None
    if heads is not None:
        short = {i: one for i, one in left.items() if _order_up_to(one) <= head}
        left = {i: one for i, one in left.items() if i not in short}
        for k in {_order_up_to(one) for one in short.values()}:
            group = {i: one for i, one in short.items() if one.cutoff == k}
            _measure_blocks(group, *heads.cut(int(k)), None, values)
        _fill_in(short, *heads.cut(1), filled)
    if left:
        mean, ordered = ranking.mean_over_ties(), ranking.in_order(labels)
        _measure_blocks(left, ordered, lists, mean, values)
        _fill_in(left, ordered, lists, filled)
    return values, filled


def _order_up_to(one: Measure) -> float:
    """The cutoff beyond which order doesn't count, for measures that are known to keep to it."""
    return one.cutoff if one.cutoff and type(one) in MEASURES else np.inf


def _head(measures: list[Measure], lists: RankedLists) -> int:
    """The longest cutoff that leaves at most half of the documents to look at, or 0."""
    if lists.retrieved is not None or lists.documents < _FEW:
        return 0
    for cutoff in sorted({_order_up_to(one) for one in measures}, reverse=True):
        if cutoff <= _LONGEST_HEAD and 2 * lists.sizes.clip(max=cutoff).sum() <= lists.documents:
            return int(cutoff)
    return 0


def _measure_blocks(
    measures: dict[int, Measure],
    ordered: Floats,
    lists: RankedLists,
    mean_over_ties: Any,
    values: Floats,
) -> None:
    """Fill in values, block by block on threads."""
    from twinrank.support.compiled import in_threads, spans

    def run(start: int, stop: int) -> None:
        while start < stop:
            reach = lists.offsets[start] + _BLOCK
            end = int(np.searchsorted(lists.offsets, reach, side="right")) - 1
            end = min(max(end, start + 1), stop)
            block = lists.part(start, end)
            rows = slice(int(lists.offsets[start]), int(lists.offsets[end]))
            mean = None if mean_over_ties is None else mean_over_ties(rows)
            labels = ordered[rows]
            for i, one in measures.items():
                values[i, start:end] = _of_block(one, labels, block, mean)
            start = end

    if len(lists):
        in_threads(run, spans(lists.sizes, _PER_THREAD))


def _of_block(one: Measure, labels: Floats, lists: RankedLists, mean: Any) -> Any:
    """Values per list, given labels in rank order."""
    from twinrank.evaluation.selecting import discounted

    if lists.documents == 0:
        return np.zeros(len(lists))
    given = _as_wanted(one, labels)
    with lists.quiet():
        credit = as_float(one.credit(given, lists))
    lists.check(credit=credit)
    if mean is not None:
        credit = one.over_ties(credit, lists, mean)
    limits, ranks = lists.ranks(one.cutoff)
    discounts = as_float(to_numpy(one.discounts(given, ranks)))
    return discounted(to_numpy(credit), discounts, lists.offsets, limits)


def _fill_in(measures: dict[int, Measure], labels: Floats, lists: RankedLists, filled: Any) -> None:
    """Fill in which lists aren't empty; measures that differ in the cutoff agree on that."""
    first: dict[Any, int] = {}
    for i, one in measures.items():
        same = first.setdefault(one.at(None) if type(one) in MEASURES else i, i)
        if same < i:
            filled[i] = filled[same]
        else:
            filled[i] = to_numpy(lists.any(one.relevant(_as_wanted(one, labels))))


def _as_wanted(one: Measure, labels: Floats) -> Any:
    """A tensor for a measure that may be written with torch functions, as a user's may."""
    if one.on_any_array:
        return labels
    import torch

    return torch.from_numpy(labels.copy())


def _substituted(values: Floats, filled: Any, empty: str, name: str) -> Floats:
    if empty == "error" and not filled.all():
        raise InputError(
            f"{int((~filled).sum())} of {filled.size} lists have nothing relevant for {name}; "
            f"the first is list {int(np.argmin(filled))}"
        )
    return np.where(filled, values, {"skip": np.nan, "zero": 0.0, "one": 1.0, "error": 0.0}[empty])
