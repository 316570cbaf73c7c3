"""Weights of rows as weights of queries, and of documents relative to their query."""

from twinrank.core.lists import Lists
from twinrank.support.arrays import Array, as_float, namespace
from twinrank.support.errors import InputError


def query_and_document_weights(rows: Array, lists: Lists) -> tuple[Array, Array | None]:
    """The weight of each list, and of each document; None if no list has different weights.

    A list has the mean weight of its rows, and a document that of its row divided by the mean. So
    documents have the weight 1 where all rows have the same weight, exactly.

    >>> import numpy as np
    >>> query_and_document_weights(np.array([1.0, 3.0, 5.0, 5.0]), Lists.from_sizes([2, 2]))
    (array([2., 5.]), array([0.5, 1.5, 1. , 1. ]))
    """
    xp, rows = namespace(rows), as_float(rows)
    lowest, highest = lists.min(rows), lists.max(rows)
    varies = lowest != highest
    if not bool(varies.any()):
        return highest, None
    relative = rows / lists.spread(xp.where(varies, highest, 1.0))  # a sum of rows may overflow
    mean = xp.where(varies, lists.sum(relative) / lists.sum(xp.ones_like(rows)).clip(1), 1.0)
    documents = xp.where(lists.spread(varies), relative / lists.spread(mean), 1.0)
    return highest * mean, documents


def weighted_gains(gains: Array, weights: Array) -> Array:
    """Gains × weights, whose equality does not depend on the unit of weights.

    A gain of 3 with weight 1 and a gain of 1 with weight 3 are ties for the strategies. Relative
    weights are rounded, so that their products are rounded to 37 bits. Gains × 1 keep all bits.
    """
    product = as_float(gains) * weights
    if product.dtype.itemsize < 8:
        return product
    high = product * (2.0**16 + 1.0)
    return namespace(product).where(weights == 1.0, product, high - (high - product))


def check_row_weights(weights: Array) -> None:
    """Raise InputError unless weights are finite and not negative."""
    if weights.shape[0] and not bool(((weights >= 0) & (weights < float("inf"))).all()):
        raise InputError("weights must be finite and not negative.")
