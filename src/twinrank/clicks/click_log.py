"""`ClickLog`: which documents were shown at which positions, and which were clicked."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.data.dataset import Dataset
from twinrank.support.errors import Argument, InputError, check_number
from twinrank.support.quantities import counted

if TYPE_CHECKING:
    from twinrank.clicks.click_summary import ClickSummary
    from twinrank.clicks.propensities import Propensities

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def summed(number: Ints, values: Any, count: int) -> Floats:
    """The sum of the values with each number, from 0 to count − 1."""
    return np.bincount(number, values, count).astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False, repr=False)
class ClickLog:
    """A log of clicks: one row for each document of each list that was shown.

    Create one with `load_clicks`, `ClickLog.from_frame` or `simulate_clicks`, not with this
    constructor. Every list that was shown is an *impression*. Documents are numbered as in `data`,
    the dataset with their features; without features, they are those of the log.

    Parameters
    ----------
    impression : array of int, shape (n_rows,)
        The impression of each row, numbered from 0.
    document : array of int, shape (n_rows,)
        The number of the document that was shown.
    position : array of int, shape (n_rows,)
        Where it was shown, from 1.
    clicked : array of bool, shape (n_rows,)
        Whether it was clicked; in a sum, the share of its displays at which it was.
    lists : Lists
        The documents of each query.
    query_ids : array, shape (n_queries,)
        The id of each query.
    docids : array of str, shape (n_documents,)
        The id of each document.
    weight : array of float, shape (n_impressions,)
        The weight of each impression.
    propensity : array of float, shape (n_rows,), optional
        The probability that the user saw the document, if the log states it.
    randomised : array of bool, shape (n_impressions,), optional
        The impressions whose order was random, if the log states it.
    data : Dataset, optional
        The features of the documents.
    displays : array of float, shape (n_rows,), optional
        In a sum of impressions, how often each row's document was shown at its position. All
        impressions of a query that are in random order, or in the ranker's, then count as one,
        whose weight is their number.

    Examples
    --------
    >>> from twinrank import synthetic_web_search, simulate_clicks
    >>> simulate_clicks(synthetic_web_search(queries=5), impressions=100)
    ClickLog(100 impressions, 5 queries, 1,000 rows, 47 clicks)
    """

    impression: Ints
    document: Ints
    position: Ints
    clicked: Bools | Floats
    lists: Lists
    query_ids: npt.NDArray[Any]
    docids: npt.NDArray[Any]
    weight: Floats
    propensity: Floats | None = None
    randomised: Bools | None = None
    data: Dataset | None = None
    displays: Floats | None = None

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        data: Dataset | None = None,
        *,
        impression: str = "impression",
        query: str = "query",
        docid: str = "docid",
        position: str = "position",
        clicked: str = "clicked",
        weight: str = "weight",
        propensity: str = "propensity",
        randomised: str = "randomised",
        features: Sequence[str] | None = None,
    ) -> "ClickLog":
        """Create a log from a data frame.

        A long frame has one row per document that was shown. A wide frame has one row per
        impression: the columns of documents and clicks contain lists, and so do those of positions
        and propensities, if there are any. Without positions, the lists are in the order shown.

        Parameters
        ----------
        frame : DataFrame
            A pandas, polars or pyarrow frame, or any other frame that narwhals supports.
        data : Dataset, optional
            The features. Documents are found by query id and document id. If the dataset has no
            document ids, the id of a document is its number within its query, from 1.
        impression, query, docid, position, clicked : str
            The columns. By default they have the names of the parameters.
        weight : str, default "weight"
            The column with weights of impressions, the same in all rows of an impression. The
            weight is 1 if there is no such column.
        propensity : str, default "propensity"
            The column with known probabilities that the document was seen, above 0 and at most 1.
        randomised : str, default "randomised"
            The column that tells which impressions were shown in random order.
        features : sequence of str, optional
            Columns with features, if the log itself contains them. They must be the same whenever
            a document is shown for a query; if they are not, pass the column of impressions as
            `query`, so that each impression is a list of its own.

        Raises
        ------
        InputError
            If a column is missing, or a row is invalid; the message names the row and the reason.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"impression": [1, 1], "query": ["a", "a"], "docid": ["x", "y"],
        ...                       "position": [1, 2], "clicked": [0, 1]})
        >>> ClickLog.from_frame(frame)
        ClickLog(1 impression, 1 query, 2 rows, 1 click)
        """
        from twinrank.clicks.log_reading import Columns, read_log

        columns = Columns(
            impression, query, docid, position, clicked, weight, propensity, randomised
        )
        return read_log(frame, data, columns, features, "The log")

    def __post_init__(self) -> None:
        if self.position.size == 0:
            raise InputError("The log has no rows.")

    @property
    def is_sum(self) -> bool:
        """True if impressions were summed when the log was loaded."""
        return self.displays is not None

    @property
    def impressions(self) -> int:
        """The number of impressions."""
        return round(float(self.weight.sum())) if self.is_sum else self.weight.size

    @property
    def clicks(self) -> int:
        """The number of clicks."""
        return round(float((self.shown * self.clicked).sum()))

    @cached_property
    def shown(self) -> Floats:
        """How many displays each row stands for."""
        return np.broadcast_to(1.0, self.position.shape) if self.displays is None else self.displays

    @property
    def queries(self) -> int:
        """The number of queries with impressions."""
        return int((self.query_weights > 0).sum())

    @property
    def positions(self) -> int:
        """The highest position."""
        return int(self.position.max())

    @cached_property
    def document_query(self) -> Ints:
        """The number of each document's query."""
        return np.repeat(np.arange(len(self.lists)), self.lists.sizes)

    @cached_property
    def query(self) -> Ints:
        """The number of each row's query."""
        return self.document_query[self.document]

    @cached_property
    def impression_query(self) -> Ints:
        """The number of each impression's query."""
        queries = np.empty(self.weight.size, np.int64)
        queries[self.impression] = self.query
        return queries

    @cached_property
    def row_weight(self) -> Floats:
        """The weight of each row: that of its impression, or its number of displays."""
        if self.displays is None and (self.weight != 1).any():
            return self.weight[self.impression]
        return self.shown

    @cached_property
    def query_weights(self) -> Floats:
        """The sum of the weights of each query's impressions."""
        return summed(self.impression_query, self.weight, len(self.lists))

    def per_document(self, values: Any = None) -> Floats:
        """The sum over rows, for each document, of weights or of weighted values."""
        weighted = self.row_weight if values is None else self.row_weight * values
        return summed(self.document, weighted, self.lists.documents)

    def select(self, impressions: Any) -> "ClickLog":
        """Select impressions; the documents stay the same.

        Parameters
        ----------
        impressions : array of bool, shape (n_impressions,)
            The impressions to keep.
        """
        kept = np.asarray(impressions)
        self.check_rows("select")
        if kept.dtype != np.bool_ or kept.shape != (self.impressions,):
            raise InputError(
                f"select takes a mask with one entry for each of {self.impressions:,} impressions, "
                f"not {kept.dtype} of shape {kept.shape}."
            )
        return self._kept(kept)

    def first(self, positions: int) -> "ClickLog":
        """Keep the first positions; documents below count as not shown.

        Parameters
        ----------
        positions : int
            The last position to keep.
        """
        check_number("positions", positions, whole=True)
        rows = self.position <= positions
        if not rows.any():
            raise InputError(f"The log has no rows up to position {positions}.")
        kept = np.bincount(self.impression[rows], minlength=self.weight.size) > 0
        return self._part(rows, kept)

    def check_rows(self, what: str) -> None:
        """Refuse a sum of impressions, for what needs each of them."""
        if self.is_sum:
            raise InputError(
                f"{what} needs single impressions, but this log was summed when it was loaded. "
                f"Load a part of it with ",
                Argument("summed", False),
                ".",
            )

    def random_part(self) -> "ClickLog":
        """The impressions in random order."""
        assert self.randomised is not None
        return self._kept(self.randomised)

    def _kept(self, kept: Bools) -> "ClickLog":
        return self._part(kept[self.impression], kept)

    def _part(self, rows: Bools, kept: Bools) -> "ClickLog":
        """Some rows and their impressions."""
        numbers = np.cumsum(kept) - 1
        return replace(
            self,
            impression=numbers[self.impression[rows]],
            document=self.document[rows],
            position=self.position[rows],
            clicked=self.clicked[rows],
            weight=self.weight[kept],
            propensity=None if self.propensity is None else self.propensity[rows],
            randomised=None if self.randomised is None else self.randomised[kept],
            displays=None if self.displays is None else self.displays[rows],
        )

    def split(self, *shares: float, random_state: int = 0) -> "list[ClickLog]":
        """Split the log at random by query: all impressions of a query are in one part.

        Parameters
        ----------
        *shares : float
            The share of the queries in each part. The remaining queries form one more part.
        random_state : int, default 0
            The seed.
        """
        from twinrank.data.folds import cut

        shown = np.flatnonzero(self.query_weights > 0)
        parts = cut(shown.size, shares, random_state)
        return [self._kept(np.isin(self.impression_query, shown[part])) for part in parts]

    def to_dataset(
        self,
        propensities: "Propensities | Any" = None,
        *,
        estimator: str = "ips",
        clip: float | str | None = None,
        relevance: Any = None,
        average: str = "impressions",
        tower: Any = "trees",
        exposure: Any = None,
        safe: float = 0.0,
    ) -> Dataset:
        """Make training data: the label of a document is its credit, estimated from clicks.

        The credit estimates the probability of a click if the user sees the document. With a query
        shown N times, C clicks on a document and the exposure E, the sum of its propensities:

            IPS               C / (max(E, d) + d)
            clipped IPS       C / max(E, clip · N)
            doubly robust     (C + max(clip · N − E, 0) · r) / max(E, clip · N)

        where d is min(1, 30 / √(number of impressions) · N), additional displays without a click,
        and r is a regression of the credit on the features. A two-tower model predicts the
        probability of a click at position 1. Documents that were never shown are left out. `fit`
        accepts only objectives that are linear in the labels, such as "DCG(gain=linear)".

        Parameters
        ----------
        propensities : Propensities or array of float, optional
            The probability that each position is seen. By default the log's own propensities.
            "two-tower" and "naive" do not use them.
        estimator : {"ips", "dr", "two-tower", "naive"}, default "ips"
            Inverse propensities; doubly robust; trees for relevance and a bias per position that
            add up to the logit of a click, fitted together; or the click rate, with no correction.
        clip : float or "auto", optional
            The lowest exposure per impression that credits are divided by. "auto" is
            10 / √(number of impressions), at most 1. With 0, credits are unbiased. Default: "auto"
            for "dr", and for "ips" the additional displays above instead.
        relevance : array of float, shape (n_documents,), optional
            r for `estimator="dr"`. By default boosted trees predict it, trained on other queries.
        average : {"impressions", "queries"}, default "impressions"
            Whether queries count as often as they were shown, or equally.
        tower : "trees", "net" or torch module, default "trees"
            What predicts relevance in a two-tower model: boosted trees, a small net, or your own
            module, which maps float32 features of shape (n_documents, n_features) to a score each.
        exposure : array of float, shape (n_documents,), optional
            The probability that a user sees each document, if the logging policy is stochastic and
            known: the sum over positions of the probability that the policy shows it there, times
            the propensity. It replaces `propensities`; documents that it can show, but the log does
            not, then have no clicks, and with `clip=0` the credit 0.
        safe : float, default 0.0
            How much the order of the logging ranker counts: as much as this many displays that
            users have seen, of each document. 30 keeps rankers from short logs near the logging
            ranker; documents that were never shown then stay in the data, with the click rate at
            half of the lowest exposure.

        Returns
        -------
        Dataset
            The queries of the log. `notes` states how much data the credits are based on.

        Raises
        ------
        InputError
            If the log has no features or no propensities.
        """
        from twinrank.clicks.click_credits import CreditOptions
        from twinrank.clicks.credit_data import credit_dataset

        options = CreditOptions(estimator, clip, relevance, tower, exposure, safe)
        return credit_dataset(self, propensities, options, average)

    def credits(
        self,
        propensities: "Propensities | Any" = None,
        *,
        estimator: str = "ips",
        clip: float | str | None = None,
        safe: float = 0.0,
    ) -> dict[str, list[Any]]:
        """The credit of each document, as columns: for models of text.

        No features are needed. Losses of `twinrank.text` take the credits as labels, with
        `from_clicks=True`.

        Parameters
        ----------
        propensities : Propensities or array of float, optional
            The probability that each position is seen. By default the log's own propensities.
        estimator : {"ips", "dr", "two-tower", "naive"}, default "ips"
            As in `to_dataset`; "dr" and "two-tower" need features.
        clip : float or "auto", optional
            As in `to_dataset`.
        safe : float, default 0.0
            As in `to_dataset`.

        Returns
        -------
        dict of str to list
            `query`, `docid` and `label`, of the documents that `to_dataset` would have.

        Examples
        --------
        >>> from twinrank import synthetic_web_search, simulate_clicks
        >>> log = simulate_clicks(synthetic_web_search(queries=5), impressions=1000)
        >>> list(log.credits(1 / np.arange(1, 11)))
        ['query', 'docid', 'label']
        """
        from twinrank.clicks.click_credits import CreditOptions, lifted
        from twinrank.clicks.credit_data import estimated_credits, known_documents

        options = CreditOptions(estimator, clip, safe=safe)
        found, _ = estimated_credits(self, propensities, options)
        rows = np.flatnonzero(known_documents(self, found, options))
        return {
            "query": self.query_ids[self.document_query[rows]].tolist(),
            "docid": self.docids[rows].tolist(),
            "label": lifted(self, found)[0][rows].tolist(),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the log as a table, which `load_clicks` reads.

        Parameters
        ----------
        path : path
            A file that ends in .csv, .tsv or .parquet.
        """
        from twinrank.clicks.log_reading import write_log

        self.check_rows("save")
        write_log(self, Path(path).expanduser())

    @cached_property
    def summary(self) -> "ClickSummary":
        """Statistics of the log, and whether position bias can be estimated from it."""
        from twinrank.clicks.click_summary import summarise_clicks

        return summarise_clicks(self)

    def __repr__(self) -> str:
        counts = [
            counted(self.impressions, "impression"),
            counted(self.queries, "query"),
            counted(round(self.shown.sum()), "row"),
            counted(self.clicks, "click"),
        ]
        return f"ClickLog({', '.join(counts)})"

    def __str__(self) -> str:
        return str(self.summary)
