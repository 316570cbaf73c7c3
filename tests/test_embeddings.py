"""The loss for embeddings: against a loop, scikit-learn and pytorch-metric-learning."""

import importlib.util
import os
import socket
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch.utils._python_dispatch import TorchDispatchMode

import embedding_steps
import twinrank as tr
from embedding_steps import LABELS, exact, made
from reference import METRICS, metric_and_gradient
from twinrank.embeddings import EmbeddingRankingLoss

EXAMPLE = Path(__file__).parents[1] / "examples" / "metric_learning.py"


def looped(embeddings, labels, references, of_references, excluded, measure, strategy, alpha):
    """Loss and gradient of the cosines, anchor by anchor, from the paper's formulas."""
    cosines = torch.nn.functional.cosine_similarity(embeddings[:, None], references[None], dim=2)
    values, gradient = [], torch.zeros_like(cosines)
    for i in range(len(labels)):
        rows = [j for j in range(len(of_references)) if (i, j) not in excluded]
        relevant = (of_references[rows] == labels[i]).double().numpy()
        if relevant.sum() == 0:
            continue
        scores = cosines[i, rows].detach().numpy()
        ranks = np.argsort(np.argsort(-scores)) + 1.0
        value, slopes = metric_and_gradient(
            METRICS[measure], scores, relevant, ranks, strategy, alpha
        )
        values.append(value)
        gradient[i, rows] = torch.from_numpy(slopes)
    (by_rows,) = torch.autograd.grad(cosines, embeddings, gradient / -len(values))
    return -np.mean(values), by_rows


@pytest.mark.parametrize("strategy", ["type1", "type2", "type3"])
@pytest.mark.parametrize("measure", ["AP", "nDCG@5", "RR"])
def test_is_a_loop_over_anchors(measure, strategy):
    embeddings = made().requires_grad_()
    own = {(i, i) for i in range(len(LABELS))}
    value, gradient = looped(
        embeddings, LABELS, embeddings.detach(), LABELS, own, measure, strategy, alpha=5.0
    )
    # Rows are references too: the gradient through those comes from the same cosines, transposed.
    other = made().requires_grad_()
    loss = exact(measure, strategy, temperature=0.2)
    fixed = loss(other, LABELS, _all_but_self(LABELS), other.detach(), LABELS)
    fixed.backward()
    assert fixed.item() == pytest.approx(value, abs=1e-12)
    torch.testing.assert_close(other.grad, gradient, rtol=1e-9, atol=1e-12)

    whole = made().requires_grad_()
    loss(whole, LABELS).backward()
    references = made().requires_grad_()
    loss(embeddings.detach(), LABELS, _all_but_self(LABELS), references, LABELS).backward()
    torch.testing.assert_close(whole.grad, gradient + references.grad, rtol=1e-9, atol=1e-12)


def _all_but_self(labels):
    """Pairs as a miner of pytorch-metric-learning would give them."""
    same = labels[:, None] == labels
    other = ~torch.eye(len(labels), dtype=torch.bool)
    return (*torch.where(same & other), *torch.where(~same))


def test_the_value_is_mean_average_precision():
    embeddings = made(60, 8, seed=1)
    labels = torch.arange(60) % 7
    units = torch.nn.functional.normalize(embeddings, dim=1)
    expected = [
        average_precision_score(
            np.delete((labels == labels[i]).numpy(), i),
            np.delete((units @ units[i]).numpy(), i),
        )
        for i in range(60)
    ]
    assert exact()(embeddings, labels).item() == pytest.approx(-np.mean(expected))


def test_order_of_the_batch_and_length_of_rows_do_not_matter():
    order = torch.tensor([3, 1, 4, 0, 5, 9, 2, 6, 8, 7])
    first, second = made().requires_grad_(), made()[order].requires_grad_()
    loss = exact()
    one, two = loss(first, LABELS), loss(second, LABELS[order])
    one.backward()
    two.backward()
    assert one.item() == pytest.approx(two.item(), abs=1e-12)
    torch.testing.assert_close(first.grad[order], second.grad)
    assert loss(made() * 7, LABELS).item() == pytest.approx(one.item(), abs=1e-12)


def test_anchors_without_company_are_skipped():
    three = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    assert exact()(three, torch.tensor([0, 0, 1])).item() == -1  # not −2/3
    alone = made(3).requires_grad_()
    loss = exact()(alone, torch.tensor([0, 1, 2]))
    loss.backward()
    assert loss.item() == 0
    assert alone.grad.abs().sum() == 0
    assert exact()(made(0), torch.zeros(0)).item() == 0


def test_references_are_the_lists():
    embeddings, references = made().requires_grad_(), made(6, seed=2)
    of_references = torch.tensor([0, 1, 1, 2, 0, 5])
    loss = exact(temperature=0.2)
    found = loss(embeddings, LABELS, ref_emb=references, ref_labels=of_references)
    value, gradient = looped(
        embeddings, LABELS, references, of_references, set(), "AP", "type3", alpha=5.0
    )
    (slopes,) = torch.autograd.grad(found, embeddings)
    assert found.item() == pytest.approx(value)
    torch.testing.assert_close(slopes, gradient)
    # The batch itself, given as references, is the batch.
    again = loss(embeddings, LABELS, None, embeddings, LABELS)
    assert again.item() == loss(embeddings, LABELS).item()


def test_triplets_choose_the_lists():
    embeddings = made()
    # Anchor 0 with 2 (of its class) and 1, 3; anchor 1 with 4 and 0.
    chosen = [torch.tensor(rows) for rows in ([0, 0, 1], [2, 2, 4], [1, 3, 0])]
    cosines = torch.nn.functional.cosine_similarity(embeddings[:, None], embeddings[None], dim=2)
    first = 1 / (1 + (cosines[0, [1, 3]] > cosines[0, 2]).sum().item())
    second = 1 / (1 + (cosines[1, [0]] > cosines[1, 4]).sum().item())
    found = exact()(embeddings, LABELS, chosen).item()
    assert found == pytest.approx(-(first + second) / 2)


def test_descent_brings_classes_together():
    embeddings = made(40, 6, seed=3).requires_grad_()
    labels = torch.arange(40) % 4
    loss, optimiser = exact(), torch.optim.Adam([embeddings], lr=0.05)
    first = loss(embeddings, labels).item()
    for _ in range(60):
        optimiser.zero_grad()
        loss(embeddings, labels).backward()
        optimiser.step()
    assert first > -0.5
    assert loss(embeddings, labels).item() < -0.99


def test_grades_of_all_pairs_replace_classes():
    grades = (LABELS[:, None] == LABELS).long()
    assert exact()(made(), grades).item() == exact()(made(), LABELS).item()
    references, classes = made(6, seed=2), torch.tensor([0, 1, 1, 2, 0, 5])
    given = exact()(made(), (LABELS[:, None] == classes).float(), ref_emb=references)
    assert given.item() == exact()(made(), LABELS, None, references, classes).item()


def overlap(labels, others):
    """The number of tags that two items share."""
    return labels.double() @ others.double().T


def test_relevance_makes_grades_from_labels():
    tags = torch.randint(0, 2, (10, 3), generator=torch.Generator().manual_seed(1))
    given = exact("nDCG")(made(), overlap(tags, tags))
    loss = exact("nDCG", relevance=overlap)
    assert loss(made(), tags).item() == given.item()
    assert loss(made(), tags, None, made(), tags).item() != given.item()  # itself is a reference
    with pytest.raises(tr.InputError, match=r"relevance must return grades of shape \(10, 10\)"):
        exact(relevance=lambda labels, others: labels)(made(), tags)


def test_the_memory_has_earlier_batches():
    loss, plain = exact(memory_size=15), exact()
    batches = [made(seed=seed) for seed in range(3)]
    first = loss(batches[0], LABELS)
    assert first.item() == plain(batches[0], LABELS).item()
    loss(batches[1], LABELS)
    found = loss(batches[2].requires_grad_(), LABELS)
    rows, classes = torch.cat([batches[0][5:], batches[1]]), torch.cat([LABELS[5:], LABELS])
    everything = torch.cat([batches[2], rows]).detach()
    listed = ~torch.eye(10, 25, dtype=torch.bool)
    same = LABELS[:, None] == torch.cat([LABELS, classes])
    pairs = (*torch.where(same & listed), *torch.where(~same))
    expected = plain(batches[2].detach(), LABELS, pairs, everything, torch.cat([LABELS, classes]))
    assert found.item() == pytest.approx(expected.item())
    found.backward()
    again = exact(memory_size=15)
    again.load_state_dict(loss.state_dict())
    next_batch = made(seed=9)
    assert again.eval()(next_batch, LABELS).item() == loss(next_batch, LABELS).item()
    assert len(again.memory[0]) == 15
    torch.testing.assert_close(again.memory[0][-10:], batches[2].detach())  # evaluation adds none


@pytest.mark.slow
def test_two_processes_are_like_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    variables = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    variables |= {"MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    code = f"import embedding_steps; embedding_steps.work({str(tmp_path)!r})"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, **variables, "RANK": str(rank)}
        )
        for rank in (0, 1)
    ]
    alone = embedding_steps.step(0, 1)
    assert [child.wait(timeout=120) for child in children] == [0, 0]
    assert alone[0].abs().max() > 1e-3
    for rank in (0, 1):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), alone)


class _Largest(TorchDispatchMode):
    """The largest tensor that anything gives back."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for one in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(one, torch.Tensor):
                self.numbers = max(self.numbers, one.numel())
        return result


def test_memory_grows_with_the_square():
    loss, peaks = exact(), {}
    for size in (32, 80, 160):  # the first compiles
        embeddings = made(size, 8).float().requires_grad_()
        tracemalloc.start()
        with _Largest() as largest:
            loss(embeddings, torch.arange(size) % 8).backward()
        peaks[size] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert largest.numbers <= size * size
    assert peaks[160] < 5 * peaks[80]  # the cube would be 8


def test_low_precision_keeps_cosines_apart():
    embeddings = made(64, 16, seed=4).float()
    labels = torch.arange(64) % 8
    loss = exact()
    expected = loss(embeddings, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(embeddings, labels).item() == expected.item()
    low = embeddings.bfloat16().requires_grad_()
    found = loss(low, labels)
    found.backward()
    assert found.dtype == torch.float32
    assert found.item() == loss(low.detach().float(), labels).item()
    assert low.grad.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((made()[0], LABELS), r"shape \(items, dimensions\), not torch.float64 of shape \(4,\)"),
        ((made().long(), LABELS), "floating-point numbers"),
        ((made(), LABELS[:9]), r"labels has shape \(9,\) but embeddings has 10 rows"),
        ((made(), LABELS.tolist()), "labels must be a torch tensor, not list"),
        ((made(), LABELS, None, made()), "Give both ref_emb and ref_labels"),
        ((made(), LABELS, None, made(5, 3), LABELS[:5]), "4 dimensions but ref_emb has 3"),
        ((made(), LABELS, None, made(5), LABELS), "ref_labels"),
        ((made(), LABELS, (LABELS, LABELS)), "not 2 tensors"),
        ((made(), LABELS[:, None]), r"grades have shape \(10, 1\) for 10 embeddings"),
        ((made().log(), LABELS), "rows of embeddings contain NaN or infinity; the first is row 0"),
    ],
)
def test_refuses_what_does_not_fit(arguments, message):
    with pytest.raises(tr.InputError, match=message):
        exact()(*arguments)


def test_refuses_grades_of_items_it_does_not_know():
    with pytest.raises(tr.InputError, match="no column for items of the memory"):
        exact(memory_size=5)(made(), torch.ones(10, 10))
    with pytest.raises(tr.InputError, match="ref_emb replaces the memory"):
        exact(memory_size=5)(made(), LABELS, None, made(5), LABELS[:5])
    with pytest.raises(tr.InputError, match="memory_size must be a whole number of at least 0"):
        exact(memory_size=-1)
    loss = exact(memory_size=5)
    loss(made(), LABELS)
    with pytest.raises(tr.InputError, match="3 dimensions but the memory has 4"):
        loss(made(10, 3), LABELS)


@pytest.mark.parametrize("temperature", [0, -1, float("inf"), float("nan"), "warm"])
def test_refuses_a_temperature(temperature):
    with pytest.raises(tr.InputError, match="temperature must be a positive number"):
        EmbeddingRankingLoss(temperature=temperature)


def test_is_a_module_of_the_library():
    assert tr.embeddings.EmbeddingRankingLoss is EmbeddingRankingLoss
    assert "temperature=0.2" in repr(EmbeddingRankingLoss("nDCG"))
    assert "nDCG" in repr(EmbeddingRankingLoss("nDCG"))
    with pytest.raises(AttributeError, match="is now called EmbeddingRankingLoss"):
        _ = tr.embeddings.DirectRetrievalLoss
    with pytest.raises(AttributeError, match="has no attribute 'Loss'"):
        _ = tr.embeddings.Loss


def test_stands_where_pytorch_metric_learning_has_a_loss():
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    embeddings, labels = made(30, 6).float().requires_grad_(), torch.arange(30) % 5
    ours, theirs = exact(), losses.ContrastiveLoss()
    both = losses.MultipleLosses([ours, theirs], weights=[1.0, 0.5])(embeddings, labels)
    assert both.item() == pytest.approx(
        (ours(embeddings, labels) + 0.5 * theirs(embeddings, labels)).item()
    )
    both.backward()
    for miner in (miners.MultiSimilarityMiner(epsilon=1.0), miners.TripletMarginMiner(margin=1.0)):
        found = ours(embeddings, labels, miner(embeddings, labels))
        assert -1 <= found.item() < 0


@pytest.fixture(scope="module")
def example():
    found = importlib.util.spec_from_file_location("metric_learning", EXAMPLE)
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


def test_the_example_measures_as_pytorch_metric_learning(example):
    pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    embeddings, labels = made(90, 6).float(), torch.arange(90) ** 2 % 7  # classes of four sizes
    theirs = AccuracyCalculator(
        include=("precision_at_1", "mean_average_precision_at_r"),
        k="max_bin_count",
        device=torch.device("cpu"),
        knn_func=CustomKNN(CosineSimilarity()),
    ).get_accuracy(embeddings, labels)
    ours = example.retrieval(embeddings, labels)
    assert ours["recall@1"].mean() == pytest.approx(theirs["precision_at_1"])
    assert ours["MAP@R"].mean() == pytest.approx(theirs["mean_average_precision_at_r"])


def test_the_example_runs(example, monkeypatch, capsys):
    pytest.importorskip("pytorch_metric_learning")
    monkeypatch.setattr(sys, "argv", ["metric_learning.py", "--quick"])
    example.main()
    printed = capsys.readouterr().out
    assert "Trained on 898 images of 10 classes, tested on 899 images of 10 classes" in printed
    for name in ("ContrastiveLoss", "TripletMarginLoss", "EmbeddingRankingLoss AP", "MAP@R"):
        assert name in printed


def test_the_example_takes_a_folder_of_images(example, tmp_path, monkeypatch, capsys):
    pytest.importorskip("pytorch_metric_learning")
    from PIL import Image

    random = np.random.default_rng(0)
    for name in ("audi", "bmw", "fiat", "opel"):
        (tmp_path / name).mkdir()
        for i in range(8):
            pixels = random.integers(0, 255, (12, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    (tmp_path / "notes.txt").write_text("not an image")
    words = ["--quick", "--images", str(tmp_path), "--size", "16", "--batch", "12"]
    monkeypatch.setattr(sys, "argv", ["metric_learning.py", *words])
    example.main()
    assert "on 16 images of 2 classes, tested on 16 images of 2 classes" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="has 0 folders of images"):
        example.folder_of_images(tmp_path / "audi", 16)
