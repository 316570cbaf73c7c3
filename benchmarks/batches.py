"""What iterating over ragged batches costs beside the training step that uses them."""

import torch

import twinrank as tr
from common import (
    Bar,
    console,
    describe_environment,
    milliseconds,
    parser,
    race,
    save,
    show_bars,
    show_table,
)
from peers import CE4L

DOCUMENTS = 12_000


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--queries", type=int, default=1_000, help="queries of the data (1,000)")
    chosen = options.parse_args()
    console.print(describe_environment())
    data = tr.synthetic_web_search(queries=chosen.queries, seed=0)
    batches = data.batches(DOCUMENTS, random_state=0)
    ready = [torch.from_numpy(batch.X) for batch in batches]
    model = CE4L(data.features)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(X: torch.Tensor) -> None:
        optimiser.zero_grad()
        model(X).sum().backward()
        optimiser.step()

    def bare() -> None:
        for X in ready:
            step(X)

    def with_batches() -> None:
        for batch in batches:
            step(torch.from_numpy(batch.X))

    def alone() -> None:
        for _ in data.batches(DOCUMENTS, random_state=0, ahead=0):
            pass

    names = {"bare steps": bare, "steps with batches": with_batches, "batches alone": alone}
    timings = race(names, rounds=15, budget=30)
    seconds = {name: timing.median for name, timing in timings.items()}
    show_table(
        f"One epoch: {data.documents:,} documents in {len(ready)} batches, CE4.L",
        ["", "time", "per batch"],
        [[name, milliseconds(s), milliseconds(s / len(ready))] for name, s in seconds.items()],
    )
    extra = seconds["steps with batches"] / seconds["bare steps"] - 1
    share = seconds["batches alone"] / seconds["bare steps"]
    bars = [
        Bar("iteration adds at most 5 % to the bare step", f"{extra:.1%}", extra <= 0.05),
        Bar("without a thread: share of the bare step", f"{share:.1%}", share <= 0.05),
    ]
    show_bars(bars)
    save(chosen.json, {"seconds": seconds}, bars)


if __name__ == "__main__":
    main()
