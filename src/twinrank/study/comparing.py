"""Methods side by side on one split of a dataset."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twinrank.data.dataset import Dataset
from twinrank.display.tables import Cell, Table
from twinrank.estimators.ranker import Ranker
from twinrank.evaluation.comparison import Comparison, compare
from twinrank.evaluation.evaluating import evaluate
from twinrank.study.methods import Method

METHODS = (
    "nDCG-type3",
    "AP-type3",
    "nERR@10-type3",
    "P-type3",
    "nDCG-type1",
    "nDCG-type3 (Linear)",
)
MEASURES = ("nDCG@1", "nDCG@5", "nDCG@10", "AP", "nERR@10")


@dataclass(frozen=True, eq=False)
class Compared:
    """Test measures of several methods with significance, and how long each took to train."""

    comparison: Comparison
    seconds: Mapping[str, float]
    epochs: Mapping[str, int]

    def table(self) -> Table:
        """Methods by measures, with training times."""
        plain = self.comparison.table()
        rows = [
            [*row, Cell(str(self.epochs[row[0].text])), Cell(f"{self.seconds[row[0].text]:.1f} s")]
            for row in plain.rows
        ]
        return replace(plain, columns=[*plain.columns, "epochs", "time"], rows=rows)


def compare_methods(
    methods: Sequence[Method],
    sets: Mapping[str, Dataset],
    measures: Sequence[str] = MEASURES,
    parameters: Mapping[str, Any] | None = None,
    begin: Callable[[Method], list[Any]] = lambda _: [],
) -> Compared:
    """Train every method on sets["train"], select by "validation", and measure on "test".

    `begin` is told which method comes next, and gives callbacks for its training.
    """
    results, seconds, epochs = {}, {}, {}
    test = sets["test"]
    for one in methods:
        start = time.perf_counter()
        ranker = Ranker(**{**(parameters or {}), **one.parameters()})
        ranker.fit(sets["train"], eval_set={"validation": sets["validation"]}, callbacks=begin(one))
        name = str(one)
        seconds[name] = time.perf_counter() - start
        epochs[name] = len(ranker.history_)
        results[name] = evaluate(
            ranker.predict(test), test.y, test.lists, measures, query_ids=test.query_ids
        )
    return Compared(compare(results), seconds, epochs)
