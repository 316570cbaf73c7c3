# %% [markdown]
# # A measure of your own
#
# A shop is judged by what its customers buy, not by nDCG. Say a customer goes down the list, buys a
# product with a chance that grows with its label, and otherwise looks at the next one with chance
# 0.8. The expected number of purchases is
#
# $$M = \sum_i b_i \prod_{j\ \text{above}\ i} (1 - b_j) \cdot 0.8^{\,r_i - 1}$$
#
# That is a **credit** of the current order times a **discount** of the rank, and so it can be
# trained on.

# %%
import numpy as np

import twinrank as tr

STAYS = 0.8


def credit(labels, lists):
    """The chance that a customer who sees all buys this very product; labels in rank order."""
    buys = 0.2 * labels
    return buys * lists.cumprod(1 - buys) / (1 - buys)


def discount(rank):
    """The chance that the customer gets as far as this rank."""
    return STAYS ** (rank - 1)


purchases = tr.Measure.from_functions("Purchases", credit, discount)

# %% [markdown]
# It evaluates. Worked by hand for one list, in which labels 0, 2 and 1 are ranked in this order:

# %%
scores, labels = np.array([3.0, 2.0, 1.0]), np.array([0.0, 2.0, 1.0])
by_hand = 0.4 * 0.8 + 0.2 * (1 - 0.4) * 0.8**2
value = purchases(scores, labels, tr.Lists.from_sizes([3]))[0]
print(f"{value:.4f}, by hand {by_hand:.4f}")
assert abs(value - by_hand) < 1e-12

# %% [markdown]
# And it trains: as an objective of trees, and as a loss of nets, `tr.DirectLoss(purchases)`.

# %%
data = tr.synthetic_web_search(queries=100)
train, valid, test = data.split(0.6, 0.2, random_state=0)

rankers = {
    "on purchases": tr.BoostedRanker(objective=purchases, n_estimators=100, random_state=0),
    "on nDCG": tr.BoostedRanker(objective="nDCG", n_estimators=100, random_state=0),
    "on purchases (net)": tr.Ranker(
        objective=tr.DirectLoss(purchases, strategy="type3"),
        transforms="SignedLog1p + QueryZScore",
        epochs=8,
        random_state=0,
    ),
}
for ranker in rankers.values():
    ranker.fit(train, eval_set=valid)

# %%
systems = {name: ranker.predict(test) for name, ranker in rankers.items()}
found = tr.compare(systems, test.y, test.lists, measures=[purchases, "nDCG@5"])
print(found)
