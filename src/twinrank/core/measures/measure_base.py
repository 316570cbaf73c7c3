"""The base class of measures: credit × discount, one definition that evaluates and trains.

M = Σ_i credit_i · discount(rank_i). The credit is constant for the current order. The discount has
the gradient: ∂M/∂rank_i = credit_i · discount′(rank_i). With exact ranks M is the textbook measure.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from twinrank.core.lists import Lists, flat_input
from twinrank.core.lists.row_weights import (
    check_row_weights,
    query_and_document_weights,
)
from twinrank.core.ranks.exact import Ties, check_finite, check_labels, exact_ranks
from twinrank.support.arrays import Array, as_float, is_tensor, namespace, untraced
from twinrank.support.errors import Argument, InputError, check_number, needing_torch
from twinrank.support.notation import Term, Value

Empty = Literal["skip", "zero", "one", "error"]
"""The value of a list without a relevant document: NaN, 0, 1, or an error."""


@dataclass(frozen=True, eq=False)
class Swaps:
    """The change of a measure when the documents at positions p < q swap, in closed form.

        |ΔM| = |worth_p − worth_q| · scale_p · |ahead_p − behind_q|

    All arrays are in rank order. `worth` does not depend on the position of a document. A measure
    Σ worth · discount has scale 1, and the discount as both `ahead` and `behind`. Where documents
    in between count as well (AP, ERR), `ahead` and `behind` contain sums over earlier positions.
    """

    worth: Array
    scale: Array
    ahead: Array
    behind: Array


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Base class of evaluation measures, which are immutable values.

    M = Σ_i credit_i · discount(rank_i). Subclasses implement `credit` and `discount`. A class that
    defines `discount` should define its derivative `slope` too; otherwise torch differentiates the
    discount, also if a base class has a slope. `measure("nDCG@10")` creates a measure from its
    name, and `Measure.from_functions` from your own functions.

    Parameters
    ----------
    cutoff : int, optional
        Only the first `cutoff` documents of a list have credit. Default: the whole list.

    Examples
    --------
    >>> from twinrank.core.measures import measure
    >>> lists = Lists.from_sizes([3])
    >>> measure("nDCG@2")(np.array([3.0, 2.0, 1.0]), np.array([0, 1, 0]), lists).round(4)
    array([0.6309])
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    on_any_array: ClassVar[bool] = True
    """True if the measure works on NumPy arrays and tensors; a user's measure may not."""
    whole_lists: ClassVar[bool] = False
    """True if documents beyond the cutoff count with more than the number of each grade."""
    counts: ClassVar[bool] = False
    """True if all orders have the same value without a cutoff."""
    sums_gains: ClassVar[bool] = False
    """True if the credit adds up gains, so that documents can have weights; see `weighted`."""

    cutoff: int | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        """A new discount without a slope does not inherit the slope of another discount."""
        super().__init_subclass__(**options)
        discount, slope = (
            next(i for i, base in enumerate(cls.__mro__) if name in vars(base))
            for name in ("discount", "slope")
        )
        if discount < slope:
            cls.slope = Measure.slope  # type: ignore[method-assign]
        if "credit" in vars(cls) and "sums_gains" not in vars(cls):
            cls.sums_gains = False  # of another credit

    def __post_init__(self) -> None:
        if self.cutoff is not None:
            check_number(f"The cutoff of {self.name}", self.cutoff, whole=True, least=1)

    def credit(self, labels: Array, lists: Lists) -> Array:
        """The credit of every document.

        Parameters
        ----------
        labels : array or tensor, shape (n_documents,)
            Labels in rank order: the best-ranked document comes first in every list.
        lists : Lists
            Which documents belong together.
        """
        raise NotImplementedError

    def discount(self, rank: Array) -> Array:
        """The discount at each rank, 1 for the best."""
        raise NotImplementedError

    def slope(self, rank: Array) -> Array:
        """The derivative of the discount at each rank; by default torch computes it."""
        with needing_torch(f"The derivative of {self}, unless you pass slope,"):
            import torch
        values = torch.as_tensor(rank).detach().requires_grad_()
        try:
            with torch.enable_grad():
                (slope,) = torch.autograd.grad(self.discount(values).sum(), values)
        except (RuntimeError, TypeError) as error:
            raise InputError(
                f"The discount of {self} cannot be differentiated by torch ({error}); write it "
                f"with operators and torch functions, or define its derivative as slope."
            ) from error
        return slope if is_tensor(rank) else slope.numpy()

    @property
    def counts_not_relevant(self) -> bool:
        """True if judged documents of grade 0 count even where they were not retrieved."""
        return False

    def relevant(self, labels: Array) -> Array:
        """True for each label that counts as relevant."""
        return labels > 0

    @property
    def takes_weights(self) -> bool:
        """True if documents can have weights."""
        return self.sums_gains

    def check_takes_weights(self) -> None:
        """Raise InputError if documents cannot have weights."""
        if not self.takes_weights:
            raise InputError(
                f"Weights that differ within a query multiply the gain of each document, but "
                f"{self} is not a sum of gains: what a document counts depends on the other "
                f"documents. Use DCG, nDCG, P, Recall, RBP or SetF, or give all rows of a query "
                f"the same weight."
            )

    def weighted(self, labels: Array, weights: Array) -> tuple["Measure", Array]:
        """A measure and labels for which the credit of each document is multiplied by its weight.

        A measure that adds up gains is its own form with a linear gain, on gains × weights. So
        weights need no code in losses, boosting and evaluation, and normalisers have them too.
        """
        self.check_takes_weights()
        raise NotImplementedError

    @untraced
    def __call__(
        self,
        scores: Array,
        labels: Array,
        lists: Lists | None = None,
        weights: Array | None = None,
        *,
        mask: Array | None = None,
        empty: Empty = "skip",
        ties: Ties = "random",
        generator: Any = None,
    ) -> Array:
        """The value of every list, in double precision.

        Parameters
        ----------
        scores : array or tensor of float, shape (n_documents,) or (n_lists, longest)
            Higher is better.
        labels : array or tensor, same shape as `scores`
            Graded relevance ≥ 0, or −1 for unjudged documents.
        lists : Lists, optional
            Which documents belong together. Required for flat scores.
        weights : array or tensor, same shape as `scores`, optional
            Weight of each document, finite and not negative. Only its ratio to the mean of the list
            counts: the credit of the document is multiplied by it.
        mask : array or tensor of bool, same shape as `scores`, optional
            For padded scores: True where there is a document.
        empty : {"skip", "zero", "one", "error"}, default "skip"
            The value of a list without a relevant document: NaN, 0, 1, or an error.
        ties : {"random", "stable"}, default "random"
            How equal scores are ordered.
        generator : torch.Generator or numpy.random.Generator, optional
            Source of random ties. Default: the global generator of the array's library.

        Returns
        -------
        array or tensor of float64, shape (n_lists,)

        Raises
        ------
        InputError
            If the arguments do not fit together, scores or labels are not finite, or with
            `empty="error"`.

        Examples
        --------
        >>> from twinrank.core.measures import measure
        >>> lists = Lists.from_sizes([3, 2])
        >>> scores = np.array([0.3, 0.9, 0.5, 0.1, 0.2])
        >>> measure("RR")(scores, np.array([1, 0, 0, 0, 0]), lists, empty="zero")
        array([0.33333333, 0.        ])
        >>> padded = np.array([[0.3, 0.9], [0.1, 0.0]])
        >>> mask = np.array([[True, True], [True, False]])
        >>> measure("RR")(padded, np.array([[1, 0], [1, -100]]), mask=mask)
        array([0.5, 1. ])
        """
        if empty not in get_args(Empty):
            raise InputError(argument="empty", value=empty, choices=get_args(Empty))
        if ties == "average":
            raise InputError(
                "A measure needs one order of the documents; use ",
                Argument("ties", "random"),
                " or ",
                Argument("ties", "stable"),
                ".",
            )
        scores, labels = (x if is_tensor(x) else np.asarray(x) for x in (scores, labels))
        rows = weights if weights is None or is_tensor(weights) else np.asarray(weights)
        for name, other in (("labels", labels), ("weights", rows)):
            if other is not None and is_tensor(scores) != is_tensor(other):
                raise InputError(
                    f"scores and {name} must both be NumPy arrays or both torch tensors."
                )
        if rows is not None:
            rows = flat_input(scores, rows, lists, mask, "weights")[1]
        scores, labels, lists = flat_input(scores, labels, lists, mask)
        labels = labels.detach() if is_tensor(labels) else labels
        check_labels(labels, lists)
        ranks = exact_ranks(scores, lists, ties=ties, generator=generator)
        check_finite("scores", scores, lists)
        own: Measure = self
        if rows is not None:
            check_row_weights(rows)
            if (documents := query_and_document_weights(rows, lists)[1]) is not None:
                own, labels = self.weighted(as_float(labels), documents)
        values, _, filled = own.at_ranks(ranks, labels, lists)
        if empty == "error" and not bool(filled.all()):
            which = (~filled).nonzero()[0] if not is_tensor(filled) else (~filled).nonzero()[:, 0]
            raise InputError(
                f"{len(which)} of {len(lists)} lists have nothing relevant for {self}; "
                f"the first is list {int(which[0])}."
            )
        substitute = {"skip": float("nan"), "zero": 0.0, "one": 1.0, "error": 0.0}[empty]
        return namespace(values).where(filled, values, substitute)

    def at_ranks(
        self, ranks: Array, labels: Array, lists: Lists, *, gradient: bool = False
    ) -> tuple[Array, Array, Array]:
        """The value of each list, ∂value/∂rank of each document or None, and which lists count.

        Ranks are those of `exact_ranks`. For S samples there are S times as many ranks as labels,
        and the lists are tiled. Lists count if they have a relevant document.
        """
        ranks = ranks.reshape(-1)
        if lists.documents == 0:
            nothing = as_float(ranks)
            zeros = lists.sum(nothing)
            return zeros, nothing if gradient else None, zeros > 0
        xp, labels = namespace(ranks), as_float(labels)
        if (times := ranks.shape[0] // labels.shape[0]) > 1:
            labels = xp.tile(labels, (times,))
        ordered = lists.arrange(labels, ranks)
        credit = as_float(self.credit(ordered, lists))
        lists.check(credit=credit)
        credit = self.cut(credit, lists)
        filled = lists.any(self.relevant(ordered))
        if not gradient:
            return lists.sum(credit * self.discounts(ordered, lists)), None, filled
        discounts = self._table(self.discount, lists.longest, ranks)
        slopes = self._table(self.slope, lists.longest, ranks)
        return *lists.settle(credit, discounts, slopes, ranks), filled

    def over_ties(
        self,
        credit: Array,
        lists: Lists,
        mean: Callable[[Array], Array],
    ) -> Array:
        """The credit of each position, averaged over the orders of tied documents.

        It exists if the credit of a document does not depend on the order of the others.
        """
        raise InputError(
            Argument("ties", "average"),
            f" is for measures that add up the gains of documents, such as nDCG, P and Recall, "
            f"but not for {self}; choose random or stable.",
        )

    def swaps(self, labels: Array, lists: Lists) -> Swaps:
        """The change of the measure when two documents swap, for labels in rank order."""
        raise NotImplementedError

    def check_strategy(self, strategy: str) -> None:
        """Raise an error if the measure does not support a strategy."""
        own = type(self)
        has_none = own.swaps is Measure.swaps and own.swap_gradient is Measure.swap_gradient
        if strategy == "swap" and has_none:
            raise InputError(
                Argument("strategy", "swap"),
                f" needs a measure with a method `swaps`, which {self} does not have; choose "
                f"type3, or write a Measure with that method.",
            )
        if strategy == "swap" and self.counts and self.cutoff is None:
            raise InputError(
                f"No swap of two documents changes {self}, which counts the whole list; add a "
                f"cutoff, such as {self}@10, or choose type3."
            )

    def swaps_at(self, ranks: Array, labels: Array, lists: Lists) -> Swaps:
        """`swaps` for ranks and labels as in `at_ranks`."""
        ranks, labels = ranks.reshape(-1), as_float(labels)
        if lists.documents == 0:
            return Swaps(labels, labels, labels, labels)
        labels = namespace(ranks).tile(labels, (ranks.shape[0] // labels.shape[0],))
        return self.swaps(lists.arrange(labels, ranks), lists)

    def swap_gradient(
        self,
        scores: Array,
        ranks: Array,
        labels: Array,
        lists: Lists,
        alpha: float = 1.0,
        parallel: bool = True,
    ) -> tuple[Array, Array]:
        """∂L/∂score and a positive diagonal hessian of minus the measure by `strategy="swap"`.

        `ranks` are those of S samples, `labels` and `scores` those of the documents.
        `parallel=False` uses only the calling thread.
        """
        from twinrank.core.ranks.kernels.swaps import swap_sums

        samples = ranks.reshape(-1).shape[0] // max(lists.documents, 1)
        swaps = self.swaps_at(ranks, labels, lists.tile(samples))
        return swap_sums(scores, labels, ranks, swaps, lists, alpha, parallel)

    def cut(self, x: Array, lists: Lists) -> Array:
        """`x`, one value per document in rank order, with zeros beyond the cutoff."""
        return lists.ranked(x, self.cutoff)

    def discounts(self, like: Array, lists: Lists) -> Array:
        """The discount of every position of every list."""
        return lists.by_position(self._table(self.discount, lists.longest, like))

    def _table(self, function: Callable[[Array], Array], last: int, like: Array) -> Array:
        """A function of the rank at 1, 2, …, last."""
        ranks = ranks_to(last, like)
        values = function(ranks)
        if getattr(values, "shape", None) != ranks.shape:
            raise InputError(f"The discount of {self} must return a number for each rank.")
        return values

    @classmethod
    def from_functions(
        cls,
        name: str,
        credit: Callable[[Array, Lists], Array],
        discount: Callable[[Array], Array],
        slope: Callable[[Array], Array] | None = None,
        *,
        cutoff: int | None = None,
    ) -> "Measure":
        """Create a measure from a credit function and a discount function.

        The functions get the arrays of the caller: tensors in a loss, so torch functions such as
        `torch.log2` work there.

        Parameters
        ----------
        name : str
            Name of the measure.
        credit : callable
            `credit(labels, lists)` takes labels in rank order and returns one number per document.
            `lists.sum`, `lists.cumsum`, `lists.cumprod`, `lists.positions` and `lists.spread` work
            per list.
        discount : callable
            `discount(rank)` takes an array of ranks and returns an array of the same shape.
        slope : callable, optional
            The derivative of `discount`. Default: torch computes it.
        cutoff : int, optional
            Only the first `cutoff` documents of a list have credit.
        """
        return FunctionMeasure(
            title=name, credit_function=credit, discount_function=discount, slope_function=slope,
            cutoff=cutoff,
        )  # fmt: skip

    def at(self, cutoff: int | None) -> "Measure":
        """The same measure with another cutoff; None is the whole list."""
        return replace(self, cutoff=cutoff)

    def options(self) -> dict[str, Value]:
        """The options that differ from their defaults."""
        known = [f for f in fields(self) if f.name != "cutoff"]
        return {f.name: v for f in known if (v := getattr(self, f.name)) != f.default}

    def __str__(self) -> str:
        return str(Term(self.name, self.options(), self.cutoff))


@dataclass(frozen=True, kw_only=True)
class FunctionMeasure(Measure):
    """A measure created by `Measure.from_functions`."""

    name: ClassVar[str] = "custom"
    on_any_array: ClassVar[bool] = False
    title: str
    credit_function: Callable[[Array, Lists], Array] = field(repr=False)
    discount_function: Callable[[Array], Array] = field(repr=False)
    slope_function: Callable[[Array], Array] | None = field(default=None, repr=False)

    def credit(self, labels: Array, lists: Lists) -> Array:
        """The result of the user's function."""
        return self.credit_function(labels, lists)

    def discount(self, rank: Array) -> Array:
        """The result of the user's function."""
        return self.discount_function(rank)

    def slope(self, rank: Array) -> Array:
        """The result of the user's function, or torch's derivative of the discount."""
        return super().slope(rank) if self.slope_function is None else self.slope_function(rank)

    def __str__(self) -> str:
        return str(Term(self.title, {}, self.cutoff))


def additive(worth: Array, discount: Array) -> Swaps:
    """The swaps of Σ_i worth_i · discount_i."""
    return Swaps(worth, namespace(discount).ones_like(discount), discount, discount)


def shared(credit: Array, total: Array, lists: Lists) -> Array:
    """Credit divided by the total of its list, and 0 where the total is 0."""
    xp = namespace(total)
    inverse = xp.where(total > 0, 1.0 / xp.where(total > 0, total, 1.0), 0.0)
    return credit * lists.spread(inverse)


def ranks_to(last: int, like: Array) -> Array:
    """1, 2, …, last, in double precision on the device of `like`."""
    if not is_tensor(like):
        return np.arange(1.0, last + 1)
    import torch

    return as_float(torch.arange(1, last + 1, device=like.device))
