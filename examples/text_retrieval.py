"""Fine-tune a bi-encoder to search a corpus, with losses of TwinRank and sentence-transformers.

    pip install 'twinrank[text]'
    python examples/text_retrieval.py                     # a tiny random model; no download
    python examples/text_retrieval.py --model sentence-transformers/all-MiniLM-L6-v2

The data is generated. A query is two words, a document is four synonyms of such words, and the
grade of a document is the number of words of the query that it has a synonym of. The model has to
learn the synonyms, because no word of a query occurs in a document. All losses use the same
queries, steps and learning rate. DirectRetrievalLoss learns from lists of six graded documents;
MultipleNegativesRankingLoss takes the best document and one that is not relevant.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

SYNONYMS = {
    "car": "automobile", "doctor": "physician", "film": "movie", "shop": "store", "road": "street",
    "child": "kid", "boat": "ship", "sofa": "couch", "stone": "rock", "error": "mistake",
    "gift": "present", "story": "tale",
}  # fmt: skip
MEASURES = ("nDCG@10", "AP(rel=2)", "Recall@20")


def generate_data(queries: int, documents: int, seed: int) -> Any:
    """A collection of queries, documents and grades."""
    from twinrank.text import TextCollection

    random = np.random.default_rng(seed)
    words = list(SYNONYMS)
    topics = {f"d{i}": set(random.choice(words, 4, replace=False)) for i in range(documents)}
    corpus = {
        name: " ".join(SYNONYMS[word] for word in sorted(topic)) for name, topic in topics.items()
    }
    asked = {f"q{i}": set(random.choice(words, 2, replace=False)) for i in range(queries)}
    qrels = {
        query: {name: len(pair & topic) for name, topic in topics.items() if pair & topic}
        for query, pair in asked.items()
    }
    return TextCollection(
        {query: " ".join(sorted(pair)) for query, pair in asked.items()}, corpus, qrels
    )


def training_lists(data: Any, seed: int) -> dict[str, list[Any]]:
    """For each query two documents of each grade, the best ones first."""
    random = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {"query": [], "documents": [], "labels": []}
    for query, text in data.queries.items():
        by_grade: dict[int, list[str]] = {2: [], 1: [], 0: []}
        for name in random.permutation(list(data.corpus)):
            by_grade[data.qrels[query].get(str(name), 0)].append(data.corpus[str(name)])
        chosen = [(t, grade) for grade, texts in by_grade.items() for t in texts[:2]]
        columns["query"].append(text)
        columns["documents"].append([t for t, _ in chosen])
        columns["labels"].append([grade for _, grade in chosen])
    return columns


def tiny_model(folder: Path, seed: int) -> Any:
    """A bi-encoder with two small layers, random weights, and the vocabulary above."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *SYNONYMS, *SYNONYMS.values()]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32, initializer_range=0.1,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return SentenceTransformer(modules=[Transformer(str(folder)), Pooling(32)])


def fine_tune(model: Any, name: str, lists: dict[str, list[Any]], options: Any, seed: int) -> None:
    """Train the model in place."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers.trainer_callback import PrinterCallback

    from twinrank.text import DirectRetrievalLoss, RetrievalCollator

    if name == "DirectRetrievalLoss":
        loss, columns = DirectRetrievalLoss(model), lists
        collator = RetrievalCollator(model.preprocess)
    else:
        loss, collator = MultipleNegativesRankingLoss(model), None
        documents = lists["documents"]
        columns = {"query": lists["query"], "positive": [texts[0] for texts in documents],
                   "negative": [texts[-1] for texts in documents]}  # fmt: skip
    with TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder, max_steps=options.steps, per_device_train_batch_size=16, seed=seed,
            learning_rate=options.learning_rate, warmup_steps=options.steps // 10,
            logging_strategy="no", save_strategy="no", report_to="none", disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
        )  # fmt: skip
        trainer = SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict(columns),
            loss=loss,
            data_collator=collator,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="name or folder of a model (default: a tiny one)")
    parser.add_argument("--steps", type=int, default=150, help="training steps (default 150)")
    parser.add_argument("--seeds", type=int, default=2, help="training runs per loss (default 2)")
    parser.add_argument("--learning-rate", type=float, help="default 0.003, or 2e-5 with --model")
    parser.add_argument("--quick", action="store_true", help="a few steps, to check that it runs")
    options = parser.parse_args()
    if options.quick:
        options.steps, options.seeds = 3, 1
    options.learning_rate = options.learning_rate or (2e-5 if options.model else 3e-3)
    return options


def main() -> None:
    """Fine-tune with every loss and print a table."""
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    import twinrank as tr
    from twinrank.text import RetrievalEvaluator

    logging.disable_progress_bar()
    options = arguments()
    train, test = generate_data(200, 300, seed=1), generate_data(100, 300, seed=2)
    search = RetrievalEvaluator(test, MEASURES)
    results = {}
    for name in ("not fine-tuned", "DirectRetrievalLoss", "MultipleNegativesRankingLoss"):
        runs = []
        for seed in range(options.seeds):
            with TemporaryDirectory() as folder:
                model = (
                    SentenceTransformer(options.model)
                    if options.model
                    else tiny_model(Path(folder), seed)
                )
            if name != "not fine-tuned":
                fine_tune(model, name, training_lists(train, seed), options, seed)
            runs.append(tr.evaluate_run(search.run(model), test.qrels, MEASURES).values)
        results[name] = {m: np.mean([run[m] for run in runs], axis=0) for m in MEASURES}
    print(
        f"{len(test.queries)} test queries; {options.steps} steps; mean of {options.seeds} seed(s)"
    )
    print(tr.compare(results, correction="holm"))


if __name__ == "__main__":
    main()
