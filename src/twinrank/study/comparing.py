"""`twinrank compare`: what is compared if nobody says, and what of it each method is told."""

from collections.abc import Mapping, Sequence
from typing import Any

from twinrank.study.methods import Method, method
from twinrank.study.running import MEASURES, Study
from twinrank.study.source import Source
from twinrank.support.errors import InputError, unknown

METHODS = (
    "LambdaMART",
    "ListNet",
    "ApproxNDCG",
    "AP-type3",
    "nDCG-type3",
    "nDCG-type3 (Boosted)",
)
NETS: Mapping[str, Any] = {"epochs": 30, "transforms": "SignedLog1p + QueryZScore"}
"""Parameters of nets, unless others are given; trees don't need transforms."""
TREES: Mapping[str, Any] = {"members": 1}
"""Parameters of trees: one member, as there is one net and one LambdaMART to compare with."""
QUICK: Mapping[str, Any] = {"epochs": 5, "n_estimators": 40}
BUILT_IN_FOLDS = 3
"""Of the built-in data: with the methods above, some two minutes on two cores."""
QUICK_QUERIES = 150


def comparison_study(
    source: Source,
    methods: Sequence[str] = METHODS,
    measures: Sequence[str] = MEASURES,
    folds: Sequence[int] | None = None,
    seeds: Sequence[int] = (0,),
    shared: Mapping[str, Any] | None = None,
    own: Mapping[str, Mapping[str, Any]] | None = None,
    quick: bool = False,
) -> Study:
    """A study of methods side by side.

    Each of the `shared` parameters goes to all methods that have it, `own` ones to one method. A
    quick one has fewer epochs and rounds, and only the first fold.
    """
    chosen = [method(name) for name in methods]
    _check_known(chosen, shared or {})
    given = {str(method(name)): dict(one) for name, one in (own or {}).items()}
    parameters = {
        str(one): {
            **_of(one, TREES if one.boosted else NETS),
            **(_of(one, QUICK) if quick else {}),
            **_of(one, shared or {}),
            **given.pop(str(one), {}),
        }
        for one in chosen
    }
    if quick and folds is None:
        folds = source.folds[:1]
    measured = str((shared or {}).get("validation_measure", "nDCG@5"))
    return Study(
        source,
        [str(one) for one in chosen],
        folds,
        seeds,
        measures,
        parameters | given,
        validation_measure=measured,
    )


def _of(one: Method, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those parameters that a method has."""
    return {name: value for name, value in parameters.items() if one.has(name)}


def _check_known(methods: Sequence[Method], parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that none of the methods has."""
    known = list(dict.fromkeys(n for m in methods for n in m.estimator._get_param_names()))
    for name in parameters:
        if name not in known:
            raise InputError(unknown("parameter", name, known))
        if name in ("objective", "strategy", "random_state"):
            hint = "--seeds" if name == "random_state" else "the methods"
            raise InputError(f"{name} is no parameter that methods share: choose {hint}")
