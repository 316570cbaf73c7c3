"""Embeddings of numeric features: each feature becomes a vector with weights of its own."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

_FREQUENCY = 0.1
"""The standard deviation of frequencies at the start: smooth functions of standardised features."""


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
