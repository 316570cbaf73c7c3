"""`Evaluator` and `RetrievalEvaluator`: our measures in the trainers of sentence-transformers."""

import csv
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers.base.data_collator import DEFAULT_LABEL_COLUMNS
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import nn

from twinrank.core.measures import Measure
from twinrank.evaluation.conventions import convention_of
from twinrank.evaluation.run_evaluation import evaluate_run, parse_measures
from twinrank.evaluation.trec_files import Scores, write_qrels, write_run
from twinrank.support.errors import InputError, check_number
from twinrank.text.text_data import TextCollection, check_list, list_columns

_log = logging.getLogger(__name__)
_QUERIES = 64  # scored against all documents at a time


class _RunEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Evaluation of the run of a model against judgements."""

    def __init__(
        self,
        qrels: Mapping[str, Mapping[str, float]],
        measures: Sequence[str | Measure],
        name: str,
        convention: str,
        batch_size: int,
        write_files: bool,
    ) -> None:
        super().__init__()
        if isinstance(measures, str | Measure):
            measures = [measures]
        parsed = parse_measures(measures, convention_of(convention, None, None), 1).measures
        self.requested, self.measures = list(measures), parsed
        self.qrels, self.name = qrels, name
        self.convention, self.batch_size, self.write_files = convention, batch_size, write_files
        self.primary_metric = f"{name}_{next(iter(parsed))}" if name else next(iter(parsed))
        self.file_name = f"twinrank_{name}" if name else "twinrank"
        if not any(grade > 0 for grades in qrels.values() for grade in grades.values()):
            raise InputError("No query has a relevant document, so there is nothing to evaluate.")

    @abstractmethod
    def run(self, model: Any) -> Scores:
        """The scores of the documents of each query."""

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Evaluate a model.

        Parameters
        ----------
        model : CrossEncoder or SentenceTransformer
            The model.
        output_path : str, optional
            A folder. It gets a line of `twinrank_NAME_results.csv` for each evaluation, and the
            run and the judgements as TREC files, `twinrank_NAME.run` and `twinrank_NAME.qrels`.
        epoch, steps : int, default -1
            The place in the training, for the CSV file.

        Returns
        -------
        dict of str to float
            The mean of each measure, as `NAME_MEASURE`, or as `MEASURE` if the evaluator has no
            name.
        """
        scores = self.run(model)
        result = evaluate_run(scores, self.qrels, self.requested, convention=self.convention)
        by_name = {name: float(result.means[name]) for name in self.measures}
        _log.info("%s: %s", self.file_name, by_name)
        if output_path is not None and self.write_files:
            self._write(Path(output_path), scores, by_name, epoch, steps)
        metrics: dict[str, float] = self.prefix_name_to_metrics(by_name, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics

    def _write(
        self, folder: Path, scores: Scores, means: dict[str, float], epoch: float, steps: int
    ) -> None:
        """Append to the CSV file; replace the run and the judgements."""
        folder.mkdir(parents=True, exist_ok=True)
        table = folder / f"{self.file_name}_results.csv"
        is_new = not table.exists()
        with table.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(["epoch", "steps", *means])
            writer.writerow([epoch, steps, *means.values()])
        write_run(folder / f"{self.file_name}.run", scores, self.file_name)
        grades = {
            query: {document: int(grade) for document, grade in by_document.items()}
            for query, by_document in self.qrels.items()
        }
        if grades == self.qrels:  # the format has whole numbers only
            write_qrels(folder / f"{self.file_name}.qrels", grades)

    @property
    def description(self) -> str:
        """The title in the model card."""
        return "TwinRank"

    def get_config_dict(self) -> dict[str, Any]:
        """The settings of the evaluator, for the model card."""
        return {"measures": [str(m) for m in self.measures.values()], "convention": self.convention}


class Evaluator(_RunEvaluator):
    """Our measures of the ranking of given lists, for either trainer of sentence-transformers.

    A CrossEncoder scores each pair of a query and a document. A SentenceTransformer ranks the
    documents by its similarity. Queries without a relevant document are left out of the means.

    Parameters
    ----------
    data : mapping or datasets.Dataset
        A column of queries, a column of lists of documents and a column of lists of labels, as for
        `DirectRankingLoss`; for example the result of `TextCollection.columns`.
    measures : sequence of str or Measure, default ("nDCG@10", "AP", "RR")
        What to report. The first one is the primary metric.
    name : str, default ""
        The beginning of the names of metrics and files. With name "dev", the trainer knows nDCG@10
        as `metric_for_best_model="eval_dev_nDCG@10"`.
    convention : {"twinrank", "trec", "letor", "lightgbm", "paper"}, default "twinrank"
        The rules of the measures, as in `evaluate`.
    batch_size : int, default 32
        The number of texts or pairs per forward pass.
    write_files : bool, default True
        Write a CSV file, the run and the judgements.

    Raises
    ------
    InputError
        If the columns do not have this form, no document is relevant, or a measure is unknown.

    Examples
    --------
    ```python
    evaluator = Evaluator(dev, ["nDCG@10", "AP"], name="dev")
    CrossEncoderTrainer(model=model, train_dataset=train, loss=loss, evaluator=evaluator).train()
    ```
    """

    def __init__(
        self,
        data: Any,
        measures: Sequence[str | Measure] = ("nDCG@10", "AP", "RR"),
        *,
        name: str = "",
        convention: str = "twinrank",
        batch_size: int = 32,
        write_files: bool = True,
    ) -> None:
        self.queries, self.documents, labels = _lists(data)
        qrels = {
            str(i): {str(j): float(grade) for j, grade in enumerate(grades, 1)}
            for i, grades in enumerate(labels, 1)
        }
        super().__init__(qrels, measures, name, convention, batch_size, write_files)

    def run(self, model: Any) -> Scores:
        """The scores of the lists; queries and documents are numbered from 1.

        Parameters
        ----------
        model : CrossEncoder or SentenceTransformer
            The model.

        Returns
        -------
        dict of str to dict of str to float
            Scores by query and document.
        """
        score = self._pair_scores if hasattr(model, "predict") else self._similarities
        return {
            str(i): {str(j): float(x) for j, x in enumerate(row, 1)}
            for i, row in enumerate(score(model), 1)
        }

    def _pair_scores(self, model: Any) -> list[Any]:
        """The logits of a CrossEncoder; a sigmoid would make high ones equal."""
        if getattr(model, "num_labels", 1) != 1:
            raise InputError(
                f"Evaluator needs a CrossEncoder with one output, not one with {model.num_labels}."
            )
        by_query = zip(self.queries, self.documents, strict=True)
        flat = model.predict(
            [(query, text) for query, texts in by_query for text in texts],
            batch_size=self.batch_size,
            activation_fn=nn.Identity(),
            show_progress_bar=False,
        )
        ends = np.cumsum([len(texts) for texts in self.documents])[:-1]
        return np.split(np.asarray(flat).reshape(-1), ends)

    def _similarities(self, model: Any) -> list[Any]:
        """The similarities of a SentenceTransformer; each different text is encoded once."""
        places = {text: i for i, text in enumerate(dict.fromkeys(chain(*self.documents)))}
        options = {"batch_size": self.batch_size, "convert_to_tensor": True}
        queries = model.encode_query(self.queries, show_progress_bar=False, **options)
        documents = model.encode_document(list(places), show_progress_bar=False, **options)
        return [
            model.similarity(query[None], documents[[places[text] for text in texts]])[0].cpu()
            for query, texts in zip(queries, self.documents, strict=True)
        ]


class RetrievalEvaluator(_RunEvaluator):
    """Our measures of a search of a whole corpus, for `SentenceTransformerTrainer`.

    Each query retrieves the documents with the highest similarity. Relevant documents that are not
    retrieved lower the values. Queries without a relevant document are left out.

    Parameters
    ----------
    collection : TextCollection
        Queries, documents and judgements.
    measures : sequence of str or Measure, default ("nDCG@10", "Recall@100")
        What to report. The first one is the primary metric.
    name : str, default ""
        The beginning of the names of metrics and files. With name "dev", the trainer knows nDCG@10
        as `metric_for_best_model="eval_dev_nDCG@10"`.
    top : int, default 100
        The number of documents that a query retrieves.
    convention : {"twinrank", "trec", "letor", "lightgbm", "paper"}, default "twinrank"
        The rules of the measures, as in `evaluate_run`.
    truncate_dim : int, optional
        Use only the first dimensions of the embeddings.
    batch_size : int, default 32
        The number of texts per forward pass.
    write_files : bool, default True
        Write a CSV file, the run and the judgements.

    Raises
    ------
    InputError
        If no document is relevant, a measure is unknown, or its cutoff is above `top`.

    Examples
    --------
    ```python
    evaluator = RetrievalEvaluator(read_beir("scifact"), ["nDCG@10", "Recall@100"], name="scifact")
    print(evaluator(model))
    ```
    """

    def __init__(
        self,
        collection: TextCollection,
        measures: Sequence[str | Measure] = ("nDCG@10", "Recall@100"),
        *,
        name: str = "",
        top: int = 100,
        convention: str = "twinrank",
        truncate_dim: int | None = None,
        batch_size: int = 32,
        write_files: bool = True,
    ) -> None:
        check_number("top", top, whole=True)
        qrels = {q: dict(g) for q, g in collection.qrels.items() if any(x > 0 for x in g.values())}
        super().__init__(qrels, measures, name, convention, batch_size, write_files)
        for notation, measure in self.measures.items():
            if measure.cutoff is not None and measure.cutoff > top:
                raise InputError(f"{notation} needs top={measure.cutoff} or more, not {top}.")
        self.collection, self.top, self.truncate_dim = collection, top, truncate_dim

    def run(self, model: Any) -> Scores:
        """The documents that each query retrieves, with their similarities.

        Parameters
        ----------
        model : SentenceTransformer
            The model.

        Returns
        -------
        dict of str to dict of str to float
            Scores by query and document.
        """
        if not hasattr(model, "encode_query"):
            raise InputError(
                f"RetrievalEvaluator needs a SentenceTransformer, not a {type(model).__name__}. "
                f"For a CrossEncoder, use Evaluator with lists of candidates."
            )
        names = list(self.collection.corpus)
        options = {
            "batch_size": self.batch_size,
            "convert_to_tensor": True,
            "show_progress_bar": False,
            "truncate_dim": self.truncate_dim,
        }
        texts = [self.collection.queries[query] for query in self.qrels]
        queries = model.encode_query(texts, **options)
        documents = model.encode_document(list(self.collection.corpus.values()), **options)
        found: Scores = {}
        ids, top = list(self.qrels), min(self.top, len(names))
        for start in range(0, len(ids), _QUERIES):  # each call normalises all documents
            part = slice(start, start + _QUERIES)
            best = model.similarity(queries[part], documents).topk(top)
            rows = zip(ids[part], best.indices.tolist(), best.values.tolist(), strict=True)
            for query, places, scores in rows:
                found[query] = {names[i]: score for i, score in zip(places, scores, strict=True)}
        return found

    def get_config_dict(self) -> dict[str, Any]:
        """The settings of the evaluator, for the model card."""
        return {**super().get_config_dict(), "top": self.top, "truncate_dim": self.truncate_dim}


def _lists(data: Any) -> tuple[list[Any], list[list[Any]], list[list[float]]]:
    """The queries, lists of documents and lists of labels; an error says which row is wrong."""
    names = [str(name) for name in getattr(data, "column_names", data)]
    queries, documents, labels = (
        list(data[name]) for name in list_columns(names, DEFAULT_LABEL_COLUMNS, "Evaluator")
    )
    if not len(queries) == len(documents) == len(labels):
        raise InputError(
            f"There are {len(queries)} queries, {len(documents)} lists of documents and "
            f"{len(labels)} lists of labels; give one of each per query."
        )
    for query, texts, grades in zip(queries, documents, labels, strict=True):
        check_list(query, texts, grades)
        if not texts:
            raise InputError(f"The query {query!r} has no documents; leave it out.")
    return queries, [list(texts) for texts in documents], labels
