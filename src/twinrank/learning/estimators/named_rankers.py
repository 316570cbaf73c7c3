"""The rankers of a blend by name, from every form in which users can write them."""

import inspect
from collections.abc import Mapping
from typing import Any

from twinrank.learning.estimators.base_ranker import BaseRanker, estimator_class
from twinrank.learning.estimators.parameters import loaded_parameters
from twinrank.support.errors import InputError, unknown


def named_rankers(rankers: Any) -> dict[str, BaseRanker]:
    """The rankers of a blend by name, from any form that `Blend(rankers=…)` takes."""
    if rankers is None:
        rankers = {"trees": {"kind": "trees"}, "net": {"kind": "net"}}
    if isinstance(rankers, Mapping):
        named = {name: as_ranker(name, ranker) for name, ranker in rankers.items()}
    elif isinstance(rankers, list | tuple):
        listed = [as_ranker(str(i), ranker) for i, ranker in enumerate(rankers)]
        kinds = [ranker.kind for ranker in listed]
        named = {}
        for i, ranker in enumerate(listed):
            number = kinds[: i + 1].count(ranker.kind)
            several = kinds.count(ranker.kind) > 1
            named[f"{ranker.kind}_{number}" if several else ranker.kind] = ranker
    else:
        named = {}
    if not named:
        raise InputError(
            f"rankers must be a list of rankers, or a dict of them by name, not {rankers!r}."
        )
    return named


def as_ranker(name: str, value: Any) -> BaseRanker:
    """A ranker, or the ranker that a dict with its kind and parameters describes."""
    if isinstance(value, Mapping):
        own = dict(value)
        if "kind" not in own:
            raise InputError(
                f"Ranker {name!r} of a blend is a dict without its kind: write "
                f"{{'kind': 'net', …}} or {{'kind': 'trees', …}}."
            )
        estimator = estimator_class(str(own.pop("kind")))
        known = estimator._get_param_names()
        for key in own:
            if key not in known:
                raise InputError(unknown(f"parameter of {estimator.__name__}", str(key), known))
        value = estimator(**loaded_parameters({"parameters": own}, estimator))
    if not isinstance(value, BaseRanker) or value.kind == "blend":
        raise InputError(
            f"Ranker {name!r} of a blend must be a Ranker or a BoostedRanker, not {value!r:.80}."
        )
    return value


def check_shared(name: str, ranker: BaseRanker, key: str, value: Any) -> None:
    """Refuse a ranker's own value where the blend has another one."""
    own = getattr(ranker, key)
    usual = inspect.signature(estimator_class(ranker.kind)).parameters[key].default
    if str(own) not in (str(usual), str(value)):
        raise InputError(
            f"Ranker {name!r} has {key}={own!r}, but the blend sets {key}={value!r} for all "
            f"rankers: pass {key} to Blend."
        )
