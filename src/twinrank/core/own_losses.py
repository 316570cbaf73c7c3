"""A user's own losses, by a registered name or an import path. This module needs no torch."""

import inspect
import re
from collections.abc import Callable
from typing import Any

from twinrank.core.loss_names import BUILT_IN_LOSSES, METHODS, OWN_LOSSES
from twinrank.core.measures import names as measure_names
from twinrank.support.errors import InputError
from twinrank.support.imports import import_registered, imported
from twinrank.support.notation import check_options, parse

_OWN: dict[str, Callable[..., Any]] = {}
_NO_PATHS = ("rank:ndcg",)  # an objective of XGBoost, which looks like an import path


def own_names() -> tuple[str, ...]:
    """The names of registered losses, also those of modules in TWINRANK_IMPORT."""
    import_registered()
    return tuple(_OWN)


def is_path(name: str) -> bool:
    """True for the import path of a loss, `package.module:name`."""
    found = re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", name)
    return found is not None and name not in _NO_PATHS


def is_own_loss(objective: Any) -> bool:
    """True for a user's own loss: a callable, a registered name or an import path."""
    if isinstance(objective, str):
        return is_path(objective) or objective.partition("(")[0].strip() in own_names()
    return callable(objective) and not hasattr(objective, "credit")  # a measure is callable too


def own_loss(name: str) -> Callable[..., Any]:
    """The loss of a registered name, with or without options, or of an import path."""
    if is_path(name):
        own, options = imported(name, "objective"), {}
    else:
        term = parse(name)
        own, options = _OWN[term.name], term.options
        known = list(inspect.signature(own).parameters) if isinstance(own, type) else []
        check_options(term.name, term, known)
    result: Any = own(**options) if isinstance(own, type) else own
    if not callable(result):
        raise InputError(f"The loss {name} must be a function or a class of losses, not {own!r}.")
    return result  # type: ignore[no-any-return]


def register_loss(name: str, own: Callable[..., Any]) -> None:
    """Make your own loss known by a name, such as `"mine"`.

    The name then works as the objective of rankers, in `twinrank train`, `tune` and `compare`, and
    in studies. The command line and the processes of a study import the modules that the
    environment variable `TWINRANK_IMPORT` lists; register your loss in one of these. The import
    path `package.module:function` works without registering.

    Parameters
    ----------
    name : str
        The name, a word. A loss of the same name is replaced, if it is not built in.
    own : callable or class
        A function `own(scores, labels, lists)` of flat tensors that returns one number, with
        `weights=None` as a fourth parameter for weighted queries; or a class of such functions,
        such as a `torch.nn.Module`, whose arguments are options: `"mine(margin=2)"`. For trees, it
        may return a gradient and a hessian per document instead.

    Raises
    ------
    InputError
        If the name is that of a built-in loss, a measure or a method, or is not a word.

    Examples
    --------
    >>> register_loss("spread", lambda scores, labels, lists: -(scores * (labels > 0)).mean())
    >>> "spread" in own_names()
    True
    """
    if parse(name).name != name:
        raise InputError(f"The name of a loss must be a word, not {name!r}.")
    if name in BUILT_IN_LOSSES or name in METHODS or name in measure_names():
        raise InputError(f"{name} is a built-in loss, a measure or a method; choose another name.")
    if not callable(own):
        raise InputError(f"register_loss takes a function or a class, not {own!r}.")
    _OWN[name] = own
    OWN_LOSSES.add(name)
