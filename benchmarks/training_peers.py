"""The training loops that ours is compared with: allRank's and ptranking's, on our data.

Both are installed without their dependencies (`benchmarks/install`). What allRank imports and this
comparison doesn't use (cloud storage, image transforms, TensorBoard) is put in place here.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.sparse import csr_matrix

import twinrank as tr


def _absent() -> dict[str, ModuleType]:
    """Stand-ins for modules that are imported and not used."""

    class Compose:
        """What torchvision has under this name: one function after another."""

        def __init__(self, steps: list[Callable[..., Any]]) -> None:
            self.steps = steps

        def __call__(self, sample: Any) -> Any:
            for step in self.steps:
                sample = step(sample)
            return sample

    names: dict[str, dict[str, Any]] = {
        "gcsfs": {},
        "pkg_resources": {"Requirement": None, "resource_filename": None},
        "tensorboardX": {"SummaryWriter": None},
        "torchvision": {"transforms": ModuleType("torchvision.transforms")},
        "torchvision.transforms": {"Compose": Compose},
    }
    made = {name: ModuleType(name) for name in names}
    for name, values in names.items():
        vars(made[name]).update(values)
    made["torchvision"].transforms = made["torchvision.transforms"]  # type: ignore[attr-defined]
    return made


def allrank_epoch(
    data: tr.Dataset, slate: int = 240, batch: int = 64
) -> tuple[Callable[[], None], int]:
    """One pass of allRank's `fit` over its own loader: batches, loss, backward, step.

    `slate` and `batch` are those of its example configurations: longer lists are cut at random,
    shorter ones padded. What `fit` measures after every epoch isn't part of it. Also returned: the
    number of documents that such a pass sees.
    """
    with mock.patch.dict(sys.modules, _absent()):
        from allrank.data.dataset_loading import FixLength, LibSVMDataset, ToTensor
        from allrank.models.losses.approxNDCG import approxNDCGLoss
        from allrank.models.model import make_model
        from allrank.training.train_utils import loss_batch
        from torchvision.transforms import Compose

    fixed = Compose([FixLength(slate), ToTensor()])
    set_ = LibSVMDataset(csr_matrix(data.X), data.y, data.qid, transform=fixed)
    loader = torch.utils.data.DataLoader(set_, batch_size=batch, num_workers=1, shuffle=True)
    layers = {"sizes": [100] * 4, "input_norm": True, "activation": "CELU", "dropout": 0.01}
    model = make_model(layers, None, {"d_output": 1}, data.features).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)

    def epoch() -> None:
        for X, y, indices in loader:
            loss_batch(model, approxNDCGLoss, X, y, indices, None, optimiser)

    return epoch, int(np.minimum(data.lists.sizes, slate).sum())


def ptranking_epoch(data: tr.Dataset, queries: int = 1) -> tuple[Callable[[], None], int]:
    """One pass of ptranking's ApproxNDCG from tensors in memory, this many queries per step.

    Its data set class reads files of the names it knows; the list of tensors that it holds
    afterwards is made from our data here, and each is given to `train` as its own loop does. As it
    ships, a step is one query. More of them must be of one length, and its batch norm doesn't take
    them: here the net sees their documents one below the other, as ours does.
    """
    from ptranking.data.data_utils import LABEL_TYPE
    from ptranking.ltr_adhoc.listwise.approxNDCG import ApproxNDCG

    class Flat(ApproxNDCG):  # type: ignore[misc]
        """Takes several queries a step."""

        def forward(self, batch_ranking: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.sf(batch_ranking.flatten(0, 1))
            return scores.reshape(batch_ranking.shape[:2])

    net = {"num_features": data.features, "num_layers": 5, "HD_AF": "CE", "HN_AF": "CE"}
    net |= {"TL_AF": "CE", "apply_tl_af": False, "BN": True, "RD": False, "FBN": False}
    ranker = (ApproxNDCG if queries == 1 else Flat)({"ffnns": net}, {"alpha": 10.0})
    ready = []
    for docs in data.lists:
        order = np.argsort(-data.y[docs], kind="stable")  # "presort", as it asks for
        X = torch.from_numpy(np.ascontiguousarray(data.X[docs][order]))
        ready.append((X[None], torch.from_numpy(data.y[docs][order])[None]))
    steps = [
        tuple(torch.cat(part) for part in zip(*ready[i : i + queries], strict=True))
        for i in range(0, len(ready), queries)
    ]

    def epoch() -> None:
        for X, y in steps:
            ranker.train(X, y, presort=True, label_type=LABEL_TYPE.MultiLabel)

    return epoch, data.documents
