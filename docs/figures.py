"""The figures of the documentation: `python docs/figures.py` draws them into docs/_static/figures.

The library computes all curves, except the times, which are read from benchmarks.md, the learning
curves of text models, which are read from text_curves.json, and variety, a table of goals.md.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import twinrank as tr
from twinrank.core.ranks.kernels import pair_sum
from twinrank.core.ranks.kernels.panels import nodes_for
from twinrank.support.plots import COLOURS, drawing

HERE = Path(__file__).parent
PLACE = HERE / "_static" / "figures"
BLUE, ORANGE, GREEN, RED, VIOLET, GREY = COLOURS
STRATEGIES = ("type1", "type2", "type3")

# One list for most figures, in rank order: the best document, label 2, has rank 4.
SCORES = torch.tensor([1.6, 1.0, 0.4, 0.0, -0.7, -1.3], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 0, 2, 1, 0])
BEST = 3
LIST = tr.Lists.from_sizes([len(SCORES)])
OF_LABEL = {0: GREY, 1: ORANGE, 2: GREEN}


def idea(path: Path) -> None:
    """The front page: exact and smooth rank, forces on documents, the measure in training."""
    with drawing(path, 1, 3, (10.5, 3.3)) as axes:
        rank, push, climb = axes[0]
        _ranks(rank)
        rank.set_title("1  Forward: exact ranks")
        _pushes(push, "type3")
        push.set_title("2  Backward: forces on scores")
        for label, name in ((2, "label 2"), (1, "label 1"), (0, "label 0")):
            push.plot([], [], "o", color=OF_LABEL[label], label=name)
        push.legend(loc="lower left")
        values = _descent(32)
        climb.step(range(len(values)), values, where="post", color=BLUE, lw=2)
        climb.set(xlabel="step of gradient descent", ylabel="nDCG", ylim=(0.5, 1.02))
        climb.set_title("3  The measure increases")


def _ranks(axis: Any) -> None:
    """The rank of one document as a function of its score."""
    others = SCORES[[0, 1, 3]]
    grid = torch.linspace(-3.5, 5, 400, dtype=torch.float64)
    below = (others[None] > grid[:, None]).sum(1)
    twin = torch.sigmoid(2.0 * (others[None] - grid[:, None])).sum(1)
    axis.plot(grid, 1 + twin, color=ORANGE, ls="--", label="smooth twin, for the slope")
    axis.step(grid, 1 + below, color=BLUE, lw=2, label="exact rank")
    axis.plot(others, [4.35] * 3, "|", color="#666666", ms=9)
    axis.annotate("other documents", (float(others[0]) + 0.3, 4.35), va="center", fontsize=8)
    axis.set(xlabel="score of a document", ylabel="rank", ylim=(4.6, 0.3), yticks=[1, 2, 3, 4])
    axis.legend(loc="upper left")


def _pushes(axis: Any, strategy: str, measure: str = "nDCG") -> None:
    """Documents in rank order, each with minus its gradient as an arrow."""
    scores = SCORES.clone().requires_grad_()
    tr.DirectLoss(measure, strategy=strategy)(scores, LABELS, LIST).backward()
    force = -scores.grad / scores.grad.abs().max() * 1.6
    for rank, (score, label, up) in enumerate(zip(SCORES, LABELS, force, strict=True), 1):
        colour = OF_LABEL[int(label)]
        axis.plot([rank], [score], "o", color=colour, ms=8)
        if abs(up) > 0.02:
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.6, "shrinkA": 4, "shrinkB": 0}
            axis.annotate("", (rank, score + up), (rank, score), arrowprops=arrow)
    axis.set(xlabel="rank", ylabel="score", xlim=(0.4, 6.6), ylim=(-3.2, 2.9))
    axis.set_xticks(range(1, 7))


def _descent(steps: int) -> list[float]:
    """Exact nDCG along plain gradient descent."""
    scores, values = SCORES.clone(), []
    for _ in range(steps):
        moving = scores.clone().requires_grad_()
        loss = tr.DirectLoss("nDCG", strategy="type3")(moving, LABELS, LIST)
        loss.backward()
        values.append(-loss.item())
        scores = scores - moving.grad
    return values


def twin_sigmoid(path: Path) -> None:
    """The step forward, and the three slopes backward."""
    z = torch.linspace(-6, 6, 301, dtype=torch.float64)
    with drawing(path, 1, 3, (10.5, 3.0)) as axes:
        value, higher, lower = axes[0]
        value.plot(z, tr.twin_sigmoid(z), color=BLUE, lw=2, label="forward: a step")
        value.plot(z, torch.sigmoid(z), color=ORANGE, ls="--", label="backward: σ, α = 1")
        value.plot(z, torch.sigmoid(3 * z), color=GREY, ls=":", label="σ, α = 3")
        value.set(title="Value", xlabel="z = score i − score j", ylim=(-0.05, 1.3))
        value.legend(loc="upper left")
        for axis, u, title in ((higher, 1.0, "Slope, label i > label j"),
                               (lower, -1.0, "Slope, label i < label j")):  # fmt: skip
            for strategy, colour in zip(STRATEGIES, (GREY, ORANGE, BLUE), strict=True):
                x = z.clone().requires_grad_()
                tr.twin_sigmoid(x, strategy=strategy, sign=u).sum().backward()
                axis.plot(z, x.grad, color=colour, label=strategy)
            axis.set(title=title, xlabel="z", ylim=(-2.1, 2.1))
            axis.legend(loc="lower left" if u > 0 else "upper left")


def pushes(path: Path) -> None:
    """The forces of the three strategies on one list."""
    with drawing(path, 1, 3, (10.5, 3.1)) as axes:
        for axis, strategy in zip(axes[0], STRATEGIES, strict=True):
            _pushes(axis, strategy)
            axis.set_title(strategy)


def credits(path: Path) -> None:
    """Credit and discount of three measures on the same list."""
    position = np.arange(1, 7)
    with drawing(path, 1, 3, (10.5, 2.8)) as axes:
        for axis, name in zip(axes[0], ("nDCG", "AP", "nERR"), strict=True):
            measure = tr.measure(name)
            credit = measure.credit(LABELS.numpy().astype(float), LIST)
            value = credit * measure.discount(position.astype(float))
            axis.bar(position - 0.2, credit, 0.4, color=BLUE, label="credit")
            axis.bar(position + 0.2, value, 0.4, color=ORANGE, label="credit × discount")
            axis.set(title=f"{name} = {value.sum():.3f}", xlabel="rank")
            axis.set_xticks(position)
        axes[0, 0].legend()


def perturbed(path: Path) -> None:
    """The mean nDCG by the score of one document, for three strengths of noise."""
    grid = np.linspace(-3, 4, 71)
    with drawing(path, 1, 2, (10.5, 3.0)) as axes:
        for tau, samples, colour in ((0.0, 1, GREY), (0.25, 1000, ORANGE), (1.0, 1000, BLUE)):
            curve = [_mean_ndcg(float(score), tau, samples) for score in grid]
            axes[0, 0].plot(grid, curve, color=colour, label=f"τ = {tau:g}")
        axes[0, 0].set(xlabel="score of the best document", ylabel="mean nDCG")
        axes[0, 0].legend()
        _gradients_by_tau(axes[0, 1])


def _mean_ndcg(score: float, tau: float, samples: int) -> float:
    scores = SCORES.numpy().copy()
    scores[BEST] = score
    generator = np.random.default_rng(0)
    ranks = tr.exact_ranks(scores, LIST, perturbation=tau, samples=samples, generator=generator)
    values, _, _ = tr.measure("nDCG").at_ranks(ranks, LABELS.numpy(), LIST.tile(samples))
    return float(values.mean())


def _gradients_by_tau(axis: Any) -> None:
    """∂L/∂rank of the same document: steps without noise, smooth with it."""
    grid = np.linspace(-3, 4, 71)
    for tau, samples, colour in ((0.0, 1, GREY), (1.0, 5, ORANGE), (1.0, 1000, BLUE)):
        slopes = []
        for score in grid:
            scores = SCORES.numpy().copy()
            scores[BEST] = score
            generator = np.random.default_rng(0)
            ranks = tr.exact_ranks(
                scores, LIST, perturbation=tau, samples=samples, generator=generator
            )
            _, slope, _ = tr.measure("nDCG").at_ranks(
                ranks, LABELS.numpy(), LIST.tile(samples), gradient=True
            )
            slopes.append(-slope.reshape(samples, -1).mean(0)[BEST])
        axis.plot(grid, slopes, color=colour, label=f"τ = {tau:g}, S = {samples}")
    axis.set(xlabel="score of the best document", ylabel="g = ∂L/∂rank")
    axis.legend()


def long_lists(path: Path) -> None:
    """Error by nodes, measured here; time by length, as in benchmarks.md."""
    with drawing(path, 1, 2, (10.5, 3.2)) as axes:
        error, time = axes[0]
        for strategy, colour in zip(STRATEGIES, (GREY, ORANGE, BLUE), strict=True):
            nodes, errors = zip(*_errors(strategy), strict=True)
            error.semilogy(nodes, errors, "o-", color=colour, ms=4, label=strategy)
        p = np.array(nodes)
        error.semilogy(p, 6.44 ** -(p - 2.0), ":", color="#444444", label="6.44^(2 − p)")
        error.set(
            title="Error relative to the largest gradient", xlabel="Chebyshev nodes per panel, p"
        )
        error.legend()
        for (name, sizes, seconds), colour in zip(_times(), (ORANGE, BLUE, GREY), strict=True):
            time.loglog(sizes, seconds, "o-", color=colour, ms=4, label=name)
        time.set(title="Time, type3 (benchmarks.md)", xlabel="documents in the list", ylabel="ms")
        time.legend()


def _errors(strategy: str) -> Iterator[tuple[int, float]]:
    """The error of the interpolated sum of 4,000 documents against the direct one, in float64."""
    generator = np.random.default_rng(0)
    scores = generator.normal(0, 2, 4000)
    labels = generator.choice(5, 4000, p=[0.514, 0.325, 0.134, 0.019, 0.008]).astype(float)
    lists = tr.Lists.from_sizes([4000])
    ranks = tr.exact_ranks(scores, lists)
    _, g, _ = tr.measure("nDCG").at_ranks(ranks, labels, lists, gradient=True)
    g = -g
    exact = pair_sum(scores, labels, g, lists, strategy=strategy, kernel="numba")
    for power in range(1, 14):
        kernel = f"long(accuracy=1e-{power})"
        sums = pair_sum(scores, labels, g, lists, strategy=strategy, kernel=kernel)
        yield nodes_for(10.0**-power), float(np.abs(sums - exact).max() / np.abs(exact).max())


def _times() -> list[tuple[str, list[int], list[float]]]:
    """Rows of the table under "Long lists" in benchmarks.md, in milliseconds."""
    text = (HERE / "benchmarks.md").read_text("utf-8")
    table = text[text.index("## Long lists") :].split("\n\n")[2].splitlines()
    sizes = [int(cell.replace(",", "")) for cell in _cells(table[0])[1:5]]
    rows = {"every pair": "every pair, type3", "interpolated": "interpolated, type3",
            "whole loss": "whole DirectLoss nDCG-type3"}  # fmt: skip
    curves = []
    for name, start in rows.items():
        cells = next(_cells(line) for line in table if line.startswith(f"| {start}"))
        known = [(m, c) for m, c in zip(sizes, cells[1:5], strict=True) if c.endswith("ms")]
        times = [float(re.sub(r"[^\d.]", "", cell)) for _, cell in known]
        curves.append((name, [m for m, _ in known], times))
    return curves


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def text_curves(path: Path) -> None:
    """Learning curves of cross-encoders: the results that benchmarks/text.py --curves writes."""
    found = json.loads((HERE / "text_curves.json").read_text("utf-8"))
    with drawing(path, 1, 1, (7.0, 3.6)) as axes:
        for i, (name, own) in enumerate(found["losses"].items()):
            ours = name.startswith("direct")
            colour = "black" if ours else COLOURS[i % len(COLOURS)]
            style = {"color": colour, "lw": 2.2 if ours else 1.2, "ms": 3}
            values, line = np.mean(own["dev"], axis=0), "o-" if ours else "o--"
            axes[0, 0].plot(own["steps"], values, line, label=name, **style)
        step = f"step of {found['setup']['batch']} questions"
        axes[0, 0].set(xlabel=step, ylabel=f"{found['measure']}, dev questions")
        axes[0, 0].legend(fontsize=7)


def variety(path: Path) -> None:
    """α-nDCG against nDCG of the rankers in the table under "Variety" in goals.md."""
    text = (HERE / "goals.md").read_text("utf-8")
    table = text[text.index("| ranker | trained on |") :].split("\n\n")[0].splitlines()[2:]
    rows = [_cells(line) for line in table]
    marks = dict(zip(dict.fromkeys(row[1] for row in rows), "osXDvP", strict=False))
    colours = dict(zip(dict.fromkeys(row[0] for row in rows), (BLUE, ORANGE, GREEN), strict=False))
    with drawing(path, 1, 1, (6.5, 3.6)) as axes:
        for ranker, trained, alpha, _, plain, *_ in rows:
            point = float(plain), float(alpha)
            axes[0, 0].plot(*point, marks[trained], color=colours[ranker], ms=7)
        for name, mark in marks.items():
            axes[0, 0].plot([], [], mark, color=GREY, label=name)
        for name, colour in colours.items():
            axes[0, 0].plot([], [], "-", color=colour, lw=4, label=name)
        axes[0, 0].set(xlabel="nDCG@10 of relevant documents", ylabel="α-nDCG@10 of sub-topics")
        axes[0, 0].legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))


FIGURES: tuple[Callable[[Path], None], ...] = (
    idea, twin_sigmoid, pushes, credits, perturbed, long_lists, text_curves, variety,
)  # fmt: skip


def draw_all(folder: Path) -> list[Path]:
    """Draw every figure into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{figure.__name__}.svg" for figure in FIGURES]
    for figure, path in zip(FIGURES, paths, strict=True):
        figure(path)
    return paths


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]) if len(sys.argv) > 1 else PLACE)
