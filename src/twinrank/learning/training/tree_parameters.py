"""The parameters of boosted trees: their checks, and what they mean for the engines."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from twinrank.core.measures import Measure, measure, names
from twinrank.core.measures.constraints import constrained, starting
from twinrank.core.own_losses import is_own_loss, own_loss
from twinrank.data.transforms import transform
from twinrank.learning.boosting.engines import ENGINES, TreeSettings
from twinrank.learning.boosting.newton import Newton
from twinrank.learning.boosting.own_objective import OwnObjective
from twinrank.learning.boosting.tree_model import TreeModel
from twinrank.learning.models.encoding import check_columns
from twinrank.learning.training.settings import PER_DOCUMENT, TREE_PARAMETERS, as_plain
from twinrank.support.errors import Argument, InputError, check_number, has_torch
from twinrank.support.notation import summands

ENGINE_OBJECTIVES = {
    "LambdaMART": ("lightgbm", "lambdarank"),
    "rank_xendcg": ("lightgbm", "rank_xendcg"),
    "rank:ndcg": ("xgboost", "rank:ndcg"),
}
"""Objectives of the engines themselves: our name, the engine, its own name."""

_ROW_SAMPLES = (
    "bagging", "bagging_by_query", "bagging_fraction", "bagging_freq", "data_sample_strategy",
    "neg_bagging_fraction", "pos_bagging_fraction", "sampling_method", "sub_row", "subsample",
    "subsample_freq",
)  # fmt: skip
_LINEAR = ("linear_tree", "linear_trees")
_BOOSTING = ("boosting", "boosting_type", "boost")
_OTHER_DRAWS = (
    *_BOOSTING, "colsample_bylevel", "colsample_bynode", "extra_tree",
    "extra_trees", "feature_fraction_bynode", "sub_feature_bynode",
)  # fmt: skip
_WITHOUT_NOISE = ("LambdaMART", "rank:ndcg")
BY_COLUMN = (
    "monotone_constraints", "mc", "monotone_constraint", "interaction_constraints",
    "feature_contri", "feature_contrib", "fc", "fp", "feature_penalty", "feature_weights",
    "max_bin_by_feature", "forcedsplits_filename", "forcedbins_filename",
)  # fmt: skip
"""Settings of the engines with a value for each column of the user's features."""
_OURS = {name: ours for ours, p in TREE_PARAMETERS.items() for name in p.aliases.split()}
"""Our parameter for each name that the engines have for it."""
_NEWTON = ("strategy", "perturbation", "samples", "random_state")
PAPER_PARAMS = {
    "min_data_in_leaf": 50,
    "min_sum_hessian_in_leaf": 200.0,
    "lambdarank_truncation_level": 1_000_000,
}


def check_engine_params(engine_params: Any) -> dict[str, Any]:
    """Refuse settings of the engine that the ranker has a parameter for."""
    if engine_params is None:
        return {}
    if not isinstance(engine_params, Mapping) or not all(isinstance(k, str) for k in engine_params):
        raise InputError(f"engine_params must be a dict of settings, not {engine_params!r}.")
    for key in engine_params:
        if key in _OURS:
            raise InputError(f"engine_params cannot set {key}: set {_OURS[key]} of the ranker.")
    return {  # values of NumPy cannot be written as JSON
        key: value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        for key, value in engine_params.items()
    }


def check_tree_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise InputError for parameters that cannot be used."""
    for name, parameter in TREE_PARAMETERS.items():
        if parameter.number is not None:
            check_number(name, parameters[name], **parameter.number)
    _check_samples(parameters)
    jobs = parameters["n_jobs"]
    whole = isinstance(jobs, int | np.integer) and not isinstance(jobs, bool) and jobs != 0
    if jobs is not None and not whole:
        raise InputError(f"n_jobs must be a number of threads, or -1 for all, not {jobs!r}.")
    if parameters["engine"] not in ENGINES:
        raise InputError(argument="engine", value=parameters["engine"], choices=ENGINES)
    if transform(parameters["transforms"]).per_query and parameters["mode"] == PER_DOCUMENT:
        raise InputError(
            Argument("transforms", parameters["transforms"]),
            " depends on the other documents of a query, which ",
            Argument("mode", PER_DOCUMENT),
            " excludes. Use transforms such as SignedLog1p or Standardise.",
        )
    check_columns(parameters["categorical_features"])
    _check_objective(parameters["objective"], parameters["engine"])
    Newton.of("nDCG", *(parameters[name] for name in _NEWTON))
    newton_of(parameters)
    reason = reason_for_one_model(parameters)
    if parameters["ensemble_size"] > 1 and reason is not None:
        raise InputError(f"ensemble_size > 1 {reason}.")
    engine_params = parameters["engine_params"]
    own_objective = str(parameters["objective"]) in ENGINE_OBJECTIVES
    if engine_params.get("bagging_by_query") and not own_objective:
        raise InputError(
            "engine_params sets bagging_by_query, which only works with LightGBM's own "
            "objectives: with a measure, LightGBM grows wrong trees. Leave it out; LightGBM then "
            "samples rows."
        )


def newton_of(parameters: Mapping[str, Any]) -> Newton | None:
    """The gradient and hessian of the measure; None for one of the engine's own objectives."""
    if str(parameters["objective"]) in ENGINE_OBJECTIVES:
        return None
    objective, settings = parameters["objective"], [parameters[name] for name in _NEWTON]
    if is_own_loss(objective):
        return _own_objective(objective, Newton.of("nDCG", *settings).random_state)
    return Newton.of(starting(objective), *settings)


def _own_objective(objective: Any, random_state: int) -> OwnObjective:
    """The gradient and hessian of a user's own objective."""
    if isinstance(objective, str):
        function, title = own_loss(objective), objective
    else:
        title = getattr(objective, "__qualname__", type(objective).__name__)
        function = objective() if isinstance(objective, type) else objective
    try:
        inspect.signature(getattr(function, "forward", function)).bind(
            *["scores", "labels", "lists"]
        )
    except ValueError:  # some callables have no signature
        pass
    except TypeError as error:
        raise InputError(
            Argument("objective"), f": {title} must take (scores, labels, lists) ({error})."
        ) from error
    return OwnObjective(measure("nDCG"), random_state=random_state, function=function, title=title)


def tree_settings(parameters: Mapping[str, Any], columns: tuple[int, ...]) -> TreeSettings:
    """How trees are grown, given the columns of categories."""
    own = ENGINE_OBJECTIVES.get(str(parameters["objective"]))
    same = ("learning_rate", "num_leaves", "ensemble_size", "colsample_bytree", "subsample")
    return TreeSettings(
        objective=own[1] if own else None,
        **{name: as_plain(parameters[name]) for name in (*same, "subsample_freq", "n_jobs")},
        categorical=columns,
        seed=int(parameters["random_state"]),
        engine_params=parameters["engine_params"],
    )


def _check_samples(parameters: Mapping[str, Any]) -> None:
    """Check the shares of columns and queries."""
    for name in ("colsample_bytree", "subsample"):
        if parameters[name] > 1:
            raise InputError(f"{name} is a share of at most 1, not {parameters[name]!r}.")
    taken = [name for name in parameters["engine_params"] if name in _ROW_SAMPLES]
    if parameters["subsample"] < 1 and taken:
        raise InputError(
            f"engine_params sets {taken[0]}, which samples rows, and subsample="
            f"{parameters['subsample']} samples queries. Set one of them."
        )


def draws_randomly(settings: TreeSettings, objective: Any) -> bool:
    """True if the rounds of a training differ by random draws."""
    if objective is not None or settings.objective == "rank_xendcg":
        return True
    own = {*_ROW_SAMPLES, *_OTHER_DRAWS}.intersection(settings.engine_params)
    return bool(own) or settings.colsample_bytree < 1 or settings.subsample < 1


def reason_for_one_model(parameters: Mapping[str, Any]) -> str | None:
    """Why an ensemble is impossible, if it is."""
    draws = {*_ROW_SAMPLES, *_OTHER_DRAWS}.intersection(parameters["engine_params"])
    shares = [parameters[name] for name in ("colsample_bytree", "subsample")]
    if str(parameters["objective"]) in _WITHOUT_NOISE and shares == [1, 1] and not draws:
        return (
            f"needs models that differ, but {parameters['objective']} has no random numbers. Set "
            f"subsample or colsample_bytree below 1"
        )
    return _reason_against_sums(parameters["engine"], parameters["engine_params"])


def _reason_against_sums(engine_name: str, engine_params: Mapping[str, Any]) -> str | None:
    """Why trees cannot be added to other trees, if they cannot."""
    booster = engine_params.get("booster", "gbtree")
    if engine_name == "xgboost" and booster != "gbtree":
        return f"needs booster='gbtree' in engine_params, not {booster!r}"
    boosting = next((engine_params[name] for name in _BOOSTING if name in engine_params), "gbdt")
    if engine_name == "lightgbm" and boosting in ("dart", "rf", "random_forest"):
        return f"needs boosting='gbdt' in engine_params, not {boosting!r}"
    if any(engine_params.get(name) for name in _LINEAR):  # LightGBM crashes in several threads
        return "needs linear_tree=False in engine_params"
    return None


def check_continues(
    parameters: Mapping[str, Any], earlier: TreeModel, columns: tuple[int, ...]
) -> None:
    """Raise InputError if trees with these parameters cannot continue earlier ones."""
    name = parameters["engine"]
    if earlier.engine != name:
        raise InputError(
            Argument("init_model"),
            f" has trees of {earlier.engine}, which {name} cannot continue. Use ",
            Argument("engine", earlier.engine),
            ".",
        )
    if earlier.categorical != columns:  # models that were saved in format 1
        raise InputError(
            Argument("init_model"), " was saved without the codes of its categories: train anew."
        )
    before = earlier.provenance.get("parameters", {}).get("engine_params") or {}
    for own in (parameters["engine_params"], before):
        reason = _reason_against_sums(name, own)
        if reason is not None:
            raise InputError(Argument("init_model"), f" {reason}.")
    rounds = [own.get("num_parallel_tree", 1) for own in (before, parameters["engine_params"])]
    if rounds[0] != rounds[1]:
        raise InputError(
            Argument("init_model"),
            f" was trained with num_parallel_tree={rounds[0]}, not {rounds[1]}.",
        )


def _check_objective(name: Any, engine_name: str) -> None:
    if str(name) in ENGINE_OBJECTIVES:
        needed = ENGINE_OBJECTIVES[str(name)][0]
        if needed != engine_name:
            raise InputError(f"Objective {name!r} needs ", Argument("engine", needed), ".")
        return
    if constrained(name) is not None:
        return
    if isinstance(name, str):
        for known, (_, theirs) in ENGINE_OBJECTIVES.items():
            if name.lower() in (known.lower(), theirs.lower()):
                raise InputError(
                    "Unknown ", Argument("objective"), f" {name!r}. Did you mean {known!r}?"
                )
        if not is_own_loss(name):
            terms = [parse_name(term) for _, term in summands(name)]
            for term in terms:
                _check_no_loss(term)
            if len(terms) == 1:  # `measure` checks sums
                _check_known(terms[0])
    elif not is_own_loss(name) and not isinstance(name, Measure):
        others = ", ".join(ENGINE_OBJECTIVES)
        raise InputError(
            Argument("objective"),
            f" must be a measure, a loss of your own, or one of {others}, not {name!r}.",
        )
    if not is_own_loss(name):
        measure(name)


def parse_name(text: str) -> str:
    """The name in a notation, without options and cutoff."""
    return text.partition("(")[0].partition("@")[0].strip()


def _check_no_loss(name: str) -> None:
    """Refuse losses, which are for nets."""
    if name not in names() and has_torch():
        from twinrank.core.losses import NAMES as LOSSES

        if name in LOSSES:
            raise InputError(f"{name} is a loss for nets; trees optimise measures, such as nDCG.")


def _check_known(name: str) -> None:
    """Refuse names that are no measures."""
    if name not in names():
        raise InputError(argument="objective", value=name, choices=[*names(), *ENGINE_OBJECTIVES])
