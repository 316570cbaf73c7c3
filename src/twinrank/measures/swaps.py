"""What a measure gains or loses when two documents of a list change places."""

from dataclasses import dataclass

from twinrank.support.arrays import Array, namespace


@dataclass(frozen=True, eq=False)
class Swaps:
    """The change of a measure when the documents at positions p < q swap, in closed form.

        |ΔM| = |worth_p − worth_q| · scale_p · |ahead_p − behind_q|

    `worth` is a document's own, whatever its position. All arrays are in rank order. A measure that
    adds up worth × discount has `scale` 1 and the discount both ahead and behind; where documents
    in between count as well (AP, ERR), sums over those before a position do.
    """

    worth: Array
    scale: Array
    ahead: Array
    behind: Array


def additive(worth: Array, discount: Array) -> Swaps:
    """The swaps of Σ_i worth_i · discount_i."""
    return Swaps(worth, namespace(discount).ones_like(discount), discount, discount)
