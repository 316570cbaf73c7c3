"""The re-ranking service of examples/serving: a real server, called over HTTP."""

import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import twinrank as tr

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")
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
def server(ranker, tmp_path_factory):
    """The process of the service, and its address as `address`."""
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
        server.address = address[1]
        yield server
    finally:
        server.terminate()
        _, log = server.communicate(timeout=30)
    assert "Traceback" not in log


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server.address, trust_env=False, timeout=30) as client:
        yield client


def service():
    """The example's module, which isn't on the path."""
    spec = importlib.util.spec_from_file_location("service", EXAMPLE / "service.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documents(rows, ids=None):
    names = [f"d{i}" for i in range(len(rows))] if ids is None else ids
    pairs = zip(names, rows, strict=True)
    return [{"id": name, "features": row} for name, row in pairs]


def body(rows, ids=None):
    return {"queries": [{"documents": documents(rows, ids)}]}


def rankings(answer):
    """The rankings of a request that was answered."""
    assert answer.status_code == 200, answer.text
    return answer.json()["rankings"]


def test_it_is_short_and_public():
    text = (EXAMPLE / "service.py").read_text("utf-8")
    assert len(text.splitlines()) < 210
    assert set(re.findall(r"twinrank[.\w]*(?= as| import)", text)) == {"twinrank"}


def test_health(client):
    answer = client.get("/health")
    assert answer.status_code == 200
    about = {"model": "model.onnx", "features": 3, "feature_names": NAMES}
    assert answer.json() == {"status": "ok", **about}


@pytest.mark.parametrize("size", [1, 2, 12])
def test_ranks_as_the_ranker_does(client, ranker, size):
    (query,) = rankings(client.post("/rank", json=body(X[:size].tolist())))
    ranking = query["ranking"]
    scores = ranker.predict(X[:size], group=[size])
    assert [document["rank"] for document in ranking] == list(range(1, size + 1))
    assert [document["id"] for document in ranking] == [
        f"d{i}" for i in np.argsort(-scores, kind="stable")
    ]
    np.testing.assert_allclose(
        [document["score"] for document in ranking], np.sort(scores)[::-1], atol=1e-5
    )


def test_features_by_name_and_missing_values(client, ranker):
    missing = X[:4].copy()
    missing[1, 2] = np.nan
    expected = np.sort(ranker.predict(missing, group=[4]))[::-1]
    rows = [[None if np.isnan(v) else float(v) for v in row] for row in missing]
    by_name = [dict(reversed(list(zip(NAMES, row, strict=True)))) for row in rows]
    absent = [{k: v for k, v in row.items() if v is not None} for row in by_name]
    for form in (rows, by_name, absent):
        (query,) = rankings(client.post("/rank", json=body(form)))
        scores = [document["score"] for document in query["ranking"]]
        np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_several_queries_in_one_request(client, ranker):
    queries = [{"id": f"q{size}", "documents": documents(X[:size].tolist())} for size in (1, 3, 5)]
    found = rankings(client.post("/rank", json={"queries": queries}))
    assert [query["id"] for query in found] == ["q1", "q3", "q5"]
    for query, size in zip(found, (1, 3, 5), strict=True):
        scores = [document["score"] for document in query["ranking"]]
        expected = np.sort(ranker.predict(X[:size], group=[size]))[::-1]
        np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_metrics(client):
    def value(line):
        text = client.get("/metrics").text
        return int(re.search(rf"^{re.escape(line)} (\d+)$", text, re.MULTILINE)[1])

    served, rejected = (f'twinrank_requests_total{{path="/rank",status="{s}"}}' for s in (200, 422))
    client.post("/rank", json=body([[1, 2, 3]]))
    client.post("/rank", json=body([[1, 2]]))
    before = value(served), value(rejected)
    client.post("/rank", json=body([[1, 2, 3]]))
    client.post("/rank", json=body([[1, 2]]))
    assert (value(served), value(rejected)) == (before[0] + 1, before[1] + 1)
    assert client.get("/nowhere").status_code == 404
    assert client.get("/rank").status_code == 405
    assert client.get("/metrics").headers["content-type"].startswith("text/plain")
    last = value('twinrank_request_seconds_bucket{le="+Inf"}')
    assert value("twinrank_request_seconds_count") == last + 1


def test_concurrent_requests(client, ranker):
    """Answers belong to their requests, good and bad, and metrics count all of them."""

    def ask(i):
        size = i % 12 + 1
        rows = X[:size].tolist() if i % 5 else [[1, 2]]
        answer = client.post("/rank", json=body(rows))
        if not i % 5:
            return answer.status_code == 422
        scores = [document["score"] for document in rankings(answer)[0]["ranking"]]
        return np.allclose(scores, np.sort(expected[size])[::-1], atol=1e-5)

    expected = {size: ranker.predict(X[:size], group=[size]) for size in range(1, 13)}
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(80)))


MANY = {"queries": [{"documents": documents([[1, 2, 3]] * 600)} for _ in range(2)]}


@pytest.mark.parametrize(
    ("request_body", "complaint"),
    [
        (body([[1, 2]]), "document 'd0' has 2 features, not 3"),
        (body([{"bm25": 1, "boost": 2}]), "document 'd0': unknown feature 'boost'"),
        (body([[1, 2, 3]] * 2, ["a", "a"]), "query '' has two documents with the same id"),
        (body([[1, 2, 3], [1, "x", 3]]), "documents.1.features.1: Input should be a valid number"),
        (body([{"bm25": "x"}]), "documents.0.features.bm25: Input should be a valid number"),
        (body([[1, True, 3]]), "documents.0.features.1: Input should be a valid number"),
        (body(["x"]), "documents.0.features: Input should be a valid array"),
        (body([[1, 2, 1e39]]), "feature 3 of document 'd0' is beyond float32"),
        (body([]), "documents: List should have at least 1 item"),
        (body([[1, 2, 3]] * 1001), "documents: List should have at most 1000 items"),
        (MANY, "the request has 1200 documents, more than 1000"),
        ({"queries": []}, "queries: List should have at least 1 item"),
        ({"queries": [{"documents": documents([[1, 2, 3]])}] * 101}, "at most 100 items"),
        (body([["?"] * 3] * 3), "and 4 more"),
        (body([[1, 2, 3]], ["d" * 201]), "id: String should have at most 200 characters"),
        ({"queries": [{"documents": [{"features": [1]}]}]}, "documents.0.id: Field required"),
        ({}, "queries: Field required"),
        ([1], "body: Input should be an object"),
    ],
)
def test_bad_requests_get_a_reason(client, request_body, complaint):
    answer = client.post("/rank", json=request_body)
    assert answer.status_code == 422
    assert complaint in answer.json()["detail"]


def raw(id='"a"', features="[1, 2, 3]", more=""):
    """A request as bytes, valid by default."""
    document = f'{{"id": {id}, {more}"features": {features}}}'
    return f'{{"queries": [{{"documents": [{document}]}}]}}'.encode()


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (raw(), 200),
        (raw(id='"\\ud800"'), 422),
        (raw(features="[3e38, -3e38, 3e38]"), (200, 422)),
        (raw(features='[1, 2, "\\udfff"]'), 422),
        (raw(features='{"\\ud800": 1}'), 422),
        (raw(more='"\\ud800": 1, ', features="[]"), 422),
        (b"[" * 100_000, (400, 422)),
        (raw(features="[1, 2, " + "9" * 5000 + "]"), (400, 422)),
        (b'{"queries": [' + b" " * 500_000, 413),
        (b"\xff\xfe", (400, 422)),
        (b"", 422),
    ],
)
def test_every_bad_request_is_an_error_of_the_client(client, content, status):
    answer = client.post("/rank", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (status if isinstance(status, tuple) else (status,))
    if answer.status_code == 200:
        assert np.isfinite(rankings(answer)[0]["ranking"][0]["score"])
    else:
        assert answer.json()["detail"]


def test_bodies_of_unknown_length_are_refused(client):
    answer = client.post("/rank", content=(part for part in [b"{}"]))
    assert answer.status_code == 411
    assert answer.json() == {"detail": "content-length is required"}


def connect(client):
    """A socket to the server."""
    return socket.create_connection((client.base_url.host, client.base_url.port), timeout=30)


def head(*headers):
    """The first lines of a request to rank."""
    lines = ["POST /rank HTTP/1.1", "Host: test", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def read_to_the_end(connection):
    answer = b""
    with suppress(ConnectionResetError):  # closed with some of our bytes unread
        while part := connection.recv(65536):
            answer += part
    return answer.decode()


def test_two_lengths_are_refused(client):
    """Proxies would disagree where the next request begins."""
    with connect(client) as connection:
        headers = head(f"Content-Length: {len(raw())}", "Transfer-Encoding: chunked")
        connection.sendall(headers + b"%x\r\n%s\r\n0\r\n\r\n" % (len(raw()), raw()))
        answer = read_to_the_end(connection)  # the server closes the connection
    assert answer.startswith("HTTP/1.1 400 ")
    assert "content-length and transfer-encoding exclude each other" in answer


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "headers",
    [
        ["Content-Length: 100", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked"],
        ["Content-Length: 1000000000000"],
        ["Content-Length: 100"],
    ],
)
def test_large_bodies_are_not_kept_in_memory(client, server, headers):
    def resident():
        status = Path(f"/proc/{server.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1000

    client.get("/health")
    before = resident()  # the most so far, in MB
    part = b"%x\r\n" % 2**20 + b" " * 2**20 + b"\r\n"
    with connect(client) as connection, suppress(ConnectionError):
        connection.sendall(head(*headers))
        for _ in range(100):
            connection.sendall(part)
    assert client.get("/health").status_code == 200
    assert resident() < before + 20


def test_a_client_that_disconnects_is_not_an_error_of_the_server(client):
    def counts():
        lines = re.findall(r'path="/rank",status="(\d+)"} (\d+)', client.get("/metrics").text)
        return {status: int(count) for status, count in lines}

    before = counts().get("499", 0)
    with connect(client) as connection:
        connection.sendall(head("Content-Length: 1000") + b'{"queries"')
    for _ in range(100):
        if counts().get("499", 0) > before:
            break
        time.sleep(0.05)
    assert counts()["499"] == before + 1
    assert "500" not in counts()


@pytest.mark.parametrize("word", ["NaN", "Infinity"])
def test_values_that_are_not_finite_are_refused(client, word):
    content = raw(features=f"[1, {word}, 3]")
    answer = client.post("/rank", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "documents.0.features.1: Input should be" in answer.json()["detail"]


def test_invalid_json_is_refused(client):
    answer = client.post("/rank", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "body: Invalid JSON" in answer.json()["detail"]


@pytest.mark.parametrize(("name", "reason"), [("m.onnx", "text:brand"), ("m", "with text")])
def test_models_with_columns_of_text_are_refused(tmp_path, monkeypatch, name, reason):
    frame = pd.DataFrame({"brand": list("abcabcabcabc"), "price": X[:, 0]})
    settings = {"n_estimators": 2, "engine_params": {"min_data_in_leaf": 1}, "n_jobs": 1}
    ranker = tr.BoostedRanker(**settings).fit(frame, np.tile([0, 1, 2], 4), group=[6, 6])
    ranker.export(tmp_path / name) if name.endswith(".onnx") else ranker.save(tmp_path / name)
    monkeypatch.setenv("TWINRANK_MODEL", str(tmp_path / name))
    with pytest.raises(SystemExit, match=f"cannot score rows of numbers: .*{reason}"):
        service().create_app()


@pytest.mark.parametrize("kind", [tr.Ranker, tr.BoostedRanker])
def test_models_in_folders_are_served_too(ranker, tmp_path, kind):
    if kind is tr.BoostedRanker:
        settings = {"n_estimators": 2, "engine_params": {"min_data_in_leaf": 1}, "n_jobs": 1}
        ranker = kind(**settings).fit(X, np.tile([0, 1, 2], 4), group=[6, 6])
    ranker.save(tmp_path / "folder")
    model = service().load(tmp_path / "folder")
    assert model.features == 3
    assert model.names == (NAMES if kind is tr.Ranker else None)
    np.testing.assert_array_equal(model.score(X, [7, 5]), ranker.predict(X, group=[7, 5]))
