# %% [markdown]
# # From clicks to a better ranker
#
# A shop or a search engine has a log of clicks, but no grades. This example goes from such a log to
# a ranker that is evaluated before any user sees it, and exported to one file. Clicks are simulated
# on built-in data, so that the true quality is known.

# %%
import tempfile
from pathlib import Path

import numpy as np

import twinrank as tr

DCG = "DCG(gain=linear)@10"

data = tr.synthetic_web_search(queries=120)
train, test = data.split(0.7, random_state=0)

# %% [markdown]
# The old ranker sorts by the BM25 score of the title. Its order changes a little from day to day,
# and one impression in twenty is shown in random order. Users see position k with probability 1/k.


# %%
def shown(part, seed):
    """A log of the old ranker."""
    return tr.simulate_clicks(
        part, logger="title_bm25", temperature=0.3, randomised=0.05, impressions=10_000,
        random_state=seed,
    )  # fmt: skip


log = shown(train, seed=0)
print(log)

# %% [markdown]
# How likely does a user see each position? Without this, documents at the top look better than they
# are.

# %%
propensities = tr.estimate_propensities(log, resamples=20)
print(propensities)

# %% [markdown]
# The label of a document is its credit: about clicks divided by exposure. Credits hold on average,
# so the objective must be linear in the labels.

# %%
credits = log.to_dataset(propensities, estimator="dr")
print(credits.notes[0])
new = tr.BoostedRanker(DCG, n_estimators=40, random_state=0).fit(credits)
naive = tr.BoostedRanker(DCG, n_estimators=40, random_state=0)
naive.fit(log.to_dataset(estimator="naive"))

# %% [markdown]
# Is the new ranker better? Estimate it from the old ranker's clicks on other queries. A ranker that
# prefers documents that were rarely shown cannot be judged, so only documents that were shown are
# ranked here.

# %%
later = shown(test, seed=1)
old = test.X[:, test.feature_names.index("title_bm25")].astype(float)
seen = np.bincount(later.document, minlength=test.documents) > 0
systems = {
    name: np.where(seen, scores - scores.min(), -1.0)
    for name, scores in {"old": old, "naive": naive.predict(test), "new": new.predict(test)}.items()
}
result = tr.evaluate_log(systems, later, DCG, propensities, estimator="snips")
print(result)
print("new − old:", result.difference("new", "old"))

# %% [markdown]
# The grades of the simulation confirm it.

# %%
true = {}
for name, scores in systems.items():
    true[name] = tr.evaluate(scores, test.y, test.lists, "nDCG@10")["nDCG@10"]
print("true nDCG@10:", {name: round(value, 3) for name, value in true.items()})

# %% [markdown]
# Export the ranker to one file that LightGBM's own runtime reads, or to ONNX (`model.onnx`).

# %%
with tempfile.TemporaryDirectory() as folder:
    new.save(Path(folder) / "model")
    loaded = tr.load_model(Path(folder) / "model")
    assert (loaded.predict(test) == new.predict(test)).all()
    new.export(Path(folder) / "model.onnx")
    print(f"exported {(Path(folder) / 'model.onnx').stat().st_size / 1000:.0f} kB")
