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
from pydantic import BaseModel, Discriminator, Field, Tag, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

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


class Queries(BaseModel):
    """What a request holds."""

    queries: Annotated[list[Query], Field(min_length=1, max_length=MAX_QUERIES)]


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
                raise ValueError(f"document {document.id!r}: unknown feature {unknown[0]!r}")
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
    parts = np.split(scores, np.cumsum(sizes)[:-1])
    return [{"id": q.id, "ranking": best_first(q, s)} for q, s in zip(queries, parts, strict=True)]


def explain(error: ValidationError) -> str:
    """The first errors of a request, each with its place."""
    shown = error.errors(include_input=False)[:MAX_ERRORS]
    places = [".".join(str(p) for p in e["loc"] if p not in ("[]", "{}")) for e in shown]
    more = error.error_count() - len(shown)
    messages = [f"{place or 'body'}: {e['msg']}" for place, e in zip(places, shown, strict=True)]
    return "; ".join(messages + [f"and {more} more"] * (more > 0))


class Metrics:
    """Counters of this process for Prometheus."""

    def __init__(self) -> None:
        self.requests, self.seconds = Counter[str](), Counter[Any]()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[f'_total{{path="{path}",status="{status}"}}'] += 1
        for limit in BUCKETS:
            self.seconds[f'_bucket{{le="{limit}"}}'] += seconds <= float(limit)
        self.seconds.update(_sum=seconds, _count=1)

    def text(self) -> str:
        """The counters in Prometheus' text format."""
        lines = ["# TYPE twinrank_requests_total counter"]
        lines += [f"twinrank_requests{name} {value}" for name, value in self.requests.items()]
        lines += ["# TYPE twinrank_request_seconds histogram"]
        lines += [f"twinrank_request_seconds{name} {value}" for name, value in self.seconds.items()]
        return "\n".join([*lines, ""])


def create_app() -> Starlette:
    """Create the service for the model in TWINRANK_MODEL."""
    if "TWINRANK_MODEL" not in os.environ:
        raise SystemExit("set TWINRANK_MODEL to an .onnx file or to the folder of a model")
    path, metrics = Path(os.environ["TWINRANK_MODEL"]), Metrics()
    model = load(path)
    try:
        model.score(np.zeros((1, model.features), np.float32), [1])
    except ValueError as error:  # such as a model with columns of text
        raise SystemExit(f"{path} cannot score rows of numbers: {error}") from error
    most = MAX_DOCUMENTS * (300 + 30 * model.features + len(json.dumps(model.names)))  # bytes

    about = {"model": path.name, "features": model.features, "feature_names": model.names}

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", **about})

    async def show_metrics(_: Request) -> Response:
        return PlainTextResponse(metrics.text())

    async def rank_queries(request: Request) -> Response:
        # Checked before the body is read. The server then reads no more bytes than this.
        length = request.headers.get("content-length", "")
        if "transfer-encoding" in request.headers and length:
            detail = "content-length and transfer-encoding exclude each other"
            return JSONResponse({"detail": detail}, 400, {"connection": "close"})
        if not length.isdecimal():
            return JSONResponse({"detail": "content-length is required"}, 411)
        if int(length) > most:
            return JSONResponse({"detail": f"the body has more than {most} bytes"}, 413)
        try:
            queries = Queries.model_validate_json(await request.body()).queries
            return JSONResponse({"rankings": rank(queries, model)})
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it, but metrics count it
        except ValidationError as error:
            return JSONResponse({"detail": explain(error)}, 422)
        except ValueError as error:  # TwinRank's errors are of this kind too
            return JSONResponse({"detail": str(error)}, 422)

    def counted(answer: Any) -> Any:
        async def count(request: Request) -> Response:
            began, response = time.perf_counter(), Response(status_code=500)
            try:
                return (response := await answer(request))
            finally:
                metrics.add(request.url.path, response.status_code, time.perf_counter() - began)

        return count

    routes = [Route("/health", counted(health)), Route("/metrics", counted(show_metrics))]
    return Starlette(routes=[*routes, Route("/rank", counted(rank_queries), methods=["POST"])])
