"""What a boosting round on our objectives costs beside LightGBM's own lambdarank round."""

import statistics
import time
from typing import Any

import lightgbm as lgb

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
    times,
)
from twinrank.learning.boosting.newton import SAMPLES

LAMBDARANK = "LightGBM lambdarank"
# Ours: (measure, strategy, samples); the first has the bar.
ROWS = [
    ("nDCG", "type3", SAMPLES),
    ("nDCG", "type1", SAMPLES),
    ("AP", "type3", SAMPLES),
    ("nDCG", "type3", 1),
]
TREES = {"num_leaves": 31, "learning_rate": 0.1, "metric": "None", "verbosity": -1}


class Timed:
    """An objective that notes how long it took."""

    def __init__(self, measure: str, strategy: str, samples: int) -> None:
        self.objective = tr.lightgbm_objective(measure, strategy, samples=samples)
        self.seconds: list[float] = []

    def __call__(self, scores: Any, data: lgb.Dataset) -> Any:
        """Gradient and hessian, with the clock running."""
        start = time.perf_counter()
        result = self.objective(scores, data)
        self.seconds.append(time.perf_counter() - start)
        return result


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--documents", type=int, default=1_000_000, help="about (1,000,000)")
    options.add_argument("--rounds", type=int, default=9, help="timed rounds of each (9)")
    options.add_argument(
        "--layout", choices=["col", "row"], default="col", help="of LightGBM's histograms (col)"
    )
    chosen = options.parse_args()
    console.print(f"{describe_environment()}, lightgbm {lgb.__version__}")
    data = tr.synthetic_web_search(queries=max(chosen.documents // 120, 2), seed=0)
    settings = {**TREES, f"force_{chosen.layout}_wise": True}
    binned = lgb.Dataset(data.X, data.y, group=data.lists.sizes, params=settings).construct()
    objectives = {f"{m}-{s}, S = {n}": Timed(m, s, n) for m, s, n in ROWS}
    own = lgb.Booster({**settings, "objective": "lambdarank"}, binned)
    calls: dict[str, Any] = {LAMBDARANK: own.update}
    for name, objective in objectives.items():
        booster = lgb.Booster({**settings, "objective": "none"}, binned)
        calls[name] = lambda booster=booster, objective=objective: booster.update(fobj=objective)
    timings = race(calls, rounds=chosen.rounds, budget=120)
    base = timings[LAMBDARANK].median
    gradients = {name: statistics.median(o.seconds[1:]) for name, o in objectives.items()}
    show_table(
        f"One round: {data.documents:,} documents, {data.features} features, 31 leaves",
        ["objective", "round", "against lambdarank", "gradient", "share"],
        [
            [
                name,
                milliseconds(timing.median),
                times(timing.median / base),
                milliseconds(gradients[name]) if name in gradients else "",
                f"{gradients[name] / timing.median:.0%}" if name in gradients else "",
            ]
            for name, timing in timings.items()
        ],
    )
    shipped = next(iter(objectives))
    ratio = timings[shipped].median / base
    share = gradients[shipped] / timings[shipped].median
    bars = [
        Bar(f"{shipped}: a round at most 1.3× lambdarank's", times(ratio), ratio <= 1.3),
        Bar(f"{shipped}: gradient below half of the round", f"{share:.0%}", share < 0.5),
    ]
    show_bars(bars)
    figures = {
        "documents": data.documents,
        "rounds": {name: timing.summary() for name, timing in timings.items()},
        "gradient_seconds": gradients,
    }
    save(chosen.json, figures, bars)


if __name__ == "__main__":
    main()
