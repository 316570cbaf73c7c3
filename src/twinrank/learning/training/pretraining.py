"""Contrastive pre-training of nets on unlabelled lists (SimCLR-Rank).

Two random views of each document go through the hidden layers of the net and a projection head,
which is discarded afterwards. The loss asks which document of the query the other view belongs to
(InfoNCE):

    L = −log exp(a_i·b_i / τ) / Σ_j exp(a_i·b_j / τ),   j over the documents of the query

where a and b are the projections of the two views, of length 1. The other documents of the query
are the only negatives: a ranker must distinguish exactly these, and the cost stays linear in the
number of queries.

Hou, Thekumparampil, Shavlovsky, Fanti, Dattatreya & Sanghavi, "Pretrained deep models outperform
GBDTs in learning-to-rank under label scarcity" (2023), arXiv:2308.00177.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from twinrank.core.lists import Lists
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Transform
from twinrank.learning.models.devices import threads_for
from twinrank.learning.models.ensemble import CustomNet, Net, models_of
from twinrank.learning.training.learner import TrainingError
from twinrank.learning.training.net_settings import NetSettings, seed_step
from twinrank.support.errors import Argument, InputError

NOISE = 0.1
"""The standard deviation of the noise that a view adds to features that are no categories."""
TEMPERATURE = 0.1
"""τ of the loss."""
PROJECTED = 64
"""The width of the projection head."""
LONGEST = 256
"""Longer lists are cut at random into parts of at most this length, which limits their cost."""
_KEEP_BYTES = 1024**3  # transformed features that are kept from one epoch to the next
_STREAM = 0x5EED  # random numbers of pre-training differ from those of training

Report = Callable[[dict[str, float]], None]


def check_pretrainable(net: Net) -> None:
    """Raise InputError unless all nets have hidden layers that can be found."""
    for model in models_of(net):
        if isinstance(model, CustomNet):
            raise InputError(
                Argument("unlabelled"),
                " needs one of TwinRank's own architectures: the hidden layers of your own net are "
                "not known. Pre-train it yourself and pass the module.",
            )
        if _score_layer(model) is None:
            raise InputError(
                Argument("unlabelled"),
                " needs an architecture with hidden layers before a linear score, such as 'Small' "
                "or 'MLP(width=64, depth=3)'.",
            )


def pretrain(
    net: Net,
    data: Dataset,
    transform: Transform,
    settings: NetSettings,
    seed: int,
    device: str = "cpu",
    report: Report = lambda _: None,
) -> None:
    """Train the hidden layers of a net, in place; labels are ignored.

    The nets of an ensemble see the same views. They differ by their initial weights and dropout.
    `report` gets the epoch, their number, the loss and the seconds after each epoch.
    """
    check_pretrainable(net)
    several = data.filter(min_documents=2)
    if not several.queries:
        raise InputError(
            "The unlabelled data has no query with two documents: pre-training learns to "
            "distinguish the documents of a query."
        )
    place = torch.device(device)
    net.to(place).train()
    models = models_of(net)
    generator = torch.Generator().manual_seed(_seed(seed))
    heads = [_head(model, generator).to(place) for model in models]
    weights = [w for part in (*models, *heads) for w in part.parameters()]
    fused = place.type in ("cpu", "cuda")
    optimiser = torch.optim.Adam(weights, lr=settings.learning_rate, fused=fused)
    batches = several.batches(
        settings.batch_documents, random_state=seed, transform=transform, keep=_KEEP_BYTES
    )
    began, devices = time.monotonic(), [place] if place.type == "cuda" else []
    with torch.random.fork_rng(devices), threads_for(net, 2 * settings.batch_documents):
        for epoch in range(settings.pretrain_epochs):
            total, documents = 0.0, 0
            for step, batch in enumerate(batches.epoch(epoch)):
                seed_step(place, _seed(seed), epoch, step)
                views = Views(torch.from_numpy(batch.X), batch.lists, net.categories, settings)
                losses = [
                    views.loss(model, head, place)
                    for model, head in zip(models, heads, strict=True)
                ]
                loss = torch.stack(losses).sum()
                value = float(loss.detach()) / len(models)
                if not math.isfinite(value):
                    raise TrainingError(
                        f"The loss is {value} in epoch {epoch + 1} of pre-training. Check the "
                        f"features of the unlabelled data, or lower the learning rate."
                    )
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                total += value * len(batch.X)
                documents += len(batch.X)
            report(
                {
                    "epoch": epoch + 1,
                    "epochs": settings.pretrain_epochs,
                    "loss": total / max(documents, 1),
                    "seconds": round(time.monotonic() - began, 3),
                }
            )
    for model in models:  # the training that follows does not need the head's gradient
        model.zero_grad()


class Views:
    """Two random views of a batch, one after the other, and the parts that lists are cut into."""

    def __init__(
        self, X: Tensor, lists: Lists, categories: Collection[int], settings: NetSettings
    ) -> None:
        share = settings.pretrain_corruption
        plain = torch.tensor([column not in categories for column in range(X.shape[1])])
        self.X = torch.cat([view(X, lists, plain, share) for _ in range(2)])
        self.lists = lists.tile(2)
        self.parts = list(_parts(lists))

    def loss(self, model: nn.Module, head: nn.Module, device: torch.device) -> Tensor:
        """The mean loss of the documents, in both directions."""
        with _score_input(model) as hidden:
            model(self.X.to(device), self.lists)
        projected = functional.normalize(head(hidden[0]), dim=1)
        first, second = projected.chunk(2)
        return contrast(first, second, [part.to(device) for part in self.parts])


def view(X: Tensor, lists: Lists, plain: Tensor, share: float) -> Tensor:
    """A copy of the features, a share of them replaced, with noise.

    A replaced value comes from a random document of the same query: that is plausible after any
    transform, and for categories.
    """
    sizes, starts = (lists.spread(torch.tensor(n)) for n in (lists.sizes, lists.offsets[:-1]))
    others = starts + (torch.rand(len(X), dtype=torch.float64) * sizes).long()
    replaced = torch.rand(X.shape) < share
    noise = torch.randn(X.shape) * (NOISE * plain)
    return torch.where(replaced, X[others], X) + noise


def contrast(first: Tensor, second: Tensor, parts: list[Tensor]) -> Tensor:
    """InfoNCE within each part of a list, the mean over documents and both directions.

    Each of `parts` has lists of similar length: the numbers of their documents, [lists, longest],
    −1 where a list is shorter.
    """
    total, documents = first.new_zeros(()), 0
    for rows in parts:
        there = rows >= 0
        a, b = first[rows.clamp(min=0)], second[rows.clamp(min=0)]
        logits = (a @ b.transpose(1, 2)) / TEMPERATURE
        pairs = there[:, :, None] & there[:, None, :]
        # Not −∞: the rows that are not there would have no finite sum, and no gradient.
        logits = logits.masked_fill(~pairs, -1e4)
        own = logits.diagonal(dim1=1, dim2=2)
        for dim in (1, 2):
            total = total + (logits.logsumexp(dim) - own)[there].sum() / 2
        documents += int(there.sum())
    return total / max(documents, 1)


def _parts(lists: Lists) -> Iterator[Tensor]:
    """Lists as blocks of similar length; long lists are cut at random."""
    sizes = lists.sizes
    order = np.arange(lists.documents)
    if sizes.max(initial=0) > LONGEST:
        order = np.lexsort((torch.rand(lists.documents).numpy(), lists.index(order)))
        counts = -(-sizes // LONGEST)
        sizes = np.concatenate(
            [
                np.diff(np.linspace(0, s, n + 1).astype(int))
                for s, n in zip(sizes, counts, strict=True)
            ]
        )
    starts = np.cumsum(sizes) - sizes
    # Up to 2, 4, 8, … documents: at most half of a block is padding.
    powers = np.ceil(np.log2(np.maximum(sizes, 2))).astype(int)
    for power in np.unique(powers):
        yield torch.from_numpy(_block(order, starts[powers == power], sizes[powers == power]))


def _block(
    order: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    place = np.arange(sizes.max())
    rows = order[np.minimum(starts[:, None] + place, order.size - 1)]
    return np.where(place < sizes[:, None], rows, -1)


def _head(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """A hidden layer and a projection, with weights from the generator."""
    layer = _score_layer(model)
    assert layer is not None
    with torch.random.fork_rng([]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        hidden = nn.Linear(layer.in_features, layer.in_features)
        return nn.Sequential(hidden, nn.ReLU(), nn.Linear(layer.in_features, PROJECTED))


def _score_layer(model: nn.Module) -> nn.Linear | None:
    """The last linear layer, which makes a score of what the hidden layers give."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    return layers[-1] if len(layers) > 1 and layers[-1].out_features == 1 else None


@contextmanager
def _score_input(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what the score layer reads in a forward pass."""
    read: list[Tensor] = []
    layer = _score_layer(model)
    assert layer is not None
    handle = layer.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    try:
        yield read
    finally:
        handle.remove()


def _seed(seed: int) -> int:
    words = np.random.SeedSequence([seed, _STREAM]).generate_state(1, np.uint64)
    return int(words[0]) >> 1
