"""The net that training starts from: a fresh one, or a copy of an earlier model's."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Transform, transform
from twinrank.data.transforms.combined import except_columns
from twinrank.data.transforms.transform_base import FeatureError
from twinrank.learning.models.ensemble import Net, build_net, resolve_architecture
from twinrank.learning.models.net_model import SCORED_TOGETHER, NetModel, path_of
from twinrank.learning.models.scorer import checked_categories, score_all
from twinrank.learning.training.learner import Task
from twinrank.learning.training.settings import check_number, seed_of
from twinrank.support.errors import InputError, TwinRankError


def initial_net(parameters: Mapping[str, Any], task: Task) -> tuple[Net, Transform, str | None]:
    """The net, its fitted transform, and the path of a user's own class."""
    chosen = resolve_architecture(parameters["architecture"], parameters["mode"])
    if task.previous is not None:
        return _continued_net(parameters, chosen, task)
    return *_fresh_net(parameters, chosen, task), path_of(chosen)


def ensemble_size_of(parameters: Mapping[str, Any]) -> int:
    """The number of nets, checked."""
    size = parameters["ensemble_size"]
    check_number("ensemble_size", size, whole=True, least=1)
    return int(size)


def _fresh_net(parameters: Mapping[str, Any], chosen: Any, task: Task) -> tuple[Net, Transform]:
    data = task.data
    generator = torch.Generator().manual_seed(seed_of(parameters["random_state"]))
    size = ensemble_size_of(parameters)
    categories = checked_categories(task.categories, data.features)
    try:
        fitted = except_columns(transform(parameters["transforms"]), categories)
        fitted = fitted.fit(data.X, data.lists)
    except FeatureError as error:
        raise error.named(data.query_ids, data.feature_names) from None
    fitted.check_features(data.features)
    net = build_net(fitted.outputs(data.features), chosen, size, categories, generator)
    for module in net.modules():
        if isinstance(module, torch.nn.Embedding):
            torch.nn.init.zeros_(module.weight[-3:])  # unknown and missing: neutral until seen
    if net.architecture is None:
        _try_net(net, data, fitted)
    return net, fitted


def _try_net(net: Net, data: Dataset, fitted: Transform) -> None:
    """Score one query with a user's own net, so that its errors appear before training."""
    query = data.select([0])
    try:
        score_all(net, query, fitted, SCORED_TOGETHER)
    except RuntimeError as error:
        if isinstance(error, TwinRankError):
            raise
        raise InputError(
            f"Your net cannot score X of shape {(query.documents, net.features)} ({error}). Build "
            f"it for {net.features} features."
        ) from error


def _continued_net(
    parameters: Mapping[str, Any], chosen: Any, task: Task
) -> tuple[Net, Transform, str | None]:
    """A copy of the previous net, so that a failure leaves the fitted model as it is."""
    previous = task.previous
    assert isinstance(previous, NetModel)
    if previous.features != task.data.features:
        raise InputError(
            f"X has {task.data.features} features, but the model has {previous.features}."
        )
    own = previous.net.architecture
    if path_of(chosen) != previous.custom if own is None else chosen != own:
        raise InputError("partial_fit cannot change the architecture; call fit.")
    if ensemble_size_of(parameters) != previous.ensemble_size:
        raise InputError("partial_fit cannot change ensemble_size; call fit.")
    return deepcopy(previous.net), previous.transform, previous.custom
