"""Several processes that train one net: the same step as one, and nobody left waiting."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twinrank as tr
from twinrank.data.transforms import transform
from twinrank.estimators.base_ranker import load_ranker
from twinrank.models.architecture import architecture
from twinrank.models.scorer import Scorer
from twinrank.training.loop import Trainer, TrainingError
from twinrank.training.plan import Plan
from twinrank.training.processes import Processes, Several, others_alive

# What each of two processes does, and one alone: torch.save'd for the test to compare.


def made_up(queries, seed):
    """Data without ties, which processes would break differently."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 20, queries)
    X = random.standard_normal((sizes.sum(), 5))
    y = (X[:, 0] + random.standard_normal(len(X)) > 0.5).astype(int)
    y[np.cumsum(sizes) - 1] = 1  # something relevant everywhere
    y[::7] *= 2  # which some queries have, and others don't
    return tr.Dataset.from_arrays(X, y, group=sizes)


def step(processes, folder, mode):
    data = made_up(30, 3)
    name = "MLP(width=9, depth=2, dropout=0, activation=tanh, norm=none)"
    name = "CE4.L(width=9)" if mode == "norm" else name
    scorer = Scorer(5, architecture(name), generator=torch.Generator().manual_seed(0)).double()
    plan = Plan(
        epochs=2 if mode == "abandoned" else 1,
        batch_documents=10**6,
        optimiser="sgd",
        shuffle=False,
    )
    weights = np.linspace(0.5, 2, data.queries) if mode == "weights" else None

    def loss(scores, labels, lists, weights=None):
        spoilt = mode == "trouble" and processes.rank == processes.count - 1
        return tr.DirectLoss("nDCG")(scores, labels, lists, weights) * (torch.nan if spoilt else 1)

    one = Trainer(
        scorer,
        tr.DirectLoss("AP(rel=2)") if mode == "few" else loss,
        data,
        plan,
        transform("QueryZScore").fit(data.X, data.lists),
        evaluation={"validation": made_up(1500, 4)},
        weights=weights,
        processes=processes,
    )
    try:
        one.run()
        record = one.progress.history[-1]
        found = {"weights": scorer.state_dict(), "record": record, "value": record["validation"]}
        grads = [p.grad.clone() for p in scorer.parameters()]
        torch.save({**found, "gradients": grads}, folder / f"{mode}{processes.count}.pt")
    except TrainingError as error:
        (folder / f"{mode}{processes.rank}.txt").write_text(str(error))
        if mode == "abandoned":
            return
    states = processes.told(repr(sum(float(b.sum()) for b in scorer.state_dict().values())))
    assert len(set(states)) == 1  # the same net everywhere


MODES = ("plain", "weights", "few", "norm", "trouble")


def worker(folder):
    processes = Several()
    for mode in MODES:
        step(processes, Path(folder), mode)
    assert processes.sums([processes.rank, 1]) == [1, 2]
    processes.wait()
    processes.close()


def two_processes(call, folder):
    """Two processes that make one of this module's calls, found by its name."""
    code = f"import test_processes; test_processes.{call}({str(folder)!r})"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    where |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    return [
        subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, **where, "RANK": str(rank)}
        )
        for rank in (0, 1)
    ]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """What two processes found, and what one did."""
    folder = tmp_path_factory.mktemp("pair")
    children = two_processes("worker", folder)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for mode in MODES[:-1]:
        step(Processes(), folder, mode)
    torch.set_num_threads(before)
    assert [child.wait(timeout=120) for child in children] == [0, 0]
    return folder


@pytest.mark.parametrize("mode", ["plain", "weights", "few"])
def test_two_processes_make_the_step_of_one(pair, mode):
    one, two = (torch.load(pair / f"{mode}{n}.pt") for n in (1, 2))
    for a, b in zip(one["gradients"], two["gradients"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-12)
    assert max(float(g.abs().max()) for g in one["gradients"]) > 1e-4
    for a, b in zip(one["weights"].values(), two["weights"].values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-12)
    assert one["record"]["loss"] == pytest.approx(two["record"]["loss"], rel=1e-9)


def test_validation_is_that_of_all_queries(pair):
    one, two = (torch.load(pair / f"plain{n}.pt") for n in (1, 2))
    assert one["value"] == pytest.approx(two["value"], abs=1e-4)  # not of one half


def test_running_statistics_are_averaged(pair):
    one, two = (torch.load(pair / f"norm{n}.pt")["weights"] for n in (1, 2))
    means = [name for name in one if name.endswith("running_mean")]
    assert means
    # The first layer's input is the same, so that the mean of both halves is nearly that of all.
    torch.testing.assert_close(one[means[0]], two[means[0]], rtol=0.2, atol=0.02)


def test_trouble_in_one_stops_both_and_names_its_queries(pair):
    told = [(pair / f"trouble{rank}.txt").read_text() for rank in (0, 1)]
    assert told[0] == told[1]
    assert told[0].startswith("the loss is nan in epoch 1, step 1, on the queries ")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(2, 5))
def test_parts_of_a_batch_make_up_the_whole(sizes, count):
    queries = np.arange(len(sizes)) * 3
    parts = []
    for rank in range(count):
        one = Processes()
        one.rank, one.count = rank, count
        mine, counts = one.part(queries, np.array(sizes))
        assert mine.size
        if counts:
            parts.append(mine)
            assert sum(sizes[q // 3] for q in mine) <= sum(sizes) / count + max(sizes)
    assert np.concatenate(parts).tolist() == queries.tolist()


class Mortal(Several):
    """Two processes of which the second dies when the second epoch begins.

    What the first does next is to run the net: DistributedDataParallel talks to the others there,
    too, and not only for gradients.
    """

    epochs = 0

    def part(self, queries, sizes):
        self.epochs += 1
        if self.epochs == 1:
            self.pids = self.told(str(os.getpid()))
        elif self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            while alive(self.pids[1]):
                time.sleep(0.01)
        return super().part(queries, sizes)


def alive(pid):
    """Whether a process is there, and not only waited for by the one that started it."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True)
    return state.stdout.strip()[:1] not in ("", "Z")


def abandoned(folder):
    step(Mortal(), Path(folder), "abandoned")


def test_a_death_between_two_steps_is_told_in_words(tmp_path):
    left, died = two_processes("abandoned", tmp_path)
    assert died.wait(timeout=60) == -signal.SIGKILL
    left.wait(timeout=60)
    told = (tmp_path / "abandoned0.txt").read_text()
    assert told.startswith("another process of this training has died")


def test_a_broken_connection_is_told_in_words():
    died = pytest.raises(TrainingError, match="another process of this training has died")
    with died, others_alive():
        raise RuntimeError("[../gloo/transport/tcp/pair.cc:525] Connection closed by peer")
    with pytest.raises(RuntimeError, match="something else"), others_alive():
        raise RuntimeError("something else")


def children_of(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


TORCHRUN = f"{sys.executable} -m torch.distributed.run --nproc-per-node 2 --standalone".split()


def torchrun(*words):
    return subprocess.Popen(
        [*TORCHRUN, "-m", "twinrank", "train", *map(str, words)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(path, seconds=60):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


LONG = ["--epochs", 3000, "--set", "architecture=Linear", "--set", "early_stopping=none"]


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "train.txt"
    tr.synthetic_web_search(queries=20).save(path)
    return path


@pytest.mark.parametrize("rank", [0, 1])  # the one that leads, and another
def test_a_dying_worker_ends_the_job_and_leaves_a_checkpoint(small_file, tmp_path, rank):
    run = tmp_path / "run"
    job = torchrun(small_file, *LONG, "--out", run)
    wait_for(run / "checkpoint.safetensors")
    os.kill(sorted(children_of(job.pid))[rank], signal.SIGKILL)
    _, told = job.communicate(timeout=60)
    assert job.returncode != 0
    assert told.count("another process of this training has died") == 1
    assert f"twinrank train --resume {run}" in told
    from twinrank.training.checkpoints import safe_open

    with safe_open(run / "checkpoint.safetensors", framework="pt") as file:
        assert "twinrank" in file.metadata()


def test_a_mistake_is_told_once(small_file, tmp_path):
    job = torchrun(small_file, "--set", "epoch=3", "--out", tmp_path / "run")
    _, told = job.communicate(timeout=60)
    assert job.returncode != 0
    assert told.count("Did you mean 'epochs'") == 1
    assert "has died" not in told
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_of_two_processes_from_the_command_line(small_file, tmp_path):
    run, epochs = tmp_path / "run", ["--set", "epochs=4"]
    job = torchrun(small_file, *epochs, "--out", run)
    out, told = job.communicate(timeout=100)
    assert job.returncode == 0
    assert out.count("Model in") == 1
    assert [told.count(f"epoch {n}/4") for n in (1, 2, 3, 4)] == [1, 1, 1, 1]
    assert load_ranker(run).n_features_in_ == 136
    again = torchrun("--resume", run)
    again.communicate(timeout=100)
    assert again.returncode == 0
    alone = subprocess.run(
        [sys.executable, "-m", "twinrank", "train", "--resume", str(run)],
        capture_output=True,
        text=True,
    )
    assert "Note: the run began with 2 processes and goes on with 1" in alone.stderr


@pytest.mark.slow
def test_ctrl_c_stops_both_at_the_same_step(small_file, tmp_path):
    run = tmp_path / "run"
    job = torchrun(small_file, *LONG, "--out", run)
    wait_for(run / "checkpoint.safetensors")
    for pid in (*children_of(job.pid), job.pid):  # as a terminal does it
        os.kill(pid, signal.SIGINT)
    _, told = job.communicate(timeout=60)
    assert told.count("Go on with: twinrank train --resume") == 1
