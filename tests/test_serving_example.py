"""The re-ranking service of examples/serving: a real server, called over HTTP."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import twinrank as tr

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytest.importorskip("uvicorn")

EXAMPLE = Path(__file__).parents[1] / "examples" / "serving"
NAMES = ["bm25", "length", "clicks"]
X = np.random.default_rng(0).lognormal(size=(12, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def ranker():
    y = np.tile([0, 1, 2], 4)
    data = tr.Dataset.from_arrays(X, y, group=[6, 6], feature_names=NAMES)
    return tr.Ranker(architecture="CE4.L(width=4, depth=1)", epochs=1).fit(data)


@pytest.fixture(scope="module")
def client(ranker, tmp_path_factory):
    model = tmp_path_factory.mktemp("model") / "model.onnx"
    ranker.export(model)
    words = ["uvicorn", "--factory", "service:create_app", "--app-dir", str(EXAMPLE)]
    server = subprocess.Popen(
        [sys.executable, "-m", *words, "--host", "127.0.0.1", "--port", "0"],
        env={**os.environ, "TWINRANK_MODEL": str(model), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        log = ""
        while (address := re.search(r"running on (http://\S+)", log)) is None:
            line = server.stderr.readline()
            assert line, log  # it ended
            log += line
        with httpx.Client(base_url=address[1], trust_env=False, timeout=30) as client:
            yield client
    finally:
        server.terminate()
        server.communicate(timeout=30)


def service():
    """The example's module, which isn't on the path."""
    spec = importlib.util.spec_from_file_location("service", EXAMPLE / "service.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def body(rows, ids=None):
    names = [f"d{i}" for i in range(len(rows))] if ids is None else ids
    pairs = zip(names, rows, strict=True)
    return {"documents": [{"id": name, "features": list(row)} for name, row in pairs]}


def test_health(client):
    answer = client.get("/health")
    assert answer.status_code == 200
    about = {"model": "model.onnx", "features": 3, "feature_names": NAMES}
    assert answer.json() == {"status": "ok", **about}


@pytest.mark.parametrize("size", [1, 2, 12])
def test_ranks_as_the_ranker_does(client, ranker, size):
    answer = client.post("/rank", json=body(X[:size].tolist()))
    assert answer.status_code == 200
    ranking = answer.json()["ranking"]
    scores = ranker.predict(X[:size], group=[size])
    assert [document["rank"] for document in ranking] == list(range(1, size + 1))
    assert [document["id"] for document in ranking] == [
        f"d{i}" for i in np.argsort(-scores, kind="stable")
    ]
    np.testing.assert_allclose(
        [document["score"] for document in ranking], np.sort(scores)[::-1], atol=1e-5
    )


@pytest.mark.parametrize(
    ("request_body", "complaint"),
    [
        (body([[1, 2]]), "document 'd0' has 2 features, but the model takes 3"),
        (body([[1, 2, 3]] * 2, ["a", "a"]), "document id 'a' occurs twice"),
        (body([[1, 2, 3], [1, "x", 3]]), "documents.1.features.1: Input should be a valid number"),
        (body([[1, 2, 1e39]]), "feature 3 of document 'd0' is beyond float32"),
        (body([]), "documents: List should have at least 1 item"),
        (body([[1, 2, 3]] * 1001), "documents: List should have at most 1000 items"),
        (body([["?"] * 3] * 3), "and 4 more"),
        ({"documents": [{"features": [1, 2, 3]}]}, "documents.0.id: Field required"),
        ({}, "documents: Field required"),
        ([1], "body: Input should be"),
    ],
)
def test_bad_requests_get_a_reason(client, request_body, complaint):
    answer = client.post("/rank", json=request_body)
    assert answer.status_code == 422
    assert complaint in answer.json()["detail"]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b'{"documents": [{"id": "\\ud800", "features": [1, 2, 3]}]}', 422),
        (b'{"documents": [{"id": "a", "features": [3e38, -3e38, 3e38]}]}', (200, 422)),
        (b'{"documents": [{"id": "a", "features": [1, 2, "\\udfff"]}]}', 422),
        (b'{"documents": [{"id": "a", "\\ud800": 1, "features": []}]}', 422),
        (b"[" * 100_000, (400, 422)),
        (b'{"documents": [{"id": "a", "features": [1, 2, ' + b"9" * 5000 + b"]}]}", (400, 422)),
        (b'{"documents": [' + b" " * 500_000, 413),
        (b"\xff\xfe", (400, 422)),
    ],
)
def test_every_bad_request_is_an_error_of_the_client(client, content, status):
    answer = client.post("/rank", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (status if isinstance(status, tuple) else (status,))
    if answer.status_code == 200:
        assert np.isfinite(answer.json()["ranking"][0]["score"])


@pytest.mark.parametrize("word", ["NaN", "Infinity"])
def test_values_that_are_not_finite_are_refused(client, word):
    content = '{"documents": [{"id": "a", "features": [1, ' + word + ", 3]}]}"
    answer = client.post("/rank", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "documents.0.features.1: Input should be" in answer.json()["detail"]


def test_invalid_json_is_refused(client):
    answer = client.post("/rank", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "JSON decode error" in answer.json()["detail"]


@pytest.mark.parametrize("kind", [tr.Ranker, tr.BoostedRanker])
def test_models_in_folders_are_served_too(ranker, tmp_path, kind):
    if kind is tr.BoostedRanker:
        settings = {"n_estimators": 2, "engine_params": {"min_data_in_leaf": 1}, "n_jobs": 1}
        ranker = kind(**settings).fit(X, np.tile([0, 1, 2], 4), group=[6, 6])
    ranker.save(tmp_path / "folder")
    model = service().load(tmp_path / "folder")
    assert (model.name, model.features) == ("folder", 3)
    assert model.feature_names == (NAMES if kind is tr.Ranker else None)
    np.testing.assert_array_equal(model.score(X), ranker.predict(X, group=[len(X)]))
