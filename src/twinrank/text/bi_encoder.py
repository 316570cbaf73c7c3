"""`DirectRetrievalLoss` and `RetrievalCollator`: direct optimisation for bi-encoders of text."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import torch
from sentence_transformers.base.losses import CachedLossMixin, has_static_embedding_input
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from sentence_transformers.util import cos_sim, similarity_fct_name
from torch import Tensor, nn

from twinrank.clicks.click_measures import check_click_objective
from twinrank.core.losses.direct import DirectLoss
from twinrank.core.losses.gathering import gathered_objects, gathered_rows
from twinrank.core.measures import Measure
from twinrank.core.ranks.strategies import Strategy
from twinrank.core.ranks.twin import attach, working_dtype
from twinrank.support.errors import InputError, check_number
from twinrank.text.cross_encoder import CITATION
from twinrank.text.text_data import check_list, list_columns

UNLISTED = -1.0
"""The grade of a document that is not in the list of a query."""


class DirectRetrievalLoss(CachedLossMixin, nn.Module):  # type: ignore[misc]
    """Direct optimisation of a measure for a SentenceTransformer: minus the mean of the measure.

    A query ranks all documents of the batch by cos(query, document) / temperature. The documents of
    its own list have their grades. Documents of other queries have grade 0, except if their text is
    in the own list, or in the list of an equal query. A text that occurs several times in a batch
    counts once. Queries without a relevant document are left out of the mean.

    Two forms of data work:

    - Lists: a column of queries, a column of lists of documents and a column of lists of labels,
      with `data_collator=RetrievalCollator(model.preprocess)`. Lists may differ in length.
    - Columns of single texts: a query, then n documents, as for MultipleNegativesRankingLoss. A
      label column with n grades per row is optional; without it the first document has grade 1 and
      all others have grade 0.

    With `mini_batch_size`, embeddings are computed in mini-batches, first without and then with
    activations (GradCache). Memory is that of one mini-batch, gradients are the same, and a step
    takes about a third longer. `MatryoshkaLoss` accepts the loss with and without it.

    Yu, "Optimize What You Evaluate With" (2020); Gao et al., "Scaling Deep Contrastive Learning
    Batch Size under Memory Limited Setup" (2021).

    Parameters
    ----------
    model : SentenceTransformer
        The model to train.
    measure : str or Measure, default "nDCG@10"
        The measure to optimise.
    strategy : {"type1", "type2", "type3", "swap"}, default "swap"
        How the gradient of a rank reaches the scores, as in `DirectLoss`.
    temperature : float, default 0.05
        The divisor of the similarities; positive.
    perturbation : float, default 1.0
        The scale of Gumbel noise that is added to the scores before ranking, in units of the
        temperature.
    samples : int, default 8
        The number of perturbed rankings per step.
    gradient_limit : float, optional, default 2.0
        The limit of the gradient of a query: the sum g of the absolute derivatives by its scores
        becomes g / (1 + g / limit). Otherwise g grows with the number of documents above a relevant
        one, so that difficult queries outweigh all others. 2 is the limit of softmax
        cross-entropy. None leaves the gradient as it is.
    similarity_fct : callable, default `cos_sim`
        A function of two matrices of embeddings that gives the matrix of their similarities.
    mini_batch_size : int, optional
        The number of texts per forward pass, which turns on cached gradients.
    gather_across_devices : bool, default False
        In distributed training, also rank the documents of all other processes.
    from_clicks : bool, default False
        True if the labels are credits of clicks (`ClickLog.credits`). The measure must then be
        linear in the labels, such as `"DCG(gain=linear)@10"`, and `gradient_limit` None.
    validate : bool, default True
        Check that embeddings and labels are finite, for which the CPU waits for a GPU in every
        step. If False, the loss on a GPU is NaN if an embedding is not finite.

    Raises
    ------
    InputError
        If an argument is invalid.

    Examples
    --------
    ```python
    loss = DirectRetrievalLoss(model, measure="nDCG@10", mini_batch_size=32)
    SentenceTransformerTrainer(model=model, train_dataset=dataset, loss=loss).train()
    ```
    """

    def __init__(
        self,
        model: Any,
        measure: str | Measure = "nDCG@10",
        strategy: Strategy = "swap",
        temperature: float = 0.05,
        perturbation: float = 1.0,
        samples: int = 8,
        *,
        gradient_limit: float | None = 2.0,
        similarity_fct: Callable[[Tensor, Tensor], Tensor] = cos_sim,
        mini_batch_size: int | None = None,
        gather_across_devices: bool = False,
        from_clicks: bool = False,
        validate: bool = True,
    ) -> None:
        super().__init__()
        if from_clicks:
            check_click_objective(measure, "measure")
            if gradient_limit is not None:
                raise InputError(
                    "A limit of the gradient is not linear in the labels, as credits of clicks "
                    "need it; pass gradient_limit=None."
                )
        if not hasattr(model, "get_embedding_dimension"):
            raise InputError(
                f"DirectRetrievalLoss needs a SentenceTransformer, not a {type(model).__name__}. "
                f"For a CrossEncoder, use DirectRankingLoss."
            )
        check_number("temperature", temperature)
        for name, limit, whole in (
            ("gradient_limit", gradient_limit, False),
            ("mini_batch_size", mini_batch_size, True),
        ):
            if limit is not None:
                check_number(name, limit, whole)
        if mini_batch_size is not None and has_static_embedding_input(model):
            raise InputError(
                "mini_batch_size is not possible with a StaticEmbedding, whose input has no rows. "
                "Leave it out; such a model needs little memory."
            )
        self.model = model
        self.temperature = temperature
        self.direct = DirectLoss(
            measure,
            strategy,
            perturbation=perturbation,
            samples=samples,
            reduction="sum",
            validate=validate,
        )
        self.gradient_limit = gradient_limit
        self.similarity_fct = similarity_fct
        self.mini_batch_size = mini_batch_size
        self.gather_across_devices = gather_across_devices
        self.uses_gradient_cache = mini_batch_size is not None

    def forward(
        self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch.

        Parameters
        ----------
        sentence_features : iterable of dict
            The tokens of the queries, and of one or more columns of documents.
        labels : tensor, optional
            Grades of shape (n_queries, n_columns), or of shape (n_queries, n_documents, 1) for all
            documents of the batch, with −1 for documents that are not in the list of a query.

        Returns
        -------
        tensor, scalar
            The loss.

        Raises
        ------
        InputError
            If the columns or labels do not have this form, or an embedding is not finite.
        """
        columns = list(sentence_features)
        judged = self._judged(columns, labels)
        if self.uses_gradient_cache:
            loss: Tensor = self.forward_cached(columns, judged)  # type: ignore[operator]
            return loss
        embeddings = [[self.model(features)["sentence_embedding"]] for features in columns]
        return self.calculate_loss(embeddings, judged)

    def calculate_loss(
        self,
        reps: list[list[Tensor]],
        labels: "_Judged",
        *,
        with_backward: bool = False,
    ) -> Tensor:
        """The loss of embeddings, by column and mini-batch; `labels` is the result of `_judged`."""
        grades, mask, counts, divisor = labels
        queries = torch.cat(reps[0])
        documents = torch.cat([part for column in reps[1:] for part in column])
        if self.direct.validate:
            _check_finite("queries", queries)
            _check_finite("documents", documents)
        if len(counts) > 1:
            documents = gathered_rows(documents, counts)
        grades = grades.to(queries.device, non_blocking=True)  # the mask stays on the CPU
        dtype = working_dtype(queries)  # in bfloat16, many similarities would be equal
        with torch.autocast(queries.device.type, enabled=False):
            scores = self.similarity_fct(queries.to(dtype), documents.to(dtype)) / self.temperature
        if not torch.is_grad_enabled():
            value: Tensor = self.direct(scores, grades, mask=mask) / divisor
            return value
        # The ranks of some queries at a time, since noise takes `samples` times the memory.
        leaf, total = scores.detach().requires_grad_(), scores.new_zeros(())
        size = self.mini_batch_size or len(scores)
        for start in range(0, len(scores), size):
            rows = slice(start, start + size)
            part: Tensor = self.direct(leaf[rows], grades[rows], mask=mask[rows])
            part.backward()  # type: ignore[no-untyped-call]
            total += part.detach()
        slopes = torch.zeros_like(scores) if leaf.grad is None else leaf.grad
        if self.gradient_limit is not None:
            slopes = slopes / (1 + slopes.abs().sum(1, keepdim=True) / self.gradient_limit)
        loss = attach(total / divisor, scores, lambda _, upstream: slopes * (upstream / divisor))
        if with_backward:
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach() if with_backward else loss

    def _judged(self, columns: list[dict[str, Any]], labels: Tensor | None) -> "_Judged":
        """The grades of all documents, and what the loss needs to know about other processes."""
        if len(columns) < 2:
            raise InputError(
                f"DirectRetrievalLoss needs a column of queries and at least one column of "
                f"documents, not {len(columns)} columns."
            )
        query_keys, *by_column = [_keys(features) for features in columns]
        listed = _listed(len(query_keys), [len(keys) for keys in by_column], labels)
        pairs = (listed != UNLISTED).nonzero()  # few, so that processes exchange these
        local = (
            query_keys,
            [key for keys in by_column for key in keys],
            pairs,
            listed[tuple(pairs.T)],
        )
        judged = gathered_objects(local) if self.gather_across_devices else [local]
        keys = [key for _, documents, _, _ in judged for key in documents]
        queries, documents = _numbers(query_keys), _numbers(keys)
        best = torch.full((len(queries), len(documents)), UNLISTED)
        for other_queries, other_documents, other_pairs, values in judged:
            row = torch.tensor([queries.get(key, -1) for key in other_queries])[other_pairs[:, 0]]
            column = torch.tensor([documents[key] for key in other_documents])[other_pairs[:, 1]]
            known = row >= 0
            place = (row * len(documents) + column)[known]
            best.view(-1).scatter_reduce_(0, place, values[known], "amax")
        first = torch.zeros(len(keys), dtype=torch.bool)
        first[list({key: i for i, key in reversed(list(enumerate(keys)))}.values())] = True
        grades = best[torch.tensor([queries[key] for key in query_keys])]
        grades = grades[:, torch.tensor([documents[key] for key in keys])]
        counted = self.direct.measure.relevant(grades).any(1)
        total = int(counted.sum())
        totals = gathered_objects(total) if self.gather_across_devices else [total]
        return _Judged(
            grades.clamp(min=0),
            first & counted[:, None],
            [len(other_documents) for _, other_documents, _, _ in judged],
            max(sum(totals), 1) / len(totals),
        )

    def get_config_dict(self) -> dict[str, Any]:
        """The settings of the loss, for the model card."""
        return {
            "measure": str(self.direct.measure),
            "strategy": self.direct.strategy,
            "temperature": self.temperature,
            "perturbation": self.direct.perturbation,
            "samples": self.direct.samples,
            "gradient_limit": self.gradient_limit,
            "similarity_fct": similarity_fct_name(self.similarity_fct),
            "mini_batch_size": self.mini_batch_size,
            "gather_across_devices": self.gather_across_devices,
            "validate": self.direct.validate,
        }

    @property
    def citation(self) -> str:
        """The citation of the paper, for the model card."""
        return CITATION


class _Judged(NamedTuple):
    """The judgements of a batch."""

    grades: Tensor
    """The grade of each document of all processes for each local query."""
    mask: Tensor
    """True for the documents of a list: each text once, none for a query that does not count."""
    counts: list[int]
    """The number of documents of each process."""
    divisor: float
    """The mean number of queries per process that have a relevant document."""


def _listed(queries: int, columns: list[int], labels: Tensor | None) -> Tensor:
    """The grades of all documents for each query; −1 for documents that are not in its list."""
    if labels is not None:
        labels = labels.detach().float().cpu()
        if not labels.isfinite().all():
            raise InputError("labels contain NaN or infinity; give one finite number per document.")
        if labels.ndim == 3 and len(columns) == 1 and labels.shape == (queries, columns[0], 1):
            return labels[:, :, 0]
    n = len(columns)
    if labels is None:
        labels = torch.zeros(queries, n)
        labels[:, 0] = 1
    labels = labels[:, None] if labels.ndim == 1 else labels
    if tuple(labels.shape) != (queries, n) or set(columns) != {queries}:
        raise InputError(
            f"labels have shape {tuple(labels.shape)} for {queries} queries and {n} columns of "
            f"documents; give one grade per column and row. For a column of lists of documents, "
            f"use data_collator=RetrievalCollator(model.preprocess)."
        )
    row = torch.arange(queries)
    listed = torch.full((queries, n, queries), UNLISTED)
    listed[row, :, row] = labels
    return listed.flatten(1)


def _numbers(keys: list[bytes]) -> dict[bytes, int]:
    """A number for each different key."""
    return {key: number for number, key in enumerate(dict.fromkeys(keys))}


def _keys(features: dict[str, Any]) -> list[bytes]:
    """A key for each row of a column, the same for equal texts; images and sounds all differ."""
    tokens, mask = features.get("input_ids"), features.get("attention_mask")
    ends = features.get("offsets", features.get("cu_seq_lens_q"))
    if features.get("modality", "text") != "text" or tokens is None:
        tensors = [
            x for x in (tokens, mask, *features.values()) if isinstance(x, Tensor) and x.ndim
        ]
        return [uuid4().bytes for _ in range(len(tensors[0]))]
    ids = tokens.cpu().numpy()
    if ends is not None:  # texts one after the other; `cu_seq_lens_q` also has the end of the last
        last = -1 if "cu_seq_lens_q" in features else None
        texts = np.split(ids.ravel(), ends.cpu().numpy()[1:last])
    else:
        kept = np.ones(ids.shape, bool) if mask is None else mask.cpu().numpy().astype(bool)
        texts = [row[keep] for row, keep in zip(ids, kept, strict=True)]
    return [blake2b(text.tobytes(), digest_size=16).digest() for text in texts]


def _check_finite(name: str, embeddings: Tensor) -> None:
    """Raise an error if an embedding is not finite."""
    invalid = int((~embeddings.isfinite().all(1)).sum())
    if invalid:
        raise InputError(
            f"The embeddings of {invalid} of {len(embeddings)} {name} contain NaN or infinity. Try "
            f"a lower learning rate, or check the weights of the model."
        )


@dataclass
class RetrievalCollator(SentenceTransformerDataCollator):  # type: ignore[misc]
    """Data collator for rows of a query, a list of documents and a list of labels.

    The default collator of `SentenceTransformerTrainer` takes one text per column. This one takes
    the data set of a cross-encoder: a column of queries, a column of lists of documents and a
    column of lists of labels, of any length. Each different document of a batch is encoded once.

    Parameters
    ----------
    preprocess_fn : callable
        `model.preprocess`.
    valid_label_columns : list of str, default ["label", "labels", "score", "scores"]
        The names that the column of labels may have.
    router_mapping, prompts, max_length : optional
        As the training arguments of these names. The trainer does not set them in a collator that
        you pass.

    Raises
    ------
    InputError
        When it is called, if the rows do not have these columns.

    Examples
    --------
    ```python
    SentenceTransformerTrainer(
        model=model, train_dataset=dataset, loss=DirectRetrievalLoss(model),
        data_collator=RetrievalCollator(model.preprocess),
    ).train()
    ```
    """

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch of a list of rows: tokens of queries and documents, and a matrix of grades."""
        if not features:
            return {}
        names = [name for name in features[0] if name != "dataset_name"]
        query, documents, label = list_columns(names, self.valid_label_columns, "RetrievalCollator")
        places: dict[Any, int] = {}
        for row in features:
            check_list(row[query], row[documents], row[label])
            for text in row[documents]:
                places.setdefault(text, len(places))
        if not places:
            raise InputError("No query of the batch has a document.")
        grades = torch.full((len(features), len(places)), UNLISTED)
        for i, row in enumerate(features):
            for text, grade in zip(row[documents], row[label], strict=True):
                grades[i, places[text]] = max(float(grades[i, places[text]]), float(grade))
        rows = [{query: row[query]} for row in features]
        batch: dict[str, Any] = super().__call__(rows)
        batch |= super().__call__([{documents: text} for text in places])
        if "dataset_name" in features[0]:
            batch["dataset_name"] = features[0]["dataset_name"]
        # Three dimensions: MatryoshkaLoss shortens a matrix as wide as the embeddings.
        return {"label": grades[:, :, None], **batch}
