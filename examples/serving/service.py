"""Re-ranking over HTTP: documents of one query in, the same documents in order out.

    TWINRANK_MODEL=model.onnx uvicorn --factory service:create_app

The model is an exported .onnx file, which needs onnxruntime only, or a folder that `save` or
`twinrank train` wrote, which needs TwinRank.
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
from pydantic import BaseModel, Field

MOST_DOCUMENTS, MOST_ERRORS = 1000, 5

Floats = npt.NDArray[np.float32]


class Document(BaseModel):
    """What the caller calls a document, and its features in the model's order."""

    id: str
    features: list[Annotated[float, Field(strict=True, allow_inf_nan=False)]]


class Query(BaseModel):
    """The documents to rank, all of one query."""

    documents: Annotated[list[Document], Field(min_length=1, max_length=MOST_DOCUMENTS)]


class Ranked(BaseModel):
    """A document's place, 1 for the best."""

    id: str
    rank: int
    score: float


class Ranking(BaseModel):
    """The documents, best first."""

    ranking: list[Ranked]


@dataclass(frozen=True)
class Model:
    """A function from the features of one query's documents to their scores."""

    name: str
    features: int
    feature_names: list[str] | None
    score: Callable[[Floats], Any]


def load(path: Path) -> Model:
    """A model from an ONNX file or a folder."""
    if path.suffix == ".onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # requests run side by side: one core is enough for each
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        about = session.get_modelmeta().custom_metadata_map
        features, names = json.loads(about["features"]), json.loads(about["feature_names"])
        return Model(path.name, features, names, lambda X: session.run(None, {"X": X})[0])
    from twinrank.estimators.models import model_in

    ranker = model_in(path)
    names = getattr(ranker, "feature_names_in_", None)
    return Model(
        path.name,
        ranker.n_features_in_,
        None if names is None else list(names),
        lambda X: ranker.predict(X, group=[len(X)]),
    )


def matrix(query: Query, features: int) -> Floats:
    """The features of all documents, if they are what the model takes."""
    seen: set[str] = set()
    for document in query.documents:
        if len(document.features) != features:
            count = len(document.features)
            refuse(f"document {document.id!r} has {count} features, but the model takes {features}")
        if document.id in seen:
            refuse(f"document id {document.id!r} occurs twice")
        seen.add(document.id)
    with np.errstate(over="ignore"):  # too large becomes infinite
        X = np.array([document.features for document in query.documents], np.float32)
    for row, column in np.argwhere(~np.isfinite(X))[:1].tolist():
        refuse(f"feature {column + 1} of document {query.documents[row].id!r} is beyond float32")
    return X


def refuse(why: str) -> None:
    """Answer that the request can't be used."""
    raise HTTPException(422, why)


def create_app() -> FastAPI:
    """The service for the model that TWINRANK_MODEL names."""
    if "TWINRANK_MODEL" not in os.environ:
        raise SystemExit("say which model: TWINRANK_MODEL=model.onnx, or a model's folder")
    model = load(Path(os.environ["TWINRANK_MODEL"]))
    app = FastAPI(title="Re-ranking")

    @app.exception_handler(RequestValidationError)
    def explain(_: Request, error: RequestValidationError) -> JSONResponse:
        """The first few mistakes, each with its place."""
        found = error.errors()
        places = [one["loc"][1:] if one["type"] != "json_invalid" else () for one in found]
        told = [
            f"{'.'.join(map(str, place or ['body']))}: {one['msg']}"
            for place, one in zip(places, found, strict=True)
        ]
        more = [f"and {len(told) - MOST_ERRORS} more"] if len(told) > MOST_ERRORS else []
        return JSONResponse({"detail": "; ".join([*told[:MOST_ERRORS], *more])}, 422)

    @app.get("/health")
    def health() -> dict[str, Any]:
        """Whether the service is up, and what its model takes."""
        return {
            "status": "ok",
            "model": model.name,
            "features": model.features,
            "feature_names": model.feature_names,
        }

    @app.post("/rank")
    def rank(query: Query) -> Ranking:
        """The documents of one query, best first; equal scores stay in the order given."""
        scores = model.score(matrix(query, model.features))
        order = np.argsort(-scores, kind="stable").tolist()
        ids = [document.id for document in query.documents]
        return Ranking(
            ranking=[
                Ranked(id=ids[i], rank=place, score=float(scores[i]))
                for place, i in enumerate(order, 1)
            ]
        )

    return app
