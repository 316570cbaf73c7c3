"""How long DirectLoss takes beside other losses and beside a step of the paper's scorer."""

import torch

from common import (
    DIRECT,
    STRATEGIES,
    Bar,
    Batch,
    Call,
    Timings,
    backward_of,
    console,
    describe_environment,
    direct_loss,
    lognormal_sizes,
    make_batch,
    milliseconds,
    pair_call,
    parser,
    race,
    save,
    show_bars,
    show_table,
    times,
)
from peers import ALLRANK_PADDING, CE4L, allrank_losses, padded_direct_ndcg

APPROX, LAMBDA, PADDED = "allRank approxNDCG", "allRank lambdaLoss", "padded PyTorch nDCG-type3"
PEERS = (APPROX, LAMBDA, PADDED)
STEP = "CE4.L step, no loss"
# Each row of ours: (measure, strategy, samples).
ROWS = [
    *(("nDCG", strategy, 1) for strategy in reversed(STRATEGIES)),
    ("nDCG", "type3", 5),
    *(("AP", strategy, 1) for strategy in reversed(STRATEGIES)),
    ("AP", "type3", 5),
]
STEP_SHARES = {1: 0.05, 5: 0.10}

Calls = dict[str, Call]


def row_name(measure: str, strategy: str, samples: int) -> str:
    return f"DirectLoss {measure}-{strategy}, S = {samples}"


def pair_name(strategy: str) -> str:
    return f"pair sum {strategy}"


def our_calls(batch: Batch) -> Calls:
    """Forward and backward of DirectLoss, and the direct kernel alone."""
    calls: Calls = {
        row_name(measure, strategy, samples): direct_loss(
            batch, measure, strategy, perturbation=1.0 if samples > 1 else 0.0, samples=samples
        )
        for measure, strategy, samples in ROWS
    }
    return calls | {pair_name(name): pair_call(batch, DIRECT, name) for name in STRATEGIES}


def peer_calls(batch: Batch) -> Calls:
    """Forward and backward of the peers, on rectangles prepared beforehand."""
    approx_ndcg, lambda_loss = allrank_losses()
    scores = batch.padded(batch.scores, 0.0).requires_grad_()
    labels = batch.padded(batch.labels, ALLRANK_PADDING)
    losses = {
        APPROX: lambda: approx_ndcg(scores, labels),
        LAMBDA: lambda: lambda_loss(scores, labels, weighing_scheme="ndcgLoss2PP_scheme"),
        PADDED: lambda: padded_direct_ndcg(scores, labels, batch.mask),
    }
    return {name: backward_of(scores, loss) for name, loss in losses.items()}


def step_call(batch: Batch) -> Call:
    """Forward, backward and Adam step of CE4.L on as many documents, with a gradient given."""
    torch.manual_seed(0)
    scorer = CE4L()
    documents = torch.randn(batch.documents, 136)
    gradient = torch.randn(batch.documents) / batch.documents
    optimiser = torch.optim.Adam(scorer.parameters(), lr=1e-3, weight_decay=1e-3)

    def step() -> None:
        optimiser.zero_grad()
        scorer(documents).backward(gradient)
        optimiser.step()

    return step


def calls_on(batch: Batch) -> Calls:
    return {**our_calls(batch), STEP: step_call(batch), **peer_calls(batch)}


def difference_from_padded(batch: Batch) -> float:
    """How far our gradient is from padded PyTorch's: the two must be worth comparing."""
    direct_loss(batch, "nDCG")()
    scores = batch.padded(batch.scores, 0.0).requires_grad_()
    labels = batch.padded(batch.labels, 0.0)
    padded_direct_ndcg(scores, labels, batch.mask).backward()
    assert batch.scores.grad is not None
    assert scores.grad is not None
    reference = scores.grad[batch.mask]
    return float((batch.scores.grad - reference).abs().max() / reference.abs().max())


def show_batch(batch: Batch, timings: Timings) -> None:
    """Print one batch: how many times longer each peer takes, and the share of a step."""
    step = timings[STEP].median
    rows = []
    for name, timing in timings.items():
        if name.startswith("pair sum"):
            continue
        ours = name.startswith("DirectLoss")
        ratios = [times(timings[peer].median / timing.median) if ours else "" for peer in PEERS]
        share = f"{timing.median / step:.1%}" if name != STEP else ""
        rows.append([name, milliseconds(timing.median), *ratios, share, str(len(timing.seconds))])
    show_table(
        batch.describe(),
        ["", "median", *(f"{peer} takes" for peer in PEERS), "of a step", "calls"],
        rows,
    )


def show_pairs(results: list[tuple[Batch, Timings]]) -> None:
    """Print the direct kernel's time per ordered pair."""
    show_table(
        "Direct kernel (numba), nanoseconds per ordered pair, wall clock",
        ["batch", *STRATEGIES],
        [
            [batch.name, *(f"{per_pair(batch, timings, strategy):.3f}" for strategy in STRATEGIES)]
            for batch, timings in results
        ],
    )


def per_pair(batch: Batch, timings: Timings, strategy: str) -> float:
    return 1e9 * timings[pair_name(strategy)].median / batch.ordered_pairs


def bars_of(batch: Batch, timings: Timings, factor: float) -> list[Bar]:
    """Hold the slowest of our rows against the fastest peer and against the bare step."""
    bars = []
    fastest = min(PEERS, key=lambda peer: timings[peer].median)
    for samples, allowed in STEP_SHARES.items():
        names = [row_name(*row) for row in ROWS if row[2] == samples]
        slowest = max(names, key=lambda name: timings[name].median)
        ratio = timings[fastest].median / timings[slowest].median
        share = timings[slowest].median / timings[STEP].median
        bars += [
            Bar(
                f"{batch.name}: ≥ {factor:g}× faster than every peer, S = {samples}",
                f"{times(ratio)} ({slowest} against {fastest})",
                ratio >= factor,
            ),
            Bar(
                f"{batch.name}: ≤ {allowed:.0%} of the bare CE4.L step, S = {samples}",
                f"{share:.1%} ({slowest})",
                share <= allowed,
            ),
        ]
    return bars


def main() -> None:
    options = parser(__doc__).parse_args()
    console.print(describe_environment())
    race(calls_on(make_batch("compile first", [5, 9], seed=0)), rounds=1)
    batches = [
        (make_batch("equal lengths", [120] * 100, seed=1), 10),
        (make_batch("longest 300", lognormal_sizes(100, 120, 300, seed=2), seed=2), 40),
        (make_batch("longest 1,000", lognormal_sizes(100, 120, 1000, seed=3), seed=3), 100),
    ]
    results, bars, figures = [], [], {}
    for batch, factor in batches:
        difference = difference_from_padded(batch)
        timings = race(calls_on(batch), at_least=2)
        show_batch(batch, timings)
        console.print(f"nDCG-type3's gradient differs from padded PyTorch's by {difference:.1e}\n")
        results.append((batch, timings))
        bars += bars_of(batch, timings, factor)
        figures[batch.name] = {
            "lists": len(batch.sizes),
            "documents": batch.documents,
            "longest": max(batch.sizes),
            "ordered_pairs": batch.ordered_pairs,
            "difference_from_padded": difference,
            "nanoseconds_per_pair": {name: per_pair(batch, timings, name) for name in STRATEGIES},
            "timings": {name: timing.summary() for name, timing in timings.items()},
        }
    show_pairs(results)
    console.print(
        "The peers work on padded m×m matrices: their time and memory grow with the square of the "
        "longest list. lambdaLoss runs with the weights ndcgLoss2PP. Each bar takes the slowest of "
        "our rows and the fastest peer.\n"
    )
    show_bars(bars)
    save(options.json, {"batches": figures}, bars)


if __name__ == "__main__":
    main()
