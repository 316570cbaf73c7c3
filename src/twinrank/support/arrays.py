"""Functions for NumPy arrays and torch tensors that do not import torch."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Array: TypeAlias = Any
"""A NumPy array or a torch tensor."""
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Function = TypeVar("Function", bound=Callable[..., Any])


def is_dask(x: object) -> bool:
    """True for a Dask array or frame; Dask is not imported."""
    return type(x).__module__.split(".")[0] in ("dask", "dask_expr")


def is_spark(x: object) -> bool:
    """True for a Spark DataFrame; pyspark is not imported."""
    return type(x).__module__.startswith("pyspark.sql.") and hasattr(x, "mapInArrow")


def refuse_clusters(name: str, x: object) -> None:
    """Raise an error for data on a cluster, which would be copied into this process."""
    for place, there, copy in (("Dask", is_dask, "compute"), ("Spark", is_spark, "toPandas")):
        if there(x):
            raise InputError(
                f"{name} is on {place}, and this would copy all of it into the memory of this "
                f"process. Only BoostedRanker takes {place} data. Pass the files themselves (a "
                f"folder or a pattern), or copy on purpose: {name}.{copy}()."
            )


def as_floats(name: str, values: Any) -> Floats:
    """Values as float64; text and ragged lists raise an error with the name of the argument."""
    try:
        array = np.asarray(to_numpy(values))
        if array.dtype.kind in "biufO":
            return np.asarray(array, np.float64)
    except (TypeError, ValueError):
        pass
    raise InputError(f"{name} must be an array of numbers, not {values!r:.60}.")


def is_tensor(x: object) -> "TypeGuard[Tensor]":
    """True if `x` is a torch tensor. Does not import torch."""
    if isinstance(x, np.ndarray):
        return False
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


_device_kernel: ContextVar[str | None] = ContextVar("twinrank_device_kernel", default=None)
_validate: ContextVar[bool] = ContextVar("twinrank_validate", default=True)


def device_path(kernel: str | None, validate: bool = True) -> AbstractContextManager[None]:
    """Treat all tensors as those of a GPU, with the kernel "torch" or "triton"; None: do not.

    `kernel="torch"` and `kernel="triton"` of a loss run its whole computation like this, so the
    code for GPUs also runs on CPU tensors. Without `validate`, `all_true` does not look at values.
    """
    return _USUAL if kernel is None and validate else _device_path(kernel, validate)


_USUAL = nullcontext()


@contextmanager
def _device_path(kernel: str | None, validate: bool) -> Iterator[None]:
    kernels, checks = _device_kernel.set(kernel or _device_kernel.get()), _validate.set(validate)
    try:
        yield
    finally:
        _device_kernel.reset(kernels)
        _validate.reset(checks)


def all_true(condition: Array) -> bool:
    """True if all entries are true; the only function of a loss that reads values of a device.

    The host would wait for the GPU, so `validate=False` of a loss skips this for tensors.
    """
    return (is_tensor(condition) and not _validate.get()) or bool(condition.all())


def chosen_kernel() -> str | None:
    """The kernel of the innermost `device_path`, if there is one."""
    return _device_kernel.get()


def on_cpu(x: Array) -> bool:
    """True if compiled loops can read `x` in place."""
    if isinstance(x, np.ndarray):
        return True
    return not is_tensor(x) or (x.device.type == "cpu" and _device_kernel.get() is None)


def namespace(x: Array) -> ModuleType:
    """The module `torch` for a tensor, else `numpy`; many functions have the same name."""
    return sys.modules["torch"] if is_tensor(x) else np


def to_numpy(x: Array) -> "np.ndarray[Any, Any]":
    """View a CPU tensor, or any array-like object, as a NumPy array."""
    if isinstance(x, np.ndarray):
        return x
    if is_tensor(x):
        tensor = x.detach()
        if tensor.dtype == sys.modules["torch"].bfloat16:
            tensor = tensor.float()
        return tensor.numpy()
    return np.asarray(x)


def from_numpy(values: Array, like: Array) -> Array:
    """Convert NumPy values to a tensor if `like` is a tensor."""
    if is_tensor(like) and not is_tensor(values):
        return sys.modules["torch"].from_numpy(values)
    return values


def cast(x: Array, like: Array) -> Array:
    """`x` with the dtype of `like`."""
    return x.to(like.dtype) if is_tensor(x) else x.astype(like.dtype, copy=False)


def at_least_zero(x: Array) -> Array:
    """`x` with negative values replaced by 0."""
    return np.maximum(x, 0) if isinstance(x, np.ndarray) else x.clip(0)


def as_float(x: Array) -> Array:
    """`x` in float64, or in float32 on devices without float64."""
    if isinstance(x, np.ndarray):
        return x if x.dtype == np.float64 else x.astype(np.float64)
    if not is_tensor(x):
        return np.asarray(x, np.float64)
    torch = sys.modules["torch"]
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)


def untraced(function: Function) -> Function:
    """Exclude `function`, which uses NumPy and compiled loops, from torch.compile.

    `torch.compiler.disable` does the same, but imports the compiler, which takes over a second.
    Here it is only called while code is compiled.
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


_objects: "WeakValueDictionary[int, Any]" = WeakValueDictionary()
_numbers = count(1)


def handle_for(thing: Any) -> int:
    """A new number by which `from_handle` finds an object as long as it exists."""
    number = next(_numbers)
    _objects[number] = thing
    return number


def from_handle(number: int) -> Any:
    """The object with a number."""
    return _objects[number]
