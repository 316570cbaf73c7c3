"""What DirectLoss is compared with: allRank's losses, plain padded PyTorch, the paper's scorer."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

ALLRANK_PADDING = -1.0  # the label that means "no document here" to allRank


def allrank_losses() -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Give allRank's approxNDCGLoss and lambdaLoss, each called as loss(y_pred, y_true, …)."""
    return allrank_loss("approxNDCG", "approxNDCGLoss"), allrank_loss("lambdaLoss", "lambdaLoss")


def allrank_loss(module: str, function: str) -> Callable[..., Tensor]:
    """Give one of allRank's losses, called as loss(y_pred, y_true, …)."""
    package = importlib.util.find_spec("allrank")  # finds, doesn't import
    if package is None or not package.submodule_search_locations:
        raise SystemExit("allRank is not installed; run benchmarks/install")
    folder = Path(package.submodule_search_locations[0]) / "models" / "losses"
    loss: Callable[..., Tensor] = getattr(_load(folder / f"{module}.py"), function)
    return loss


def _load(file: Path) -> ModuleType:
    """Load one loss module of allRank by its place.

    Importing it by name would run allRank's readers and through them torchvision and gcsfs, just
    for two constants. They are put in place here for as long as the module loads.
    """
    constants = {
        "allrank.data.dataset_loading": {"PADDED_Y_VALUE": ALLRANK_PADDING},
        "allrank.models.losses": {"DEFAULT_EPS": 1e-10},
    }
    stand_ins = {name: ModuleType(name) for name in constants}
    for name, values in constants.items():
        vars(stand_ins[name]).update(values)
    spec = importlib.util.spec_from_file_location(f"allrank_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"allRank has no {file.name}; run benchmarks/install")
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, stand_ins):
        spec.loader.exec_module(module)
    return module


class TwinSigmoidType3(torch.autograd.Function):
    """The paper's σ⁺ on a matrix of score differences: a step forward, type3 backward."""

    @staticmethod
    def forward(
        ctx: Any, differences: Tensor, signs: Tensor, first: Tensor, alpha: float
    ) -> Tensor:
        """Return 1 where a document is ahead of another, if need be by the permutation, else 0."""
        ctx.save_for_backward(differences, signs)
        ctx.alpha = alpha
        return torch.where(differences == 0, first, differences > 0).to(differences.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Multiply by 2α[1 − σ] where u = 1, by −2ασ where u = −1, by 0 where u = 0."""
        differences, signs = ctx.saved_tensors
        sigmoid = torch.sigmoid(ctx.alpha * differences)
        slope = (signs.clamp(min=0) - sigmoid) * signs.abs()
        return gradient * slope * (2 * ctx.alpha), None, None, None


def padded_direct_ndcg(scores: Tensor, labels: Tensor, mask: Tensor, alpha: float = 1.0) -> Tensor:
    """Minus the mean nDCG of padded lists [B, L] with the paper's type3 gradient, in m×m matrices.

    What one writes from the paper's equations: r_i = 1 + Σ_{j≠i} (1 − σ⁺(y_i − y_j)), with ties
    broken by the comparison matrix of a random permutation. The diagonal, where σ⁺ = 0, supplies
    the 1.
    """
    scores = scores.masked_fill(~mask, -1e9)  # far behind everyone, so it adds to nobody's rank
    labels = labels.masked_fill(~mask, 0)
    pairs = mask[:, :, None] & mask[:, None, :]
    signs = torch.sign(labels[:, :, None] - labels[:, None, :]) * pairs
    differences = scores[:, :, None] - scores[:, None, :]
    permutation = torch.rand_like(scores).argsort(dim=1)
    first = permutation[:, :, None] > permutation[:, None, :]
    ranks = (1 - TwinSigmoidType3.apply(differences, signs, first, alpha)).sum(dim=2)

    gains = torch.exp2(labels) - 1
    positions = torch.arange(1, labels.shape[1] + 1, dtype=scores.dtype, device=scores.device)
    ideal = (gains.sort(dim=1, descending=True).values / torch.log2(1 + positions)).sum(dim=1)
    dcg = (gains / torch.log2(1 + ranks)).sum(dim=1)
    judged = ideal > 0  # a list without anything relevant has no nDCG
    return -(dcg[judged] / ideal[judged]).mean()


class CE4L(nn.Module):
    """The paper's scorer CE4.L: four hidden layers of 100 with CELU, and a linear last layer."""

    def __init__(self, features: int = 136, width: int = 100, dropout: float = 0.01) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index, inputs in enumerate((features, width, width, width)):
            if index > 0:
                layers.append(nn.Dropout(dropout))
            layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.CELU()]
        layers.append(nn.Linear(width, 1))
        for layer in layers:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight)
        self.layers = nn.Sequential(*layers)

    def forward(self, documents: Tensor) -> Tensor:
        """Score documents [N, features]."""
        scores: Tensor = self.layers(documents)
        return scores.squeeze(1)
