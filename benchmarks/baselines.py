"""The baseline losses beside allRank's and rax's: the same values and gradients, and how fast.

First, list by list in double precision, whether a peer's loss and gradient are ours. They are
wherever the definition is the same, once options and factors are; the table says which:

- allRank adds 1e-10 in its logarithms or clamps at 1e-10 and has its discounts in single precision,
  so it agrees to about seven digits; and its lambdaLoss lets no pair lose more than log 10¹⁰.
- RankNet is a mean over the pairs of a list; allRank and rax take the mean over the pairs of the
  whole batch, so that long lists count more. Of one list it is the same.
- LambdaRank sums over pairs; rax takes the mean and multiplies weights by the padded length.
  allRank's logarithms have base 2 unless told otherwise, which is LambdaLoss' own definition.
- LambdaRank(k=5) takes ΔnDCG@5, and so does rax with topn=5. allRank's k=5 leaves out every pair
  with a document beyond rank 5: another loss, whose difference is shown.
- NDCG-Loss2++ is in rax the sum of its two weights, DCG's and ten times DCG2's.
- ListMLE orders documents of the same label at random, as allRank does; rax leaves them as they
  come. Hence labels without ties.
- rax's softmax_loss takes labels as they are: ListNet is the same of softmax(labels), and
  SoftmaxCrossEntropy of labels / Σ labels.
- WassRank is in neither.

Then, forward and backward on batches: ours ragged, the peers padded, rax compiled by XLA.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import rax
import torch
from torch import Tensor

import twinrank as tr
from common import (
    Bar,
    Batch,
    Call,
    Timings,
    backward_of,
    console,
    describe_environment,
    lognormal_sizes,
    make_batch,
    milliseconds,
    parser,
    race,
    save,
    show_bars,
    show_table,
    times,
)
from peers import ALLRANK_PADDING, allrank_loss
from twinrank.core.losses import loss

jax.config.update("jax_enable_x64", True)

AGREED = 1e-6


class Peer(NamedTuple):
    """Another library's loss that is, or is nearly, one of ours."""

    ours: str
    library: str
    function: Callable[..., Any]  # allRank: of (scores, labels); rax: of (scores, labels, where=)
    setting: str = ""
    same: bool = True


def rax_softmax(labels: Any, where: Any) -> Any:
    return jax.nn.softmax(labels, axis=-1, where=where)


def rax_shares(labels: Any, where: Any) -> Any:
    return labels / jnp.sum(labels, axis=-1, where=where, keepdims=True)


def rax_approx_ndcg(scores: Any, labels: Any, where: Any) -> Any:
    """What approx_t12n(ndcg_metric, temperature=0.1) gives, which current jax no longer runs."""
    ranks = partial(rax.utils.approx_ranks, step_fn=lambda x: jax.nn.sigmoid(x / 0.1))
    return -rax.ndcg_metric(scores, labels, where=where, rank_fn=ranks)


def rax_lambda_loss(weights: Callable[..., Any], factor: float = 1.0) -> Callable[..., Any]:
    """Σ over pairs of a list, without the factor that rax puts on weights."""

    def value(scores: Any, labels: Any, where: Any) -> Any:
        total = rax.pairwise_logistic_loss(
            scores, labels, where=where, lambdaweight_fn=weights, reduce_fn=jnp.sum
        )
        return factor * total / scores.shape[-1]

    return value


def rax_loss2pp(*arguments: Any, **options: Any) -> Any:
    near = rax.dcg2_lambdaweight(*arguments, normalize=True, **options)
    return rax.dcg_lambdaweight(*arguments, normalize=True, **options) + 10 * near


def rax_peers() -> list[Peer]:
    dcg = partial(rax.dcg_lambdaweight, normalize=True)
    dcg_5 = partial(rax.dcg_lambdaweight, normalize=True, topn=5)
    softmax = partial(rax.softmax_loss, label_fn=rax_softmax)
    cross_entropy = partial(rax.softmax_loss, label_fn=rax_shares)
    loss2pp = rax_lambda_loss(rax_loss2pp, 1 / math.log(2))
    return [
        Peer("ListNet", "rax", softmax, "label_fn=softmax"),
        Peer("ListMLE", "rax", rax.listmle_loss, "no ties"),
        Peer("SoftmaxCrossEntropy", "rax", cross_entropy, "label_fn=labels / Σ"),
        Peer("MSE", "rax", rax.pointwise_mse_loss),
        Peer("ApproxNDCG", "rax", rax_approx_ndcg, "temperature=0.1"),
        Peer("RankNet", "rax", rax.pairwise_logistic_loss, "one list"),
        Peer("LambdaRank", "rax", rax_lambda_loss(dcg), "dcg, sum / length"),
        Peer("LambdaRank(k=5)", "rax", rax_lambda_loss(dcg_5), "dcg, topn=5, sum / length"),
        Peer("LambdaLoss", "rax", loss2pp, "dcg + 10·dcg2, sum / length / ln 2"),
    ]


def allrank_peers() -> list[Peer]:
    lambda_loss = allrank_loss("lambdaLoss", "lambdaLoss")
    lambdarank = partial(lambda_loss, weighing_scheme="lambdaRank_scheme", reduction_log="natural")
    approx_ndcg = partial(allrank_loss("approxNDCG", "approxNDCGLoss"), alpha=10.0)
    loss2pp = partial(lambda_loss, weighing_scheme="ndcgLoss2PP_scheme")
    scheme = "lambdaRank_scheme, natural log"
    return [
        Peer("ListNet", "allRank", allrank_loss("listNet", "listNet")),
        Peer("ListMLE", "allRank", allrank_loss("listMLE", "listMLE"), "no ties"),
        Peer("ApproxNDCG", "allRank", approx_ndcg, "alpha=10"),
        Peer("RankNet", "allRank", allrank_loss("rankNet", "rankNet"), "one list"),
        Peer("LambdaRank", "allRank", lambdarank, scheme),
        Peer("LambdaRank(k=5)", "allRank", partial(lambdarank, k=5), f"{scheme}, k=5", same=False),
        Peer("LambdaLoss", "allRank", loss2pp, "ndcgLoss2PP_scheme"),
    ]


def rax_outcome(peer: Peer, scores: Any, labels: Any) -> tuple[float, Any]:
    where = jnp.ones((1, scores.size), dtype=bool)
    value, gradient = jax.value_and_grad(peer.function)(
        jnp.asarray(scores)[None], jnp.asarray(labels)[None], where=where
    )
    return float(value), np.asarray(gradient)[0]


def allrank_outcome(peer: Peer, scores: Any, labels: Any) -> tuple[float, Any]:
    rows = torch.tensor(scores)[None].requires_grad_()
    value = peer.function(rows, torch.tensor(labels)[None])
    (gradient,) = torch.autograd.grad(value, rows)
    return value.item(), gradient[0].numpy()


def our_outcome(name: str, scores: Any, labels: Any) -> tuple[float, Any]:
    flat = torch.tensor(scores, requires_grad=True)
    value = loss(name)(flat, torch.tensor(labels), tr.Lists.from_sizes([scores.size]))
    value.backward()
    assert flat.grad is not None
    return value.item(), flat.grad.numpy()


def difference(peer: Peer, sizes: list[int]) -> tuple[float, float]:
    """How far values and gradients are apart at most, relative to the largest of a list."""
    values, gradients, random = [], [], np.random.default_rng(0)
    theirs_of = rax_outcome if peer.library == "rax" else allrank_outcome
    for size in sizes:
        scores = random.standard_normal(size)
        labels = random.choice(5, size=size).astype(float)
        labels[0] = 4.0
        if peer.ours == "ListMLE":
            labels = random.permutation(size) * 4.0 / size
        ours, theirs = our_outcome(peer.ours, scores, labels), theirs_of(peer, scores, labels)
        values.append(abs(ours[0] - theirs[0]) / abs(theirs[0]))
        gradients.append(np.abs(ours[1] - theirs[1]).max() / np.abs(theirs[1]).max())
    return max(values), float(max(gradients))


def compare(peers: list[Peer]) -> tuple[dict[str, Any], list[Bar]]:
    """Print how far each peer is from ours."""
    rows, figures, bars = [], {}, []
    for peer in peers:
        value, gradient = difference(peer, [2, 5, 20, 100])
        name = f"{peer.ours} and {peer.library}"
        expected = "the same" if peer.same else "another definition"
        rows.append([peer.ours, peer.library, peer.setting, expected, f"{value:.1e}",
                     f"{gradient:.1e}"])  # fmt: skip
        figures[name] = {"value": value, "gradient": gradient}
        if peer.same:
            worst = max(value, gradient)
            claim = f"{name}: the same to {AGREED:g}"
            bars.append(Bar(claim, f"{worst:.1e}", worst <= AGREED))
    columns = ["ours", "peer", "setting", "expected", "value differs by", "gradient by"]
    show_table("Agreement, list by list, float64", columns, rows, texts=4)
    return figures, bars


def our_call(batch: Batch, name: str) -> Call:
    function = loss(name)
    return backward_of(batch.scores, lambda: function(batch.scores, batch.labels, batch.lists))


def peer_call(batch: Batch, peer: Peer) -> Call:
    """Forward and backward of a peer, on rectangles prepared beforehand."""
    scores = batch.padded(batch.scores, 0.0)
    if peer.library == "allRank":
        labels = batch.padded(batch.labels, ALLRANK_PADDING)
        scores.requires_grad_()
        return backward_of(scores, lambda: peer.function(scores, labels))
    compiled = jax.jit(jax.value_and_grad(lambda s, y, w: peer.function(s, y, where=w)))
    arrays = [jnp.asarray(_numpy(x)) for x in (scores, batch.padded(batch.labels, 0.0), batch.mask)]
    return lambda: jax.block_until_ready(compiled(*arrays))


def _numpy(tensor: Tensor) -> Any:
    return tensor.detach().numpy()


def show_timings(batch: Batch, timings: Timings, peers: list[Peer]) -> None:
    rows = []
    for name in dict.fromkeys(peer.ours for peer in peers):
        ours = timings[name].median
        row = [name, milliseconds(ours)]
        for library in ("allRank", "rax"):
            timing = timings.get(f"{library} {name}")
            row.append("" if timing is None else times(timing.median / ours))
        rows.append(row)
    show_table(batch.describe(), ["", "ours", "allRank takes", "rax takes"], rows)


def main() -> None:
    options = parser((__doc__ or "").split("\n", 1)[0])
    options.add_argument("--tiny", action="store_true", help="see that it works, time nothing real")
    chosen = options.parse_args()
    console.print(describe_environment() + f", jax {jax.__version__}")
    peers = [*allrank_peers(), *rax_peers()]
    agreement, bars = compare(peers)
    sizes = {"equal lengths": [120] * 100, "longest 300": lognormal_sizes(100, 120, 300, seed=2)}
    if chosen.tiny:
        sizes = {"tiny": [3, 9, 5]}
    timed: dict[str, Any] = {}
    for name, lengths in sizes.items():
        batch = make_batch(name, lengths, seed=1)
        calls = {peer.ours: our_call(batch, peer.ours) for peer in peers}
        calls |= {f"{peer.library} {peer.ours}": peer_call(batch, peer) for peer in peers}
        timings = race(calls, rounds=1 if chosen.tiny else 9, at_least=2)
        show_timings(batch, timings, peers)
        timed[name] = {contestant: timing.summary() for contestant, timing in timings.items()}
    show_bars(bars)
    save(chosen.json, {"agreement": agreement, "batches": timed}, bars)


if __name__ == "__main__":
    main()
