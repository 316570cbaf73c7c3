"""`twinrank.pyterrier` in real pipelines of PyTerrier, which need no Java for this part."""

import numpy as np
import pytest

import twinrank as tr

pytest.importorskip("pyterrier", reason="PyTerrier is not installed")

import pandas as pd
import pyterrier as pt

from twinrank.pyterrier import LearnedRanker

COLUMNS = ["qid", "query", "docno", "features"]


def example(queries, seed=0):
    """Retrieved documents with features, in a shuffled order, and qrels of some of them."""
    data = tr.synthetic_web_search(queries=queries, seed=seed)
    qid = np.array([f"q{q}" for q in np.asarray(data.qid)])
    docno = np.array([f"d{i}" for i in range(data.documents)])
    frame = pd.DataFrame({"qid": qid, "query": "text", "docno": docno})
    frame["features"] = list(np.asarray(data.X))
    frame["score"] = 0.0
    qrels = pd.DataFrame({"qid": qid, "docno": docno, "label": np.asarray(data.y).astype(int)})
    order = np.random.default_rng(seed).permutation(len(frame))
    return frame.iloc[order].reset_index(drop=True), qrels[qrels.label > 0], data


def test_a_pipeline_fits_and_ranks_as_the_ranker_itself():
    train, qrels, data = example(30)
    valid, valid_qrels, _ = example(8, seed=1)
    own = tr.BoostedRanker(n_estimators=8, ensemble_size=1, random_state=0)
    stage = LearnedRanker(own)
    pipeline = pt.Transformer.identity() >> stage
    pipeline.fit(train, qrels, valid, valid_qrels)
    ranked = pipeline(valid)
    assert list(ranked.columns) == stage.transform_outputs(list(valid.columns))
    expected = own.predict(np.stack(valid.features), qid=valid.qid.to_numpy())
    found = ranked.set_index("docno").loc[valid.docno, "score"].to_numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    best = ranked[ranked["rank"] == 0].set_index("qid").score
    pd.testing.assert_series_equal(best.sort_index(), ranked.groupby("qid").score.max())
    # Documents that the judgements leave out have the label 0, as in the data.
    alone = tr.BoostedRanker(n_estimators=8, ensemble_size=1, random_state=0)
    X, y = np.stack(train.features), train.merge(qrels, how="left", on=["qid", "docno"]).label
    validation = valid.merge(valid_qrels, how="left", on=["qid", "docno"]).label.fillna(0)
    eval_set = (np.stack(valid.features), validation.to_numpy(), valid.qid.to_numpy())
    alone.fit(X, y.fillna(0).to_numpy(), qid=train.qid.to_numpy(), eval_set=eval_set)
    np.testing.assert_array_equal(alone.predict(X, qid=train.qid), own.predict(X, qid=train.qid))
    assert data.documents == len(train)


@pytest.mark.filterwarnings("ignore:.*inplace keyword")  # within PyTerrier, by pandas 3
def test_an_experiment_of_pyterrier():
    train, qrels, _ = example(12)
    stage = LearnedRanker(tr.BoostedRanker(n_estimators=3, ensemble_size=1), eval_fraction=0.3)
    stage.fit(train, qrels)
    topics = train[["qid", "query"]].drop_duplicates()
    both = [pt.Transformer.from_df(train), pt.Transformer.from_df(train) >> stage]
    table = pt.Experiment(both, topics, qrels, ["ndcg_cut_10"], names=["as it is", "ranked"])
    assert table.ndcg_cut_10[1] > table.ndcg_cut_10[0]
    run = (both[1])(topics)
    measured = tr.evaluate_run(run, qrels, "ndcg_cut_10")["ndcg_cut_10"]
    assert measured == pytest.approx(table.ndcg_cut_10[1])


def test_an_empty_result_and_mistakes():
    train, qrels, _ = example(6)
    stage = LearnedRanker(tr.BoostedRanker(n_estimators=2, ensemble_size=1))
    with pytest.raises(tr.InputError, match="no retrieved documents to fit on"):
        stage.fit(train.iloc[:0], qrels)
    with pytest.raises(tr.InputError, match="have a document twice"):
        stage.fit(train, pd.concat([qrels, qrels]))
    with pytest.raises(tr.InputError, match="The judgements have no column label"):
        stage.fit(train, qrels.rename(columns={"label": "relevance"}))
    with pytest.raises(tr.InputError, match="pass qrels_va"):
        stage.fit(train, qrels, train)
    stage.fit(train, qrels)
    assert list(stage(train.iloc[:0]).columns) == ["qid", "query", "docno", "features", "score",
                                                   "rank"]  # fmt: skip
    ragged = train.head(2).assign(features=[np.zeros(3), np.zeros(4)])
    with pytest.raises(tr.InputError, match="arrays of one length"):
        stage(ragged)
    with pytest.raises(tr.InputError, match="takes a Ranker, BoostedRanker or Blend, not dict"):
        LearnedRanker({})


def test_the_error_of_predict_without_queries_names_the_remedies():
    train, _, data = example(6)
    own = tr.BoostedRanker(n_estimators=2, ensemble_size=1).fit(data)
    with pytest.raises(
        tr.InputError, match=r"pass qid or group.*per-document.*twinrank\.pyterrier"
    ):
        own.predict(np.stack(train.features))
