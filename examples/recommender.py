"""A recommender on made-up interactions: users as queries, items as documents.

A user has bought some of the items. For each user, the candidates are unseen items. The features of
a user-item pair are what a shop knows before: popularity, the score of a matrix factorisation of
the earlier purchases, how many earlier purchases are in the item's category, and price. The labels
are the later purchases. The model learns the order of the candidates, which is judged by nDCG@10.

    python examples/recommender.py
"""

import numpy as np

import twinrank as tr

USERS, ITEMS, TASTES, CATEGORIES, CANDIDATES = 600, 300, 6, 12, 60
rng = np.random.default_rng(0)

# Made-up interactions: a user likes items that match the user's taste, and popular ones.
taste, appeal = rng.standard_normal((USERS, TASTES)), rng.standard_normal((ITEMS, TASTES))
category = np.argmax(appeal @ rng.standard_normal((TASTES, CATEGORIES)), axis=1)
popularity, price = rng.standard_normal(ITEMS), rng.lognormal(3, 1, ITEMS)
liking = taste @ appeal.T + 0.8 * popularity - 0.4 * np.log(price)
liking += rng.gumbel(size=liking.shape)
order = np.argsort(-liking, axis=1)
bought = np.zeros((USERS, ITEMS), bool)
np.put_along_axis(bought, order[:, :12], True, axis=1)
later = bought & (rng.random(bought.shape) < 0.4)  # the last purchases, to be predicted
earlier = bought & ~later

# What the shop knows from the earlier purchases.
left, size, right = np.linalg.svd(earlier - earlier.mean(0), full_matrices=False)
factors = (left[:, :TASTES] * size[:TASTES]) @ right[:TASTES]
sold = earlier.sum(0)
in_category = earlier.astype(float) @ (category[:, None] == category[None, :])

rows = []
for user in range(USERS):
    unseen = np.flatnonzero(~earlier[user])
    drawn = rng.choice(unseen, CANDIDATES, replace=False)
    items = np.union1d(drawn, np.flatnonzero(later[user]))
    features = (sold[items], factors[user, items], in_category[user, items], np.log(price[items]))
    rows.append((np.column_stack(features), later[user, items], np.full(items.size, user)))
X, y, user_id = (np.concatenate(part) for part in zip(*rows, strict=True))

names = ["sold", "factorisation", "bought in category", "log price"]
data = tr.Dataset.from_arrays(X, y.astype(int), qid=user_id, feature_names=names)
train, valid, test = data.split(0.6, 0.2, random_state=0)  # by user: test users are new ones

ranker = tr.BoostedRanker("nDCG@10", n_estimators=150, random_state=0).fit(train, eval_set=valid)
systems = {
    "popularity": test.X[:, 0],
    "factorisation": test.X[:, 1],
    "BoostedRanker": ranker.predict(test),
}
measures = ["nDCG@10", "Recall@10", "RR"]
comparison = tr.compare(systems, test.y, test.lists, measures, correction="holm")
print(f"{test.queries} users, {test.documents} candidates")
print(comparison)
assert (
    comparison.means["BoostedRanker"]["nDCG@10"] > comparison.means["popularity"]["nDCG@10"] + 0.1
)
