"""Evaluating MSLR-WEB30K's shape: 50 measures on one sort, against pytrec_eval and np.lexsort."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytrec_eval

import twinrank as tr
from common import (
    MSLR_SHARES,
    Bar,
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

CUTOFFS = (1, 3, 5, 10, 20)
OURS = ("nDCG", "nDCG(gain=linear)", "AP", "P", "Recall", "RR", "Success", "nERR", "ERR", "RBP")
BOTH = {  # ours by trec_eval's convention: trec_eval's
    "nDCG": "ndcg_cut",
    "AP": "map_cut",
    "P": "P",
    "Recall": "recall",
    "Success": "success",
}
ALL = [f"{name}@{k}" for name in OURS for k in CUTOFFS]
SHARED = {f"{name}@{k}": f"{theirs}_{k}" for name, theirs in BOTH.items() for k in CUTOFFS}
LEXSORT, EVERY, SOME = "one np.lexsort", "evaluate, 50 measures", "evaluate, 25 that both have"
DICTIONARIES, THEIRS = "pytrec_eval: its dictionaries", "pytrec_eval: those 25 and their means"


@dataclass(frozen=True)
class Problem:
    """Random scores, and labels with MSLR's shares, for lists of MSLR's lengths."""

    lists: tr.Lists
    scores: np.ndarray[Any, np.dtype[np.float64]]
    labels: np.ndarray[Any, np.dtype[np.int64]]
    ids: np.ndarray[Any, np.dtype[np.int64]]

    @classmethod
    def draw(cls, queries: int) -> "Problem":
        """As many lists as asked for."""
        random = np.random.default_rng(0)
        lists = tr.Lists.from_sizes(lognormal_sizes(queries, 123, 1251, seed=0))
        documents = lists.documents
        labels = random.choice(5, size=documents, p=MSLR_SHARES)
        return cls(lists, random.standard_normal(documents), labels, np.arange(documents))

    def first(self, queries: int) -> "Problem":
        """The first lists."""
        lists = tr.Lists.from_offsets(self.lists.offsets[: queries + 1])
        kept = slice(lists.documents)
        return Problem(lists, self.scores[kept], self.labels[kept], self.ids[kept])

    def lexsort(self) -> Any:
        """The documents of every list in order, as NumPy does it."""
        return np.lexsort((-self.scores, self.lists.index(self.scores)))

    def evaluate(self) -> tr.Evaluation:
        """All our measures."""
        return tr.evaluate(self.scores, self.labels, self.lists, ALL)

    def evaluate_shared(self) -> tr.Evaluation:
        """The measures that both have, by trec_eval's convention."""
        return tr.evaluate(
            self.scores, self.labels, self.lists, list(SHARED), convention="trec", docids=self.ids
        )

    def dictionaries(self) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
        """Judgements and run as pytrec_eval wants them."""
        names = list(map(str, self.ids.tolist()))
        labels, scores = self.labels.tolist(), self.scores.tolist()
        qrels, run = {}, {}
        for q, one in enumerate(self.lists):
            qrels[f"{q:06}"] = dict(zip(names[one], labels[one], strict=True))
            run[f"{q:06}"] = dict(zip(names[one], scores[one], strict=True))
        return qrels, run


def measure_theirs(problem: Problem) -> tuple[dict[str, float], float]:
    """Seconds of pytrec_eval's two steps, and how far its values are from ours.

    Its second step includes the means, which ours have.
    """
    asked = {f"{name}.{','.join(map(str, CUTOFFS))}" for name in BOTH.values()}
    kept: dict[str, Any] = {}

    def prepare() -> None:
        kept["qrels"], kept["run"] = problem.dictionaries()

    def evaluate() -> None:
        kept["values"] = pytrec_eval.RelevanceEvaluator(kept["qrels"], asked).evaluate(kept["run"])
        for name in SHARED.values():
            found = [by_measure[name] for by_measure in kept["values"].values()]
            kept[name] = pytrec_eval.compute_aggregated_measure(name, found)

    timings = race({DICTIONARIES: prepare, THEIRS: evaluate}, rounds=3, turn=0, budget=60)
    ours = problem.evaluate_shared()
    differences = [
        np.abs(ours.values[name] - [kept["values"][query][theirs] for query in kept["qrels"]]).max()
        for name, theirs in SHARED.items()
    ]
    return {name: timing.median for name, timing in timings.items()}, float(max(differences))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--queries", type=int, default=30_000, help="number of lists (30,000)")
    options.add_argument("--rounds", type=int, default=7, help="timed calls of each (7)")
    options.add_argument(
        "--part", type=int, default=1, help="pytrec_eval gets 1/PART of the lists, time scaled (1)"
    )
    chosen = options.parse_args()
    console.print(describe_environment())
    problem = Problem.draw(chosen.queries)
    small = problem.first(max(1, chosen.queries // chosen.part))
    for call in (small.evaluate, small.evaluate_shared):
        call()  # compiles, or loads compiled code
    calls = {LEXSORT: problem.lexsort, EVERY: problem.evaluate, SOME: problem.evaluate_shared}
    timings = race(calls, rounds=chosen.rounds, turn=0, budget=60)
    seconds = {name: timing.median for name, timing in timings.items()}
    theirs, difference = measure_theirs(small)
    scale = problem.lists.documents / small.lists.documents
    seconds |= {name: scale * one for name, one in theirs.items()}
    show_table(
        f"{len(problem.lists):,} lists, {problem.lists.documents:,} documents",
        ["", "time", "against the lexsort"],
        [[name, milliseconds(s), times(s / seconds[LEXSORT])] for name, s in seconds.items()],
    )
    console.print(
        f"pytrec_eval ran on {len(small.lists):,} lists, its times scaled by {scale:.3g}. "
        "Its users pay for its dictionaries as well, so the bar counts them."
    )
    lexsorts = seconds[EVERY] / seconds[LEXSORT]
    alone = seconds[THEIRS] / seconds[SOME]
    faster = alone + seconds[DICTIONARIES] / seconds[SOME]
    bars = [
        Bar("50 measures within 3× one lexsort", times(lexsorts), lexsorts <= 3),
        Bar(
            "at least 20× pytrec_eval, for measures both have",
            f"{times(faster)} ({times(alone)} without dictionaries)",
            faster >= 20,
        ),
        Bar("the same values, to 1e-6", f"{difference:.1e}", difference < 1e-6),
    ]
    show_bars(bars)
    save(chosen.json, {"seconds": seconds, "difference": difference}, bars)


if __name__ == "__main__":
    main()
