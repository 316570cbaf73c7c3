"""Several processes that train one net: the same step as one process, and no deadlocks."""

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
from safetensors import safe_open

import twinrank as tr
from twinrank.data.transforms import transform
from twinrank.learning.estimators.saved_ranker import load_model
from twinrank.learning.models.architecture import architecture
from twinrank.learning.models.scorer import Scorer
from twinrank.learning.training.fit_arguments import TrainingSet
from twinrank.learning.training.learner import Task, TrainingError
from twinrank.learning.training.loop import Trainer
from twinrank.learning.training.net_learner import NetLearner
from twinrank.learning.training.net_settings import NetSettings
from twinrank.learning.training.process_group import (
    ProcessGroup,
    ProcessLostError,
    TorchProcessGroup,
    explaining_lost_processes,
)
from twinrank.learning.training.settings import Plan

# The work of each of two processes, and of one alone; files hold the results.


def make_data(queries, seed):
    """Data without ties, which processes would break differently."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 20, queries)
    X = random.standard_normal((sizes.sum(), 5))
    y = (X[:, 0] + random.standard_normal(len(X)) > 0.5).astype(int)
    y[np.cumsum(sizes) - 1] = 1  # something relevant everywhere
    y[::7] *= 2  # which some queries have, and others don't
    return tr.Dataset.from_arrays(X, y, group=sizes)


def train(group, folder, mode):
    """Train, and save weights, gradients and the history; or the error."""
    data = make_data(30, 3)
    name = "MLP(width=9, depth=2, dropout=0, activation=tanh, norm=none)"
    name = "CE4.L(width=9)" if mode == "norm" else name
    scorer = Scorer(5, architecture(name), generator=torch.Generator().manual_seed(0)).double()
    plan = Plan(iterations=2 if mode == "killed" else 1)
    settings = NetSettings(batch_documents=10**6, optimiser="sgd", shuffle=False)
    weights = np.linspace(0.5, 2, data.queries) if mode == "weights" else None

    def loss(scores, labels, lists, weights=None):
        spoilt = mode == "error" and group.rank == group.size - 1
        return tr.DirectLoss("nDCG")(scores, labels, lists, weights) * (torch.nan if spoilt else 1)

    task = Task(TrainingSet(data, weights), {"validation": make_data(1500, 4)}, plan, group)
    learner = NetLearner(
        scorer,
        tr.DirectLoss("AP(rel=2)") if mode == "few" else loss,
        transform("QueryZScore").fit(data.X, data.lists),
        task,
        settings,
    )
    trainer = Trainer(learner, task)
    try:
        trainer.run()
        learner.finish()
        result = {
            "weights": scorer.state_dict(),
            "record": trainer.progress.history[-1],
            "gradients": [p.grad.clone() for p in scorer.parameters()],
        }
        torch.save(result, folder / f"{mode}{group.size}.pt")
    except TrainingError as error:
        (folder / f"{mode}{group.rank}.txt").write_text(str(error))
        if mode == "killed":
            return
    states = group.all_gather(repr(sum(float(b.sum()) for b in scorer.state_dict().values())))
    assert len(set(states)) == 1  # the same net everywhere


MODES = ("plain", "weights", "few", "norm", "error")


def worker(folder):
    group = TorchProcessGroup()
    for mode in MODES:
        train(group, Path(folder), mode)
    assert group.all_reduce([group.rank, 1]) == [1, 2]
    group.close()


def two_processes(call, folder):
    """Two processes that call a function of this module, by its name."""
    code = f"import test_distributed; test_distributed.{call}({str(folder)!r})"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    variables = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    return [
        subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, **variables, "RANK": str(rank)}
        )
        for rank in (0, 1)
    ]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The results of two processes, and of one."""
    folder = tmp_path_factory.mktemp("pair")
    children = two_processes("worker", folder)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for mode in MODES[:-1]:
        train(ProcessGroup(), folder, mode)
    torch.set_num_threads(before)
    assert [child.wait(timeout=120) for child in children] == [0, 0]
    return folder


@pytest.mark.parametrize("mode", ["plain", "weights", "few"])
def test_two_processes_take_the_same_step_as_one(pair, mode):
    alone, both = (torch.load(pair / f"{mode}{n}.pt") for n in (1, 2))
    for a, b in zip(alone["gradients"], both["gradients"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-12)
    assert max(float(g.abs().max()) for g in alone["gradients"]) > 1e-4
    for a, b in zip(alone["weights"].values(), both["weights"].values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-12)
    assert alone["record"]["loss"] == pytest.approx(both["record"]["loss"], rel=1e-9)


def test_validation_covers_all_queries(pair):
    alone, both = (torch.load(pair / f"plain{n}.pt")["record"]["validation"] for n in (1, 2))
    assert alone == pytest.approx(both, abs=1e-4)  # half of the queries would differ more


def test_running_statistics_are_averaged(pair):
    alone, both = (torch.load(pair / f"norm{n}.pt")["weights"] for n in (1, 2))
    means = [name for name in alone if name.endswith("running_mean")]
    assert means
    # The first layer's input is the same, so that the mean of both halves is nearly that of all.
    torch.testing.assert_close(alone[means[0]], both[means[0]], rtol=0.2, atol=0.02)


def test_an_error_in_one_process_stops_both_and_names_its_queries(pair):
    messages = [(pair / f"error{rank}.txt").read_text() for rank in (0, 1)]
    assert messages[0] == messages[1]
    assert messages[0].startswith("The loss is nan in epoch 1, step 1, on the queries ")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(2, 5))
def test_shares_of_a_batch_make_up_the_whole(sizes, count):
    queries = np.arange(len(sizes)) * 3
    parts = []
    for rank in range(count):
        group = ProcessGroup()
        group.rank, group.size = rank, count
        share, counts = group.share(queries, np.array(sizes))
        assert share.size
        if counts:
            parts.append(share)
            assert sum(sizes[q // 3] for q in share) <= sum(sizes) / count + max(sizes)
    assert np.concatenate(parts).tolist() == queries.tolist()


class MortalGroup(TorchProcessGroup):
    """Two processes of which the second dies when the second epoch begins.

    The first one runs the net next: DistributedDataParallel communicates there too, and not only
    for gradients.
    """

    epochs = 0

    def share(self, queries, sizes):
        self.epochs += 1
        if self.epochs == 1:
            self.pids = self.all_gather(str(os.getpid()))
        elif self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            while alive(self.pids[1]):
                time.sleep(0.01)
        return super().share(queries, sizes)


def alive(pid):
    """True if a process is running, and not only waiting for its parent."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True)
    return state.stdout.strip()[:1] not in ("", "Z")


def killed(folder):
    train(MortalGroup(), Path(folder), "killed")


@pytest.mark.slow
def test_a_death_between_two_steps_is_explained(tmp_path):
    survivor, died = two_processes("killed", tmp_path)
    assert died.wait(timeout=60) == -signal.SIGKILL
    survivor.wait(timeout=60)
    message = (tmp_path / "killed0.txt").read_text()
    assert message.startswith("Another process of this training has died")


def test_a_broken_connection_is_explained():
    died = pytest.raises(ProcessLostError, match="Another process of this training has died")
    with died, explaining_lost_processes():
        raise RuntimeError("[../gloo/transport/tcp/pair.cc:525] Connection closed by peer")
    with pytest.raises(RuntimeError, match="something else"), explaining_lost_processes():
        raise RuntimeError("something else")


def children_of(pid):
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


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


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])  # the main process, and another
def test_a_dying_worker_ends_the_job_and_leaves_a_checkpoint(small_file, tmp_path, rank):
    run = tmp_path / "run"
    job = torchrun(small_file, *LONG, "--out", run)
    wait_for(run / "checkpoint.safetensors")
    os.kill(sorted(children_of(job.pid))[rank], signal.SIGKILL)
    _, output = job.communicate(timeout=60)
    assert job.returncode != 0
    assert output.count("Another process of this training has died") == 1
    assert f"twinrank train --resume {run}" in output
    with safe_open(run / "checkpoint.safetensors", framework="pt") as file:
        assert "twinrank" in file.metadata()


@pytest.mark.slow
def test_a_wrong_parameter_is_reported_once(small_file, tmp_path):
    job = torchrun(small_file, "--set", "epoch=3", "--out", tmp_path / "run")
    _, output = job.communicate(timeout=60)
    assert job.returncode != 0
    assert output.count("Did you mean 'epochs'") == 1
    assert "has died" not in output
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_of_two_processes_from_the_command_line(small_file, tmp_path):
    run, epochs = tmp_path / "run", ["--set", "epochs=4"]
    job = torchrun(small_file, *epochs, "--out", run)
    out, output = job.communicate(timeout=100)
    assert job.returncode == 0
    assert out.count("Model in") == 1
    assert [output.count(f"epoch {n}/4") for n in (1, 2, 3, 4)] == [1, 1, 1, 1]
    assert load_model(run).n_features_in_ == 136
    again = torchrun("--resume", run)
    again.communicate(timeout=100)
    assert again.returncode == 0
    alone = subprocess.run(
        [sys.executable, "-m", "twinrank", "train", "--resume", str(run)],
        capture_output=True,
        text=True,
    )
    assert "Note: the run started with 2 processes and continues with 1" in alone.stderr


@pytest.mark.slow
def test_ctrl_c_stops_both_at_the_same_step(small_file, tmp_path):
    run = tmp_path / "run"
    job = torchrun(small_file, *LONG, "--out", run)
    wait_for(run / "checkpoint.safetensors")
    for pid in (*children_of(job.pid), job.pid):  # as a terminal does it
        os.kill(pid, signal.SIGINT)
    _, output = job.communicate(timeout=60)
    assert output.count("Continue with: twinrank train --resume") == 1
