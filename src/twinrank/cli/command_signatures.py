"""Commands from functions: the signature declares the options, the docstring has their help.

Parameters before `*` are arguments, those after it options. A section "Parameters" of the docstring
describes them; options that commands share are declared below, with their help.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial, wraps
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import typer

from twinrank.support.errors import InputError

Command = Callable[..., None]
Panels = Mapping[str, Sequence[str]]
"""Titles in the help, each with the names of its options."""

AtLeastOne = Annotated[int | None, typer.Option(min=1)]
Count = Annotated[int, typer.Option(min=0)]
Folds = Annotated[str | None, typer.Option(help="Folds to use: 1,2 or 1-3 (default: all).")]
Jobs = Annotated[
    int | None, typer.Option(help="Number of parallel trainings (default: one per core).", min=1)
]
Ray = Annotated[
    str | None,
    typer.Option(help="Address of a Ray cluster to train on: auto, local, host:port, ray://…"),
]


def _checked_seed(seed: int) -> int:
    if seed >= 2**63:  # a maximum of the option would fill a column of the help
        raise InputError(f"--seed must be below 2^63, not {seed}.")
    return seed


Seed = Annotated[
    int,
    typer.Option(help="Seed of all random numbers (default: 0).", min=0, callback=_checked_seed),
]
Force = Annotated[bool, typer.Option(help="Use the folder even if it contains other results.")]
Overwrite = Annotated[bool, typer.Option(help="Replace an existing target.")]
Settings = Annotated[list[str] | None, typer.Option("--set")]

_SECTION = "\n\nParameters\n----------\n"
_VALUES = {bool: " ", int: "N", float: "X", Path: "PATH"}  # names of values in the help


def add_command(app: typer.Typer, command: Command, panels: Panels) -> None:
    """Add a command with the help of its docstring."""
    text = inspect.cleandoc(command.__doc__ or "").partition(_SECTION)[0]
    _sign(command, declared(command, panels))
    app.command(help=text)(command)


def declared(command: Callable[..., Any], panels: Panels) -> list[inspect.Parameter]:
    """The parameters of a function as typer declares them, with the help of its docstring."""
    described = inspect.cleandoc(command.__doc__ or "").partition(_SECTION)[2]
    entries = re.findall(r"^(\S.*)\n((?:    .*(?:\n|$))+)", described, re.MULTILINE)
    texts = {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}
    titles = {name: title for title, names in panels.items() for name in names}
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        name, kind, info = parameter.name, *_annotation(parameter)
        info.help = info.help or texts.get(name, "")  # python -OO drops docstrings
        info.rich_help_panel = titles.get(name, info.rich_help_panel)
        info.readable = False  # errors of the readers are clearer
        if "default:" in info.help.lower():
            info.show_default = False
        plain = next((each for each in get_args(kind) if each is not NoneType), kind)
        if isinstance(info, typer.models.OptionInfo):
            info.metavar = info.metavar or _VALUES.get(plain, "TEXT")
        parameters.append(parameter.replace(annotation=Annotated[kind, info]))
    return parameters


def _annotation(parameter: inspect.Parameter) -> tuple[Any, Any]:
    """The type of a parameter, and a declaration of its own; flags have no negative form."""
    kind, info = parameter.annotation, typer.Argument()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        info = typer.Option()
    if hasattr(kind, "__metadata__"):  # Annotated[kind, info]
        kind, info = kind.__origin__, copy(kind.__metadata__[0])
    if kind is bool and not info.param_decls and info.default is ...:
        info.default = f"--{parameter.name.replace('_', '-')}"
    return kind, info


def with_options(
    command: Command, options: Sequence[inspect.Parameter], run: Callable[..., None]
) -> Command:
    """A command with more options: `run` gets the rest of the call, and the values of these."""
    names = [option.name for option in options]

    @wraps(command)
    def extended(**arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in names}
        run(partial(command, **arguments), **values)

    own = inspect.signature(command).parameters.values()
    _sign(extended, [*(p for p in own if p.name != "reading"), *options])
    return extended


def _sign(command: Command, parameters: Sequence[inspect.Parameter]) -> None:
    """Give a function another signature."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
