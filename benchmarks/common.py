"""What the benchmarks share: batches of lists, timing, tables, bars."""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console, JustifyMethod
from rich.table import Table
from torch import Tensor

import twinrank as tr
from twinrank.core.ranks.kernels import pair_sum

# How often MSLR-WEB30K gives each of its grades 0 … 4.
MSLR_SHARES = (0.514, 0.325, 0.134, 0.019, 0.008)

STRATEGIES = ("type1", "type2", "type3")

# The kernels of the pair sum, as the tables name them.
DIRECT, LONG = "direct", "long"
KERNELS = {DIRECT: "numba", LONG: "long"}

# A table written to a file should not be squeezed into the 80 columns of an unknown terminal.
console = Console(width=None if sys.stdout.isatty() else 110)


@dataclass(frozen=True)
class Batch:
    """Ragged lists with random scores and labels, flat and padded."""

    name: str
    sizes: list[int]
    scores: Tensor
    labels: Tensor
    lists: tr.Lists
    mask: Tensor

    @property
    def documents(self) -> int:
        """The number of rows."""
        return sum(self.sizes)

    @property
    def ordered_pairs(self) -> int:
        """The number of pairs of different documents of one list, (a, j) and (j, a) counted."""
        return sum(size * (size - 1) for size in self.sizes)

    def padded(self, flat: Tensor, padding: float) -> Tensor:
        """Lay flat values out as [lists, longest]."""
        rectangle = torch.full(self.mask.shape, padding, dtype=flat.dtype)
        rectangle[self.mask] = flat.detach()
        return rectangle

    def describe(self) -> str:
        """Say in one line what the batch is."""
        return (
            f"{self.name}: {len(self.sizes)} lists, {self.documents:,} documents, "
            f"longest {max(self.sizes):,}, {self.ordered_pairs:,} ordered pairs"
        )


def make_batch(
    name: str, sizes: Sequence[int], seed: int, dtype: torch.dtype = torch.float32
) -> Batch:
    """Draw standard normal scores, and labels with MSLR's shares, for lists of the given sizes."""
    random = np.random.default_rng(seed)
    documents = sum(sizes)
    scores = torch.from_numpy(random.standard_normal(documents)).to(dtype).requires_grad_()
    labels = torch.from_numpy(random.choice(5, size=documents, p=MSLR_SHARES)).to(dtype)
    mask = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    return Batch(name, list(sizes), scores, labels, tr.Lists.from_sizes(sizes), mask)


def lognormal_sizes(count: int, mean: float, longest: int, seed: int) -> list[int]:
    """Draw lognormal list sizes, their spread chosen so that mean and longest come out as asked."""
    normal = np.random.default_rng(seed).standard_normal(count)
    low, high = 0.0, 10.0
    for _ in range(60):  # longest / mean grows with the spread: halve the interval
        spread = (low + high) / 2
        shape = np.exp(spread * (normal - normal.max()))  # the longest is 1
        low, high = (spread, high) if 1 / shape.mean() < longest / mean else (low, spread)
    return [max(1, round(longest * float(size))) for size in shape]


def rank_gradient(batch: Batch) -> Tensor:
    """∂L/∂rank of minus DCG: what a pair sum is really given, zero where a label is zero."""
    ranks = tr.exact_ranks(batch.scores.detach(), batch.lists).to(batch.scores.dtype)
    ranks.requires_grad_()
    dcg = ((2**batch.labels - 1) / torch.log2(1 + ranks)).sum()
    return -torch.autograd.grad(dcg, ranks)[0]


def backward_of(scores: Tensor, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """One forward and backward pass, the old gradient dropped rather than added to."""

    def run() -> None:
        scores.grad = None
        loss().backward()

    return run


def direct_loss(
    batch: Batch,
    measure: str,
    strategy: str = "type3",
    perturbation: float = 0.0,
    samples: int = 1,
) -> Callable[[], None]:
    """DirectLoss forward and backward on a batch, ranks included."""
    loss = tr.DirectLoss(measure, strategy=strategy, perturbation=perturbation, samples=samples)
    return backward_of(batch.scores, lambda: loss(batch.scores, batch.labels, batch.lists))


def pair_call(batch: Batch, kernel: str, strategy: str) -> Callable[[], Tensor]:
    """One pair sum alone, on what the backward pass of a loss would give it."""
    scores, gradient = batch.scores.detach(), rank_gradient(batch)

    def call() -> Tensor:
        return pair_sum(
            scores,
            batch.labels,
            gradient,
            batch.lists,
            strategy=strategy,
            alpha=1.0,
            kernel=KERNELS[kernel],
        )

    return call


@dataclass
class Timing:
    """Seconds of every timed call of one contestant."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median call, in seconds."""
        return statistics.median(self.seconds)

    def summary(self) -> dict[str, float]:
        """Give the median, the fastest and the slowest call, and how many calls there were."""
        return {
            "median_seconds": self.median,
            "fastest_seconds": min(self.seconds),
            "slowest_seconds": max(self.seconds),
            "calls": len(self.seconds),
        }


Call = Callable[[], object]
Timings = dict[str, Timing]


def clock(call: Call) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def race(
    contestants: Mapping[str, Call],
    rounds: int = 9,
    turn: float = 0.05,
    budget: float = 8.0,
    at_least: int = 1,
) -> Timings:
    """Time contestants in turns, so that a machine that slows down slows all of them alike.

    A turn lasts `turn` seconds or one call, whichever is longer. A contestant leaves the race once
    it has spent `budget` seconds on at least `at_least` timed calls. The first call is a warm-up,
    unless it alone exceeds the budget: then nobody would wait for it twice, and it counts. (Compile
    loops beforehand, on something small.)
    """
    timings = {name: Timing() for name in contestants}
    for name, call in contestants.items():
        first = clock(call)
        if first > budget:
            timings[name].seconds.append(first)
    for _ in range(rounds):
        for name, call in contestants.items():
            seconds = timings[name].seconds
            if sum(seconds) > budget and len(seconds) >= at_least:
                continue
            end = time.perf_counter() + turn
            seconds.append(clock(call))
            while time.perf_counter() < end:
                seconds.append(clock(call))
    return timings


@dataclass(frozen=True)
class Bar:
    """A figure that was promised, and what was measured."""

    claim: str
    measured: str
    passed: bool | None  # None: nothing was promised, or it could not be measured


def show_bars(bars: Sequence[Bar]) -> None:
    """Print what was promised beside what was measured."""
    words = {True: "[green]pass[/]", False: "[red]miss[/]", None: ""}
    show_table(
        "Bars",
        ["bar", "measured", ""],
        [[bar.claim, bar.measured, words[bar.passed]] for bar in bars],
        texts=2,
    )


def show_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1
) -> None:
    """Print a table whose first `texts` columns are words and the others figures."""
    table = Table(title=title, title_justify="left", title_style="bold")
    longest = max((len(row[0]) for row in rows), default=0)
    for index, column in enumerate(columns):
        justify: JustifyMethod = "left" if index < texts else "right"
        least = min(longest, 30) if index == 0 else None  # longer names wrap, and figures do not
        table.add_column(column, justify=justify, no_wrap=index >= texts, min_width=least)
    for row in rows:
        table.add_row(*row)
    unlimited = console.options.update(max_width=1000)
    needed = console.measure(table, options=unlimited).minimum  # figures are never cut off
    Console(width=max(console.width, needed)).print(table)


def milliseconds(seconds: float) -> str:
    """Write seconds as milliseconds."""
    value = 1000 * seconds
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def times(ratio: float) -> str:
    """Write a ratio such as 12.3×."""
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.3g}×"


def environment() -> dict[str, Any]:
    """Collect what the figures depend on and the reader can't see."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("twinrank", "torch", "numba", "numpy")},
        "threads": torch.get_num_threads(),
    }


def describe_environment() -> str:
    """Say in one line what the figures depend on."""
    return ", ".join(f"{name} {value}" for name, value in environment().items())


def parser(description: str | None) -> argparse.ArgumentParser:
    """Build the options that every benchmark has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--json", type=Path, metavar="FILE", help="write all figures here too")
    return options


def save(path: Path | None, figures: Mapping[str, Any], bars: Sequence[Bar] = ()) -> None:
    """Write the figures as JSON, where asked for."""
    if path is not None:
        report = {
            "environment": environment(),
            **figures,
            "bars": [asdict(bar) for bar in bars],
        }
        path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
