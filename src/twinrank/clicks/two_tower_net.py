"""A net as the tower of relevance of a two-tower model of clicks."""

from copy import deepcopy
from typing import Any

import numpy as np

from twinrank.clicks.click_log import Floats, Ints
from twinrank.clicks.position_bias import Cells
from twinrank.data.folds import cut
from twinrank.support.errors import InputError, needing_torch

_WIDTH = 64
_EPOCHS, _STEPS = 30, 2000  # at least
_BATCH = 128  # documents
_RATE, _BIAS_RATE, _DECAY = 3e-3, 2e-2, 1e-4
_HELD_OUT = 0.2  # of the queries


def fit_net(
    X: Any, documents: Ints, cells: Cells, rate: Floats, weight: Floats, tower: Any, seed: int
) -> tuple[Floats, Floats]:
    """The logit of each row of X, and the bias of each position.

    The likelihood of a fifth of the queries decides when training stops.
    """
    with needing_torch("A net as the tower of a two-tower model"):
        import torch

    def tensor(values: Any) -> Any:
        return torch.as_tensor(np.ascontiguousarray(values, np.float32))

    features = tensor(_standardised(X, documents))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = _net(features.shape[1]) if isinstance(tower, str) else deepcopy(tower)
        if not isinstance(net, torch.nn.Module):
            raise InputError(f"tower must be trees, net or a torch module, not {tower!r:.60}.")
        bias = torch.nn.Parameter(torch.zeros(cells.positions))
        optimiser = torch.optim.AdamW(
            [{"params": net.parameters(), "weight_decay": _DECAY},
             {"params": [bias], "weight_decay": 0.0, "lr": _BIAS_RATE}],
            lr=_RATE,
        )  # fmt: skip
        held = _held_out(cells, seed)
        own, starts = features[torch.as_tensor(documents)], _starts(cells.group)
        columns = (torch.as_tensor(cells.position), tensor(rate), tensor(weight))

        def loss_of(groups: Ints) -> Any:
            """The weighted cross-entropy of the cells of some documents."""
            sizes = starts[groups + 1] - starts[groups]
            ends = np.cumsum(sizes)
            rows = np.arange(ends[-1]) + np.repeat(starts[groups] - ends + sizes, sizes)
            position, target, factor = (column[torch.as_tensor(rows)] for column in columns)
            score = net(own[torch.as_tensor(groups)]).reshape(-1)
            if score.shape[0] != groups.size:
                raise InputError(
                    f"tower gives {score.shape[0]} scores for {groups.size} documents; it needs "
                    f"one for each."
                )
            number = torch.as_tensor(np.repeat(np.arange(groups.size), sizes))
            return torch.nn.functional.binary_cross_entropy_with_logits(
                score[number] + bias[position], target, weight=factor, reduction="sum"
            )

        training, validation = np.flatnonzero(~held), np.flatnonzero(held)
        generator, best, kept = np.random.default_rng(seed), np.inf, None
        for _ in range(max(_EPOCHS, -(-_STEPS * _BATCH // training.size))):
            net.train()
            for batch in np.split(order := generator.permutation(training),
                                  range(_BATCH, order.size, _BATCH)):  # fmt: skip
                optimiser.zero_grad()
                (loss_of(batch) / batch.size).backward()
                optimiser.step()
            net.eval()
            with torch.no_grad():
                value = float(loss_of(validation if validation.size else training))
            if value < best:
                best = value
                kept = {k: v.clone() for k, v in net.state_dict().items()}, bias.detach().clone()
        if kept is None:
            raise InputError("The two-tower net diverged: its loss is not finite.")
        net.load_state_dict(kept[0])
        with torch.no_grad():
            raw = torch.cat([net(part).reshape(-1) for part in features.split(100_000)])
    return raw.numpy().astype(np.float64), kept[1].numpy().astype(np.float64)


def _net(features: int) -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Linear(features, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU(),
        nn.Linear(_WIDTH, 1),
    )  # fmt: skip


def _standardised(X: Any, documents: Ints) -> Floats:
    """Features with a short tail, mean 0 and variance 1 over the documents that were shown."""
    values = np.asarray(X, np.float64)
    values = np.sign(values) * np.log1p(np.abs(values))
    own = values[documents]
    spread = np.nanstd(own, axis=0)
    values = (values - np.nanmean(own, axis=0)) / np.where(spread > 0, spread, 1)
    return np.asarray(np.nan_to_num(np.clip(values, -5, 5)))


def _held_out(cells: Cells, seed: int) -> Any:
    """True for the documents of a fifth of the queries."""
    queries = np.unique(cells.query)
    if queries.size < 1 / _HELD_OUT:
        return np.zeros(cells.query.size, np.bool_)
    part = cut(queries.size, [_HELD_OUT], seed)[0]
    return np.isin(cells.query, queries[part])


def _starts(group: Ints) -> Ints:
    """The first cell of each group; cells are sorted by group."""
    return np.searchsorted(group, np.arange(int(group.max()) + 2))
