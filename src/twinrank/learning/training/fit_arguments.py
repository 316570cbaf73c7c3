"""Input of `fit` and `predict` as datasets: arrays, frames, evaluation sets, a teacher's scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from twinrank.core.lists.row_weights import query_and_document_weights
from twinrank.data.batches import rows_of
from twinrank.data.dataset import Dataset, with_row_weights
from twinrank.data.folds import cut
from twinrank.data.from_arrays import table_from_arrays
from twinrank.data.from_frames import as_frame, is_frame
from twinrank.data.loading import load_table, warn_about
from twinrank.data.options import ReadOptions, odd_feature_notes
from twinrank.data.sources import is_source, is_stream
from twinrank.learning.models.saved_model import Model
from twinrank.learning.training.settings import FEWEST
from twinrank.support.arrays import refuse_clusters, to_numpy
from twinrank.support.errors import Argument, DataWarning, InputError, warn

_QUERY = "qid"  # the column of X with the query ids, if neither qid nor group is passed
_FORMS = (
    "Pass (X, y, qid), a Dataset, files, a dict of these by name, or [(X, y)] with eval_qid=[qid]."
)


class KnownColumns(NamedTuple):
    """Columns whose types are known: those of categories, and those that a model knows as text."""

    categorical: tuple[int | str, ...] = ()
    text: tuple[str, ...] = ()


NOTHING_KNOWN = KnownColumns()


def known_columns(model: Model) -> KnownColumns:
    """The columns that a model knows as categories or text, by name if possible."""
    encoding, names = model.encoding, model.feature_names
    numbers = [column for column in encoding.columns if column not in encoding.texts]
    if names is None:
        return KnownColumns(tuple(numbers))
    return KnownColumns(
        tuple(names[column] for column in numbers),
        tuple(names[column] for column in encoding.texts),
    )


def as_dataset(
    X: Any,
    y: Any = None,
    qid: Any = None,
    group: Any = None,
    *,
    labelled: bool = False,
    one_query: bool = False,
    known: KnownColumns = NOTHING_KNOWN,
) -> Dataset:
    """Features, labels and queries as a dataset; rows of a query may be scattered.

    With `labelled`, labels are required. With `one_query`, rows without query ids are one query.
    """
    if isinstance(X, Dataset):
        if any(argument is not None for argument in (y, qid, group)):
            raise InputError("A Dataset has its own labels and queries: pass it alone.")
        return X
    for name, values in {"X": X, "y": y, "qid": qid, "group": group}.items():
        refuse_clusters(name, values)
    alone = all(argument is None for argument in (y, qid, group))
    if alone and is_source(X) and (labelled or not is_stream(X)):
        return _loaded(X, labelled, known)
    if labelled and y is None:
        raise InputError("A ranker requires y to be passed, but the target y is None.")
    if is_frame(X):
        X, qid = _frame(X, qid, group, labelled)
    if one_query and qid is None and group is None:
        group = [X.shape[0] if hasattr(X, "shape") else len(X)]
    if labelled:
        _check_judged(y)
    options = ReadOptions(unjudged="keep", non_finite="keep")
    own = known.categorical
    table = table_from_arrays(X, y, qid=qid, group=group, categorical=own, options=options)
    return Dataset(table)


def has_query_column(X: Any) -> bool:
    """True for a frame with a column of query ids, as XGBoost takes them."""
    return is_frame(X) and _QUERY in X.columns


def _frame(X: Any, qid: Any, group: Any, labelled: bool) -> tuple[Any, Any]:
    """A frame of features, and the query ids, which it may hold in a column as in XGBoost."""
    frame = as_frame(X, "X")
    if qid is None and group is None and _QUERY in frame.columns:
        frame, qid = frame.drop(_QUERY), frame[_QUERY].to_numpy()
    if labelled:
        for note in odd_feature_notes(map(str, frame.columns)):
            warn(DataWarning(*note))
    return frame, qid


def _loaded(source: Any, labelled: bool, known: KnownColumns) -> Dataset:
    """Read files or a stream; without `labelled`, labels may be missing."""
    options = ReadOptions(
        unjudged="error" if labelled else "keep",
        non_finite="keep",
        categorical_features=tuple(name for name in known.categorical if isinstance(name, str)),
        text=known.text,
    )
    try:
        data = load_table(source, options)
    except InputError as error:
        if labelled:
            raise _with_advice(error) from error
        try:
            data = load_table(source, replace(options, label=False))
        except InputError:
            raise _with_advice(error) from error
    warn_about(data)
    return data


def _with_advice(error: InputError) -> InputError:
    hint = " Options for reading belong to load: pass twinrank.load(…, option=…) instead"
    return InputError(*error.parts, hint, ".")


def _check_judged(y: Any) -> None:
    """Refuse unjudged documents; a Dataset can hold them on purpose."""
    labels = np.asarray(to_numpy(y))
    if labels.dtype.kind not in "if" or (labels < -1).any():  # worse, and refused later
        return
    if (unjudged := np.argwhere(labels == -1)).size:
        raise InputError(
            f"y[{unjudged[0][0]}] is −1, which means unjudged. Leave the document out, or pass "
            f"Dataset.from_arrays(…, unjudged='keep')."
        )


def as_evaluation_sets(
    eval_set: Any,
    eval_qid: Any = None,
    eval_group: Any = None,
    known: KnownColumns = NOTHING_KNOWN,
) -> dict[str, Dataset]:
    """Evaluation sets by name, in any of the accepted forms.

    A Dataset or (X, y, qid) is called "validation". A dict has names. A list of (X, y) needs a list
    of query ids or groups, as in LightGBM and XGBoost; its sets are called "validation",
    "validation_2", ….
    """
    named = named_sets(eval_set, eval_qid, eval_group)
    return {name: _evaluation_set(own[0], known, *own[1:]) for name, own in named.items()}


def named_sets(
    eval_set: Any, eval_qid: Any = None, eval_group: Any = None
) -> dict[str, tuple[Any, Any, Any]]:
    """Evaluation sets by name, each with the entries of `eval_qid` and `eval_group` or None."""
    has_queries = eval_qid is not None or eval_group is not None
    if eval_set is None:
        if has_queries:
            raise InputError(f"eval_qid and eval_group need eval_set. {_FORMS}")
        return {}
    if isinstance(eval_set, Dataset) or is_source(eval_set) or _is_single_set(eval_set, 3):
        eval_set = {"validation": eval_set}
    if isinstance(eval_set, Mapping):
        if has_queries:
            raise InputError(f"This eval_set takes no eval_qid or eval_group. {_FORMS}")
        return {str(name): (value, None, None) for name, value in eval_set.items()}
    if not isinstance(eval_set, Sequence) or isinstance(eval_set, str):
        raise InputError(f"eval_set cannot be of type {type(eval_set).__name__}. {_FORMS}")
    if _is_single_set(eval_set, 2):
        eval_set = [eval_set]
        eval_qid = None if eval_qid is None else [eval_qid]
        eval_group = None if eval_group is None else [eval_group]
    for name, entries in (("eval_qid", eval_qid), ("eval_group", eval_group)):
        if entries is not None and len(entries) != len(eval_set):
            raise InputError(
                f"{name} has {len(entries)} entries but eval_set has {len(eval_set)}; both need "
                f"one entry per evaluation set. {_FORMS}"
            )
    sets = {}
    for i, value in enumerate(eval_set):
        qid, group = (None if entries is None else entries[i] for entries in (eval_qid, eval_group))
        name = "validation" if i == 0 else f"validation_{i + 1}"
        sets[name] = (value, qid, group)
    return sets


def _is_single_set(value: Any, length: int) -> bool:
    """True for one set, (X, y) or (X, y, qid); False for a tuple of several sets."""
    if not isinstance(value, tuple) or len(value) != length:
        return False
    return not all(isinstance(part, Dataset | tuple) for part in value)


def _evaluation_set(value: Any, known: KnownColumns, qid: Any = None, group: Any = None) -> Dataset:
    has_queries = qid is not None or group is not None
    if (isinstance(value, Dataset) or is_source(value)) and not has_queries:
        return as_dataset(value, labelled=True, known=known)
    if isinstance(value, tuple | list) and len(value) == 3 and not has_queries:
        return as_dataset(value[0], value[1], qid=value[2], labelled=True, known=known)
    if isinstance(value, tuple | list) and len(value) == 2:
        if not has_queries and not is_frame(value[0]):  # which may have a column of query ids
            raise InputError(f"An evaluation set has no queries. {_FORMS}")
        own = {"qid": qid, "group": group}
        return as_dataset(value[0], value[1], **own, labelled=True, known=known)
    raise InputError(f"An evaluation set has the wrong form. {_FORMS}")


def as_unlabelled(unlabelled: Any, known: KnownColumns = NOTHING_KNOWN) -> Dataset | None:
    """Lists without labels: a Dataset, (X, qid) or (X, y, qid)."""
    if unlabelled is None or isinstance(unlabelled, Dataset):
        return unlabelled
    if is_source(unlabelled):
        return as_dataset(unlabelled, known=known)
    if not isinstance(unlabelled, tuple | list) or len(unlabelled) not in (2, 3):
        raise InputError("unlabelled has the wrong form. Pass a Dataset, (X, qid) or (X, y, qid).")
    return as_dataset(unlabelled[0], qid=unlabelled[-1], known=known)


def _weighted(data: Dataset, sample_weight: Any, own_order: bool) -> tuple[Dataset, Any]:
    """The data, and a weight for each list; the data has those of rows that differ in a query.

    Weights of rows are in the order of the source, or with `own_order` in that of the dataset.
    """
    if sample_weight is None:
        return data, data.weights
    if data.weights is not None:
        raise InputError("The data has weights of its own: leave out sample_weight.")
    weights = _weights(sample_weight)
    if weights.shape == (data.queries,) and data.queries != data.documents:
        return data, weights
    if weights.shape != (data.documents,):
        raise InputError(
            f"sample_weight has shape {weights.shape}; it needs one weight for each of "
            f"{data.queries} queries or {data.documents} documents."
        )
    ordered = weights if own_order else data.from_source_order(weights)
    of_lists, documents = query_and_document_weights(ordered, data.lists)
    return (data if documents is None else with_row_weights(data, ordered)), of_lists


def _weights(sample_weight: Any) -> Any:
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must be numbers: {error}.") from error
    invalid = ~(np.isfinite(weights) & (weights >= 0))
    if invalid.any():
        raise InputError(
            f"sample_weight must be finite and not negative, not {weights[invalid][0]:g}."
        )
    if not weights.any():
        raise InputError("sample_weight is zero for all queries.")
    return weights


def labelled(
    X: Any, y: Any, qid: Any, group: Any, sample_weight: Any, known: KnownColumns = NOTHING_KNOWN
) -> tuple[Dataset, Any]:
    """Data with labels, and the weight of every query or None."""
    data = as_dataset(X, y, qid=qid, group=group, labelled=True, known=known)
    return _weighted(data, sample_weight, own_order=data is X)


def trainable_queries(data: Dataset, weights: Any = None, mode: str = "default") -> Any:
    """The numbers of the queries with weight above 0 and, by default, two documents, one relevant.

    The mode "paper" needs ten documents. A document of weight 0 is not relevant.
    """
    documents, relevant = FEWEST[mode]
    labels = np.maximum.reduce([data.y, *data.labels.values()])  # of any goal
    counts = labels > 0 if data.row_weights is None else (labels > 0) & (data.row_weights > 0)
    kept = (data.lists.sizes >= documents) & (data.lists.sum(counts) >= relevant)
    return np.flatnonzero(kept & (True if weights is None else weights > 0))


def split_queries(data: Dataset, fraction: float, seed: Any) -> list[npt.NDArray[np.int64]]:
    """The numbers of the queries for training, and for validation."""
    if isinstance(fraction, bool) or not 0 < fraction < 1:
        raise InputError(f"eval_fraction must lie between 0 and 1, not {fraction!r}.")
    if data.queries < 2:
        raise InputError("eval_fraction needs at least two queries, but there is one.")
    return cut(data.queries, [1 - fraction], seed)


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Labelled queries and what belongs to them.

    `weights` has a weight for each query, `teacher` a score for each document. `unlabelled` holds
    lists for pre-training, `current` the current ranker's scores of evaluation sets. If weights
    differ within a query, the data has those of its rows.
    """

    data: Dataset
    weights: npt.NDArray[np.float64] | None = None
    teacher: npt.NDArray[np.float32] | None = None
    unlabelled: Dataset | None = None
    current: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)

    def select(self, queries: Any) -> Self:
        """The queries with these numbers, in this order; all unlabelled lists stay."""
        weights, teacher = self.weights, self.teacher
        return replace(
            self,
            data=self.data.select(queries),
            weights=None if weights is None else weights[queries],
            teacher=None if teacher is None else teacher[rows_of(self.data.lists, queries)],
        )


def teacher_scores(
    teacher: Any, data: Dataset, own_order: bool = False
) -> npt.NDArray[np.float32] | None:
    """One score of the teacher per document, in the order of the dataset; None without one."""
    if teacher is None:
        return None
    return scores_of("teacher", teacher, data, "the training data", own_order)


def current_scores(
    current: Any, sets: Mapping[str, Dataset], eval_set: Any
) -> dict[str, npt.NDArray[np.float32]]:
    """The scores of the current ranker on every evaluation set that they are known for."""
    if current is None:
        return {}
    if not isinstance(current, Mapping):
        alone = not hasattr(current, "check_parameters") and len(sets) > 1
        if alone:
            raise InputError(
                Argument("current"),
                f" must be a ranker, or scores by evaluation set: {', '.join(sets)}.",
            )
        current = dict.fromkeys(sets, current)
    for name in current:
        if name not in sets:
            raise InputError(argument="current", value=name, choices=list(sets))
    given = list(eval_set.values()) if isinstance(eval_set, Mapping) else [eval_set]
    found = {}
    for name, own in current.items():
        own_order = any(sets[name] is data for data in given)
        found[name] = scores_of("current", own, sets[name], f"evaluation set {name!r}", own_order)
    return found


def scores_of(
    argument: str, given: Any, data: Dataset, place: str, own_order: bool
) -> npt.NDArray[np.float32]:
    """One score per document, in the order of the dataset, by a ranker or from an array.

    Scores in an array are in the order of the source, or with `own_order` in that of the dataset.
    """
    if hasattr(given, "check_parameters"):  # a ranker
        try:
            return np.asarray(given.predict(data), np.float32)
        except InputError as error:
            noun = "current ranker" if argument == "current" else argument
            raise InputError(f"The {noun} cannot score {place}: ", *error.parts) from error
    try:
        scores = np.asarray(to_numpy(given), np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            Argument(argument),
            f" must be a fitted ranker, the path of a saved one, or scores, not "
            f"{type(given).__name__}.",
        ) from error
    if scores.shape != (data.documents,):
        raise InputError(
            Argument(argument),
            f" has shape {scores.shape} but {place} has {data.documents} documents; it needs one "
            f"score per document.",
        )
    if not np.isfinite(scores).all():
        row = int(np.argmin(np.isfinite(scores)))
        raise InputError(
            Argument(argument), f": the score of row {row} is {scores[row]}; it must be finite."
        )
    return scores if own_order else np.asarray(data.from_source_order(scores), np.float32)
