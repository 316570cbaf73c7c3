"""How long losses take on a GPU, alone and in a training step, beside those of other libraries.

    python benchmarks/gpu.py                                  # on a CUDA device
    TRITON_INTERPRET=1 python benchmarks/gpu.py --toy         # anywhere: shows only that it runs

Ours are ragged, the others padded: allRank's losses, the paper's equations in padded PyTorch
compiled by torch.compile, LambdaLoss of sentence-transformers, and rax compiled by XLA. Peers that
are not installed are left out (`bash benchmarks/install`; rax needs a jax for GPUs to be a fair
peer). Every call ends with a synchronisation. The first calls, which compile, are not timed. The
last line is for the table in docs/benchmarks.md.
"""

import argparse
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import twinrank as tr
from common import (
    Batch,
    Call,
    Timings,
    backward_of,
    console,
    lognormal_sizes,
    make_batch,
    milliseconds,
    parser,
    race,
    save,
    show_table,
    times,
)
from peers import ALLRANK_PADDING, CE4L, allrank_losses, padded_direct_ndcg

OURS = "DirectLoss nDCG-type3"
PEERS = ("allrank", "padded", "sentence-transformers", "rax")
STEP = "CE4.L step, no loss"

Calls = dict[str, Call]


def sizes_of(toy: bool) -> dict[str, list[int]]:
    """The lists of each batch."""
    if toy:
        return {"toy": [3, 2]}
    return {
        "web search": lognormal_sizes(100, mean=125, longest=300, seed=0),
        "one long list": lognormal_sizes(100, mean=125, longest=1000, seed=0),
        "cross-encoder": [32] * 64,
        "many short lists": [10] * 4096,
    }


def moved(batch: Batch, device: torch.device) -> Batch:
    """The batch on the device, its lists included."""
    scores = batch.scores.detach().to(device).requires_grad_()
    return Batch(
        batch.name,
        batch.sizes,
        scores,
        batch.labels.to(device),
        batch.lists.to(device),
        batch.mask.to(device),
    )


def padded(batch: Batch, flat: Tensor, padding: float) -> Tensor:
    """Flat values as [lists, longest]."""
    rectangle = torch.full(batch.mask.shape, padding, dtype=flat.dtype, device=flat.device)
    rectangle[batch.mask] = flat.detach()
    return rectangle


def our_losses(kernel: str) -> dict[str, Any]:
    """Our losses; `kernel` is that of the device, or Triton's by its interpreter."""

    def direct(**options: Any) -> tr.DirectLoss:
        return tr.DirectLoss("nDCG", validate=False, **{"kernel": kernel, **options})

    return {
        OURS: direct(),
        f"{OURS}, S = 5": direct(perturbation=1.0, samples=5),
        "DirectLoss nDCG-swap": direct(strategy="swap"),
        f"{OURS}, kernel torch": direct(kernel="torch"),
        "LambdaRank": tr.LambdaRank(validate=False),
        "ApproxNDCG": tr.ApproxNDCG(validate=False),
    }


def our_calls(batch: Batch, kernel: str) -> Calls:
    """Forward and backward of our losses, ranks included."""

    def call(loss: Any) -> Call:
        return backward_of(batch.scores, lambda: loss(batch.scores, batch.labels, batch.lists))

    return {name: call(loss) for name, loss in our_losses(kernel).items()}


def peer_calls(batch: Batch, wanted: Sequence[str], toy: bool) -> Calls:
    """Forward and backward of the peers that are installed, on rectangles made beforehand."""
    scores = padded(batch, batch.scores, 0.0).requires_grad_()
    labels = padded(batch, batch.labels, ALLRANK_PADDING)
    losses: dict[str, Callable[[], Tensor]] = {}
    if "allrank" in wanted and find_spec("allrank"):
        approx, lambda_loss = allrank_losses()
        losses["allRank approxNDCG"] = lambda: approx(scores, labels)
        scheme = {"weighing_scheme": "ndcgLoss2PP_scheme"}
        losses["allRank lambdaLoss"] = lambda: lambda_loss(scores, labels, **scheme)
    if "padded" in wanted:
        compiled = torch.compile(padded_direct_ndcg, backend="eager" if toy else "inductor")
        losses["padded nDCG-type3, torch.compile"] = lambda: compiled(scores, labels, batch.mask)
    calls: Calls = {name: backward_of(scores, loss) for name, loss in losses.items()}
    if "sentence-transformers" in wanted and find_spec("sentence_transformers"):
        calls["sentence-transformers LambdaLoss"] = sentence_transformers_call(batch)
    if "rax" in wanted and find_spec("rax") and find_spec("jax"):
        calls |= rax_calls(batch)
    return calls


def sentence_transformers_call(batch: Batch) -> Call:
    """LambdaLoss of sentence-transformers on scores; a stand-in for the model returns them."""
    from sentence_transformers.cross_encoder.losses import LambdaLoss, NDCGLoss2PPScheme

    class Scores(torch.nn.Module):
        num_labels, device = 1, batch.scores.device

        def preprocess(self, pairs: list[Any], **_: Any) -> dict[str, Any]:
            return {"pairs": pairs}

        def forward(self, tokens: dict[str, Any]) -> dict[str, Tensor]:  # noqa: ARG002
            return {"scores": batch.scores}

    loss = LambdaLoss(Scores(), NDCGLoss2PPScheme(), mini_batch_size=-1)
    texts = [["query"] * len(batch.sizes), [["document"] * size for size in batch.sizes]]
    labels = list(batch.labels.split(batch.sizes))
    return backward_of(batch.scores, lambda: loss(texts, labels))


def rax_calls(batch: Batch) -> Calls:
    """The losses of rax with their gradients, compiled; jax uses its own default device."""
    import jax
    import jax.numpy as jnp
    import rax

    scores, labels, mask = (
        jnp.asarray(x.cpu().numpy())
        for x in (padded(batch, batch.scores, 0.0), padded(batch, batch.labels, 0.0), batch.mask)
    )

    def call(loss: Any, **options: Any) -> Call:
        def value(s: Any) -> Any:
            return loss(s, labels, where=mask, **options)

        run = jax.jit(jax.value_and_grad(value))
        return lambda: jax.block_until_ready(run(scores))

    lambdas = {"lambdaweight_fn": rax.dcg_lambdaweight}
    return {
        "rax approx_ndcg": call(rax.approx_t12n(rax.ndcg_metric)),
        "rax pairwise_logistic, DCG weights": call(rax.pairwise_logistic_loss, **lambdas),
    }


def step_calls(batch: Batch, kernel: str) -> Calls:
    """A training step of CE4.L on as many documents, with a given gradient and with our loss."""
    torch.manual_seed(0)
    device = batch.scores.device
    scorer = CE4L().to(device)
    documents = torch.randn(batch.documents, 136, device=device)
    gradient = torch.randn(batch.documents, device=device) / batch.documents
    optimiser = torch.optim.Adam(scorer.parameters(), lr=1e-3)
    losses = our_losses(kernel)

    def step(backward: Callable[[Tensor], object]) -> Call:
        def run() -> None:
            optimiser.zero_grad()
            backward(scorer(documents))
            optimiser.step()

        return run

    calls = {STEP: step(lambda scores: scores.backward(gradient))}
    for name in (OURS, "DirectLoss nDCG-swap"):
        loss = losses[name]
        calls[f"CE4.L step with {name}"] = step(
            lambda scores, loss=loss: loss(scores, batch.labels, batch.lists).backward()
        )
    return calls


def synchronised(calls: Calls, device: torch.device) -> Calls:
    """Calls that end when the device has finished."""
    if device.type == "cpu":
        return calls

    def wait(call: Call) -> Call:
        def run() -> None:
            call()
            torch.accelerator.synchronize()

        return run

    return {name: wait(call) for name, call in calls.items()}


def show(batch: Batch, timings: Timings) -> None:
    """Print the time of each call, and how many times longer it takes than ours."""
    ours = timings[OURS].median
    rows = [
        [name, milliseconds(timing.median), times(timing.median / ours), str(len(timing.seconds))]
        for name, timing in timings.items()
    ]
    show_table(batch.describe(), ["call", "median", f"÷ {OURS}", "calls"], rows)


def line(device: str, batch: Batch, timings: Timings) -> str:
    """A row of the table in docs/benchmarks.md."""
    step, loss = timings[STEP].median, timings[OURS].median
    peers = {n: t.median for n, t in timings.items() if n.startswith(("allRank", "padded", "rax"))}
    fastest = min(peers, key=lambda name: peers[name], default=None)
    beside = "–" if fastest is None else f"{times(peers[fastest] / loss)} ({fastest})"
    return f"| {device} | {batch.name} | {milliseconds(loss)} | {loss / step:.0%} | {beside} |"


def versions() -> dict[str, str]:
    """The versions of what took part."""
    found = {}
    for name in ("twinrank", "torch", "triton", "jax", "rax", "sentence-transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def main(words: Sequence[str] | None = None) -> None:
    options = parser(__doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--toy", action="store_true", help="tiny lists, to show that it runs")
    options.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS, help="default: all")
    chosen = options.parse_args(words)
    if not torch.cuda.is_available() and not chosen.toy:
        raise SystemExit("There is no CUDA device here. --toy shows that the script runs.")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU (toy)"
    kernel = "auto" if device.type == "cuda" else "triton"
    console.print(f"{name}: " + ", ".join(f"{k} {v}" for k, v in versions().items()))
    race_options = {"rounds": 1, "turn": 0.0} if chosen.toy else {}
    figures, lines = [], []
    for number, (title, sizes) in enumerate(sizes_of(chosen.toy).items()):
        batch = moved(make_batch(title, sizes, seed=number), device)
        calls = {
            **our_calls(batch, kernel),
            **peer_calls(batch, chosen.peers, chosen.toy),
            **step_calls(batch, kernel),
        }
        timings = race(synchronised(calls, device), **race_options)
        show(batch, timings)
        lines.append(line(name, batch, timings))
        summaries = {key: timing.summary() for key, timing in timings.items()}
        figures.append(SimpleNamespace(batch=batch.describe(), timings=summaries))
    console.print("\nFor docs/benchmarks.md:", *lines, sep="\n")
    report = {"device": name, "versions": versions(), "batches": [vars(f) for f in figures]}
    save(chosen.json, report)


if __name__ == "__main__":
    main()
