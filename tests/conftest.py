"""Shape annotations are checked while the tests run; property tests repeat exactly under CI."""

import os
import signal
import sys

# As the command line has it: OpenMP's threads mustn't spin against each other. Read by torch when
# it is loaded, and by the processes that tests start.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# Triton's kernels run on CPU tensors; Triton reads this when a kernel is defined.
os.environ.setdefault("TRITON_INTERPRET", "1")

# A shell's background jobs ignore Ctrl-C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# Before any module with annotated functions is imported.
install_import_hook("twinrank.core.ranks.kernels.blocks", "beartype.beartype").__enter__()

# The first call of a compiled loop takes long: no deadlines.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture
def cli(monkeypatch, capsys):
    """The command line within this process: code, standard output, standard error."""
    from twinrank.cli import main

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["twinrank", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        return (code, *capsys.readouterr())

    return run


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_disks():
    """Files are not flushed to the disk, which takes milliseconds each; tests of it undo this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_clocks():
    """`load` waits until a file is older than a step of the clock: 20 ms, here 5 ms."""
    from twinrank.data import streams

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "_TICK", 5_000_000)
        yield


@pytest.fixture(autouse=True, scope="session")
def _cache_of_our_own(tmp_path_factory):
    """No test reads or writes the user's cache of data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWINRANK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def one_thread():
    """One thread of torch: batches of tests are tiny, so that a second thread costs time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def folds_in_miniature(tmp_path):
    """A folder with three folds; the first two documents of every query are alike."""
    import numpy as np

    import twinrank as tr

    random = np.random.default_rng(0)
    X = random.normal(size=(900, 5))
    X[1::15] = X[::15]
    y = np.clip(np.round(X[:, 0] + random.normal(size=900)), 0, 2)
    data = tr.Dataset.from_arrays(X, y, group=[15] * 60)
    for number, fold in enumerate(data.folds(3), 1):
        folder = tmp_path / "data" / f"Fold{number}"
        folder.mkdir(parents=True)
        for name, part in zip(("train", "vali", "test"), fold, strict=True):
            part.save(folder / f"{name}.txt")
    return tmp_path / "data"
