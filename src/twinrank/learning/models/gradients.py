"""Attributions of a net: the gradient of a score times how far features are from the query's mean.

They say to first order which features put a document above or below the others of its query. A
feature that is constant within queries gets 0, since it cannot change a ranking.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twinrank.core.lists import Lists
from twinrank.data.batches import Batch
from twinrank.data.dataset import Dataset
from twinrank.learning.models.devices import threads_for
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.learning.models.net_model import NetModel

Floats = npt.NDArray[np.float64]

_TOGETHER = 4_000  # documents in one batch
_STEPS = 500  # of an integral
_SAMPLE = 4_000  # documents for the importances that a model is saved with


def attributions(model: "NetModel", data: Dataset) -> Floats:
    """What each feature adds to each score, compared with the mean of the query, to first order.

    The data has the codes of the model's encoding. A category is compared with an unknown one,
    since it has no gradient.
    """
    values = np.zeros((data.documents, model.features))
    by_feature = np.zeros((model.net.features, model.features))
    by_feature[np.arange(model.net.features), model.transform.sources(model.features)] = 1
    batches = data.batches(_TOGETHER, transform=model.transform)
    offsets = data.lists.offsets
    with threads_for(model.net, min(_TOGETHER, data.documents)):
        for batch in batches.made(batches.plan(0)):
            first, last = offsets[batch.queries[0]], offsets[batch.queries[-1] + 1]
            values[first:last] = _of_columns(model, batch) @ by_feature
    return values


def pair_attributions(model: "NetModel", data: Dataset, a: int, b: int) -> Floats:
    """What each feature adds to the score of document a minus that of b, both of one query.

    Integrated gradients (Sundararajan et al. 2017): document a moves on a straight line from the
    features of b to its own, after the transforms, and each gradient along the way is multiplied by
    the distance. Categories, which have no gradient, change first, one after the other. The sum is
    the difference of scores, up to the error of the integral. A net that sees all documents of a
    query also sees the others, which stay, so that its difference is explained only in part.
    """
    weight = next(model.net.parameters())
    X = torch.from_numpy(np.asarray(model.transform(data.X, data.lists), np.float32)).to(weight)
    start, end = X[b].clone(), X[a].clone()
    others, row = (X, a) if model.net.per_query else (X[[a]], 0)

    def scores(points: Tensor) -> Tensor:
        """The score of document a at each of some points, the other documents beside it."""
        copies = others.expand(len(points), *others.shape)
        moved = torch.cat([copies[:, :row], points[:, None], copies[:, row + 1 :]], dim=1)
        lists = Lists.from_sizes([len(others)] * len(points))
        return model.net(moved.flatten(0, 1), lists).view(len(points), -1)[:, row]  # type: ignore[no-any-return]

    values = np.zeros(model.net.features)
    with torch.no_grad():
        for column in model.net.categories:
            changed = start.clone()
            changed[column] = end[column]
            before, after = scores(torch.stack([start, changed])).tolist()
            values[column] = after - before
            start = changed
    places = (torch.arange(_STEPS).to(weight)[:, None] + 0.5) / _STEPS
    for part in torch.split(places, max(_TOGETHER // len(others), 1)):
        points = (start + part * (end - start)).requires_grad_()
        with torch.enable_grad():
            gradient = _gradient(scores(points), points)
        values += _numpy(gradient).sum(axis=0) * _numpy(end - start) / _STEPS
    sums = np.zeros(model.features)
    np.add.at(sums, model.transform.sources(model.features), values)
    return sums


def _gradient(scores: Tensor, inputs: Tensor) -> Tensor:
    """The gradient of the sum of the scores."""
    gradient: Tensor | None = None
    if scores.requires_grad:
        (gradient,) = torch.autograd.grad(scores.sum(), inputs, allow_unused=True)
    if gradient is None:
        raise InputError("The net has no gradient by its features.")
    return gradient


def _of_columns(model: "NetModel", batch: Batch) -> Floats:
    """The attributions of the net's inputs, which are the columns after the transforms."""
    weight = next(model.net.parameters())
    X = torch.from_numpy(batch.X).to(weight, copy=True).requires_grad_()
    with torch.enable_grad():
        scores = model.net(X, batch.lists)
        gradient = _gradient(scores, X)
    values = _numpy(gradient) * _centred(batch.X.astype(np.float64), batch.lists)
    with torch.no_grad():
        for column in model.net.categories:
            unknown = X.detach().clone()
            unknown[:, column] = len(model.encoding.columns.get(column, ())) or -1
            change = _numpy(scores - model.net(unknown, batch.lists))
            values[:, column] = _centred(change[:, None], batch.lists)[:, 0]
    return values


def _numpy(tensor: Tensor) -> Floats:
    return np.asarray(tensor.detach().cpu(), np.float64)


def _centred(values: Floats, lists: Lists) -> Floats:
    """Values minus their means within each query."""
    sizes = np.asarray(lists.sizes)
    means = np.add.reduceat(values, np.asarray(lists.offsets)[:-1]) / sizes[:, None]
    return values - np.repeat(means, sizes, axis=0)


def importances(model: "NetModel", data: Dataset) -> Floats:
    """The share of each feature in the mean absolute attribution."""
    means = np.abs(attributions(model, data)).mean(axis=0)
    return np.asarray(means / means.sum() if means.sum() > 0 else means)


def sampled_importances(model: "NetModel", data: Dataset) -> tuple[float, ...] | None:
    """The importances on some queries, spread evenly over the data.

    None if all queries are too long for it, or if the net has no gradient by its features.
    """
    queries = np.flatnonzero(np.asarray(data.lists.sizes) <= _SAMPLE)
    if not queries.size:
        return None
    documents = int(np.asarray(data.lists.sizes)[queries].sum())
    part = data.select(queries[:: -(-documents // _SAMPLE)])
    try:
        shares = importances(model, part)
    except InputError:
        return None
    return tuple(shares.tolist()) if np.isfinite(shares).all() else None
