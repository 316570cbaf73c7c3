"""Direct optimisation of a measure for embeddings: a loss for retrieval and metric learning."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from twinrank.losses.direct import DirectLoss
from twinrank.measures import Measure
from twinrank.ranks.strategies import Strategy
from twinrank.ranks.twin import working_dtype
from twinrank.support.errors import InputError

__all__ = ["DirectRetrievalLoss"]


class DirectRetrievalLoss(nn.Module):
    """Minus a measure of every item's ranking of the others by cosine similarity.

    Each row of `embeddings` is an anchor, whose list are all other rows; those with its label are
    relevant. The score of row j for anchor i is cos(e_i, e_j) / temperature, and the loss the mean
    of `DirectLoss` over the anchors that have something relevant. Lists are flat: memory grows
    with the square of the batch, not with its cube.

    Cosines lie within [−1, 1], so `temperature` T says what difference counts as one: the steepness
    α of the ranks' gradient is 1/T in terms of cosines, and `perturbation` is noise in units of T.
    With T = 0.1 a pair counts as settled, and is left alone, from a difference of some 0.4 on:
    small enough to be reached by all pairs at once, large enough for a margin on unseen items.

    It is called as the losses of pytorch-metric-learning are: with `ref_emb` and `ref_labels` the
    lists are the rows of these; `indices_tuple`, from a miner, keeps only its pairs in the lists.

    Yu, "Optimize What You Evaluate With" (2020); Musgrave et al., "PyTorch Metric Learning" (2020).

    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6], [0.0, 1.0]])
    >>> loss = DirectRetrievalLoss("AP")(embeddings, torch.tensor([0, 0, 1, 1]))
    >>> round(loss.item(), 4)     # −(1/2 + 1/3 + 1/3 + 1/2) / 4
    -0.4167
    """

    def __init__(
        self,
        measure: str | Measure = "AP",
        strategy: Strategy = "type3",
        temperature: float = 0.1,
        perturbation: float = 0.0,
        samples: int = 1,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
        if not number or not 0 < temperature < math.inf:
            raise InputError(f"temperature must be a positive number, not {temperature!r}")
        self.temperature = temperature
        self.direct = DirectLoss(
            measure, strategy, perturbation=perturbation, samples=samples, generator=generator
        )

    def extra_repr(self) -> str:
        """What distinguishes this loss when it is printed."""
        return f"temperature={self.temperature:g}"

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Sequence[Tensor] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch of embeddings [items, dimensions] with a label each."""
        _check("embeddings", embeddings, "labels", labels)
        own = ref_emb is None or ref_emb is embeddings
        if ref_emb is None or ref_labels is None:
            if ref_emb is not ref_labels:
                raise InputError("ref_emb and ref_labels must be given together")
            ref_emb, ref_labels = embeddings, labels
        _check("ref_emb", ref_emb, "ref_labels", ref_labels)
        if ref_emb.shape[1] != embeddings.shape[1]:
            raise InputError(
                f"embeddings {tuple(embeddings.shape)} and ref_emb {tuple(ref_emb.shape)} must "
                f"have as many dimensions"
            )
        device = embeddings.device
        same = labels.to(device)[:, None] == ref_labels.to(device)[None, :]
        listed = _listed(same, indices_tuple)
        if own:
            listed = listed & ~torch.eye(len(same), dtype=torch.bool, device=device)
        listed = listed & (listed & same).any(1, keepdim=True)  # an anchor alone has no list
        scores = self._cosines(embeddings, ref_emb) / self.temperature
        loss: Tensor = self.direct(scores, same.to(scores.dtype), mask=listed)
        return loss

    def _cosines(self, embeddings: Tensor, references: Tensor) -> Tensor:
        """All cosines, at least in float32: two of bfloat16's three digits are often equal."""
        dtype = working_dtype(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            return (
                normalize(embeddings.to(dtype), dim=1)
                @ normalize(references.to(embeddings.device, dtype), dim=1).T
            )


def _listed(same: Tensor, chosen: Sequence[Tensor] | None) -> Tensor:
    """Which rows are in which anchor's list: all, or those of (a, p, n) or (a, p, a2, n)."""
    if chosen is None:
        return torch.ones_like(same)
    if len(chosen) not in (3, 4):
        raise InputError(
            f"indices_tuple must be triplets (anchors, positives, negatives) or pairs "
            f"(anchors, positives, anchors, negatives), not {len(chosen)} tensors"
        )
    listed = torch.zeros_like(same)
    listed[chosen[0], chosen[1]] = True
    listed[chosen[-2] if len(chosen) == 4 else chosen[0], chosen[-1]] = True
    return listed


def _check(name: str, embeddings: Tensor, of_labels: str, labels: Tensor) -> None:
    """Refuse what isn't one row and one label per item."""
    for what, value in ((name, embeddings), (of_labels, labels)):
        if not isinstance(value, Tensor):
            raise InputError(f"{what} must be a torch tensor, not {type(value).__name__}")
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise InputError(
            f"{name} must be floating-point numbers of shape (items, dimensions), not "
            f"{embeddings.dtype} of shape {tuple(embeddings.shape)}"
        )
    broken = torch.where(~torch.isfinite(embeddings).all(1))[0]
    if len(broken):
        raise InputError(
            f"{len(broken)} rows of {name} hold NaN or infinity; the first is row {int(broken[0])}"
        )
    if tuple(labels.shape) != (len(embeddings),):
        raise InputError(
            f"{of_labels} {tuple(labels.shape)} must have one entry per row of {name}, "
            f"{len(embeddings)} in all"
        )
