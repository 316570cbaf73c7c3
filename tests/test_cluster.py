"""`BoostedRanker` on a Dask cluster: the same trees but for noise, and nothing gathered."""

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import twinrank as tr
from twinrank.estimators.cluster import Part, _about, _first_cut, _part, on_cluster

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

NAMES = ["bm25", "length", "site"]
PARAMETERS = tr.BoostedRanker(transforms="none").get_params()


def some_queries(count, seed):
    """Features, labels and query ids, and the number of rows of each query."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(5, 30, count)
    X = draw.normal(size=(sizes.sum(), 3)).astype(np.float32)
    X[:, 2] = draw.integers(0, 4, len(X))
    signal = X[:, 0] + np.array([0, 1, 0, 1])[X[:, 2].astype(int)] + draw.normal(size=len(X)) / 3
    return X, np.clip(np.rint(signal), 0, 3), np.repeat(np.arange(count), sizes), sizes


X, Y, QID, SIZES = some_queries(240, 0)
CUTS = tuple(np.add.reduceat(SIZES, [0, 50, 130, 200]).tolist())


def arrays(cuts=CUTS):
    """Dask arrays of the same rows."""
    return (
        da.from_array(X, chunks=(cuts, 2)),
        da.from_array(Y, chunks=(cuts,)),
        da.from_array(QID, chunks=(cuts,)),
    )


# What a worker does with a partition


def test_a_partition_holds_the_queries_that_can_teach():
    qid = np.array([7, 3, 3, 7, 5, 9, 9])  # scattered, 5 alone, 9 without anything relevant
    labels = np.array([1, 0, 2, -1, 1, 0, 0])
    part = _part(X[:7], labels, qid, None, PARAMETERS)
    assert part.sizes.tolist() == [2, 2]
    assert part.y.tolist() == [1, 0, 0, 2]
    assert np.array_equal(part.X, X[[0, 3, 1, 2]])
    assert sorted(part.ids.tolist()) == [3, 5, 7, 9]
    assert part.weights is None
    about = _about(part, None)
    assert (about.queries, about.documents, about.features) == (2, 4, 3)


def test_weights_of_a_partition():
    qid, labels = np.array([7, 7, 3, 3]), np.array([1, 0, 0, 2])
    part = _part(X[:4], labels, qid, np.array([2.0, 2, 0, 0]), PARAMETERS)
    assert part.weights.tolist() == [2, 2]
    assert _about(_part(X[:4], labels, qid, np.zeros(4), PARAMETERS), None).queries == 0
    assert _about(_part(X[:4], labels * 0, qid, None, PARAMETERS), None).queries == 0


def test_frames_keep_their_names_and_transforms_apply():
    frame = pd.DataFrame(X[:40], columns=NAMES)
    given = {**PARAMETERS, "transforms": "QueryZScore", "categorical_features": ["site"]}
    part = _part(frame, pd.Series(Y[:40]), pd.Series(QID[:40]), None, given)
    assert part.names == tuple(NAMES)
    used = tr.Dataset.from_arrays(X[:40], Y[:40], qid=QID[:40])
    expected = tr.transform("QueryZScore")(X[:40], used.lists)
    assert np.array_equal(part.X[:, :2], expected[: len(part.X), :2])
    assert np.array_equal(part.X[:, 2], X[: len(part.X), 2])


def test_a_query_in_two_partitions_is_found():
    assert _first_cut([np.array([1, 2]), np.array([3])]) is None
    assert _first_cut([np.array(["a", "b"]), np.array(["c", "b"])]) == "b"


def test_partitions_agree_on_the_scale():
    """The hessians of two workers add up to those of one."""
    from dataclasses import replace

    from twinrank.boosting.newton import Newton

    newton = Newton.of("nDCG", perturbation=0.0, samples=1)
    scores = X[:, 1]
    whole = newton.sums(scores, Y, tr.Lists.from_sizes(SIZES))[1]
    fixed, half = replace(newton, unit=0.01), CUTS[0] + CUTS[1]
    lists = tr.Lists.from_sizes(SIZES[:130])
    np.testing.assert_allclose(
        fixed(scores[:half], Y[:half], lists)[1], 100 * whole[:half] + 1e-3, rtol=1e-5
    )


# What is refused


def test_dask_data_is_recognised():
    assert all(on_cluster(one) for one in arrays())
    assert not any(on_cluster(one) for one in (X, pd.DataFrame(X), None))
    with pytest.raises(tr.InputError, match="make a client first"):
        tr.BoostedRanker().fit(*arrays()[:2], qid=arrays()[2])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"eval_fraction": 0.2}, "no early stopping there"),
        ({"eval_set": (X, Y, QID)}, "no early stopping there"),
        ({"group": SIZES}, "takes X, y, qid and sample_weight"),
        ({"callbacks": [object()]}, "takes X, y, qid and sample_weight"),
    ],
)
def test_what_fit_does_not_take_there(given, message):
    a, b, c = arrays()
    with pytest.raises(tr.InputError, match=message):
        tr.BoostedRanker().fit(a, b, qid=c, **given)


# Two workers


@pytest.fixture(scope="module")
def workers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "engine", "members"),
    [
        ("nDCG", "lightgbm", 1),
        ("nDCG", "lightgbm", 3),
        ("LambdaMART", "lightgbm", 1),
        ("nDCG", "xgboost", 1),
        ("nDCG", "xgboost", 3),
        ("rank:ndcg", "xgboost", 1),
    ],
)
def test_two_workers_learn_what_one_process_learns(workers, objective, engine, members):
    grown = {"n_estimators": 40, "num_leaves": 8, "members": members}
    ranker = tr.BoostedRanker(objective, engine=engine, categorical_features=[2], **grown)
    new = some_queries(2_000, 1)
    one = ranker.fit(X, Y, qid=QID).score(*new[:2], qid=new[2])
    a, b, c = arrays()
    gathered = []
    gather = type(workers).gather

    def noting(self, *given, **more):
        found = gather(self, *given, **more)
        gathered.append(found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(workers), "gather", noting)
        two = ranker.fit(a, b, qid=c).score(*new[:2], qid=new[2])
    assert abs(one - two) < 0.005
    assert one > tr.evaluate(new[0][:, 0], new[1], tr.Lists.from_sizes(new[3]), "nDCG@5")["nDCG@5"]
    assert not any(isinstance(one, Part | np.ndarray) for found in gathered for one in _flat(found))
    assert ranker.best_iteration_ == 40
    assert ranker.model_.provenance["data"]["queries"] > 200


def _flat(found):
    return found if isinstance(found, list | tuple) else [found]


@pytest.mark.slow
def test_frames_weights_and_saving_on_two_workers(workers, tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    table = pd.DataFrame(X, columns=NAMES).assign(y=Y, qid=QID, weight=1.0 + QID % 2)
    divisions = [0, *np.cumsum(CUTS).tolist()]
    parts = [table.iloc[a:b] for a, b in pairwise(divisions)]
    frame = dd.from_delayed([workers.scatter(part) for part in parts], meta=table.iloc[:0])
    ranker = tr.BoostedRanker(n_estimators=10, num_leaves=8, transforms="QueryZScore")
    ranker.fit(frame[NAMES], frame["y"], qid=frame["qid"], sample_weight=frame["weight"])
    assert ranker.feature_names_in_.tolist() == NAMES
    assert ranker.score(table[NAMES], Y, qid=QID) > 0.8
    ranker.save(tmp_path / "model")
    loaded = tr.BoostedRanker.load(tmp_path / "model")
    assert np.array_equal(
        loaded.predict(table[NAMES], qid=QID), ranker.predict(table[NAMES], qid=QID)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({}, {"y": Y}, "y must be a Dask array or column"),
        ({}, {"qid": None}, "qid must be given"),
        ({}, {"qid": arrays((len(Y),))[2]}, "qid has 1 partitions, X 4"),
        ({}, {"y": arrays()[1] * 0}, "no query can teach"),
        ({}, {"y": arrays()[1] * np.nan}, "label must be a finite number"),
        ({"engine": "xgboost"}, {"sample_weight": arrays()[1] * 0 + 1}, "engine='lightgbm'"),
        ({"transforms": "Standardise"}, {}, "statistics of all the data"),
        ({"objective": "LambdaMART"}, {"y": arrays()[1] / 2}, "whole numbers"),
    ],
)
def test_data_that_cannot_be_used_on_a_cluster(workers, changes, given, message):
    a, b, c = arrays()
    with pytest.raises(tr.InputError, match=message):
        tr.BoostedRanker(**changes).fit(**{"X": a, "y": b, "qid": c, **given})


@pytest.mark.slow
def test_partitions_that_cut_through_a_query_are_refused(workers):
    cuts = (CUTS[0] + 1, CUTS[1] - 1, *CUTS[2:])
    a, b, c = arrays(cuts)
    with pytest.raises(tr.InputError, match="query 50 has rows in two partitions"):
        tr.BoostedRanker().fit(a, b, qid=c)
