# %% [markdown]
# # A measure of your own
#
# A shop wants to optimise purchases, not nDCG. Suppose a customer reads the list from the top. The
# customer buys product i with probability b_i, which grows with its label, and then stops.
# Otherwise the customer continues to the next product with probability 0.8. The expected number of
# purchases is
#
# $$M = \sum_i b_i \prod_{j\ \text{above}\ i} (1 - b_j) \cdot 0.8^{\,r_i - 1}$$
#
# This is a sum of **credit** (which depends on the current order) times **discount** (a function of
# the rank). TwinRank can optimise every measure of this form.

# %%
import numpy as np

import twinrank as tr

CONTINUES = 0.8


def credit(labels, lists):
    """The probability of buying each product if the customer never leaves; labels in rank order."""
    buys = 0.2 * labels
    return buys * lists.cumprod(1 - buys) / (1 - buys)


def discount(rank):
    """The probability that the customer reaches this rank."""
    return CONTINUES ** (rank - 1)


purchases = tr.Measure.from_functions("Purchases", credit, discount)

# %% [markdown]
# Use the measure to evaluate. This list ranks labels 0, 2 and 1 in this order; the value equals the
# one computed by hand:

# %%
scores, labels = np.array([3.0, 2.0, 1.0]), np.array([0.0, 2.0, 1.0])
by_hand = 0.4 * 0.8 + 0.2 * (1 - 0.4) * 0.8**2
value = purchases(scores, labels, tr.Lists.from_sizes([3]))[0]
print(f"{value:.4f}, by hand {by_hand:.4f}")
assert abs(value - by_hand) < 1e-12

# %% [markdown]
# Use the measure to train: as the objective of trees, or for nets as `tr.DirectLoss(purchases)`.

# %%
data = tr.synthetic_web_search(queries=60)
train, valid, test = data.split(0.6, 0.2, random_state=0)

rankers = {
    "on purchases": tr.BoostedRanker(objective=purchases, n_estimators=40, random_state=0),
    "on nDCG": tr.BoostedRanker(objective="nDCG", n_estimators=40, random_state=0),
    "on purchases (net)": tr.Ranker(
        objective=tr.DirectLoss(purchases, strategy="type3"),
        epochs=5,
        random_state=0,
    ),
}
for ranker in rankers.values():
    ranker.fit(train, eval_set=valid)

# %%
systems = {name: ranker.predict(test) for name, ranker in rankers.items()}
print(tr.compare(systems, test.y, test.lists, measures=[purchases, "nDCG@5"]))
