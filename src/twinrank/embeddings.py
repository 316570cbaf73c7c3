"""`DirectRetrievalLoss`: direct optimisation of a measure for embeddings."""

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
    """Direct optimisation of a measure for metric learning: minus the mean of the measure.

    Each row of the embeddings is an anchor. Its list consists of all other rows; rows with the same
    label are relevant. The score of row j for anchor i is cos(e_i, e_j) / temperature. The loss is
    the mean of `DirectLoss` over the anchors that have a relevant row. Memory grows with the square
    of the batch size.

    Cosines are in [−1, 1], so the temperature T sets the scale of differences: the steepness α of
    the gradient of the ranks is 1/T per unit of cosine, and the perturbation is in units of T. With
    T = 0.1 a pair with a difference above about 0.4 has almost no gradient.

    The call is that of the losses of pytorch-metric-learning.

    Yu, "Optimize What You Evaluate With" (2020); Musgrave et al., "PyTorch Metric Learning" (2020).

    Parameters
    ----------
    measure : str or Measure, default "AP"
        The measure to optimise.
    strategy : {"type1", "type2", "type3", "swap"}, default "type3"
        How the gradient of a rank reaches the scores, as in `DirectLoss`.
    temperature : float, default 0.1
        The divisor of the cosines; positive.
    perturbation : float, default 0.0
        The scale of Gumbel noise that is added to the scores before ranking.
    samples : int, default 1
        The number of perturbed rankings per step.
    generator : torch.Generator, optional
        The source of random numbers for ties and noise.

    Examples
    --------
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
        is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
        if not is_number or not 0 < temperature < math.inf:
            raise InputError(f"temperature must be a positive number, not {temperature!r}.")
        self.temperature = temperature
        self.direct = DirectLoss(
            measure, strategy, perturbation=perturbation, samples=samples, generator=generator
        )

    def extra_repr(self) -> str:
        """The settings in the printed module."""
        return f"temperature={self.temperature:g}"

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Sequence[Tensor] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch.

        Parameters
        ----------
        embeddings : tensor of float, shape (n_items, n_dimensions)
            The anchors; they need not be normalised.
        labels : tensor, shape (n_items,)
            The class of each item.
        indices_tuple : sequence of tensors, optional
            The result of a miner: triplets (anchors, positives, negatives) or pairs (anchors,
            positives, anchors, negatives). Only these pairs are in the lists.
        ref_emb : tensor of float, shape (n_references, n_dimensions), optional
            The items of the lists, by default the embeddings.
        ref_labels : tensor, shape (n_references,), optional
            The class of each reference; required with `ref_emb`.

        Returns
        -------
        tensor, scalar
            The loss.

        Raises
        ------
        InputError
            If shapes do not match, or an embedding is NaN or infinite.
        """
        _check("embeddings", embeddings, "labels", labels)
        excludes_self = ref_emb is None or ref_emb is embeddings
        if ref_emb is None or ref_labels is None:
            if ref_emb is not ref_labels:
                raise InputError("Give both ref_emb and ref_labels, or neither.")
            ref_emb, ref_labels = embeddings, labels
        _check("ref_emb", ref_emb, "ref_labels", ref_labels)
        if ref_emb.shape[1] != embeddings.shape[1]:
            raise InputError(
                f"embeddings has {embeddings.shape[1]} dimensions but ref_emb has "
                f"{ref_emb.shape[1]}; both need the same number."
            )
        device = embeddings.device
        same = labels.to(device)[:, None] == ref_labels.to(device)[None, :]
        listed = _in_list(same, indices_tuple)
        if excludes_self:
            listed = listed & ~torch.eye(len(same), dtype=torch.bool, device=device)
        has_relevant = (listed & same).any(1, keepdim=True)
        listed = listed & has_relevant
        scores = self._cosines(embeddings, ref_emb) / self.temperature
        loss: Tensor = self.direct(scores, same.to(scores.dtype), mask=listed)
        return loss

    def _cosines(self, embeddings: Tensor, references: Tensor) -> Tensor:
        """All cosines, at least in float32: in bfloat16, many cosines would be equal."""
        dtype = working_dtype(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            return (
                normalize(embeddings.to(dtype), dim=1)
                @ normalize(references.to(embeddings.device, dtype), dim=1).T
            )


def _in_list(same: Tensor, indices: Sequence[Tensor] | None) -> Tensor:
    """A mask of the rows in each anchor's list: all, or those of (a, p, n) or (a, p, a2, n)."""
    if indices is None:
        return torch.ones_like(same)
    if len(indices) not in (3, 4):
        raise InputError(
            f"indices_tuple must be triplets (anchors, positives, negatives) or pairs "
            f"(anchors, positives, anchors, negatives), not {len(indices)} tensors."
        )
    listed = torch.zeros_like(same)
    listed[indices[0], indices[1]] = True
    listed[indices[-2] if len(indices) == 4 else indices[0], indices[-1]] = True
    return listed


def _check(name: str, embeddings: Tensor, labels_name: str, labels: Tensor) -> None:
    """Raise an error unless there is one finite row and one label per item."""
    for argument, value in ((name, embeddings), (labels_name, labels)):
        if not isinstance(value, Tensor):
            raise InputError(f"{argument} must be a torch tensor, not {type(value).__name__}.")
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise InputError(
            f"{name} must be floating-point numbers of shape (items, dimensions), not "
            f"{embeddings.dtype} of shape {tuple(embeddings.shape)}."
        )
    invalid = torch.where(~torch.isfinite(embeddings).all(1))[0]
    if len(invalid):
        raise InputError(
            f"{len(invalid)} rows of {name} contain NaN or infinity; the first is row "
            f"{int(invalid[0])}."
        )
    if tuple(labels.shape) != (len(embeddings),):
        raise InputError(
            f"{labels_name} has shape {tuple(labels.shape)} but {name} has {len(embeddings)} rows; "
            f"give one label per row."
        )
