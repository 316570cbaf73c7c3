"""Warm start: the model that `fit(init_model=…)` continues, and what must stay the same."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import transform
from twinrank.learning.models.encoding import columns_of
from twinrank.learning.models.kinds import KINDS
from twinrank.learning.models.saved_model import Model, needs_architecture, read_model
from twinrank.learning.training.matched_data import matched
from twinrank.learning.training.own_code import identities
from twinrank.learning.training.settings import OTHER_NET, is_auto
from twinrank.support.errors import Argument, InputError
from twinrank.support.quantities import counted

_MODEL = Argument("init_model")


def initial_model(init_model: Any, kind: str, architecture: Any = None) -> Model | None:
    """The model of a fitted ranker or of a folder, if it is of this kind."""
    if init_model is None:
        return None
    model: Any = getattr(init_model, "model_", None)
    if isinstance(init_model, str | os.PathLike):
        folder = Path(init_model).expanduser()
        model = read_model(folder, architecture if needs_architecture(folder) else None)
    if not isinstance(model, Model):
        what = f"not {init_model!r:.80}"
        raise InputError(_MODEL, f" must be a fitted ranker or the folder of a saved one, {what}.")
    if model.kind != kind:
        raise InputError(
            _MODEL, f" holds {KINDS[model.kind].noun}, which cannot start {KINDS[kind].noun}."
        )
    return model


def continued_data(data: Dataset, model: Model) -> Dataset:
    """The training data with the features of the model; further features raise an error.

    `predict` ignores columns that the model does not know. In training they are probably features
    that the new model should learn from, which it cannot.
    """
    found = matched(data, model.features, model.feature_names, "the model", "the training data")
    if data.features > found.features:
        known = model.feature_names or ()
        new = [repr(name) for name in data.feature_names or () if name not in known]
        listed = ", ".join(new[:5]) + (", …" if len(new) > 5 else "")
        raise InputError(
            f"The training data has {counted(len(new), 'feature')} that ",
            _MODEL,
            f" was trained without: {listed}. Leave them out, or train a new model.",
        )
    return found


def check_same_training(
    parameters: Mapping[str, Any], saved: Mapping[str, Any], model: Model, data: Dataset
) -> None:
    """Refuse another objective, other transforms and other columns of categories.

    `saved` are the parameters as JSON. Of callable objectives the identities are compared.
    """
    before = model.provenance.get("parameters") or {}
    objective, earlier = saved.get("objective"), before.get("objective")
    if objective is not None and earlier not in (None, objective):
        raise InputError(
            _MODEL, " was trained on ", Argument("objective", earlier), f", not {objective!r}."
        )
    known = (model.provenance.get("identities") or {}).get("objective")
    if known not in (None, identities(parameters).get("objective")):
        raise InputError(
            _MODEL,
            " was trained on an ",
            Argument("objective"),
            f" of your own, not {objective or parameters['objective']!r}. Pass the same function.",
        )
    chosen = parameters["transforms"]
    if not is_auto(chosen) and str(transform(chosen)) != model.transforms():
        raise InputError(
            _MODEL,
            " has ",
            Argument("transforms", model.transforms()),
            f", which stay as they are, not {str(transform(chosen))!r}.",
        )
    names = model.feature_names or data.feature_names
    columns = columns_of(parameters["categorical_features"], model.features, names)
    for column in columns:
        if column not in model.encoding.columns:
            name = column if names is None else repr(names[column])
            raise InputError(f"Feature {name} is categorical now, but not in ", _MODEL, ".")


def continued_parameters(
    parameters: Mapping[str, Any], model: Model, sets: Mapping[str, Dataset]
) -> dict[str, Any]:
    """The parameters of a training that continues a model: "auto" is what the model has."""
    resolved = model.provenance.get("resolved")
    before = model.provenance.get("parameters")
    own: dict[str, Any] = {}
    if isinstance(resolved, dict) and isinstance(before, dict):
        same_mode = before.get("mode") == parameters["mode"]
        own = {name: resolved[name] for name in resolved if same_mode and name in parameters}
    own |= {"ensemble_size": model.ensemble_size, "transforms": model.transforms()}
    if "architecture" in parameters:
        own["architecture"] = model.net.architecture  # type: ignore[attr-defined]
    own = {name: value for name, value in own.items() if is_auto(parameters[name])}
    if own.get("architecture", "") is None:  # the model has a net of the user's own
        raise InputError(OTHER_NET)
    # Nothing selects in partial_fit, which has no evaluation set.
    return {**parameters, **own, **({} if sets else {"select": None})}
