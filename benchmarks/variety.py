"""Variety on built-in data with made-up sub-topics: α-nDCG trained, beside nDCG.

    python benchmarks/variety.py --queries 400 --out results

Each relevant document of `synthetic_web_search` has one of four sub-topics, the highest of four
random linear functions of ten features, with noise; 64, 20, 11 and 5 % of all documents have them.
Four more features show the sub-topic with noise, as a classifier of documents would; not with
--hidden.
Rankers are trained on nDCG@10 of all relevant documents, on α-nDCG@10 and ERR-IA@10, and on a sum,
with the strategies "type3" and "swap". Trees are one model of 100 rounds, nets one model of 30
epochs; half of the queries train, half test. --out keeps the values of every query.
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
BASELINES = ("nDCG@10", "nDCG@10, swap")
MEASURES = (VARIETY, ERR_IA, PLAIN)
LEARNERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "trees": (tr.BoostedRanker, {"n_estimators": 100, "early_stopping": None}),
    "net": (tr.Ranker, {"epochs": 30}),
}
COMMON = {"ensemble_size": 1, "random_state": 0}


def main() -> None:
    options = parser((__doc__ or "").partition("\n")[0])
    options.add_argument("--queries", type=int, default=400)
    options.add_argument("--learners", nargs="+", choices=LEARNERS, default=["trees", "net"])
    options.add_argument("--hidden", action="store_true", help="no features show the sub-topic")
    options.add_argument("--out", type=Path, required=True, help="keeps the values per query")
    given = options.parse_args()
    console.print(describe_environment())
    given.out.mkdir(parents=True, exist_ok=True)
    data = with_subtopics(tr.synthetic_web_search(queries=given.queries), given.hidden)
    train, test = data.split(0.5)
    prefix = f"{given.queries}-{'hidden' if given.hidden else 'shown'}"
    found: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for learner in given.learners:
        for method, (objective, strategy) in METHODS.items():
            number = list(METHODS).index(method)
            kept = given.out / f"{prefix}-{learner}-{number}.json"
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
        plain = [found[learner, name][VARIETY] for name in BASELINES]
        rows = []
        for method in METHODS:
            own = found[learner, method]
            cells = [f"{np.nanmean(own[name]):.4f}" for name in MEASURES]
            cells += [f"{p_value(own[VARIETY], one):.2g}" for one in plain]
            rows.append([method, *cells])
        columns = ["trained on", "α-nDCG@10", "ERR-IA@10", "nDCG@10"]
        columns += [f"p against {name}" for name in BASELINES]
        show_table(f"{learner}: {test.queries} test queries", columns, rows)


def with_subtopics(data: tr.Dataset, hidden: bool) -> tr.Dataset:
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
    shown = np.eye(len(NAMES))[topic] + 0.4 * random.normal(size=value.shape)
    X = data.X if hidden else np.column_stack([data.X, shown])
    return tr.Dataset.from_arrays(X, group=data.lists.sizes, labels=labels)


if __name__ == "__main__":
    main()
