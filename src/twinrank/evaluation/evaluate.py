"""`evaluate`: many measures at many cutoffs, from one sort of the documents.

Measures with a cutoff use the first k documents of each list (`topk.py`). All other measures use
whole lists in rank order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.core.lists import Lists, check_lists
from twinrank.core.lists.row_weights import check_row_weights, query_and_document_weights
from twinrank.core.measures import MEASURES, Measure, MeasureSum
from twinrank.core.ranks.exact import check_finite, refuse_unless
from twinrank.evaluation.conventions import Convention, convention_of
from twinrank.evaluation.evaluation_values import Evaluation
from twinrank.evaluation.goal_evaluation import evaluate_goals, with_parts
from twinrank.evaluation.ranking import Ranking
from twinrank.evaluation.retrieved_lists import RetrievedLists
from twinrank.support.arrays import Bools, Floats, as_float, is_tensor, to_numpy
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

Measures = str | Measure | Sequence[str | Measure] | Mapping[str, str | Measure]

DEFAULT = ("nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10", "nDCG", "AP", "P@5", "RR", "nERR@10")
_BLOCK = 1 << 17  # documents measured together, so that their values stay in the processor's cache
_PER_THREAD = 1 << 16
_MAX_TOPK = 100  # for a higher cutoff, sorting whole lists is faster
_SMALL = 1 << 15  # for fewer documents, loading the top-k loops takes longer than they save


def evaluate(
    scores: Any,
    labels: Any,
    lists: Lists,
    measures: Measures = DEFAULT,
    *,
    weights: Any = None,
    convention: str | Convention = "twinrank",
    empty: str | None = None,
    ties: str | None = None,
    docids: Any = None,
    query_ids: Any = None,
    random_state: int = 0,
) -> Evaluation:
    """Evaluate a ranking by several measures.

    Tools differ in how they compute a measure. `convention` selects the rules of one of them;
    `empty` and `ties` replace single rules.

    Parameters
    ----------
    scores : array or tensor of float, shape (n_documents,)
        The score of each document, finite; higher is better.
    labels : array or tensor, shape (n_documents,), or mapping of them
        The relevance of each document; −1 means unjudged. A mapping has columns of labels by
        name, the main one first: `nDCG(label=click)@10` is measured on the column click.
    lists : Lists
        The documents of each query.
    measures : str, Measure, or a sequence or mapping of them
        The measures to compute, such as `"nDCG@10"`. A weighted sum such as
        `"0.7 * nDCG@10 + 0.3 * P@5"` is shown with its terms. The keys of a mapping are the
        names in the result.
    weights : array, shape (n_documents,), optional
        The weight of each document, finite and not negative. Only its ratio to the mean of the
        query counts: the credit of the document is multiplied by it. AP, RR, ERR and others take
        no weights that differ within a query, and are left out of the default measures. Means over
        queries are not weighted.
    convention : str, default "twinrank"
        The gain, the discount, the divisor of AP@k, and the rules for empty lists, short lists and
        ties: "twinrank", "all-lists", "letor", "letor3", "trec", "lightgbm", "paper" or
        "ptranking".
    empty : {"skip", "zero", "one", "error"}, optional
        The value of a list without relevant documents; "skip" leaves it out of the mean. The
        default is that of the convention.
    ties : {"random", "stable", "docid", "average", "relevant"}, optional
        How documents with equal scores are ordered; "relevant" puts the highest label first. The
        default is that of the convention.
    docids : array, shape (n_documents,), optional
        Document ids, needed for `ties="docid"`.
    query_ids : array, shape (n_lists,), optional
        Query ids, for the rows of the result.
    random_state : int, default 0
        The seed of `ties="random"`.

    Returns
    -------
    Evaluation
        One value per measure and list, and their means.

    Raises
    ------
    InputError
        If shapes do not match, a value is not finite, or a name is unknown.

    Examples
    --------
    >>> lists = Lists.from_sizes([3, 2])
    >>> result = evaluate([0.3, 0.9, 0.5, 0.1, 0.2], [1, 0, 0, 0, 1], lists, ["nDCG@3", "RR"])
    >>> result.means
    {'nDCG@3': 0.75, 'RR': 0.6666666666666666}
    """
    rules = convention_of(convention, empty, ties)
    documents = None if weights is None else _document_weights(weights, lists)
    if documents is not None and measures is DEFAULT:
        measures = [name for name in DEFAULT if rules.measure(name).takes_weights]
    by_name = _by_name(measures, rules)
    if isinstance(labels, Mapping) or any(isinstance(m, MeasureSum) for m in by_name.values()):
        own: dict[str, Any] = {"docids": docids, "query_ids": query_ids, "weights": weights}
        own |= {"random_state": random_state, "convention": replace(rules, empty="skip")}
        result = evaluate_goals(
            labels,
            with_parts(by_name),
            rules.empty,
            lambda column, terms: evaluate(scores, column, lists, terms, **own),
        )
        return replace(result, convention=rules)
    check_lists(lists)
    arrays = [to_numpy(x.cpu() if is_tensor(x) else x) for x in (scores, labels)]
    for name, array in zip(("scores", "labels"), arrays, strict=True):
        if array.dtype.kind not in "biuf":
            raise InputError(f"{name} must be numbers, not {array.dtype}.")
        lists.check(**{name: array})
    refuse_unless(arrays[0] == arrays[0], "scores are NaN", lists)
    if not isinstance(lists, RetrievedLists):  # there −∞ marks documents that were not retrieved
        check_finite("scores", arrays[0], lists)
    check_finite("labels", arrays[1], lists)
    if query_ids is not None and len(query_ids) != len(lists):
        raise InputError(
            f"query_ids has {len(query_ids)} entries but there are {len(lists)} lists."
        )
    retrieved = lists if isinstance(lists, RetrievedLists) else RetrievedLists(lists.offsets)
    tie_rule = rules.ties
    if tie_rule == "relevant":
        order = np.lexsort((-arrays[1], np.repeat(np.arange(len(lists)), lists.sizes)))
        arrays, tie_rule = [array[order] for array in arrays], "stable"
        documents = None if documents is None else documents[order]
    ranking = Ranking.of(arrays[0], retrieved, tie_rule, docids, random_state)
    measure_all = _measure_all if documents is None else partial(_measure_weighted, documents)
    values, has_relevant = measure_all(list(by_name.values()), ranking, retrieved, arrays[1])
    for row, measured in zip(values, by_name.values(), strict=True):
        if measured.cutoff is not None and measured.name in rules.short:
            sizes = retrieved.sizes if retrieved.retrieved is None else retrieved.retrieved
            row[sizes < measured.cutoff] = 0.0
    table = {
        name: _with_empty(values[i], has_relevant[i], rules.empty, str(by_name[name]))
        for i, name in enumerate(by_name)
    }
    empty_lists = {name: int((~has_relevant[i]).sum()) for i, name in enumerate(by_name)}
    ids = None if query_ids is None else np.asarray(query_ids)
    return Evaluation(
        table, rules, documents=lists.documents, empty_lists=empty_lists, query_ids=ids
    )


def evaluate_data(
    scores: Any, data: "Dataset", measures: Measures = DEFAULT, **rules: Any
) -> Evaluation:
    """`evaluate` on the labels, queries and weights of a dataset."""
    labels, weights = data.labels or data.y, data.row_weights
    return evaluate(scores, labels, data.lists, measures, weights=weights, **rules)


def _document_weights(weights: Any, lists: Lists) -> Any:
    """The weights relative to their query; None if they are the same within each query."""
    check_lists(lists)
    rows = to_numpy(weights.cpu() if is_tensor(weights) else weights)
    if rows.dtype.kind not in "biuf":
        raise InputError(f"weights must be numbers, not {rows.dtype}.")
    lists.check(weights=rows)
    check_row_weights(rows)
    return query_and_document_weights(rows, lists)[1]


def _by_name(measures: Measures, convention: Convention) -> dict[str, Measure]:
    """Measures by their names in the result."""
    if isinstance(measures, str | Measure):
        measures = (measures,)
    if not measures:
        raise InputError("Give at least one measure, such as measures=['nDCG@10'].")
    if isinstance(measures, Mapping):
        return {name: convention.measure(measure) for name, measure in measures.items()}
    return {str(measure): convention.measure(measure) for measure in measures}


def _measure_all(
    measures: list[Measure], ranking: Ranking, lists: RetrievedLists, labels: Any
) -> tuple[Floats, Bools]:
    """Values, and which lists have relevant documents; both of shape [measures, lists]."""
    values = np.empty((len(measures), len(lists)))
    has_relevant = np.empty(values.shape, np.bool_)
    remaining = dict(enumerate(measures))
    largest = 0 if ranking.ties == "average" else _largest_cutoff(measures, lists)
    if largest:
        from twinrank.evaluation.topk import TopK

        topk = TopK.of(ranking, as_float(labels), largest)
        if topk is not None:
            short = {i: m for i, m in remaining.items() if _order_up_to(m) <= largest}
            remaining = {i: m for i, m in remaining.items() if i not in short}
            for k in {_order_up_to(measure) for measure in short.values()}:
                group = {i: measure for i, measure in short.items() if measure.cutoff == k}
                _measure_blocks(group, *topk.cut(int(k)), None, values)
            _find_relevant(short, *topk.cut(1), has_relevant)
    if remaining:
        mean, ordered = ranking.mean_over_ties(), ranking.in_order(labels)
        _measure_blocks(remaining, ordered, lists, mean, values)
        _find_relevant(remaining, ordered, lists, has_relevant)
    return values, has_relevant


def _measure_weighted(
    weights: Floats, measures: list[Measure], ranking: Ranking, lists: RetrievedLists, labels: Any
) -> tuple[Floats, Bools]:
    """As `_measure_all`; measures that differ only in the cutoff share their weighted labels."""
    values = np.empty((len(measures), len(lists)))
    has_relevant = np.empty(values.shape, np.bool_)
    groups: dict[Measure, list[int]] = {}
    for i, measure in enumerate(measures):
        groups.setdefault(measure.at(None), []).append(i)
    for places in groups.values():
        weighted, own = measures[places[0]].weighted(as_float(labels), weights)
        group = [weighted.at(measures[i].cutoff) for i in places]
        values[places], has_relevant[places] = _measure_all(group, ranking, lists, own)
    return values, has_relevant


def _order_up_to(measure: Measure) -> float:
    """The cutoff beyond which order has no effect; infinite for a user's measure.

    It is also infinite if grade 0 counts, because only higher grades are counted beyond a cutoff,
    and if labels are sets of sub-topics.
    """
    counted = type(measure) in MEASURES and not (measure.counts_not_relevant or measure.whole_lists)
    if not measure.cutoff or not counted:
        return np.inf
    return measure.cutoff


def _largest_cutoff(measures: list[Measure], lists: RetrievedLists) -> int:
    """The largest cutoff that leaves at most half of the documents to order, or 0."""
    if lists.retrieved is not None or lists.documents < _SMALL:
        return 0
    for cutoff in sorted({_order_up_to(measure) for measure in measures}, reverse=True):
        if cutoff <= _MAX_TOPK and 2 * lists.sizes.clip(max=cutoff).sum() <= lists.documents:
            return int(cutoff)
    return 0


def _measure_blocks(
    measures: dict[int, Measure],
    ordered: Floats,
    lists: RetrievedLists,
    mean_over_ties: Any,
    values: Floats,
) -> None:
    """Write the values of each measure, block by block, on several threads."""
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
            for i, measure in measures.items():
                values[i, start:end] = _measure_block(measure, labels, block, mean)
            start = end

    if len(lists):
        in_threads(run, spans(lists.sizes, _PER_THREAD))


def _measure_block(measure: Measure, labels: Floats, lists: RetrievedLists, mean: Any) -> Any:
    """Values per list from labels in rank order."""
    from twinrank.evaluation.topk import discounted

    if lists.documents == 0:
        return np.zeros(len(lists))
    own_labels = _labels_for(measure, labels)
    with lists.quiet():
        credit = as_float(measure.credit(own_labels, lists))
    lists.check(credit=credit)
    if mean is not None:
        credit = measure.over_ties(credit, lists, mean)
    limits, ranks = lists.ranks(measure.cutoff)
    discounts = as_float(to_numpy(measure.discounts(own_labels, ranks)))
    return discounted(to_numpy(credit), discounts, lists.offsets, limits)


def _find_relevant(
    measures: dict[int, Measure], labels: Floats, lists: RetrievedLists, has_relevant: Bools
) -> None:
    """Write which lists have relevant documents, once for measures that differ in the cutoff."""
    first: dict[Any, int] = {}
    for i, measure in measures.items():
        same = first.setdefault(measure.at(None) if type(measure) in MEASURES else i, i)
        if same < i:
            has_relevant[i] = has_relevant[same]
        else:
            relevant = measure.relevant(_labels_for(measure, labels))
            has_relevant[i] = to_numpy(lists.any(relevant))


def _labels_for(measure: Measure, labels: Floats) -> Any:
    """A tensor for a measure that may use torch functions, as a user's measure may.

    Without torch, it cannot use them.
    """
    if measure.on_any_array:
        return labels
    try:
        import torch
    except ImportError:
        return labels
    return torch.from_numpy(labels.copy())


def _with_empty(values: Floats, has_relevant: Bools, empty: str, name: str) -> Floats:
    """Values with the rule for lists without relevant documents applied."""
    if empty == "error" and not has_relevant.all():
        raise InputError(
            f"{int((~has_relevant).sum())} of {has_relevant.size} lists have no relevant document "
            f"for {name}; the first is list {int(np.argmin(has_relevant))}."
        )
    fill = {"skip": np.nan, "zero": 0.0, "one": 1.0, "error": 0.0}[empty]
    return np.where(has_relevant, values, fill)
