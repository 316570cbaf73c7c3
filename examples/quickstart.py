# %% [markdown]
# # A first ranker
#
# Train a net and trees on nDCG itself, set them side by side on queries that neither has seen, and
# save what was learnt. Everything runs in seconds, on built-in data in the shape of MSLR-WEB30K.

# %%
import tempfile
from pathlib import Path

import twinrank as tr

data = tr.synthetic_web_search(queries=300)  # or tr.load("train.txt")
train, valid, test = data.split(0.6, 0.2, random_state=0)  # whole queries
print(data)

# %% [markdown]
# A net, or rather five small ones, whose mean ranks. `objective` is the measure that is optimised,
# `strategy` how ranks pass their gradient on. The validation queries choose the best epoch of each.

# %%
net = tr.Ranker(
    objective="nDCG",
    strategy="type3",
    transforms="SignedLog1p + QueryZScore",
    epochs=20,
    random_state=0,
)
net.fit(train, eval_set=valid)
print(f"net: validation nDCG@5 {net.best_score_:.3f}, {len(net.history_)} epochs")

# %% [markdown]
# Boosted trees on the same objective, and LightGBM's own LambdaMART beside them.

# %%
trees = tr.BoostedRanker(objective="nDCG", n_estimators=100, random_state=0)
trees.fit(train, eval_set=valid)
lambdamart = tr.BoostedRanker(objective="LambdaMART", n_estimators=100)
lambdamart.fit(train, eval_set=valid)
print(f"trees: {trees.best_score_:.3f}, LambdaMART: {lambdamart.best_score_:.3f}")

# %% [markdown]
# Who is better on the test queries, and could it be chance? With 60 queries it often could.

# %%
systems = {
    "net": net.predict(test),
    "trees": trees.predict(test),
    "LambdaMART": lambdamart.predict(test),
}
print(tr.compare(systems, test.y, test.lists, measures=["nDCG@5", "nDCG@10", "AP"]))

# %% [markdown]
# A saved model is a folder of weights and JSON. It scores new data anywhere.

# %%
with tempfile.TemporaryDirectory() as place:
    net.save(Path(place) / "model")
    again = tr.Ranker.load(Path(place) / "model")
    assert (again.predict(test) == systems["net"]).all()

best = again.rank(test) == 1
print("labels of the documents ranked first:", test.y[best].astype(int).tolist())
