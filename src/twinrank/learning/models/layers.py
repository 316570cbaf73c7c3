"""Layers that torch lacks: norms per query, fast dropout, shared weights, numeric embeddings."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from twinrank.core.lists import Lists
from twinrank.learning.models import fused_kernels
from twinrank.support.compiled import in_threads, pieces
from twinrank.support.errors import InputError

_VALUES_PER_THREAD = 200_000  # fewer values are faster on one thread
_FREQUENCY = 0.1  # of waves at the start, on average: smooth functions of standardised features


class QueryNorm(nn.Module):
    """Batch normalisation with the statistics of each query, in training and in evaluation.

    x̂ = (x − mean_q) / √(var_q + ε), then scaled and shifted by learned weights.
    """

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor, lists: Lists | None) -> Tensor:
        """Normalise [documents, width], query by query."""
        lists = needed(lists, "norm='query'")
        x = x if x.dtype == torch.float64 else x.float()  # sums in bfloat16 are too inexact
        if len(lists) == 1 and lists.documents > 1:  # the paper trains on one query per step
            return functional.batch_norm(
                x, None, None, self.weight, self.bias, training=True, eps=self.epsilon
            )
        index = lists.index(x)
        sizes = torch.from_numpy(lists.sizes.copy()).to(x).clamp(min=1)[:, None]
        mean = sum_by_query(x, index, len(lists)) / sizes
        centred = x - mean[index]
        variance = sum_by_query(centred**2, index, len(lists)) / sizes
        scale = torch.rsqrt(variance + self.epsilon) * self.weight
        return torch.addcmul(self.bias, centred, scale[index])


def needed(lists: Lists | None, option: str) -> Lists:
    """The lists, which scorers with this option of their architecture can't do without."""
    if lists is None:
        raise InputError(f"A scorer with {option} needs the query of each document; pass lists.")
    return lists


def sum_by_query(x: Tensor, index: Tensor, queries: int) -> Tensor:
    """The sum of the rows of each query; `index` gives the query of each row."""
    return x.new_zeros(queries, x.shape[1]).index_add(0, index, x)


class DropoutLinear(nn.Linear):
    """Dropout, then a linear layer: in training an input is 0 with probability p, else x / (1 − p).

    On a CPU torch draws random numbers one after the other, which takes longer than the matrix
    product that follows. Here the hash of a value's position decides. Vector units and threads
    compute it in any order, and backward computes it again instead of storing a mask.

    Srivastava, Hinton, Krizhevsky, Sutskever & Salakhutdinov, "Dropout" (JMLR 2014).
    """

    def __init__(self, inputs: int, outputs: int, p: float, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias)
        self.p = p

    def forward(self, x: Tensor, dropped: bool = False) -> Tensor:
        """Drop inputs (in training only), then multiply by the weights and add the bias.

        `dropped` says that the inputs have already been through the dropout.
        """
        return functional.linear(x if dropped else self.dropped(x), self.weight, self.bias)

    def product(self, x: Tensor, lists: Lists | None = None, dropped: bool = False) -> Tensor:  # noqa: ARG002
        """As `forward`, without the bias."""
        return functional.linear(x if dropped else self.dropped(x), self.weight)

    @property
    def rate(self) -> float:
        """The current probability that an input is dropped: 0 in evaluation mode."""
        return self.p if self.training else 0.0

    def dropped(self, x: Tensor) -> Tensor:
        """The inputs after dropout."""
        if not self.rate:
            return x
        if (
            x.device.type == "cpu"
            and x.dtype in (torch.float32, torch.float64)
            and not torch.compiler.is_compiling()
        ):
            return _HashedDropout.apply(x, self.p)  # type: ignore[no-untyped-call, no-any-return]
        return functional.dropout(x, self.p)

    def extra_repr(self) -> str:
        """The layer's options when it is printed."""
        return f"{super().extra_repr()}, p={self.p:g}"


class SharedLinear(DropoutLinear):
    """A linear layer of several nets that share its weights.

    z_k = r_k ⊙ (W (s_k ⊙ x_k)) + b_k: each net k has its own scales s_k of the inputs, r_k of the
    outputs, and biases. Rows hold the values of all nets, one net after the other. In the `first`
    layer all nets read the same inputs. There the scales start as random signs, so that the nets
    differ; elsewhere they start as 1, which Gorishniy et al. found best. Without `scaled`, the
    outputs have no scales: a norm that follows has its own.

    Wen, Tran & Ba, "BatchEnsemble" (ICLR 2020); Gorishniy, Kotelnikov & Babenko, "TabM"
    (arXiv:2410.24210, 2024).
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        p: float,
        models: int,
        *,
        first: bool = False,
        scaled: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(inputs, outputs, p, bias=False)
        self.models, self.first = models, first
        self.scale = nn.Parameter(torch.ones(models, inputs))
        self.output_scale = nn.Parameter(torch.ones(models * outputs)) if scaled else None
        if bias:
            self.bias = nn.Parameter(torch.zeros(models * outputs))

    def initialise(self, generator: torch.Generator | None) -> None:
        """Random signs as the scales of a first layer."""
        if self.first:
            with torch.no_grad():
                self.scale.bernoulli_(0.5, generator=generator).mul_(2).sub_(1)

    def forward(self, x: Tensor, dropped: bool = False) -> Tensor:
        """The outputs of all nets, [documents, models · outputs]."""
        z = self.product(x, dropped=dropped)
        return z if self.bias is None else z + self.bias

    def product(self, x: Tensor, lists: Lists | None = None, dropped: bool = False) -> Tensor:  # noqa: ARG002
        """As `forward`, without the bias."""
        x = x if dropped else self.dropped(x)
        if self.first:  # one product with the weights of all nets: the inputs are not copied
            weights = self.weight * self.scale[:, None]
            z = functional.linear(x, weights.flatten(0, 1))
        else:
            scaled = x.view(len(x), *self.scale.shape) * self.scale
            z = functional.linear(scaled, self.weight).flatten(1)
        return z if self.output_scale is None else z * self.output_scale


class SeparateLinear(nn.Module):
    """The last layer of nets that share their hidden layers: own weights, one score for each."""

    def __init__(self, inputs: int, models: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(models, inputs))
        self.bias = nn.Parameter(torch.zeros(models))

    def initialise(self, generator: torch.Generator | None) -> None:
        """Xavier-normal weights, for one output."""
        nn.init.normal_(
            self.weight, std=(2 / (self.weight.shape[1] + 1)) ** 0.5, generator=generator
        )

    def forward(self, x: Tensor) -> Tensor:
        """The scores, [documents, models]."""
        values = x.view(len(x), *self.weight.shape)
        return torch.einsum("nkw,kw->nk", values, self.weight) + self.bias


class NumericEmbedding(nn.Module):
    """φ(x_j) = relu(W_j v(x_j) + b_j) for each feature j.

    v(x) is x itself, or, if `periodic`, the sines and cosines of 2π·c·x for learned frequencies c.

    Gorishniy, Rubachev & Babenko, "On embeddings for numerical features in tabular deep learning"
    (NeurIPS 2022).
    """

    def __init__(self, features: int, size: int, periodic: bool) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.empty(features, size)) if periodic else None
        self.weight = nn.Parameter(torch.empty(features, 2 * size if periodic else 1, size))
        self.bias = nn.Parameter(torch.empty(features, size))

    def initialise(self, generator: torch.Generator | None) -> None:
        """Uniform weights and biases, small frequencies."""
        if self.frequencies is not None:
            nn.init.normal_(self.frequencies, std=_FREQUENCY, generator=generator)
        inputs, size = self.weight.shape[1:]
        limit = (inputs if self.frequencies is not None else size) ** -0.5
        for values in (self.weight, self.bias):
            nn.init.uniform_(values, -limit, limit, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """The embeddings of all features side by side, [documents, features · size]."""
        if self.frequencies is None:
            embedded = torch.addcmul(self.bias, x[:, :, None], self.weight[:, 0])
        else:
            angles = 2 * math.pi * self.frequencies * x[:, :, None]
            waves = torch.cat([angles.sin(), angles.cos()], dim=2)
            embedded = torch.einsum("nfi,fio->nfo", waves, self.weight) + self.bias
        return functional.relu(embedded).flatten(1)


def draw_dropout_key(p: float) -> fused_kernels.DropoutKey:
    """Draw the random key of one dropout from torch's generator."""
    return fused_kernels.dropout_key(int(torch.randint(2**62, ())) if p else 0, p)


class _HashedDropout(Function):
    """Dropout whose mask is a hash of the position, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        ctx.key_and_factor = draw_dropout_key(p), 1 / (1 - p)
        return _drop(x, *ctx.key_and_factor)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "a scorer that trains on a CPU with dropout has a first derivative only: compute "
                "it without create_graph=True, or in evaluation mode."
            )
        return _drop(upstream[0], *ctx.key_and_factor), None


def _drop(x: Tensor, key: fused_kernels.DropoutKey, factor: float) -> Tensor:
    out = x.clone(memory_format=torch.contiguous_format)
    values = out.view(-1).detach().numpy()
    ranges = pieces(x.numel(), _VALUES_PER_THREAD)
    in_threads(fused_kernels.drop_values, ranges, values, key, factor)
    return out
