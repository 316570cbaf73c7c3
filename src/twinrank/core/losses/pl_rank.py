"""PL-Rank-3: the gradient of the expected nDCG of a Plackett–Luce model, from sampled rankings."""

from typing import ClassVar

import torch

from twinrank.core.lists import Lists
from twinrank.core.losses.listmle import log_cumsum_exp
from twinrank.core.losses.plistmle import LEAST
from twinrank.core.losses.ranking_loss import GainLoss, Reduction
from twinrank.core.measures.dcg import NDCG
from twinrank.core.measures.measure_base import ranks_to
from twinrank.core.ranks.exact import exact_ranks
from twinrank.support.arrays import Array, as_float, namespace
from twinrank.support.errors import check_number


class PLRank(GainLoss):
    """Minus the expected nDCG@k of rankings drawn from the Plackett–Luce model of the scores.

    The loss is minus the mean nDCG@k of sampled rankings, which are those of scores with Gumbel
    noise. The gradient is the estimate PL-Rank-3, which is unbiased. For one ranking, it raises the
    score of a document at rank r by

        Σ_{x>r} D(x) · G_x + Σ_{x≤r} π_x · (D(x) · G − Σ_{y≥x} D(y) · G_y)

    with the discounts D(x) = 1 / log2(1 + x), 0 for x > k, the gains G = (2^label − 1) / idealDCG@k
    of this document and G_x of that at rank x, and the probability π_x = e^s / Σ_{y≥x} e^{s_y}
    that the model draws this document for rank x. Running sums give all of it in time linear in
    the documents, after sorting.

    Oosterhuis, "Learning-to-rank at the speed of sampling: Plackett-Luce gradient estimation with
    minimal computational complexity" (SIGIR 2022).

    Parameters
    ----------
    samples : int, default 10
        Number of sampled rankings of each list. More give a less noisy gradient.
    k : int, optional
        Cutoff of nDCG. Default: the whole list.
    reduction : {"mean", "sum", "none"}, default "mean"
        Mean over the lists that count, sum, or one loss per list.
    generator : torch.Generator, optional
        Draws the rankings. Default: torch's global generator.
    validate : bool, default True
        Check labels and scores, as in `DirectLoss`.

    Examples
    --------
    Half of the rankings have nDCG 1, the others 0.6309; the mean is 0.8155:

    >>> scores, labels = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> loss = PLRank(samples=10_000, generator=torch.Generator().manual_seed(0))
    >>> round(loss(scores, labels, Lists.from_sizes([2])).item(), 1)
    -0.8
    """

    name: ClassVar[str] = "PLRank"

    def __init__(
        self,
        samples: int = 10,
        k: int | None = None,
        *,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, generator=generator, validate=validate)
        check_number("samples", samples, whole=True, least=1)
        self.samples = samples
        self._ndcg = NDCG(cutoff=k)  # raises an error if k is not a whole number ≥ 1
        self.k = k

    def per_list(self, scores: Array, labels: Array, lists: Lists) -> tuple[Array, Array]:
        """Means over the samples, which are as many times as many lists."""
        many = lists.tile(self.samples)
        ranks = exact_ranks(
            scores, lists, generator=self.random_source(), perturbation=1.0, samples=self.samples
        ).reshape(-1)
        xp, gains = namespace(scores), self._ndcg.credit(labels, lists)  # in any order
        s, g = (many.arrange(xp.tile(as_float(x), (self.samples,)), ranks) for x in (scores, gains))
        discounts = many.first(
            many.by_position(self._ndcg.discount(ranks_to(lists.longest, s))), self.k
        )
        placed = discounts * g
        from_here = many.cumsum(placed, reverse=True)
        log_z = log_cumsum_exp(s, many, reverse=True)

        def drawn(x: Array) -> Array:
            """Σ_{x≤r} π_x · x."""
            return xp.exp(s + log_cumsum_exp(xp.log(x.clip(LEAST)) - log_z, many))

        slopes = drawn(from_here) - g * drawn(discounts) - (from_here - placed)
        return tuple(
            x.reshape(self.samples, -1).sum(0) / self.samples
            for x in (-many.sum(placed), many.restore(slopes, ranks))
        )
