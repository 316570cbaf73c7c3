"""Variety on built-in data with made-up sub-topics: α-nDCG trained, beside nDCG.

    python benchmarks/variety.py --queries 400 --out results --plot variety.svg

Each relevant document of `synthetic_web_search` has one of four sub-topics, the highest of four
random linear functions of ten features, with noise; 64, 20, 11 and 5 % of all documents have them.
Rankers are trained on nDCG@10 of all relevant documents, on α-nDCG@10 and ERR-IA@10 with the
strategies "swap" and "type3", and on a sum. Trees are one model of 100 rounds, nets one model of
30 epochs; half of the queries train, half test. --out keeps the values of every query.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import twinrank as tr
from common import console, describe_environment, parser, show_table
from twinrank.evaluation.significance import p_value

NAMES = ("a", "b", "c", "d")
SHARES = (0.64, 0.2, 0.11, 0.05)
LABEL = f"label=[{', '.join(NAMES)}]"
VARIETY, ERR_IA, PLAIN = f"alpha_nDCG({LABEL})@10", f"ERR_IA({LABEL})@10", "nDCG(gain=linear)@10"
METHODS = {
    "nDCG@10": (PLAIN, "type3"),
    "nDCG@10, swap": (PLAIN, "swap"),
    "α-nDCG@10, type3": (VARIETY, "type3"),
    "α-nDCG@10, swap": (VARIETY, "swap"),
    "ERR-IA@10, swap": (ERR_IA, "swap"),
    "both, swap": (f"0.5 * {PLAIN} + 0.5 * {VARIETY}", "swap"),
}
MEASURES = (VARIETY, ERR_IA, PLAIN)
LEARNERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "trees": (tr.BoostedRanker, {"n_estimators": 100, "early_stopping": None}),
    "net": (tr.Ranker, {"epochs": 30}),
    "net with attention": (tr.Ranker, {"epochs": 30, "architecture": "Small(context=attention)"}),
}
COMMON = {"ensemble_size": 1, "random_state": 0}


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("--queries", type=int, default=400)
    options.add_argument("--learners", nargs="+", choices=LEARNERS, default=["trees", "net"])
    options.add_argument("--out", type=Path, required=True, help="keeps the values per query")
    options.add_argument("--plot", type=Path, help="draw α-nDCG against nDCG to this file")
    given = options.parse_args()
    console.print(describe_environment())
    given.out.mkdir(parents=True, exist_ok=True)
    train, test = with_subtopics(tr.synthetic_web_search(queries=given.queries)).split(0.5)
    found: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for learner in given.learners:
        for method, (objective, strategy) in METHODS.items():
            number = list(METHODS).index(method)
            kept = given.out / f"{given.queries}-{learner.replace(' ', '-')}-{number}.json"
            if not kept.exists():
                make, own = LEARNERS[learner]
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", tr.DataWarning)  # type3 has no effect
                    ranker = make(objective, strategy, **own, **COMMON).fit(train)
                scores = ranker.predict(test)
                values = tr.evaluate(scores, test.labels, test.lists, MEASURES).values
                kept.write_text(json.dumps({name: v.tolist() for name, v in values.items()}))
            read = json.loads(kept.read_text()).items()
            found[learner, method] = {name: np.array(v, float) for name, v in read}
    for learner in given.learners:
        first = found[learner, "nDCG@10"]
        rows = []
        for method in METHODS:
            own = found[learner, method]
            test_of_gain = p_value(own[VARIETY], first[VARIETY]) if method != "nDCG@10" else 1.0
            cells = [f"{np.nanmean(own[name]):.4f}" for name in MEASURES]
            rows.append([method, *cells, f"{test_of_gain:.2g}"])
        columns = ["trained on", "α-nDCG@10", "ERR-IA@10", "nDCG@10", "p of α-nDCG@10"]
        show_table(f"{learner}: {test.queries} test queries", columns, rows)
    if given.plot is not None:
        draw(found, given.plot)


def with_subtopics(data: tr.Dataset) -> tr.Dataset:
    """The data with a column of labels for each sub-topic, after the relevance of 0 or 1."""
    random = np.random.default_rng(1)
    X = np.argsort(np.argsort(data.X[:, random.choice(data.features, 10, False)], axis=0), axis=0)
    value = (X / data.documents - 0.5) @ random.normal(size=(10, len(NAMES)))
    value = value / value.std(axis=0) + 0.5 * random.normal(size=value.shape)
    offsets = np.zeros(len(NAMES))
    for _ in range(200):  # until the shares are right
        shares = np.bincount(np.argmax(value + offsets, axis=1), minlength=len(NAMES)) / len(value)
        offsets += 0.3 * np.log(np.array(SHARES) / np.maximum(shares, 1e-3))
    topic = np.argmax(value + offsets, axis=1)
    relevant = data.y >= 2
    labels = {"relevance": relevant, **{n: relevant & (topic == i) for i, n in enumerate(NAMES)}}
    return tr.Dataset.from_arrays(data.X, group=data.lists.sizes, labels=labels)


def draw(found: dict[tuple[str, str], dict[str, np.ndarray]], path: Path) -> None:
    """A point for each ranker: α-nDCG@10 against nDCG@10."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    markers = dict(zip(METHODS, "os^DvP", strict=True))
    for i, learner in enumerate(dict.fromkeys(learner for learner, _ in found)):
        for method, marker in markers.items():
            x, y = (np.nanmean(found[learner, method][name]) for name in (PLAIN, VARIETY))
            label = method if i == 0 else None
            axes.plot(x, y, marker, color=f"C{i}", label=label, markersize=8)
            if method == "nDCG@10":
                axes.annotate(learner, (x, y), xytext=(6, -12), textcoords="offset points")
    axes.set_xlabel("nDCG@10 of all relevant documents")
    axes.set_ylabel("α-nDCG@10 of the sub-topics")
    axes.legend(title="trained on", frameon=False, fontsize=8)
    figure.savefig(path)


if __name__ == "__main__":
    main()
