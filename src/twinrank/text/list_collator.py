"""`RetrievalCollator`: batches of queries with lists of documents, for bi-encoders."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from torch import Tensor

from twinrank.support.errors import InputError

__all__ = ["RetrievalCollator"]

UNLISTED = -1.0
"""The grade of a document that is not in the list of a query."""


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
        label = next((name for name in self.valid_label_columns if name in names), None)
        texts = [name for name in names if name != label]
        if label is None or len(texts) != 2:
            raise InputError(
                f"RetrievalCollator needs a column of queries, a column of lists of documents and "
                f"a column of lists of labels named {' or '.join(self.valid_label_columns)}; the "
                f"columns are {', '.join(names)}."
            )
        query, documents = texts
        places: dict[Any, int] = {}
        for row in features:
            _check_row(row[query], row[documents], row[label])
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


def _check_row(query: Any, documents: Any, labels: Any) -> None:
    """Raise an error unless a row has one finite label per document."""
    if isinstance(documents, str) or not isinstance(documents, Sequence):
        raise InputError(
            f"The query {query!r} has one document instead of a list of documents. Give a list, or "
            f"use the trainer's own collator for columns of single texts."
        )
    if not isinstance(labels, Sequence | Tensor) or len(labels) != len(documents):
        count = len(labels) if isinstance(labels, Sequence | Tensor) else "one label for all"
        raise InputError(
            f"The query {query!r} has {len(documents)} documents but {count} labels; give one "
            f"label per document."
        )
