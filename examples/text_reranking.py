"""Fine-tune a CrossEncoder to re-rank texts, with losses of TwinRank and sentence-transformers.

    pip install 'twinrank[text]'
    python examples/text_reranking.py                     # a tiny random model; no download
    python examples/text_reranking.py --model cross-encoder/ms-marco-MiniLM-L6-v2
    python examples/text_reranking.py --model MODEL --beir FOLDER --steps 100 --seeds 1

By default the data is generated. A query is a topic, and a document is a few words. The label of a
document (0 to 3) is the number of its words that belong to the topic. The model has to learn which
words do, because no word of a query occurs in a document. All losses use the same seeds, data,
batches, steps and learning rate.
"""

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

TOPICS = {
    "baking": "oven flour dough yeast crust loaf",
    "sailing": "mast wind harbour anchor deck keel",
    "music": "violin chord choir rhythm flute melody",
}
WORDS = {topic: words.split() for topic, words in TOPICS.items()}
STOP_WORDS = ["the", "a", "of", "and", "with"]
DOCUMENTS = 8  # per query
MEASURES = ("nDCG@10", "AP", "RR")


def generate_data(queries: int, seed: int) -> dict[str, list[Any]]:
    """Columns for the trainer: queries, lists of documents, lists of labels."""
    random = np.random.default_rng(seed)
    topics = [str(topic) for topic in random.choice(list(WORDS), queries)]
    labels = random.choice(4, (queries, DOCUMENTS), p=[0.5, 0.25, 0.15, 0.1]).tolist()
    documents = [
        [generate_document(topic, label, random) for label in row]
        for topic, row in zip(topics, labels, strict=True)
    ]
    return {"query": topics, "documents": documents, "labels": labels}


def read_data(folder: str, negatives: int = 5) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Training and test columns of data in BEIR's layout: BM25's candidates, few for training."""
    from twinrank.text import bm25_candidates, read_beir

    train, test = (read_beir(folder, part) for part in ("train", "test"))
    columns = train.columns(bm25_candidates(train, 50), negatives=negatives)
    return columns, test.columns(bm25_candidates(test, 50))


def generate_document(topic: str, label: int, random: np.random.Generator) -> str:
    """Five words, `label` of them about the topic, and three stop words, in random order."""
    others = [word for other in WORDS if other != topic for word in WORDS[other]]
    words = [
        *random.choice(WORDS[topic], label, replace=False),
        *random.choice(others, 5 - label, replace=False),
        *random.choice(STOP_WORDS, 3),
    ]
    return " ".join(random.permutation(words))


def tiny_model(folder: Path, seed: int) -> Any:
    """A CrossEncoder with two small layers, random weights, and the vocabulary above."""
    import torch
    from sentence_transformers import CrossEncoder
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = [*WORDS, *STOP_WORDS, *(word for words in WORDS.values() for word in words)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32, num_labels=1, initializer_range=0.1,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    return CrossEncoder(str(folder))


def fine_tune(model: Any, loss: Any, data: dict[str, list[Any]], options: Any, seed: int) -> None:
    """Train the model in place."""
    import torch
    from datasets import Dataset
    from sentence_transformers.cross_encoder import (
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
    )
    from transformers.trainer_callback import PrinterCallback

    with TemporaryDirectory() as folder:
        arguments = CrossEncoderTrainingArguments(
            folder, max_steps=options.steps, per_device_train_batch_size=8, seed=seed,
            learning_rate=options.learning_rate, warmup_steps=options.steps // 10,
            lr_scheduler_type="constant_with_warmup", logging_strategy="no", save_strategy="no",
            report_to="none", disable_tqdm=True, dataloader_pin_memory=torch.cuda.is_available(),
        )  # fmt: skip
        trainer = CrossEncoderTrainer(
            model=model, args=arguments, train_dataset=Dataset.from_dict(data), loss=loss
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def evaluate_model(model: Any, data: dict[str, list[Any]]) -> dict[str, Any]:
    """The values of each measure, one per query."""
    import torch

    import twinrank as tr

    pairs = [
        (query, text)
        for query, texts in zip(data["query"], data["documents"], strict=True)
        for text in texts
    ]
    # Use logits, because different logits can have equal sigmoids.
    scores = model.predict(
        pairs, batch_size=256, activation_fn=torch.nn.Identity(), show_progress_bar=False
    )
    lists = tr.Lists.from_sizes([len(texts) for texts in data["documents"]])
    labels = np.concatenate(data["labels"])
    return {name: tr.measure(name)(scores, labels, lists) for name in MEASURES}


def losses() -> dict[str, Callable[[Any], Any] | None]:
    """Functions that make a loss for a model, by name; None leaves the model untrained.

    The model scores all pairs of a batch at once, which is fastest for a small model.
    """
    from sentence_transformers.cross_encoder.losses import LambdaLoss, ListNetLoss

    from twinrank.text import DirectRankingLoss

    return {
        "not fine-tuned": None,
        "DirectRankingLoss nDCG@10": partial(DirectRankingLoss, mini_batch_size=-1),
        "nDCG@10 alone": partial(DirectRankingLoss, listnet_weight=0, mini_batch_size=-1),
        "nDCG@10 alone, type3": partial(
            DirectRankingLoss, strategy="type3", listnet_weight=0, mini_batch_size=-1
        ),
        "LambdaLoss": partial(LambdaLoss, mini_batch_size=-1),
        "ListNetLoss": partial(ListNetLoss, mini_batch_size=-1),
    }


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="name or folder of a model (default: a tiny one)")
    parser.add_argument("--beir", help="folder in BEIR's layout, instead of generated data")
    parser.add_argument("--queries", type=int, default=400, help="training queries (default 400)")
    parser.add_argument("--steps", type=int, default=160, help="training steps (default 160)")
    parser.add_argument("--seeds", type=int, default=2, help="training runs per loss (default 2)")
    parser.add_argument(
        "--learning-rate", type=float, help="default 2e-3 for the tiny model, else 2e-5"
    )
    parser.add_argument("--quick", action="store_true", help="a few steps, to check that it runs")
    options = parser.parse_args()
    if options.quick:
        options.queries, options.steps, options.seeds = 32, 4, 1
    if options.learning_rate is None:
        options.learning_rate = 2e-5 if options.model else 2e-3
    return options


def main() -> None:
    """Fine-tune with every loss and print a table."""
    options = arguments()
    if options.model is None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the libraries read it when they are imported
    from sentence_transformers import CrossEncoder
    from transformers.utils import logging

    import twinrank as tr

    logging.disable_progress_bar()
    if options.beir:
        train, test = read_data(options.beir)
    else:
        train = generate_data(options.queries, seed=1)
        test = generate_data(32 if options.quick else 200, seed=2)
    results: dict[str, dict[str, Any]] = {}
    for name, loss in losses().items():
        runs = []
        for seed in range(options.seeds):
            with TemporaryDirectory() as folder:
                if options.model:
                    model = CrossEncoder(options.model, num_labels=1)
                else:
                    model = tiny_model(Path(folder), seed)
                if loss is not None:
                    fine_tune(model, loss(model), train, options, seed)
                runs.append(evaluate_model(model, test))
        results[name] = {m: np.mean([run[m] for run in runs], axis=0) for m in MEASURES}
    print(f"{options.steps} steps of 8 queries; mean of {options.seeds} seed(s)\n")
    print(tr.compare(results, correction="holm"))


if __name__ == "__main__":
    main()
