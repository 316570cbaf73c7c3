"""Functions that torch.compile calls as they are instead of tracing into them."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(function: Function) -> Function:
    """Break the graph of torch.compile'd code at `function`, which is NumPy and compiled loops.

    That is what `torch.compiler.disable` does; but it imports the compiler, which takes over a
    second, so here it waits until somebody compiles.
    """
    disabled: Any = None

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal disabled
        torch = sys.modules.get("torch")
        if torch is None or not torch.compiler.is_compiling():
            return function(*arguments, **options)
        if disabled is None:
            disabled = torch.compiler.disable(function)
        return disabled(*arguments, **options)

    return call  # type: ignore[return-value]
