"""A report of random rankings, small but with everything in it."""

import numpy as np

import twinrank as tr
from twinrank.experiments.report.query_rankings import RankedQuery
from twinrank.experiments.report.report_content import ReportContent
from twinrank.support.plots import COLOURS, drawing
from twinrank.support.tables import Cell, ResultTable

METHODS = ("LambdaMART", "ListNet (R4.L)", "AP-type3 (CE4.L)")
CUTOFFS = (1, 3, 10)
MEASURES = ("nDCG@3", "nDCG@1", "nDCG@10", "AP", "nERR@10")


def evaluations(methods=METHODS, queries=60, seed=0):
    """Scores of growing noise, measured; with the documents and the highest label of each list."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, queries)
    labels = rng.integers(0, 4, sizes.sum()).astype(float)
    lists = tr.Lists.from_sizes(sizes)
    found = {
        name: tr.evaluate(labels + rng.normal(0, 1 + i, labels.size), labels, lists, MEASURES)
        for i, name in enumerate(methods)
    }
    return found, sizes, np.maximum.reduceat(labels, lists.offsets[:-1])


def queries(methods=METHODS, count=5, seed=2):
    """Queries whose first feature is the difference between methods."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        size = 12 + i
        labels = rng.integers(0, 3, size).astype(float)
        scores = {name: labels * (k + i) + rng.normal(size=size) for k, name in enumerate(methods)}
        values = {name: (k * 37 + i * 11) % 10 / 10 for k, name in enumerate(methods)}
        X = np.column_stack([rng.normal(size=(size, 2)), labels, np.full(size, np.nan)])
        made.append(RankedQuery(f"q{i}", labels, scores, values, X))
    return made


def histories(methods=METHODS, epochs=6, units=2):
    """Made-up trainings: trees have rounds and no loss."""
    rng = np.random.default_rng(1)

    def record(name, epoch):
        if name == "LambdaMART":
            return {"iteration": epoch, "validation": 0.3 + 0.01 * epoch, "seconds": 0.1 * epoch}
        noise = rng.normal(0, 0.01, 2)
        return {
            "iteration": epoch,
            "loss": 1 / epoch + noise[0],
            "learning_rate": 0.1,
            "validation": 0.3 + 0.02 * epoch + noise[1],
            "seconds": 0.2 * epoch,
        }

    return {
        name: [[record(name, e) for e in range(1, epochs + 1 + unit)] for unit in range(units)]
        for name in methods
    }


def extra_figure(folder):
    """An SVG as other packages draw them."""
    path = folder / "extra.svg"
    with drawing(path, 1, 1, (4, 2)) as axes:
        axes[0, 0].plot([0, 1], [0, 1], color=COLOURS[0])
    return path.read_text("utf-8")


def example(folder, methods=METHODS, **others):
    """A report with every section."""
    found, sizes, grades = evaluations(methods)
    values = {name: {m: one.values[m] for m in MEASURES[:1]} for name, one in found.items()}
    table = ResultTable("A table", ["α", "error"], [[Cell("1"), Cell("0.5", best=True, mark="*")]])
    content = {
        "title": "Three methods",
        "headline": "One of them is best.",
        "data_summary": [("Queries", "60")],
        "settings": [("Folds", "2")],
        "command": "twinrank compare",
        "versions": {"twinrank": "0.1.0"},
        "comparison": tr.compare(values, intervals=True),
        "evaluations": found,
        "curves": histories(methods),
        "list_sizes": sizes,
        "list_grades": grades,
        "seconds": {name: 3.0 + i for i, name in enumerate(methods)},
        "memory": {name: 1e8 * (i + 1) for i, name in enumerate(methods)},
        "notes": ["ListNet, fold 2: failed."],
        "figures": [("Figure 1", extra_figure(folder), "A line that rises.")],
        "tables": [("Table 1", table)],
        "validation_measure": "nDCG@3",
        "queries": queries(methods),
        "feature_names": ["bm25", "</script><b>clicks", "title"],
        "queries_note": "The list has 5 queries.",
    }
    return ReportContent(**{**content, **others})
