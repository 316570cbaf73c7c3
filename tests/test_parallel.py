"""What must never happen to a user: a hang, a crash or other numbers, with forks and threads."""

import errno
import importlib.util
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
import torch
from numba.core import caching
from numba.core.compiler_lock import global_compiler_lock
from torch.utils.data import DataLoader, Dataset

import twinrank as tr
from twinrank.core.ranks.kernels import pairs, panels
from twinrank.support import compiled
from twinrank.support.compiled import in_threads, spans
from workload import outcome, problem

STRATEGIES = ("type1", "type2", "type3")


@pytest.fixture(autouse=True)
def two_threads():
    """Two threads for torch and so for the library, however many cores there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def expected():
    """What the parent computes, on two threads."""
    result = outcome()
    assert compiled._pool is not None, "the problem is too small to use the pool"
    return result


def run_python(script, **environment):
    """Run a script in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# Forks. Python 3.12 and later warn of any fork while threads exist: that is what is tested here.

forks = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def in_fork(function):
    """The function's result in a forked child, which must answer within half a minute."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=lambda: send.send(function()))
    child.start()
    send.close()  # so that the end of the child ends the wait
    try:
        assert receive.poll(30), "the forked child hangs"
        return receive.recv()
    finally:
        child.kill()
        child.join()


class TestFork:
    pytestmark = forks

    def test_after_a_parallel_region(self, expected):
        def run():
            assert compiled._pool is None  # the parent's threads are not there …
            result = outcome()
            assert compiled._pool is not None  # … and these are the child's own
            return result

        np.testing.assert_array_equal(in_fork(run), expected)
        np.testing.assert_array_equal(outcome(), expected)  # the parent's pool has not suffered

    def test_a_fork_of_a_fork(self, expected):
        def run():
            return outcome(), in_fork(outcome)

        # A daemonic process could not have children; an ordinary one can.
        for result in in_fork(run):
            np.testing.assert_array_equal(result, expected)

    def test_while_another_thread_holds_the_lock(self, expected):
        # The child inherits a locked lock whose owner doesn't exist there.
        with compiled._lock:
            result = in_fork(outcome)
        np.testing.assert_array_equal(result, expected)

    def test_of_a_batch_that_torch_would_share_out(self):
        # Torch's own threads don't survive a fork, and start from 32,768 elements on: the loss
        # must not need them.
        scores, labels, lists = problem(sizes=[300] * 120)
        scores.requires_grad_()

        def run():
            loss = tr.DirectLoss("nDCG", generator=torch.Generator().manual_seed(0))
            return torch.autograd.grad(loss(scores, labels, lists), scores)[0].numpy()

        torch.ones(100_000).add_(1)  # torch's threads exist
        np.testing.assert_array_equal(in_fork(run), run())

    def test_while_another_thread_compiles(self):
        # The child inherits numba's lock, taken by a thread that doesn't exist there.
        compiling = threading.Event()

        def compile_something():
            with global_compiler_lock:
                compiling.set()
                time.sleep(0.3)

        thread = threading.Thread(target=compile_something)
        thread.start()
        compiling.wait()
        assert in_fork(lambda: numba.njit(lambda x: x + 1)(1)) == 2
        thread.join()

    def test_while_other_threads_compute(self, expected):
        stop = threading.Event()

        def compute():
            while not stop.is_set():
                outcome()

        with ThreadPoolExecutor(2) as pool:
            busy = [pool.submit(compute) for _ in range(2)]
            try:
                for _ in range(5):
                    np.testing.assert_array_equal(in_fork(outcome), expected)
            finally:
                stop.set()
            assert [job.exception() for job in busy] == [None, None]


class Outcomes(Dataset):
    """A dataset that ranks in its workers, as one that mines hard negatives would."""

    def __len__(self):
        return 4

    def __getitem__(self, seed):
        return torch.from_numpy(outcome(seed))


class TestWorkers:
    @pytest.mark.parametrize("threads", [1, 2])
    def test_data_loader(self, threads, expected):
        # Torch gives its workers one thread each; some people change that.
        loader = DataLoader(
            Outcomes(),
            batch_size=None,
            num_workers=2,
            multiprocessing_context="fork",
            worker_init_fn=lambda _: torch.set_num_threads(threads),
            timeout=60,
        )
        rows = [row.numpy() for row in loader]
        np.testing.assert_array_equal(rows[0], expected)
        for seed, row in enumerate(rows):
            np.testing.assert_array_equal(row, outcome(seed))

    test_data_loader.pytestmark += forks

    @pytest.mark.parametrize("backend", [pytest.param("loky", marks=pytest.mark.slow), "threading"])
    def test_joblib(self, backend, expected):
        joblib = pytest.importorskip("joblib")
        tasks = [joblib.delayed(outcome)(seed) for seed in (0, 1, 0)]
        first, second, again = joblib.Parallel(n_jobs=2, backend=backend, timeout=120)(tasks)
        np.testing.assert_array_equal(first, expected)
        np.testing.assert_array_equal(again, expected)
        np.testing.assert_array_equal(second, outcome(1))


class TestThreads:
    def test_many_at_once(self):
        strategies = [STRATEGIES[i % 3] for i in range(24)]
        alone = [outcome(seed, strategy=s) for seed, s in enumerate(strategies)]
        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(outcome, i, strategy=s) for i, s in enumerate(strategies)]
            for job, row in zip(jobs, alone, strict=True):
                np.testing.assert_array_equal(job.result(timeout=60), row)

    def test_the_number_of_threads_changes_during_a_run(self, expected):
        # Each change builds another pool while the old one still has work to do.
        def run(threads):
            torch.set_num_threads(threads)
            return outcome()

        with ThreadPoolExecutor(4) as pool:
            for result in pool.map(run, [2, 3, 1, 4] * 5, timeout=60):
                np.testing.assert_array_equal(result, expected)

    def test_the_number_of_threads_can_be_limited(self, monkeypatch):
        monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
        with compiled.threads_at_most(3):
            assert compiled.threads() == 3
            with compiled.threads_at_most(-1):
                assert compiled.threads() == 3
            with compiled.threads_at_most(100):
                assert compiled.threads() == 8
        assert compiled.threads() == 8

    def test_an_error_reaches_the_caller_and_the_pool_lives_on(self, expected):
        def fail(start, stop):
            if start == 1:
                raise ValueError("range 1 is bad")

        pool = compiled._pool
        for _ in range(3):
            with pytest.raises(ValueError, match="range 1 is bad"):
                in_threads(fail, [(0, 1), (1, 2)])
        np.testing.assert_array_equal(outcome(), expected)
        assert compiled._pool is pool

    def test_an_error_waits_for_the_other_threads(self):
        # Who catches the error may reuse the arrays: nobody may still write into them.
        written = []

        def loop(start, stop):
            if start == 0:
                raise ValueError("at once")
            time.sleep(0.2)
            written.append(start)

        with pytest.raises(ValueError, match="at once"):
            in_threads(loop, [(0, 1), (1, 2)])
        assert written == [1]

    def test_more_threads_than_the_system_allows(self, monkeypatch):
        # The pool queues work before it fails to start a thread for it: nothing may run twice.
        torch.set_num_threads(4)
        monkeypatch.setattr(compiled, "_pool", None)
        start, started, ran = threading.Thread.start, [], []

        def start_one(thread):
            if started:
                raise RuntimeError("can't start new thread")
            started.append(thread)
            start(thread)

        def loop(first, last):
            ran.append(first)
            time.sleep(0.05)

        monkeypatch.setattr(threading.Thread, "start", start_one)
        in_threads(loop, [(0, 1), (1, 2), (2, 3), (3, 4)])
        time.sleep(0.3)
        assert sorted(ran) == [0, 1, 2, 3]

    @pytest.mark.parametrize("used_before", [False, pytest.param(True, marks=pytest.mark.slow)])
    def test_at_interpreter_exit(self, used_before):
        # By then the pool takes no more work and no new thread can start.
        script = f"""
            import atexit, torch, twinrank as tr

            torch.set_num_threads(2)
            scores = torch.linspace(0, 1, 18000).requires_grad_()
            labels, lists = torch.arange(18000) % 3, tr.Lists.from_sizes([300] * 60)

            def step():
                tr.DirectLoss("AP")(scores, labels, lists).backward()
                print(bool(scores.grad.any()))

            atexit.register(step)
            if {used_before}:
                step()
            """
        assert run_python(script).split() == ["True"] * (2 if used_before else 1)


class TestSameBits:
    """The number of threads changes neither ranks nor losses nor gradients, not by one bit."""

    @pytest.fixture
    def shared(self, monkeypatch):
        """Share out even the smallest work; note where each loop was cut."""
        cuts = []

        def share(loop, ranges, *arrays):
            cuts.append(ranges)
            in_threads(loop, ranges, *arrays)

        for module in (compiled, pairs, panels):
            monkeypatch.setattr(module, "spans", lambda costs, per_thread: spans(costs, 1))
            monkeypatch.setattr(module, "in_threads", share)
        monkeypatch.setattr(pairs, "_PAIRS_PER_THREAD", 1)
        return cuts

    # One list that is shared out by rows, empty and one-document lists, and ordinary ones.
    ragged = (7, 0, pairs.BY_ROWS + 10, 1, 90, 0, 33, 270, 2)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    @pytest.mark.parametrize("kernel", ["numba", "long", "auto"])
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_loss_and_gradient(self, strategy, kernel, dtype, shared):
        scores, labels, lists = problem(1, self.ragged, dtype)
        scores[-272:-2] *= 1e4  # the list of 270 is too wide for the fast formula
        results = []
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            shared.clear()
            leaf, generator = scores.clone().requires_grad_(), torch.Generator().manual_seed(0)
            loss = tr.DirectLoss("AP", strategy, kernel=kernel, generator=generator)
            value = loss(leaf, labels, lists)
            value.backward()
            results.append((value.item(), leaf.grad.numpy().tobytes()))
            by_rows = [len(cut) for cut in shared if cut[-1][1] == lists.documents]
            by_lists = [len(cut) for cut in shared if cut[-1][1] == len(lists)]
            assert (max(by_lists) > 1) == (threads > 1)
            assert kernel != "numba" or max(by_rows) == threads
        assert results == [results[0]] * 4

    @pytest.mark.parametrize("ties", ["random", "stable", "average"])
    def test_ranks(self, ties, shared):
        scores, _, lists = problem(2, [50, 0, 300, 1, 640, 70, 260, 999])
        perturbed = {"perturbation": 0.5, "samples": 3} if ties == "random" else {}
        results = []
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            generator = torch.Generator().manual_seed(0)
            ranks = tr.exact_ranks(scores, lists, ties=ties, generator=generator, **perturbed)
            results.append(ranks.numpy().tobytes())
            assert (len(shared[-1]) > 1) == (threads > 1)
        assert results == [results[0]] * 4

    def test_long_lists_by_rows_agree_with_whole_lists(self):
        # Rows and whole lists are different sums of the same terms.
        assert pairs.BY_ROWS < 10_000
        scores, labels, lists = problem(3, [pairs.BY_ROWS], torch.float64)
        gradient = scores.clone()
        arguments = (scores.numpy(), labels.double().numpy(), gradient.numpy(), lists)
        for strategy in STRATEGIES:
            rows, _ = pairs.direct_sums(*arguments, strategy, 1.0)
            expected = panels.LongKernel(1e-12)(*arguments, strategy, 1.0)
            np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-9 * np.abs(rows).max())


class TestCompiledCode:
    """The cache on disk saves time where it can be written, and is done without elsewhere."""

    STEP = """
        import torch, twinrank as tr

        scores = torch.tensor([0.5, 2.0, 1.0], requires_grad=True)
        labels, lists = torch.tensor([1, 0, 0]), tr.Lists.from_sizes([3])
        loss = tr.DirectLoss("RR")(scores, labels, lists)
        loss.backward()
        print(f"{loss.item():.4f}", bool(scores.grad[0] < 0))
        """

    def test_a_cache_folder_that_cannot_exist(self, tmp_path):
        (tmp_path / "file").touch()
        folder = str(tmp_path / "file" / "folder")  # not even the superuser can make it
        assert run_python(self.STEP, NUMBA_CACHE_DIR=folder).split() == ["-0.3333", "True"]

    def test_nowhere_to_write(self):
        # Permissions mean nothing to the superuser: let every candidate folder refuse instead.
        refuse = """
        from numba.core import caching

        def refuse(self):
            raise PermissionError(13, "Permission denied")

        caching._CacheLocator.ensure_cache_path = refuse
        """
        assert run_python(refuse + self.STEP).split() == ["-0.3333", "True"]

    @pytest.fixture
    def cache(self, tmp_path, monkeypatch):
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
        return tmp_path

    @staticmethod
    def add_one(x):
        return x + 1

    def test_is_read_back(self, cache):
        assert compiled.compiled(self.add_one)(1) == 2
        again = compiled.compiled(self.add_one)
        assert again(1) == 2
        assert sum(again.stats.cache_hits.values()) == 1
        assert list(cache.rglob("*.nbc"))

    @pytest.mark.parametrize("failing", ["save", "_save_index", "_save_data"])
    def test_a_full_disk(self, failing, cache, monkeypatch):
        def fail(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(caching.IndexDataCacheFile, failing, fail)
        loop = compiled.compiled(self.add_one)
        assert loop(1) == 2
        assert loop(1.5) == 2.5  # another type: compiled, and not saved, once more
        assert not list(cache.rglob("*.nbc"))

    @pytest.fixture
    def load(self, cache, monkeypatch):
        """Import a module anew, as the next process would after its source has changed."""
        monkeypatch.setattr(sys, "dont_write_bytecode", True)

        def load(name, source):
            file = cache / f"{name}.py"
            file.write_text(f"from twinrank.support.compiled import compiled\n{source}")
            compiled._sources.cache_clear()
            spec = importlib.util.spec_from_file_location(name, file)
            module = importlib.util.module_from_spec(spec)
            monkeypatch.setitem(sys.modules, name, module)
            spec.loader.exec_module(module)
            return module

        return load

    def test_a_full_disk_after_an_upgrade(self, load, monkeypatch):
        # Numba writes the index first: it must not be left naming the old version's code.
        def fail(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        old, new = (f"@compiled\ndef f(x):\n    return x + {n}\n" for n in (1, 2))
        assert load("tr_called", old).f(0) == 1
        with monkeypatch.context() as full:
            full.setattr(caching.IndexDataCacheFile, "_save_data", fail)
            assert load("tr_called", new).f(0) == 2
        assert load("tr_called", new).f(0) == 2

    def test_a_change_in_a_called_function(self, load):
        # A caller's compiled code holds what it calls, from another file.
        caller = "from tr_called import g\n@compiled\ndef f(x):\n    return g(x)\n"
        for n in (1, 2):
            load("tr_called", f"@compiled\ndef g(x):\n    return x + {n}\n")
            assert load("tr_caller", caller).f(0) == n
