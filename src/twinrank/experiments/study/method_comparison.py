"""The studies behind `twinrank compare`: default methods and measures, and study files."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from twinrank.core.measures import measure
from twinrank.data.loading import load
from twinrank.experiments.study.catboost_ranker import INSTALL, is_installed
from twinrank.experiments.study.methods import NET, SIZE_PARAMETER, TREES, Method, method
from twinrank.experiments.study.study import COMPARED_MEASURES, Study
from twinrank.experiments.study.study_source import Source
from twinrank.learning.training.matched_data import papers_queries
from twinrank.learning.training.settings import FEWEST
from twinrank.support.errors import InputError, Parts, has_torch, unknown
from twinrank.support.files import read_toml

METHODS = ("LambdaMART", "CatBoost", "ListNet", "BoostedRanker", "Ranker", "Blend")
_NETS = ("ListNet", "Ranker", "Blend")
ONE_MODEL: Mapping[str, Mapping[str, Any]] = {TREES.name: {SIZE_PARAMETER: 1}}
"""Parameters of methods with an objective: one model is compared with one LambdaMART. Estimators
such as "Ranker" have their own defaults."""
QUICK: Mapping[str, Any] = {"epochs": 5, "n_estimators": 40}
BUILT_IN_FOLDS, BUILT_IN_QUERIES, QUICK_QUERIES = 3, 160, 150
"""The size of the built-in data. The methods above take about two minutes on two cores."""


def default_methods() -> list[str]:
    """The default methods, without CatBoost and nets if what they need is not installed."""
    left_out = [*(() if is_installed() else ("CatBoost",)), *(() if has_torch() else _NETS)]
    return [str(method(name)) for name in METHODS if name not in left_out]


def note_on_missing(study: Study) -> str:
    """How to add the default method that a study lacks; empty if it lacks none."""
    if study.method_names != default_methods():
        return ""
    missing = {"CatBoost": is_installed(), "torch": has_torch()}
    notes = {
        "CatBoost": f"CatBoost is not installed, so this comparison lacks it. To add it: {INSTALL}",
        "torch": "torch is not installed, so this comparison lacks nets. To add them: pip install "
        "'twinrank[nets]'",
    }
    return " ".join(notes[name] for name, installed in missing.items() if not installed)


def comparison_study(
    source: Source,
    methods: Sequence[str] | None = None,
    measures: Sequence[str] | None = None,
    folds: Sequence[int] | None = None,
    seeds: Sequence[int] = (0,),
    shared: Mapping[str, Any] | None = None,
    own: Mapping[str, Mapping[str, Any]] | None = None,
    quick: bool = False,
    testing: Mapping[str, Any] | None = None,
) -> Study:
    """The study that compares methods, by default those of `default_methods`.

    The default measures are those of `COMPARED_MEASURES` that the weights of the data allow.
    Each of the `shared` parameters goes to all methods that have it, `own` parameters go to one
    method. A quick study has fewer epochs and rounds, and only the first fold. `testing` has the
    arguments `test`, `level` and `correction` of `compare`.
    """
    shared = shared or {}
    chosen = [method(name) for name in (default_methods() if methods is None else methods)]
    _check_known(chosen, shared)
    by_method = {str(method(name)): dict(values) for name, values in (own or {}).items()}
    parameters = {
        str(each): {
            **(each.known(ONE_MODEL.get(each.kind.name, {})) if each.objective else {}),
            **(each.known(QUICK) if quick else {}),
            **each.known(shared),
            **by_method.pop(str(each), {}),
        }
        for each in chosen
    }
    modes = {{**each.parameters(), **parameters[str(each)]}.get("mode") for each in chosen}
    if shared.get("mode") == "paper" or modes == {"paper"}:
        documents, relevant = FEWEST["paper"]
        source = replace(source, min_documents=documents, min_relevant=relevant)
    if quick and folds is None:
        folds = source.folds[:1]
    return Study(
        source,
        [str(each) for each in chosen],
        folds,
        seeds,
        _measures(measures, source, source.check(None if folds is None else tuple(folds))[0]),
        parameters | by_method,
        validation_measure=str(shared.get("validation_measure", "nDCG@5")),
        testing=testing or {},
    )


def _measures(measures: Sequence[str] | None, source: Source, fold: int) -> Sequence[str]:
    """These measures, or the default ones; if weights differ within a query, they must allow it."""
    if all(data.row_weights is None for data in source.sets(fold).values()):
        return measures or COMPARED_MEASURES
    for name in measures or ():
        measure(name).check_takes_weights()
    return measures or [name for name in COMPARED_MEASURES if measure(name).takes_weights]


def note_on_left_out(study: Study) -> Parts:
    """The number of queries of the first fold that the mode "paper" leaves out; empty if none."""
    if all(unit.parameters.get("mode") != "paper" for unit in study.units):
        return ()
    whole, fold = replace(study.source, min_documents=1, min_relevant=0), study.chosen_folds[0]
    sets = dict(whole.sets(fold))
    if study.source.min_documents < FEWEST["paper"][0]:
        del sets["test"]  # other methods are tested on all queries
    note = papers_queries(sets.items())[1]
    return (f"Fold {fold}: ", *note) if note else ()


def _check_known(methods: Sequence[Method], parameters: Mapping[str, Any]) -> None:
    """Raise an error for a parameter that no method has, or that methods cannot share."""
    known = list(dict.fromkeys(n for m in methods for n in m.estimator().get_params()))
    for name in parameters:
        if not any(each.has(name) or name in each.estimator._get_param_names() for each in methods):
            owners = [k.estimator for k in (NET, TREES) if name in k.estimator._get_param_names()]
            if owners:
                raise InputError(
                    f"{name} is a parameter of {owners[0].__name__}, which none of the methods is: "
                    f"{', '.join(map(str, methods))}. Remove it."
                )
            raise InputError(unknown("parameter", name, known))
        if name in ("objective", "strategy", "random_state"):
            option = "--seeds" if name == "random_state" else "--methods"
            raise InputError(f"Methods cannot share {name}: pass {option} instead.")


_KEYS: dict[str, tuple[type, type | None, str]] = {  # type, type of the items, description
    "data": (str, None, "the path of a file or folder"),
    "methods": (list, str, 'a list of names, such as ["AP-type3", "LambdaMART"]'),
    "measures": (list, str, 'a list of names, such as ["nDCG@5", "AP"]'),
    "folds": (list, int, "a list of numbers, such as [1, 2]"),
    "cut": (int, None, "how many folds a file is cut into, such as 5"),
    "seeds": (list, int, "a list of whole numbers, such as [0, 1, 2]"),
    "test": (str, None, "a significance test, such as wilcoxon"),
    "correction": (str, None, "holm, bh or none"),
    "significance": (float, None, "a level, such as 0.01"),
    "parameters": (dict, None, "a table of parameters"),
    "method": (dict, dict, 'tables by method, such as [method."AP-type3"]'),
    "reading": (dict, None, "a table of arguments of twinrank.load"),
}


def read_study_file(path: Path) -> dict[str, Any]:
    """Read a study file: a comparison described in TOML. Every key is optional.

        data = "MQ2008"                       # relative to the file; without it, the built-in data
        methods = ["LambdaMART", "AP-type3"]
        measures = ["nDCG@5", "AP"]
        folds = [1, 2, 3]
        seeds = [0, 1, 2]
        test = "wilcoxon"                     # or t, permutation, bootstrap
        correction = "holm"                   # or bh, none
        significance = 0.01
        [parameters]                          # of all methods that have them
        epochs = 50
        [method."AP-type3"]                   # of one method
        alpha = 2.0
        [reading]                             # arguments of twinrank.load
        unjudged = "drop"

    Unknown keys and wrong types raise an error with a suggestion.
    """
    content = read_toml(path)
    for key, value in content.items():
        if key not in _KEYS:
            raise InputError(f"{path}: {unknown('key', key, _KEYS)}")
        if not _fits(value, *_KEYS[key][:2]):
            raise InputError(f"{path}: {key} must be {_KEYS[key][2]}, not {value!r}.")
    known = list(inspect.signature(load).parameters)[1:]
    for key in content.get("reading", {}):
        if key not in known:
            raise InputError(f"{path}: {unknown('argument of twinrank.load', key, known)}")
    for name in [*content.get("methods", ()), *content.get("method", ())]:
        method(name)
    if "data" in content:
        content["data"] = str(path.absolute().parent / Path(content["data"]).expanduser())
    return content


def _fits(value: Any, kind: type, item: type | None) -> bool:
    """True if a value has exactly this type, and its items, at least one, have the other."""
    actual: type = type(value)  # exactly, since True is an int for isinstance
    if actual is not kind or item is None:
        return actual is kind
    items = list(value.values() if kind is dict else value)
    return bool(items) and all(type(value) is item for value in items)
