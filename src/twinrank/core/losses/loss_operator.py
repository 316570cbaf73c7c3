"""Any loss as one operator of torch, for torch.compile and torch.func.

The operator computes the loss and its gradient at once; its backward multiplies. So torch.compile
sees one node instead of NumPy, compiled loops and Triton, and does not break the graph. A second
derivative raises an error. `vmap` calls the operator for each entry of the batch.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.library import custom_op, register_autograd, register_fake

from twinrank.core.losses.ranking_loss import RankingLoss
from twinrank.core.ranks.twin import working_dtype
from twinrank.support.arrays import from_handle

if TYPE_CHECKING:
    from twinrank.core.lists import Lists


def traced_loss(
    loss: RankingLoss, scores: Tensor, labels: Tensor, lists: "Lists", weights: Tensor | None
) -> Tensor:
    """The loss of flat scores by the operator."""
    per_list, gradient = loss.reduction == "none", torch.is_grad_enabled()
    run: Any = _value if torch.compiler.is_compiling() else _Transformed.apply
    handles = (loss.handle, lists.handle, lists.count)
    result: Tensor = run(scores, labels, weights, *handles, per_list, gradient)[0]
    return result


@custom_op("twinrank::loss", mutates_args=())
def _value(
    scores: Tensor, labels: Tensor, weights: Tensor | None,
    loss: int, lists: int, n_lists: int, per_list: bool, gradient: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The loss, its derivative by each score, and the list of each document with `per_list`."""
    own = from_handle(loss)
    scores, labels, of_lists = own.flat(scores, labels, from_handle(lists))
    value, score_gradient = own.value_and_gradient(scores, labels, of_lists, weights)
    slopes = torch.zeros_like(scores)
    if gradient:
        slopes = score_gradient(scores, torch.ones_like(value)).to(scores.dtype)
    index = of_lists.index(scores).clone() if per_list else scores.new_empty(0, dtype=torch.int64)
    return value.clone(), slopes.clone(), index


def _value_shapes(
    scores: Tensor, labels: Tensor, weights: Tensor | None,
    loss: int, lists: int, n_lists: int, per_list: bool, gradient: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    shape = (n_lists,) if per_list else ()
    value = scores.new_empty(shape, dtype=working_dtype(scores))
    index = scores.new_empty(scores.shape[0] if per_list else 0, dtype=torch.int64)
    return value, torch.empty_like(scores), index


@custom_op("twinrank::loss_gradient", mutates_args=())
def _gradient(upstream: Tensor, slopes: Tensor, index: Tensor, scores: Tensor) -> Tensor:
    """∂L/∂score from ∂L/∂loss. The scores are an argument so that autograd sees them."""
    factor = upstream[index] if upstream.ndim else upstream
    return (slopes.to(upstream.dtype) * factor).to(slopes.dtype)


def _gradient_shape(upstream: Tensor, slopes: Tensor, index: Tensor, scores: Tensor) -> Tensor:
    return torch.empty_like(slopes)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[1], output[2], inputs[0])


def _backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    slopes, index, scores = ctx.saved_tensors
    return _gradient(upstream, slopes, index, scores), *[None] * 7


def _nothing(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Save nothing: there is no second derivative."""


def _refuse(ctx: Any, upstream: Tensor) -> None:
    raise RuntimeError(
        "Ranking losses have a first derivative only: the strategies define a gradient, not a "
        "function to differentiate twice. Compute this loss without create_graph=True."
    )


register_fake(_value)(_value_shapes)
register_fake(_gradient)(_gradient_shape)
register_autograd(_value, _backward, setup_context=_save)
register_autograd(_gradient, _refuse, setup_context=_nothing)


# torch.func does not transform registered operators, but functions that call them.


def _each(run: Any, info: Any, in_dims: tuple[int | None, ...], arguments: Any) -> tuple[Any, Any]:
    """vmap: the results of each entry of the batch, stacked."""

    def entry(number: int) -> Any:
        pairs = zip(arguments, in_dims, strict=True)
        return run(*(x if dim is None else x.select(dim, number) for x, dim in pairs))

    results = [entry(number) for number in range(info.batch_size)]
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    return tuple(map(torch.stack, zip(*results, strict=True))), (0,) * len(results[0])


class _Transformed(Function):
    @staticmethod
    def forward(*arguments: Any) -> Any:
        return _value(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        _save(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
        slopes, index, scores = ctx.saved_tensors
        run: Any = _TransformedGradient.apply
        return run(upstream[0], slopes, index, scores), *[None] * 7

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        return _each(_Transformed.apply, info, in_dims, arguments)


class _TransformedGradient(Function):
    @staticmethod
    def forward(*arguments: Tensor) -> Any:
        return _gradient(*arguments)

    setup_context = staticmethod(_nothing)
    backward = staticmethod(_refuse)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        return _each(_TransformedGradient.apply, info, in_dims, arguments)
