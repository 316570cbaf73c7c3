"""A web service that ranks the documents of one or more queries.

    TWINRANK_MODEL=model.onnx uvicorn --factory service:create_app

The model is an exported .onnx file, which needs only onnxruntime, or a folder written by `save` or
`twinrank train`, which needs TwinRank.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from fastapi import Body, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Discriminator, Field, Tag

MAX_QUERIES, MAX_DOCUMENTS, MAX_ERRORS = 100, 1000, 5  # documents in all queries of a request
BUCKETS = ("0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.5", "+Inf")  # seconds

Id = Annotated[str, Field(max_length=200)]
Value = Annotated[float, Field(strict=True, allow_inf_nan=False)] | None
Features = Annotated[
    Annotated[list[Value], Tag("[]")] | Annotated[dict[str, Value], Tag("{}")],
    Discriminator(lambda value: "{}" if isinstance(value, dict) else "[]"),
]


class Document(BaseModel):
    """A document; features are a list, or an object by name. Null or absent ones are missing."""

    id: Id
    features: Features


class Query(BaseModel):
    """The documents of a query."""

    id: Id = ""
    documents: Annotated[list[Document], Field(min_length=1, max_length=MAX_DOCUMENTS)]


Queries = Annotated[list[Query], Body(embed=True, min_length=1, max_length=MAX_QUERIES)]


class Model(NamedTuple):
    """A loaded model: `score` takes features, and the number of documents of each query."""

    features: int
    names: list[str] | None
    score: Callable[[Any, list[int]], Any]


def load(path: Path) -> Model:
    """Load a model from an ONNX file or a folder."""
    if path.suffix != ".onnx":
        import twinrank as tr

        ranker = tr.load_model(path)
        names = list(getattr(ranker, "feature_names_in_", ())) or None
        return Model(ranker.n_features_in_, names, lambda X, sizes: ranker.predict(X, group=sizes))
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # requests run in parallel, one core each
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    about = session.get_modelmeta().custom_metadata_map

    def score(X: Any, sizes: list[int]) -> Any:
        parts = np.split(X, np.cumsum(sizes)[:-1])
        return np.concatenate([session.run(None, {"X": part})[0] for part in parts])

    return Model(json.loads(about["features"]), json.loads(about["feature_names"]), score)


def matrix(documents: list[Document], model: Model) -> Any:
    """The features of documents, NaN if missing, after checks."""
    X = np.full((len(documents), model.features), np.nan)
    columns = {name: i for i, name in enumerate(model.names or [])}
    for row, document in zip(X, documents, strict=True):
        given, count = document.features, len(document.features)
        if isinstance(given, dict):
            if unknown := [name for name in given if name not in columns]:
                raise ValueError(
                    f"document {document.id!r}: the model has no feature {unknown[0]!r}"
                )
            row[[columns[name] for name in given]] = list(given.values())
        elif count != model.features:
            raise ValueError(f"document {document.id!r} has {count} features, not {model.features}")
        else:
            row[:] = given
    for i, column in np.argwhere(np.abs(X) > np.finfo(np.float32).max)[:1].tolist():
        raise ValueError(f"feature {column + 1} of document {documents[i].id!r} is beyond float32")
    return X.astype(np.float32)


def best_first(query: Query, scores: Any) -> list[dict[str, Any]]:
    """Documents with rank and score; ties keep the order of the request."""
    order = enumerate(np.argsort(-scores, kind="stable").tolist(), 1)
    ids = [document.id for document in query.documents]
    return [{"id": ids[i], "rank": place, "score": float(scores[i])} for place, i in order]


def rank(queries: list[Query], model: Model) -> list[dict[str, Any]]:
    """The rankings of queries, after checks."""
    documents = [document for query in queries for document in query.documents]
    if len(documents) > MAX_DOCUMENTS:
        raise ValueError(f"the request has {len(documents)} documents, more than {MAX_DOCUMENTS}")
    for query in queries:
        if len({document.id for document in query.documents}) < len(query.documents):
            raise ValueError(f"query {query.id!r} has two documents with the same id")
    sizes = [len(query.documents) for query in queries]
    scores = model.score(matrix(documents, model), sizes)
    if not np.isfinite(scores).all():
        raise ValueError("the model gives no finite score: are features missing or too large?")
    pairs = zip(queries, np.split(scores, np.cumsum(sizes)[:-1]), strict=True)
    return [{"id": query.id, "ranking": best_first(query, own)} for query, own in pairs]


class Metrics:
    """Counters of this process for Prometheus; only the event loop uses them."""

    def __init__(self) -> None:
        self.requests, self.seconds = Counter[str](), Counter[Any]()

    def add(self, path: str, status: int, began: float) -> None:
        """Count a request."""
        seconds = time.perf_counter() - began
        self.requests[f'twinrank_requests_total{{path="{path}",status="{status}"}}'] += 1
        for limit in BUCKETS:
            name = f'twinrank_request_seconds_bucket{{le="{limit}"}}'
            self.seconds[name] += seconds <= float(limit)
        self.seconds.update(twinrank_request_seconds_sum=seconds, twinrank_request_seconds_count=1)

    async def text(self) -> str:
        """The counters in Prometheus' text format."""
        lines = []
        kinds = {"requests_total counter": self.requests, "request_seconds histogram": self.seconds}
        for kind, counter in kinds.items():
            lines += [f"# TYPE twinrank_{kind}", *(f"{name} {n}" for name, n in counter.items())]
        return "\n".join([*lines, ""])


def create_app() -> FastAPI:
    """Create the service for the model in TWINRANK_MODEL."""
    if "TWINRANK_MODEL" not in os.environ:
        raise SystemExit("set TWINRANK_MODEL to an .onnx file or to the folder of a model")
    path = Path(os.environ["TWINRANK_MODEL"])
    model, metrics, app = load(path), Metrics(), FastAPI(title="Ranking")
    bytes_per_document = 300 + 30 * model.features + len(json.dumps(model.names))  # at most
    most = MAX_DOCUMENTS * bytes_per_document

    @app.middleware("http")
    async def watch(request: Request, answer: Callable[[Request], Any]) -> Any:
        """Count a request, and reject a body that is too long before it is read."""
        began, length = time.perf_counter(), request.headers.get("content-length", "0")
        if "transfer-encoding" in request.headers or not length.isdecimal():
            response: Any = JSONResponse({"detail": "content-length is required"}, 411)
        elif int(length) > most:
            response = JSONResponse({"detail": f"the body has more than {most} bytes"}, 413)
        else:
            response = await answer(request)
        route = request.scope.get("route")  # none if the path is unknown
        metrics.add(getattr(route, "path", "other"), response.status_code, began)
        return response

    @app.exception_handler(RequestValidationError)
    def explain(_: Request, error: RequestValidationError) -> JSONResponse:
        """List the first errors of a request, each with its place."""
        messages = []
        for problem in error.errors():
            place = [str(p) for p in problem["loc"] if p not in ("body", "[]", "{}")]
            messages.append(f"{'.'.join(place) or 'body'}: {problem['msg']}")
        if len(messages) > MAX_ERRORS:
            messages[MAX_ERRORS:] = [f"and {len(messages) - MAX_ERRORS} more"]
        detail = "; ".join(messages).encode(errors="backslashreplace").decode()
        return JSONResponse({"detail": detail}, 422)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        about = {"features": model.features, "feature_names": model.names}
        return {"status": "ok", "model": path.name, **about}

    @app.post("/rank")
    def rank_queries(queries: Queries) -> dict[str, Any]:
        try:
            return {"rankings": rank(queries, model)}
        except ValueError as error:  # TwinRank's InputError is one
            raise HTTPException(422, str(error)) from error

    app.get("/metrics", response_class=PlainTextResponse)(metrics.text)
    return app
