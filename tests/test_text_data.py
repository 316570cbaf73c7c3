"""Text collections: files, frames, columns for trainers, and BM25 candidates."""

import importlib.util

import numpy as np
import pandas as pd
import polars as pl
import pytest

import twinrank as tr

if importlib.util.find_spec("sentence_transformers") is None:
    pytest.skip("needs sentence-transformers", allow_module_level=True)

from twinrank.text import (
    TextCollection,
    bm25_candidates,
    columns_from_frame,
    read_beir,
)

CORPUS = {"1": "cats eat fish", "2": "dogs run", "3": "fish swim", "4": "birds fly", "5": "a cat"}
COLLECTION = TextCollection(
    {"q": "a cat", "r": "the fish"}, CORPUS, {"q": {"2": 0, "5": 1, "1": 2}, "r": {"3": 1}}
)
PAIRS = {"query": ["a", "b", "a"], "document": ["x", "y", "z"], "label": [1, 2, 0]}


def beir(folder, **files):
    """A small collection in BEIR's layout, with some files replaced."""
    texts = {
        "corpus": '{"_id": "d1", "title": "Cats", "text": "eat fish"}\n{"_id": 2, "text": "é"}\n',
        "queries": '{"_id": "q", "text": "a cat"}\n{"_id": "unused", "text": "x"}\n',
        "qrels": "query-id\tcorpus-id\tscore\nq\td1\t2\nq\t2\t0\n",
    } | files
    (folder / "qrels").mkdir()
    (folder / "corpus.jsonl").write_text(texts["corpus"], "utf-8")
    (folder / "queries.jsonl").write_text(texts["queries"], "utf-8")
    (folder / "qrels" / "test.tsv").write_text(texts["qrels"], "utf-8")
    return folder


def test_reads_beir(tmp_path):
    data = read_beir(beir(tmp_path))
    assert data.queries == {"q": "a cat"}
    assert data.corpus == {"d1": "Cats eat fish", "2": "é"}
    assert data.qrels == {"q": {"d1": 2.0, "2": 0.0}}
    assert repr(data) == "TextCollection(1 queries, 2 documents, 2 judgements)"
    with pytest.raises(tr.FileError, match=r"dev\.tsv"):
        read_beir(tmp_path, "dev")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"corpus": '{"_id": "d1", "text": ""}\n{"_id": '},
            r"corpus.jsonl, line 2: the line is not JSON",
        ),
        ({"corpus": '{"id": "d1"}'}, r"line 1: expected an object with '_id' and 'text'"),
        ({"queries": '{"_id": 1, "text": "a"}\n{"_id": "1", "text": "b"}'}, "'1' appears twice"),
        ({"queries": ""}, "queries.jsonl is empty"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq d1 1\n"}, r"test.tsv, line 2: expected query"),
        ({"qrels": "q\td1\thigh\n"}, r"line 1: a grade must be a finite number; found 'high'"),
        ({"qrels": "q\td1\t1\nq\td1\t1\n"}, "line 2: query 'q' has document 'd1' twice"),
        ({"qrels": "q\td9\t1\n"}, "line 1: document 'd9' has no text"),
        ({"qrels": "query-id\tcorpus-id\tscore\n"}, "no judgements"),
    ],
)
def test_names_the_bad_line_of_a_beir_file(tmp_path, files, message):
    with pytest.raises(tr.InputError, match=message):
        read_beir(beir(tmp_path, **files))


@pytest.mark.parametrize("frame", [dict, pd.DataFrame, pl.DataFrame, pl.LazyFrame])
def test_columns_from_a_frame(frame):
    expected = {"query": ["a", "b"], "documents": [["x", "z"], ["y"]], "labels": [[1, 0], [2]]}
    assert columns_from_frame(frame(PAIRS)) == expected
    renamed = {"q": PAIRS["query"], "text": PAIRS["document"], "y": PAIRS["label"]}
    assert columns_from_frame(frame(renamed), "q", "text", "y") == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": [1, None, 0]}, "Row 2, column 'label': a grade must be a finite number; found"),
        ({"label": ["1", "good", "0"]}, "Row 2, column 'label': .* found 'good'"),
        ({"document": ["x", "", "z"]}, "Row 2 has '' in column 'document'; expected a text"),
        ({"query": ["a", "b", 3]}, "Row 3 has 3 in column 'query'"),
        ({"label": [1, 2]}, "The columns have 3, 3 and 2 rows"),
        ({"query": [], "document": [], "label": []}, "no rows"),
    ],
)
def test_refuses_columns_with_bad_values(changes, message):
    with pytest.raises(tr.InputError, match=message):
        columns_from_frame(PAIRS | changes)
    with pytest.raises(tr.InputError, match="Unknown column 'labels'"):
        columns_from_frame(PAIRS, label="labels")


def test_negatives_follow_the_relevant_documents():
    candidates = {"q": ["3", "2", "4", "5"], "r": ["4", "3"]}
    columns = COLLECTION.columns(candidates, negatives=2, seed=1)
    assert columns["labels"] == [[2, 1, 0, 0], [1, 0]]
    assert columns["documents"][0][:2] == ["cats eat fish", "a cat"]
    assert set(columns["documents"][0][2:]) <= {"fish swim", "dogs run", "birds fly"}
    assert columns == COLLECTION.columns(candidates, negatives=2, seed=1)
    draws = [COLLECTION.columns(candidates, negatives=1, seed=s)["documents"] for s in range(9)]
    assert any(draw != draws[0] for draw in draws)
    assert COLLECTION.columns(candidates)["labels"] == [[0, 0, 0, 1], [0, 1]]  # as they are


def test_queries_with_nothing_relevant_are_for_evaluation_only():
    data = TextCollection({"q": "x", "r": "y"}, CORPUS, {"q": {"1": 0}, "r": {"2": 1, "1": 0}})
    assert data.columns(negatives=1)["query"] == ["y"]
    assert data.columns()["query"] == ["x", "y"]
    with pytest.raises(tr.InputError, match="No query has a relevant document"):
        data.select(["q"]).columns(negatives=1)


def test_refuses_collections_that_do_not_fit():
    with pytest.raises(tr.InputError, match="name query 'x', which queries lacks"):
        TextCollection({}, CORPUS, {"x": {"1": 1}})
    with pytest.raises(tr.InputError, match="document '9', which corpus lacks"):
        TextCollection({"q": "a"}, CORPUS, {"q": {"9": 1}})
    with pytest.raises(tr.InputError, match="grade nan"):
        TextCollection({"q": "a"}, CORPUS, {"q": {"1": np.nan}})
    with pytest.raises(tr.InputError, match="Query 'q' has no documents"):
        COLLECTION.columns({"r": ["1"]})
    with pytest.raises(tr.InputError, match="Candidate '9' of query 'q' is not in the corpus"):
        COLLECTION.columns({"q": ["9"], "r": ["1"]})
    with pytest.raises(tr.InputError, match="negatives must be a whole number"):
        COLLECTION.columns(negatives=-1)
    with pytest.raises(tr.InputError, match="Unknown query 'z'"):
        COLLECTION.select(["z"])


def test_bm25_finds_documents_with_the_words_of_the_query():
    pytest.importorskip("bm25s")
    found = bm25_candidates(COLLECTION, top=2)
    assert {query: len(own) for query, own in found.items()} == {"q": 2, "r": 2}
    assert found["q"][0] == "5"
    assert set(found["r"]) == {"1", "3"}
    assert len(bm25_candidates(COLLECTION, top=50)["q"]) == len(CORPUS)
    with pytest.raises(tr.InputError, match="top must be a positive"):
        bm25_candidates(COLLECTION, top=0)
    with pytest.raises(tr.InputError, match="no documents or no queries"):
        bm25_candidates(TextCollection({"q": "a"}, {}, {}))


def test_bm25_says_what_is_missing(monkeypatch):
    monkeypatch.setattr("twinrank.text.text_data.find_spec", lambda _: None)
    with pytest.raises(
        tr.InputError, match=r"bm25s; install it with pip install 'twinrank\[text\]'"
    ):
        bm25_candidates(COLLECTION)
