# %% [markdown]
# # A first ranker
#
# Train a net and boosted trees directly on nDCG, compare them on test queries, and save the model.
# This runs in seconds on built-in synthetic data that looks like MSLR-WEB30K.

# %%
import tempfile
from pathlib import Path

import twinrank as tr

data = tr.synthetic_web_search(queries=250)  # or tr.load("train.txt")
train, valid, test = data.split(0.5, 0.2, random_state=0)  # a query is never divided
print(data)

# %% [markdown]
# By default a `Ranker` is an ensemble of five small nets; the mean of their scores ranks the
# documents. `objective` is the measure to optimise. `strategy` chooses how gradients flow through
# the ranks. The validation queries choose the epoch of each net.

# %%
net = tr.Ranker(objective="nDCG", strategy="type3", epochs=12, random_state=0)
net.fit(train, eval_set=valid)
print(f"net: validation nDCG@5 {net.best_score_:.3f}, {len(net.history_)} epochs")

# %% [markdown]
# Now boosted trees on the same objective, and LightGBM's LambdaMART as a baseline.

# %%
trees = tr.BoostedRanker(objective="nDCG", n_estimators=60, random_state=0)
trees.fit(train, eval_set=valid)
lambdamart = tr.BoostedRanker(objective="LambdaMART", n_estimators=60)
lambdamart.fit(train, eval_set=valid)
print(f"trees: {trees.best_score_:.3f}, LambdaMART: {lambdamart.best_score_:.3f}")

# %% [markdown]
# Compare the three on the test queries, with a significance test. With 75 queries, small
# differences are rarely significant.

# %%
systems = {
    "net": net.predict(test),
    "trees": trees.predict(test),
    "LambdaMART": lambdamart.predict(test),
}
print(tr.compare(systems, test.y, test.lists, measures=["nDCG@5", "nDCG@10", "AP"]))

# %% [markdown]
# A saved model is a folder with weights and JSON files. Load it to score new data.

# %%
with tempfile.TemporaryDirectory() as folder:
    net.save(Path(folder) / "model")
    loaded = tr.Ranker.load(Path(folder) / "model")
    assert (loaded.predict(test) == systems["net"]).all()

is_first = loaded.rank(test) == 1
print("labels of the documents ranked first:", test.y[is_first].astype(int).tolist())
