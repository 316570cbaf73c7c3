"""A user's own objective for boosting: a gradient and a hessian, or a loss with autograd."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.learning.boosting.newton import Floats, Newton
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import InputError, needing_torch


@dataclass(frozen=True)
class OwnObjective(Newton):
    """The gradient and hessian of a function of (scores, labels, lists), in place of a measure's.

    The function gets float64 tensors. It returns a gradient and a positive hessian per document, or
    the loss. For a loss, autograd gives the gradient, and the hessian of all documents is the root
    mean square of the gradient: steps do not depend on the unit of the loss, or on a mean or sum.
    """

    function: Callable[..., Any] = field(kw_only=True, repr=False)
    title: str = field(kw_only=True)
    """Names the function in checkpoints."""

    def sums(
        self, scores: Any, labels: Any, lists: Lists, weights: Any = None
    ) -> tuple[Floats, Floats]:
        """Gradient and hessian before they are scaled."""
        with needing_torch("An objective of your own"):
            import torch
        lists.check(scores=scores, labels=labels)
        y = torch.tensor(np.asarray(scores, np.float64), requires_grad=True)
        grades = torch.from_numpy(np.maximum(np.asarray(labels, np.float64), 0))
        with torch.random.fork_rng([]), torch.enable_grad():
            seed = np.asarray([self.random_state, self.model]).tobytes()
            torch.manual_seed(zlib.crc32(seed, zlib.crc32(np.ascontiguousarray(scores).tobytes())))
            result = self.function(y, grades, lists)
            if isinstance(result, torch.Tensor):
                if result.numel() != 1 or not result.requires_grad:
                    raise InputError(
                        f"The loss {self.title} must be one number, as a tensor with a gradient."
                    )
                (gradient,) = torch.autograd.grad(result.sum(), y)
                hessian = gradient.square().mean().sqrt().expand_as(gradient)
                result = (gradient, hessian)
        g, h = self._checked(result, lists.documents)
        factor = 1 if weights is None else lists.spread(np.asarray(weights, np.float32))
        return g * factor, h * factor

    def _checked(self, result: Any, documents: int) -> tuple[Floats, Floats]:
        """Two arrays of finite numbers, one per document."""
        try:
            g, h = (np.array(to_numpy(x), np.float32) for x in result)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The objective {self.title} must return a loss, or a gradient and a hessian with "
                f"one number per document ({error})."
            ) from error
        if g.shape != (documents,) or h.shape != (documents,):
            raise InputError(
                f"The objective {self.title} returned arrays of shape {g.shape} and {h.shape} for "
                f"{documents} documents; both need one number per document."
            )
        if not (np.isfinite(g).all() and np.isfinite(h).all() and (h >= 0).all()):
            raise InputError(
                f"The objective {self.title} must return finite gradients, and hessians that are "
                f"finite and not negative."
            )
        return g, h
