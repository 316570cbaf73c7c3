"""Documents per second of a whole training, against the bare net, its matrix products, and peers.

At MSLR's shape: 136 features, lists of 120 documents on average, the longest about 1,000, batches
of 12,000 documents, the paper's CE4.L. Everything is measured in one run; figures are ratios.

--scale adds epochs over 10,000 to 2,200,000 documents from a memory-mapped folder, each in its own
process, whose memory is measured.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import twinrank as tr
from common import (
    Bar,
    Call,
    console,
    describe_environment,
    lognormal_sizes,
    milliseconds,
    parser,
    race,
    save,
    show_bars,
    show_table,
    times,
)
from training_peers import allrank_epoch, ptranking_epoch
from twinrank.core.losses.direct import DirectLoss
from twinrank.data.transforms import transform
from twinrank.learning.models.architecture import architecture
from twinrank.learning.models.fused import fused
from twinrank.learning.models.layers import DropoutLinear
from twinrank.learning.models.scorer import Scorer
from twinrank.learning.training.fit_arguments import TrainingSet
from twinrank.learning.training.learner import Task
from twinrank.learning.training.loop import Trainer
from twinrank.learning.training.net_learner import NetLearner
from twinrank.learning.training.net_settings import NetSettings
from twinrank.learning.training.process_group import ProcessGroup
from twinrank.learning.training.settings import Plan
from twinrank.support.memory import PeakMemory, keep_memory

FEATURES, BATCH, WIDTH, MEAN = 136, 12_000, 100, 120
SPINNING = {"GOMP_SPINCOUNT": "10000"}  # as the commands of twinrank set it
SIZES = (10_000, 100_000, 1_000_000, 2_200_000)


def make_data(documents: int, seed: int = 0, equal: bool = False) -> tr.Dataset:
    """Random features and labels for lists of MSLR's lengths, or all of its mean length."""
    random = np.random.default_rng(seed)
    count = max(2, documents // MEAN)
    sizes = np.maximum(lognormal_sizes(count, MEAN, 1_000, seed), 2)
    if equal:
        sizes = np.full(count, MEAN)
    X = random.standard_normal((sizes.sum(), FEATURES), np.float32)
    y = random.choice(5, size=len(X), p=(0.514, 0.325, 0.134, 0.019, 0.008))
    y[np.cumsum(sizes) - 1] = 1  # something relevant everywhere
    return tr.Dataset.from_arrays(X, y, group=sizes)


def trainer(data: tr.Dataset, batch_documents: int = BATCH) -> Trainer:
    """The trainer of `Ranker.fit`: nDCG through type3 on CE4.L, per-query z-scores."""
    task = Task(TrainingSet(data), {}, Plan(iterations=1), ProcessGroup())
    fitted = transform("QueryZScore").fit(data.X, data.lists)
    net, settings = (
        Scorer(FEATURES, architecture("CE4.L")),
        NetSettings(batch_documents=batch_documents),
    )
    return Trainer(NetLearner(net, DirectLoss("nDCG"), fitted, task, settings), task)


def run_epoch(trained: Trainer) -> None:
    """Train the first epoch once more."""
    trained.progress.iteration = 0
    trained._run_iteration()


def bare_step(net: nn.Module) -> Any:
    """Forward, backward and optimiser of the net alone."""
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)

    def step(X: torch.Tensor) -> None:
        optimiser.zero_grad()
        scores = net(X)
        scores.backward(torch.ones_like(scores))
        optimiser.step()

    return step


def products(documents: int) -> Call:
    """The matrix products of one step, without biases: forward, weights' and inputs' gradients."""
    X, H, D = (torch.randn(documents, n) for n in (FEATURES, WIDTH, WIDTH))
    first, hidden, last = torch.randn(FEATURES, WIDTH), torch.randn(WIDTH, WIDTH), torch.randn(1, 1)

    def run() -> None:
        X @ first
        X.t() @ D
        for _ in range(3):
            H @ hidden
            D @ hidden
            H.t() @ D
        H @ hidden[:, :1]
        D[:, :1] @ last

    return run


def layers_alone() -> dict[str, Call]:
    """Each kind of layer by itself, forward and backward, on one batch."""
    H, D = torch.randn(BATCH, WIDTH, requires_grad=True), torch.randn(BATCH, WIDTH)
    kinds = {
        "Linear": nn.Linear(WIDTH, WIDTH),
        "BatchNorm1d": nn.BatchNorm1d(WIDTH),
        "CELU": nn.CELU(),
        "Dropout(0.01) and Linear, ours": DropoutLinear(WIDTH, WIDTH, 0.01),
        "Dropout(0.01), torch's": nn.Dropout(0.01),
    }

    def of(layer: nn.Module) -> Call:
        def run() -> None:
            H.grad = None
            layer(H).backward(D)

        return run

    block = nn.Sequential(DropoutLinear(WIDTH, WIDTH, 0.0), nn.BatchNorm1d(WIDTH), nn.CELU(True))

    def in_fewer_passes() -> None:
        H.grad = None
        out = fused(H, [*block, nn.Linear(1, 1)], None, False)
        out.backward(D.clone())  # which is changed in place

    calls = {name: of(layer.train()) for name, layer in kinds.items()}
    calls["Linear, BatchNorm1d and CELU, torch's"] = of(block.train())
    calls["Linear, BatchNorm1d and CELU, ours"] = in_fewer_passes
    return calls


def whole_loop(data: tr.Dataset) -> dict[str, Any]:
    """The loop against the bare net and its matrix products."""
    batches = list(data.batches(BATCH, transform=transform("QueryZScore"), random_state=0))
    resident = [torch.from_numpy(batch.X) for batch in batches]
    step = bare_step(Scorer(FEATURES, architecture("CE4.L")).train())
    alone = [products(len(X)) for X in resident]
    ours = trainer(data)
    contestants: dict[str, Call] = {
        "whole loop": lambda: run_epoch(ours),
        "bare net": lambda: [step(X) for X in resident],
        "matrix products": lambda: [run() for run in alone],
    }
    timings = race(contestants, rounds=15, budget=60)
    seconds = {name: timing.median for name, timing in timings.items()}
    show_table(
        f"{data.documents:,} documents, {len(resident)} steps",
        ["", "a step", "documents a second"],
        [
            [name, milliseconds(s / len(resident)), f"{data.documents / s:,.0f}"]
            for name, s in seconds.items()
        ],
    )
    return seconds


OURS, SINGLE = "ours, 12,000 documents a step", "ours, one query a step"
ALLRANK, PTRANKING, PT_BATCHED = (
    "allRank (ApproxNDCG, 64 slates of 240)",
    "ptranking (ApproxNDCG, one query a step)",
    "ptranking's step on 100 lists of 120",
)


def epochs_of(name: str, documents: int) -> None:
    """A process of its own for a training loop: an epoch for every line that comes in."""
    data = make_data(documents, equal=name == PT_BATCHED)
    if name in (OURS, SINGLE):
        keep_memory()  # as `twinrank train` does
        ours = trainer(data, BATCH if name == OURS else 1)

        def epoch() -> None:
            run_epoch(ours)

        count = data.documents
    elif name == ALLRANK:
        epoch, count = allrank_epoch(data)
    else:
        epoch, count = ptranking_epoch(data, BATCH // MEAN if name == PT_BATCHED else 1)
    epoch()
    print(count, flush=True)
    for _ in sys.stdin:
        epoch()
        print(flush=True)


def peers(documents: int) -> dict[str, float]:
    """Documents a second of ours and of the others, each in a process as it ships.

    That is, ours with the environment that `twinrank train` sets, the others with none.
    """
    sizes = {OURS: documents, SINGLE: documents // 8, ALLRANK: documents // 8}
    sizes |= {PTRANKING: documents // 8, PT_BATCHED: documents // 2}
    running, counts = {}, {}
    for name, size in sizes.items():
        ours = SPINNING if name in (OURS, SINGLE) else {}
        running[name] = subprocess.Popen(
            [sys.executable, "-c", f"import training; training.epochs_of({name!r}, {size})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
            env={**{k: v for k, v in os.environ.items() if k not in SPINNING}, **ours},
        )
        counts[name] = int(_reply(running[name]))

    def epoch_of(process: Any) -> Call:
        def run() -> None:
            process.stdin.write("\n")
            process.stdin.flush()
            _reply(process)

        return run

    contestants = {name: epoch_of(process) for name, process in running.items()}
    timings = race(contestants, rounds=7, budget=120)
    for process in running.values():
        process.communicate()
    speed = {name: counts[name] / timing.median for name, timing in timings.items()}
    show_table(
        "Training loops, a net of 4 × 100",
        ["", "documents", "documents a second", "ours is faster"],
        [[n, f"{counts[n]:,}", f"{s:,.0f}", times(speed[OURS] / s)] for n, s in speed.items()],
    )
    return speed


def _reply(process: Any) -> str:
    """The next line that a process prints."""
    line: str = process.stdout.readline()
    if not line:
        raise SystemExit("a process of the training loops died")
    return line


def epoch_from_disk(folder: str, documents: int) -> None:
    """One epoch from a memory-mapped folder, in this process; prints time and memory."""
    keep_memory()
    data = tr.load(folder)
    trainer(data.select(np.arange(20))).run()  # loads compiled code
    queries = int(np.searchsorted(data.lists.offsets[1:], documents))
    with PeakMemory() as memory:
        selected = data.select(np.arange(queries))
        ours = trainer(selected)
        start = time.perf_counter()
        ours.run()
        seconds = time.perf_counter() - start
    print(selected.documents, seconds, memory.bytes)


def at_scale() -> list[tuple[int, float, float]]:
    """Epochs of growing size, each in its own process."""
    figures = []
    with tempfile.TemporaryDirectory() as place:
        folder = f"{place}/data"
        make_data(SIZES[-1]).save(folder)
        for documents in SIZES:
            code = f"import training; training.epoch_from_disk({folder!r}, {documents})"
            run = subprocess.run(
                [sys.executable, "-c", code],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                cwd=Path(__file__).parent,
            )
            count, seconds, peak = map(float, run.stdout.split()[-3:])
            figures.append((int(count), seconds, peak))
    show_table(
        "One epoch from a memory-mapped folder",
        ["documents", "seconds", "µs a document", "peak memory, pages of the file included"],
        [[f"{n:,}", f"{s:.2f}", f"{s / n * 1e6:.2f}", f"{m / 1e9:.2f} GB"] for n, s, m in figures],
        texts=0,
    )
    return figures


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--documents", type=int, default=240_000, help="of the data (240,000)")
    options.add_argument("--scale", action="store_true", help="also epochs up to 2.2 M documents")
    chosen = options.parse_args()
    if not SPINNING.keys() <= os.environ.keys():  # read when torch is loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **SPINNING})
    console.print(describe_environment())
    data = make_data(chosen.documents)

    before = whole_loop(data)
    keep_memory()
    console.print("The same with the memory kept, as `twinrank train` has it:")
    kept = whole_loop(data)
    parts = {name: t.median for name, t in race(layers_alone(), rounds=15).items()}
    show_table(
        "Layers, forward and backward on 12,000 × 100",
        ["", "time"],
        [[name, milliseconds(s)] for name, s in parts.items()],
    )
    speed = peers(chosen.documents)
    share, limit = kept["bare net"] / kept["whole loop"], kept["matrix products"]
    over_allrank, over_pt = speed[OURS] / speed[ALLRANK], speed[OURS] / speed[PTRANKING]
    bars = [
        Bar("the loop runs at 85 % of the bare net's speed", f"{share:.0%}", share >= 0.85),
        Bar("the bare net's share of matrix products", f"{limit / kept['bare net']:.0%}", None),
        Bar("3× allRank's loop", times(over_allrank), over_allrank >= 3),
        Bar("10× ptranking's loop as it ships", times(over_pt), over_pt >= 10),
        Bar("… both at one query a step", times(speed[SINGLE] / speed[PTRANKING]), None),
        Bar("… both at 12,000 documents a step", times(speed[OURS] / speed[PT_BATCHED]), None),
    ]
    figures: dict[str, Any] = {"before": before, "kept": kept, "layers": parts, "speed": speed}
    if chosen.scale:
        scales = at_scale()
        first, last = scales[1], scales[-1]
        growth = (last[1] / last[0]) / (first[1] / first[0])
        bars.append(Bar("time grows linearly", f"{growth:.2f} of linear", growth <= 1.25))
        peak = last[2] / 1e9
        bars.append(Bar("2.2 M documents within 3 GB", f"{peak:.2f} GB", peak <= 3))
        figures["scale"] = scales
    show_bars(bars)
    save(chosen.json, figures, bars)


if __name__ == "__main__":
    main()
