"""Varied results: train on α-nDCG, so that the first documents cover several sub-topics.

A query such as "jaguar" has several meanings. Most relevant documents are about the car, fewer
about the animal, and a few about the guitar. nDCG counts all of them alike, so a ranker may show
ten cars. α-nDCG counts a document less if earlier documents have the same sub-topic.

    python examples/variety.py
"""

import numpy as np

import twinrank as tr

QUERIES, DOCUMENTS = 200, 60
rng = np.random.default_rng(0)

# Made-up documents: features show how good a document is and, less exactly, what it is about.
count = QUERIES * DOCUMENTS
meanings = ["car", "animal", "guitar"]
meaning = rng.choice(3, count, p=[0.7, 0.2, 0.1])
quality = rng.standard_normal(count)
relevant = quality + 0.5 * rng.standard_normal(count) > 0.5
about = np.eye(3)[meaning] + 0.4 * rng.standard_normal((count, 3))
X = np.column_stack([quality + 0.3 * rng.standard_normal(count), about])

# A column of labels for each sub-topic, after the relevance itself.
labels = {"relevant": relevant}
labels |= {name: relevant & (meaning == i) for i, name in enumerate(meanings)}
data = tr.Dataset.from_arrays(X, group=[DOCUMENTS] * QUERIES, labels=labels)
train, test = data.split(0.5, random_state=0)

variety = "alpha_nDCG(label=[car, animal, guitar])@5"
settings = {"n_estimators": 60, "early_stopping": None, "ensemble_size": 1, "random_state": 0}
rankers = {
    "nDCG": tr.BoostedRanker("nDCG@5", "swap", **settings).fit(train),
    "α-nDCG": tr.BoostedRanker(variety, "swap", **settings).fit(train),
}

means = {}
for name, ranker in rankers.items():
    found = tr.evaluate(ranker.predict(test), test.labels, test.lists, [variety, "nDCG@5"])
    means[name] = found.means
    print(f"trained on {name:6}  α-nDCG@5 {found[variety]:.4f}  nDCG@5 {found['nDCG@5']:.4f}")
assert means["α-nDCG"][variety] > means["nDCG"][variety]
