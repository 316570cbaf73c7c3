"""`BoostedRanker`: its input, its errors, its objectives, and scikit-learn's checks."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import twinrank as tr

NAMES = ["bm25", "length", "site", "clicks"]
random = np.random.default_rng(1)
SIZES = np.array([16, 9, 24, 8, 17, 15, 29, 6, 18, 25] * 2)
QID = np.repeat(np.arange(100, 120), SIZES)
X = random.normal(size=(QID.size, 4)).astype(np.float32)
X[:, 2] = random.integers(0, 6, QID.size)
BONUS = np.array([0, 2, 0, 2, 0, 2])  # of a site: no threshold separates them
Y = np.clip(np.rint(X[:, 0] + BONUS[X[:, 2].astype(int)] + random.normal(size=QID.size) / 3), 0, 3)
Y[np.r_[0, np.cumsum(SIZES)[:-1]]] = 1
DATA = tr.Dataset.from_arrays(X, Y, qid=QID)
SCATTERED = random.permutation(QID.size)
TINY = {"min_data_in_leaf": 3, "min_sum_hessian_in_leaf": 1e-3, "cat_smooth": 1.0}
SMALL = {"n_estimators": 6, "num_leaves": 5, "n_jobs": 1, "transforms": "none"}
BOTH = [{"engine": "lightgbm", "engine_params": TINY}, {"engine": "xgboost", "engine_params": None}]
both = pytest.mark.parametrize("engine", BOTH, ids=["lightgbm", "xgboost"])


def small(**changes):
    return tr.BoostedRanker(**{"engine_params": TINY, **SMALL, **changes})


@pytest.fixture(scope="module")
def fitted():
    return small().fit(X, Y, qid=QID)


# Input


@both
@pytest.mark.parametrize(
    "form",
    [
        lambda x: x.tolist(),
        sp.csr_array,
        lambda x: pd.DataFrame(x, columns=NAMES),
        lambda x: x.astype(np.float64),
    ],
    ids=["list", "sparse", "frame", "float64"],
)
def test_the_same_trees_from_every_form_of_features(form, engine):
    expected = small(**engine).fit(DATA)
    ranker = small(**engine).fit(form(X), Y, qid=QID)
    assert np.array_equal(ranker.predict(form(X)), expected.predict(X))
    assert ranker.predict(X).dtype == np.float32
    assert hasattr(ranker, "feature_names_in_") == (form(X).__class__ is pd.DataFrame)


def test_rows_may_come_in_any_order(fitted):
    assert np.array_equal(
        fitted.predict(X[SCATTERED], qid=QID[SCATTERED]), fitted.predict(X)[SCATTERED]
    )
    assert np.array_equal(
        fitted.rank(X[SCATTERED], qid=QID[SCATTERED]).min(), fitted.rank(X, qid=QID).min()
    )
    parts = fitted.contributions(X[SCATTERED], qid=QID[SCATTERED])
    assert np.array_equal(parts, fitted.contributions(DATA)[SCATTERED])
    order = np.argsort(np.arange(QID.size) % 2, kind="stable")  # every query in two places
    again = small(perturbation=0, samples=1).fit(X[order], Y[order], qid=QID[order])
    assert np.array_equal(again.predict(X[order], qid=QID[order]), again.predict(X)[order])
    assert again.score(X, Y, qid=QID) > 0.7


def test_queries_are_required_if_scores_depend_on_them(fitted):
    assert np.array_equal(fitted.predict(X), fitted.predict(X, qid=QID))
    whole = small(transforms="QueryZScore").fit(DATA)
    for call in (whole.predict, whole.contributions):
        with pytest.raises(tr.InputError, match="pass qid or group"):
            call(X)
    for call in (fitted.rank, lambda x: fitted.score(x, Y)):
        with pytest.raises(tr.InputError, match="qid"):
            call(X)


@both
def test_missing_values_are_left_to_the_engine(engine):
    gaps = X.copy()
    gaps[Y >= 2, 3] = np.nan  # most relevant documents have it missing
    ranker = small(**engine).fit(gaps, Y, qid=QID)
    assert ranker.score(gaps, Y, qid=QID) > small(**engine).fit(DATA).score(DATA)
    assert ranker.feature_importances_.argmax() == 3
    assert np.isfinite(ranker.predict(gaps * np.nan)).all()
    gaps[5, 1] = np.inf
    for call in (ranker.predict, lambda x: small(**engine).fit(x, Y, qid=QID)):
        with pytest.raises(tr.InputError, match=r"Feature 2 of .* is infinite\. Put Clip"):
            call(gaps)
    small(**engine, transforms="Clip").fit(gaps, Y, qid=QID)


@both
def test_categories(engine):
    kept = {"categorical_features": [2], "num_leaves": 2, "n_estimators": 1}
    by_site = small(**engine, **kept).fit(DATA)  # one split separates sites, no threshold could
    sites = by_site.predict(np.c_[np.zeros((6, 2)), np.arange(6), np.zeros(6)])
    assert (sites == sites[1]).tolist() == (BONUS > 0).tolist()
    frame = pd.DataFrame(X, columns=NAMES)
    named = small(**engine, **{**kept, "categorical_features": ["site"]}).fit(frame, Y, qid=QID)
    assert np.array_equal(named.predict(frame), by_site.predict(X))
    missing = X.copy()
    missing[:, 2] = np.nan
    assert np.isfinite(by_site.predict(missing)).all()
    below = X.copy()
    below[:, 2] = -1  # pandas' code of a missing category
    assert np.array_equal(by_site.predict(below), by_site.predict(missing))
    below[30, 2] = 0.5
    with pytest.raises(tr.InputError, match=r"Feature 3 is 0\.5 in a row, but a category"):
        small(**engine, **kept).fit(below, Y, qid=QID)


@both
@pytest.mark.parametrize("transforms", ["QueryZScore", "none | QueryZScore | PiecewiseLinear"])
def test_contributions_add_up_to_scores(engine, transforms, tmp_path):
    ranker = small(**engine, categorical_features=[2], transforms=transforms).fit(DATA)
    ranker.save(tmp_path / "model")
    loaded = tr.BoostedRanker.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(DATA), ranker.predict(DATA))
    parts = ranker.contributions(DATA)
    assert parts.shape == (Y.size, 5)
    np.testing.assert_allclose(parts.sum(1), ranker.predict(DATA), atol=1e-5)
    assert np.ptp(parts[:, -1]) == 0
    assert ranker.feature_importances_.sum() == pytest.approx(1)
    assert ranker.feature_importances_[[0, 2]].sum() > 0.7
    assert np.abs(parts[:, [0, 2]]).sum() > np.abs(parts[:, [1, 3]]).sum()


@both
def test_weights_of_queries(engine):
    some = np.arange(20) % 2
    rows = np.repeat(some, SIZES) > 0
    settings = {**engine, "perturbation": 0.0, "samples": 1}
    weighted = small(**settings).fit(X, Y, qid=QID, sample_weight=some)
    alone = small(**settings).fit(X[rows], Y[rows], qid=QID[rows])
    assert np.array_equal(weighted.predict(X), alone.predict(X))
    by_row = small(**settings).fit(X, Y, qid=QID, sample_weight=np.repeat(some, SIZES))
    assert np.array_equal(by_row.predict(X), alone.predict(X))
    heavy = small(**settings).fit(X, Y, qid=QID, sample_weight=1 + 99 * some)
    assert not np.array_equal(heavy.predict(X), small(**settings).fit(DATA).predict(X))


def test_unjudged_documents_count_as_zero(fitted):
    unjudged = np.where((Y == 0) & (np.arange(Y.size) % 2 == 0), -1, Y)
    for objective in ("nDCG", "LambdaMART"):
        sets = [tr.Dataset.from_arrays(X, y, qid=QID, unjudged="keep") for y in (Y, unjudged)]
        scores = [small(objective=objective).fit(data).predict(X) for data in sets]
        assert np.array_equal(*scores)


# Objectives and reproducibility


def test_the_same_random_state_gives_the_same_trees_with_any_number_of_jobs(fitted):
    expected = fitted.predict(X)
    for jobs in (1, 2, -1, None):
        assert np.array_equal(small(n_jobs=jobs).fit(DATA).predict(X), expected)
    assert not np.array_equal(small(random_state=1).fit(DATA).predict(X), expected)
    assert np.array_equal(clone(fitted).fit(DATA).predict(X), expected)
    assert np.array_equal(fitted.predict(X), expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "type1"},
        {"strategy": "type2"},
        {"objective": "AP", "engine": "xgboost", "engine_params": None},
        {"objective": "P@5"},
        {"objective": tr.measure("nERR@10")},
        {"objective": "LambdaMART"},
        {"objective": "rank_xendcg"},
        {"objective": "rank:ndcg", "engine": "xgboost", "engine_params": None},
    ],
)
def test_every_objective_learns(changes):
    ranker = small(**changes, n_estimators=20, num_leaves=8).fit(DATA)
    assert ranker.score(DATA) > 0.85
    assert ranker.best_iteration_ == len(ranker.history_) == 20


def test_lambdamart_is_lightgbms_own():
    import lightgbm as lgb

    settings = {"objective": "lambdarank", "num_leaves": 5, "num_threads": 1, "verbosity": -1}
    settings |= {**TINY, "deterministic": True, "force_col_wise": True, "learning_rate": 0.05}
    expected = lgb.train(settings, lgb.Dataset(X, Y, group=SIZES), 6).predict(X)
    scores = small(objective="LambdaMART").fit(DATA).predict(X)
    assert np.array_equal(scores, expected.astype(np.float32))


def test_own_values_win_in_paper_mode():
    def chosen(**changes):
        ranker = tr.BoostedRanker(objective="LambdaMART", mode="paper", **changes)
        return ranker.check_parameters()

    paper = chosen()
    assert (paper["n_estimators"], paper["learning_rate"], paper["num_leaves"]) == (1000, 0.05, 400)
    assert (paper["early_stopping"], paper["transforms"]) == (200, "QueryZScore")
    assert paper["engine_params"]["min_data_in_leaf"] == 50
    assert paper["engine_params"]["min_sum_hessian_in_leaf"] == 200
    own = chosen(num_leaves=7, early_stopping=None, engine_params={"min_data_in_leaf": 1})
    assert (own["num_leaves"], own["early_stopping"], own["n_estimators"]) == (7, None, 1000)
    assert own["engine_params"]["min_data_in_leaf"] == 1
    assert own["engine_params"]["min_sum_hessian_in_leaf"] == 200
    long = tr.Dataset.from_arrays(X, Y, group=[DATA.documents])
    for objective in ("LambdaMART", "AP"):
        changes = {"objective": objective, "mode": "paper", "n_estimators": 2}
        ranker = tr.BoostedRanker(engine_params=TINY, **changes)
        assert ranker.fit(long).booster_.num_trees() == 2
    resolved = ranker.check_parameters()  # only the objective differs, and the paper's has no noise
    assert (resolved["perturbation"], resolved["samples"], resolved["num_leaves"]) == (0, 1, 400)


# Errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "nDGC"}, "Did you mean 'nDCG'"),
        ({"objective": "lambdarank"}, "Did you mean 'LambdaMART'"),
        ({"objective": "rank:ndcg"}, "needs engine='xgboost'"),
        ({"objective": "LambdaMART", "engine": "xgboost"}, "needs engine='lightgbm'"),
        ({"objective": None}, "objective must be a measure"),
        ({"strategy": "type4"}, "strategy"),
        ({"perturbation": -1}, "perturbation"),
        ({"samples": 0}, "samples"),
        ({"engine": "catboost"}, "engine 'catboost'"),
        ({"mode": "papers"}, "paper"),
        ({"mode": "paper", "engine": "xgboost"}, "mode='paper' has settings of LightGBM"),
        ({"n_estimators": 0}, "n_estimators"),
        ({"n_estimators": None}, "n_estimators"),
        ({"num_leaves": 1}, "num_leaves must be a whole number of at least 2"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"early_stopping": 0}, "early_stopping"),
        ({"transforms": "ZScore"}, "QueryZScore"),
        ({"validation_measure": "nDCG5"}, "nDCG"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"random_state": None}, "random_state"),
        ({"categorical_features": [4]}, "column 4, but X has 4 features"),
        ({"categorical_features": ["sites"]}, "feature 'sites'"),
        ({"categorical_features": 2}, "must be a list of columns"),
        ({"categorical_features": [1.5]}, "must list columns"),
        ({"engine_params": {"num_leafs": 3}}, "Did you mean 'num_leaf'"),
        ({"engine_params": {"eta": 0.3}}, "cannot set eta: set learning_rate of the ranker"),
        ({"engine_params": ["a"]}, "must be a dict"),
        ({"engine_params": {"boosting": "forest"}}, "LightGBM: "),
        ({"engine_params": {"max_dept": 3}, "engine": "xgboost"}, 'XGBoost: .*"max_dept"'),
        ({"engine_params": {"max_depth": -3}, "engine": "xgboost"}, "XGBoost: .*max_depth"),
    ],
)
def test_invalid_parameters(changes, message):
    with pytest.raises(tr.InputError, match=message):
        small(**changes).fit(DATA)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Pass either qid .* or group"),
        ({"y": Y * 0, "qid": QID}, "Cannot train on any of 20 queries"),
        ({"qid": QID, "eval_set": (X, Y * 0, QID)}, "'validation' has no relevant document"),
        ({"qid": QID, "eval_set": (X[:, :3], Y, QID)}, "'validation' has 3 features"),
    ],
)
def test_invalid_data(arguments, message):
    with pytest.raises(tr.InputError, match=message):
        small().fit(**{"X": X, "y": Y, **arguments})


def test_engines_own_objectives_take_whole_grades():
    with pytest.raises(tr.InputError, match=r"Labels must be whole numbers .* but one is 1.5"):
        small(objective="LambdaMART").fit(X, np.where(Y == 1, 1.5, Y), qid=QID)
    small(objective="AP").fit(X, np.where(Y == 1, 1.5, Y), qid=QID)
    with pytest.raises(tr.InputError, match=r"LightGBM: .*40"):
        small(objective="LambdaMART", validation_measure="AP").fit(
            X, np.where(Y == 3, 40, Y), qid=QID
        )


def test_an_unfitted_ranker_raises(tmp_path):
    ranker = small()
    for call in (ranker.predict, ranker.rank, ranker.score, ranker.contributions):
        with pytest.raises(NotFittedError):
            call(DATA)
    with pytest.raises(NotFittedError):
        ranker.save(tmp_path / "model")
    for name in ("feature_importances_", "best_iteration_", "booster_"):
        assert not hasattr(ranker, name)


def test_features_are_counted_and_named(fitted):
    for call in (fitted.predict, fitted.contributions):
        with pytest.raises(tr.InputError, match="X has 3 features, but BoostedRanker is expecting"):
            call(X[:, :3])
    frame = pd.DataFrame(X, columns=NAMES)
    named = small().fit(frame, Y, qid=QID)
    assert named.feature_names_in_.tolist() == NAMES
    moved = frame[["length", "bm25", "site", "clicks"]]
    for call in (named.predict, named.contributions):
        assert np.array_equal(call(moved), call(frame))


# scikit-learn


class OneQuery(tr.BoostedRanker):
    """All rows are one query, because scikit-learn's checks have no queries."""

    def __init__(self, n_estimators=3, engine="lightgbm", engine_params=None, random_state=0):
        super().__init__(
            n_estimators=n_estimators,
            engine=engine,
            engine_params=engine_params,
            random_state=random_state,
            transforms="none",
            n_jobs=1,
        )

    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, y, qid=_same_id(X), sample_weight=sample_weight)

    def score(self, X, y=None):
        return super().score(X, y, qid=_same_id(X))


def _same_id(X):
    return np.zeros(X.shape[0] if hasattr(X, "shape") else np.asarray(X).shape[0])


_WEIGHTS = "weights multiply gains: a weight of 2 is not two copies"
EXCEPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": _WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": _WEIGHTS,
}


@parametrize_with_checks(
    [OneQuery(engine_params=TINY), OneQuery(engine="xgboost")],
    expected_failed_checks=lambda _: EXCEPTIONS,
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_cross_validation_and_search_route_queries():
    with config_context(enable_metadata_routing=True):
        ranker = small().set_fit_request(qid=True).set_score_request(qid=True)
        params = {"qid": QID, "groups": QID}
        values = cross_val_score(ranker, X, Y, cv=GroupKFold(3), params=params)
        assert values.shape == (3,)
        assert (values > 0.6).all()
        search = GridSearchCV(ranker, {"num_leaves": [2, 5]}, cv=GroupKFold(2), refit=True)
        search.fit(X, Y, **params)
        assert search.best_params_["num_leaves"] in (2, 5)
        assert search.predict(X).shape == Y.shape


@pytest.mark.parametrize(
    ("engine", "engine_params"),
    [
        ("lightgbm", {"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0}),
        ("xgboost", {"booster": "dart", "rate_drop": 0.5}),
    ],
)
def test_the_kept_round_of_dart_is_the_one_that_was_evaluated(engine, engine_params):
    """Later rounds of DART rescale earlier trees."""
    train, valid = tr.synthetic_web_search(queries=40).split(0.5, random_state=0)
    ranker = tr.BoostedRanker(
        n_estimators=12, engine=engine, engine_params=engine_params, tolerance=0, random_state=0
    ).fit(train, eval_set=valid)
    assert ranker.best_iteration_ < 12
    assert ranker.score(valid) == pytest.approx(ranker.best_score_, abs=1e-6)
