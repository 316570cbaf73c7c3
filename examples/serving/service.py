"""A web service that ranks the documents of one query.

    TWINRANK_MODEL=model.onnx uvicorn --factory service:create_app

The model is an exported .onnx file, which needs only onnxruntime, or a folder written by `save` or
`twinrank train`, which needs TwinRank.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, Field

MAX_DOCUMENTS, MAX_ERRORS = 1000, 5
BYTES_PER_DOCUMENT, BYTES_PER_FEATURE = 300, 30  # of JSON, at most

Floats = npt.NDArray[np.float32]


def encodable(text: str) -> str:
    """Text that an answer can contain: half of a surrogate pair cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("not valid Unicode") from error
    return text


class Document(BaseModel):
    """A document: its id, and its features in the order of the training data."""

    id: Annotated[str, AfterValidator(encodable)]
    features: list[Annotated[float, Field(strict=True, allow_inf_nan=False)]]


class Query(BaseModel):
    """The documents to rank, all of one query."""

    documents: Annotated[list[Document], Field(min_length=1, max_length=MAX_DOCUMENTS)]


class Ranked(BaseModel):
    """A document with its score and its rank, 1 for the best."""

    id: str
    rank: int
    score: float


class Ranking(BaseModel):
    """The documents, best first."""

    ranking: list[Ranked]


@dataclass(frozen=True)
class Model:
    """A loaded model: `score` maps the features of one query's documents to scores."""

    name: str
    features: int
    feature_names: list[str] | None
    score: Callable[[Floats], Any]


def load(path: Path) -> Model:
    """Load a model from an ONNX file or a folder."""
    if path.suffix == ".onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # requests run in parallel, one core each
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        metadata = session.get_modelmeta().custom_metadata_map
        features, names = json.loads(metadata["features"]), json.loads(metadata["feature_names"])
        return Model(path.name, features, names, lambda X: session.run(None, {"X": X})[0])
    from twinrank import load_model

    ranker = load_model(path)
    names = getattr(ranker, "feature_names_in_", None)
    return Model(
        path.name,
        ranker.n_features_in_,
        None if names is None else list(names),
        lambda X: ranker.predict(X, group=[len(X)]),
    )


def matrix(query: Query, features: int) -> Floats:
    """The features of all documents, after checks."""
    seen: set[str] = set()
    for document in query.documents:
        if len(document.features) != features:
            count = len(document.features)
            reject(f"document {document.id!r} has {count} features, but the model takes {features}")
        if document.id in seen:
            reject(f"document id {document.id!r} occurs twice")
        seen.add(document.id)
    with np.errstate(over="ignore"):  # too large values become infinite
        X = np.array([document.features for document in query.documents], np.float32)
    for row, column in np.argwhere(~np.isfinite(X))[:1].tolist():
        reject(f"feature {column + 1} of document {query.documents[row].id!r} is beyond float32")
    return X


def reject(reason: str) -> None:
    """Reject a request with status 422."""
    raise HTTPException(422, reason)


class BodyLimit:
    """Middleware that rejects longer bodies with status 413, before they are parsed."""

    def __init__(self, app: Any, most: int) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Count the bytes of a request as they arrive."""
        size = 0

        async def counted() -> Any:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.most:
                raise HTTPException(413, f"the request has more than {self.most} bytes")
            return message

        await self.app(scope, counted, send)


def create_app() -> FastAPI:
    """Create the service for the model in TWINRANK_MODEL."""
    if "TWINRANK_MODEL" not in os.environ:
        raise SystemExit("set TWINRANK_MODEL to an .onnx file or to the folder of a model")
    model = load(Path(os.environ["TWINRANK_MODEL"]))
    app = FastAPI(title="Re-ranking")
    per_document = BYTES_PER_DOCUMENT + BYTES_PER_FEATURE * model.features
    app.add_middleware(BodyLimit, most=MAX_DOCUMENTS * per_document)

    @app.exception_handler(RequestValidationError)
    def explain(_: Request, error: RequestValidationError) -> JSONResponse:
        """List the first errors of a request, each with its location."""
        messages = []
        for problem in error.errors():
            location = problem["loc"][1:] if problem["type"] != "json_invalid" else ()
            messages.append(f"{'.'.join(map(str, location or ['body']))}: {problem['msg']}")
        if len(messages) > MAX_ERRORS:
            messages[MAX_ERRORS:] = [f"and {len(messages) - MAX_ERRORS} more"]
        detail = "; ".join(messages).encode(errors="backslashreplace").decode()
        return JSONResponse({"detail": detail}, 422)

    @app.get("/health")
    def health() -> dict[str, Any]:
        """The status of the service, and the features of its model."""
        return {
            "status": "ok",
            "model": model.name,
            "features": model.features,
            "feature_names": model.feature_names,
        }

    @app.post("/rank")
    def rank(query: Query) -> Ranking:
        """Rank the documents of one query, best first; ties keep the order of the request."""
        with np.errstate(all="ignore"):
            scores = model.score(matrix(query, model.features))
        if not np.isfinite(scores).all():
            reject("the model gives no finite score for these features; are some too large?")
        order = np.argsort(-scores, kind="stable").tolist()
        ids = [document.id for document in query.documents]
        return Ranking(
            ranking=[
                Ranked(id=ids[i], rank=position, score=float(scores[i]))
                for position, i in enumerate(order, 1)
            ]
        )

    return app
