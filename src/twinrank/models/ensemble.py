"""Several nets as one: each learns by itself, and the mean of their scores ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from twinrank.lists import Lists
from twinrank.models.architecture import Architecture
from twinrank.models.scorer import Scorer


class Ensemble(nn.Module):
    """Members of one architecture, which differ in where they began and in their noise.

    In training each has a column of its own, to be learnt from as if it were alone.
    """

    def __init__(self, members: Sequence[Scorer]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        one = members[0]
        self.features, self.categories = one.features, one.categories
        self.architecture = replace(one.architecture, members=len(members))

    def forward(self, X: Tensor, lists: Lists | None = None) -> Tensor:
        """The mean of the members' scores; in training a column for each."""
        scores = self.apart(X, lists)
        return scores if self.training else scores.mean(dim=1)

    def apart(self, X: Tensor, lists: Lists | None = None) -> Tensor:
        """The scores of each member, in a column."""
        return torch.stack([one(X, lists) for one in self.members], dim=1)


Net = Scorer | Ensemble


def net(
    features: int,
    architecture: Architecture,
    categories: Mapping[int, int] | None = None,
    generator: torch.Generator | None = None,
) -> Net:
    """A scorer, or several of them where the architecture says so."""
    one, count = replace(architecture, members=1), architecture.members
    found = [Scorer(features, one, categories, generator) for _ in range(count)]
    return found[0] if count == 1 else Ensemble(found)


def members_of(scorer: Net) -> list[Scorer]:
    """All scorers that there are."""
    if isinstance(scorer, Scorer):
        return [scorer]
    return list(scorer.members)  # type: ignore[arg-type]
