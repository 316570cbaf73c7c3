"""`EmbeddingRankingLoss`: direct optimisation of a measure for embeddings."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from twinrank.core.losses.direct import DirectLoss
from twinrank.core.losses.gathering import gathered_objects, gathered_rows, processes
from twinrank.core.measures import Measure
from twinrank.core.ranks.strategies import Strategy
from twinrank.core.ranks.twin import working_dtype
from twinrank.support.errors import InputError, check_number

__all__ = ["EmbeddingRankingLoss"]


def __getattr__(name: str) -> Any:
    """Name the class that was called `DirectRetrievalLoss` before."""
    if name == "DirectRetrievalLoss":
        raise AttributeError(
            "twinrank.embeddings.DirectRetrievalLoss is now called EmbeddingRankingLoss; "
            "the loss of this name for text is twinrank.text.DirectRetrievalLoss."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class EmbeddingRankingLoss(nn.Module):
    """Direct optimisation of a measure for metric learning: minus the mean of the measure.

    Each row of the embeddings is an anchor. Its list consists of all other rows; rows with the same
    label are relevant. The score of row j for anchor i is cos(e_i, e_j) / temperature. The loss is
    the mean of `DirectLoss` over the anchors that have a relevant row. Memory grows with the square
    of the batch size.

    Cosines are in [−1, 1], so the temperature T sets the scale of differences: the steepness α of
    the gradient of the ranks is 1/T per unit of cosine, and the perturbation is in units of T. With
    T = 0.2 a pair with a difference above about 0.8 has almost no gradient.

    The call is that of the losses of pytorch-metric-learning.

    Yu, "Optimize What You Evaluate With" (2020); Musgrave et al., "PyTorch Metric Learning" (2020);
    Wang et al., "Cross-Batch Memory for Embedding Learning" (2020).

    Parameters
    ----------
    measure : str or Measure, default "AP"
        The measure to optimise.
    strategy : {"type1", "type2", "type3", "swap"}, default "type3"
        How the gradient of a rank reaches the scores, as in `DirectLoss`.
    temperature : float, default 0.2
        The divisor of the cosines; positive.
    perturbation : float, default 1.0
        The scale of Gumbel noise that is added to the scores before ranking.
    samples : int, default 8
        The number of perturbed rankings per step.
    relevance : callable, optional
        A function of the labels of the anchors and of the references that gives a matrix of grades,
        for labels that are not classes. The default is 1 for equal labels and 0 for others.
    memory_size : int, default 0
        The number of embeddings of earlier batches that each anchor also ranks, as they were then.
        Batches enter the memory in training mode only. `state_dict` contains the memory.
    gather_across_devices : bool, default False
        In distributed training, also rank the items of all other processes. The memory then
        contains the batches of all processes.
    generator : torch.Generator, optional
        The source of random numbers for ties and noise.

    Examples
    --------
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6], [0.0, 1.0]])
    >>> loss = EmbeddingRankingLoss("AP", perturbation=0, samples=1)
    >>> value = loss(embeddings, torch.tensor([0, 0, 1, 1]))
    >>> round(value.item(), 4)     # −(1/2 + 1/3 + 1/3 + 1/2) / 4
    -0.4167
    >>> grades = torch.tensor([[0, 2, 1, 0], [2, 0, 0, 1], [1, 0, 0, 2], [0, 1, 2, 0]])
    >>> loss = EmbeddingRankingLoss("nDCG", perturbation=0, samples=1)
    >>> round(loss(embeddings, grades).item(), 4)
    -0.6918
    """

    def __init__(
        self,
        measure: str | Measure = "AP",
        strategy: Strategy = "type3",
        temperature: float = 0.2,
        perturbation: float = 1.0,
        samples: int = 8,
        *,
        relevance: Callable[[Tensor, Tensor], Tensor] | None = None,
        memory_size: int = 0,
        gather_across_devices: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_number("temperature", temperature)
        check_number("memory_size", memory_size, whole=True, least=0)
        self.temperature = temperature
        self.relevance = relevance
        self.memory_size = memory_size
        self.gather_across_devices = gather_across_devices
        self.memory: tuple[Tensor, Tensor] | None = None
        self.direct = DirectLoss(
            measure,
            strategy,
            perturbation=perturbation,
            samples=samples,
            reduction="sum",
            generator=generator,
        )

    def extra_repr(self) -> str:
        """The settings in the printed module."""
        memory = f", memory_size={self.memory_size}" if self.memory_size else ""
        return f"temperature={self.temperature:g}{memory}"

    def get_extra_state(self) -> Any:
        """The memory, for `state_dict`."""
        return self.memory

    def set_extra_state(self, state: Any) -> None:
        """Restore the memory."""
        self.memory = state

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
        labels : tensor, shape (n_items,) or (n_items, n_references)
            The class of each item, or the grade of each reference for each item. With `relevance`,
            any tensor with one row per item.
        indices_tuple : sequence of tensors, optional
            The result of a miner: triplets (anchors, positives, negatives) or pairs (anchors,
            positives, anchors, negatives). Only these pairs are in the lists.
        ref_emb : tensor of float, shape (n_references, n_dimensions), optional
            The items of the lists, by default the embeddings.
        ref_labels : tensor, shape (n_references,), optional
            The class of each reference; required with `ref_emb`, except if `labels` are grades.

        Returns
        -------
        tensor, scalar
            The loss.

        Raises
        ------
        InputError
            If shapes do not match, or an embedding is NaN or infinite.
        """
        _check_embeddings("embeddings", embeddings)
        if not isinstance(labels, Tensor):
            raise InputError(f"labels must be a torch tensor, not {type(labels).__name__}.")
        references, grades, first = self._references(embeddings, labels, ref_emb, ref_labels)
        listed = _in_list(grades, indices_tuple)
        if first is not None:
            row = torch.arange(len(embeddings), device=listed.device)
            listed[row, row + first] = False
        counted = (listed & self.direct.measure.relevant(grades)).any(1)
        total = int(counted.sum())
        totals = gathered_objects(total) if self.gather_across_devices else [total]
        scores = self._cosines(embeddings, references) / self.temperature
        loss: Tensor = self.direct(scores, grades, mask=listed & counted[:, None])
        return loss * (len(totals) / max(sum(totals), 1))

    def _references(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_emb: Tensor | None,
        ref_labels: Tensor | None,
    ) -> tuple[Tensor, Tensor, int | None]:
        """The items to rank, their grades, and where the anchors begin if they are among them."""
        are_grades = self.relevance is None and labels.ndim == 2
        if are_grades and (self.memory_size or self.gather_across_devices):
            raise InputError(
                "A matrix of grades has no column for items of the memory or of other processes. "
                "Give labels, and relevance=… as a function of two sets of labels."
            )
        if ref_emb is None and ref_labels is not None:
            raise InputError("Give both ref_emb and ref_labels, or neither.")
        if ref_emb is None or ref_emb is embeddings:
            if are_grades:
                return embeddings, _checked_grades(labels, embeddings, embeddings), 0
            return self._batch_and_memory(embeddings, labels)
        _check_embeddings("ref_emb", ref_emb)
        _check_dimensions(embeddings, "ref_emb", ref_emb)
        if self.memory_size or self.gather_across_devices:
            raise InputError(
                "ref_emb replaces the memory and the items of other processes. Use a loss with "
                "memory_size=0 and gather_across_devices=False."
            )
        if are_grades:
            return ref_emb, _checked_grades(labels, embeddings, ref_emb), None
        if ref_labels is None:
            raise InputError("Give both ref_emb and ref_labels, or neither.")
        _check_labels("labels", labels, "embeddings", embeddings, self.relevance is None)
        _check_labels("ref_labels", ref_labels, "ref_emb", ref_emb, self.relevance is None)
        return ref_emb, self._grades(labels, ref_labels, embeddings), None

    def _batch_and_memory(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, int]:
        """The batch of all processes and the memory, which the batch then enters."""
        _check_labels("labels", labels, "embeddings", embeddings, self.relevance is None)
        labels, first = labels.detach().to(embeddings.device), 0
        references, ref_labels = embeddings, labels
        if self.gather_across_devices and processes() > 1:
            counts = gathered_objects(len(embeddings))
            first = sum(counts[: torch.distributed.get_rank()])
            references, ref_labels = (
                gathered_rows(embeddings, counts),
                gathered_rows(labels, counts),
            )
        batch = references.detach(), ref_labels
        if self.memory is not None:
            remembered, classes = (x.to(embeddings.device) for x in self.memory)
            _check_dimensions(embeddings, "the memory", remembered)
            references = torch.cat([references, remembered.to(references.dtype)])
            ref_labels = torch.cat([ref_labels, classes])
        if self.memory_size and self.training:
            old = (None, None) if self.memory is None else self.memory
            kept = [_newest(*pair, self.memory_size) for pair in zip(old, batch, strict=True)]
            self.memory = kept[0], kept[1]
        return references, self._grades(labels, ref_labels, embeddings), first

    def _grades(self, labels: Tensor, ref_labels: Tensor, embeddings: Tensor) -> Tensor:
        """The grade of each reference for each anchor."""
        labels, ref_labels = labels.to(embeddings.device), ref_labels.to(embeddings.device)
        if self.relevance is None:
            return (labels[:, None] == ref_labels[None, :]).to(working_dtype(embeddings))
        grades = self.relevance(labels, ref_labels)
        shape = len(labels), len(ref_labels)
        if not isinstance(grades, Tensor) or tuple(grades.shape) != shape:
            actual = tuple(grades.shape) if isinstance(grades, Tensor) else type(grades).__name__
            raise InputError(f"relevance must return grades of shape {shape}, not {actual}.")
        return grades.detach().to(embeddings.device, working_dtype(embeddings))

    def _cosines(self, embeddings: Tensor, references: Tensor) -> Tensor:
        """All cosines, at least in float32: in bfloat16, many cosines would be equal."""
        dtype = working_dtype(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            return (
                normalize(embeddings.to(dtype), dim=1)
                @ normalize(references.to(embeddings.device, dtype), dim=1).T
            )


def _newest(old: Tensor | None, new: Tensor, size: int) -> Tensor:
    """The last rows of a memory after new rows have entered it."""
    rows = new if old is None else torch.cat([old.to(new.device), new])
    return rows[-size:].clone()


def _in_list(grades: Tensor, indices: Sequence[Tensor] | None) -> Tensor:
    """A mask of the rows in each anchor's list: all, or those of (a, p, n) or (a, p, a2, n)."""
    if indices is None:
        return torch.ones_like(grades, dtype=torch.bool)
    if len(indices) not in (3, 4):
        raise InputError(
            f"indices_tuple must be triplets (anchors, positives, negatives) or pairs "
            f"(anchors, positives, anchors, negatives), not {len(indices)} tensors."
        )
    listed = torch.zeros_like(grades, dtype=torch.bool)
    listed[indices[0], indices[1]] = True
    listed[indices[-2] if len(indices) == 4 else indices[0], indices[-1]] = True
    return listed


def _check_embeddings(name: str, embeddings: Tensor) -> None:
    """Raise an error unless there is one finite row per item."""
    if not isinstance(embeddings, Tensor):
        raise InputError(f"{name} must be a torch tensor, not {type(embeddings).__name__}.")
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


def _check_dimensions(embeddings: Tensor, name: str, references: Tensor) -> None:
    """Raise an error unless embeddings and references have the same dimensions."""
    if references.shape[1] != embeddings.shape[1]:
        raise InputError(
            f"embeddings has {embeddings.shape[1]} dimensions but {name} has "
            f"{references.shape[1]}; both need the same number."
        )


def _check_labels(
    name: str, labels: Tensor, items: str, embeddings: Tensor, are_classes: bool
) -> None:
    """Raise an error unless there is one label per item."""
    if not isinstance(labels, Tensor):
        raise InputError(f"{name} must be a torch tensor, not {type(labels).__name__}.")
    if len(embeddings) != (len(labels) if labels.ndim else -1) or (are_classes and labels.ndim > 1):
        raise InputError(
            f"{name} has shape {tuple(labels.shape)} but {items} has {len(embeddings)} rows; "
            f"give one label per row."
        )


def _checked_grades(grades: Tensor, embeddings: Tensor, references: Tensor) -> Tensor:
    """A matrix of grades; an error if it is not one number per anchor and reference."""
    shape = len(embeddings), len(references)
    if tuple(grades.shape) != shape:
        raise InputError(
            f"The grades have shape {tuple(grades.shape)} for {shape[0]} embeddings and {shape[1]} "
            f"references; give one grade per embedding and reference."
        )
    return grades.detach().to(embeddings.device, working_dtype(embeddings))
