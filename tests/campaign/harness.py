"""The registry of attacks, and the process that runs a batch of one."""

import os
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

Attack = Callable[[np.random.Generator, Path], Iterator[None]]
ATTACKS: dict[str, Attack] = {}
MEMORY = 12 << 30
"""The address space of a batch: an attack that makes the library ask for more is a failure."""


def attack(name: str) -> Callable[[Attack], Attack]:
    """Register a generator of cases; it yields after each case, and raises if one fails."""

    def register(function: Attack) -> Attack:
        ATTACKS[name] = function
        return function

    return register


def load_all() -> dict[str, Attack]:
    """All attacks by name."""
    from . import (  # noqa: F401
        data_attacks,
        model_attacks,
        number_attacks,
        output_attacks,
        process_attacks,
        run_attacks,
    )

    return ATTACKS


def run_batch(name: str, seed: int, batch: int, seconds: float) -> int:
    """Run a batch in this process: a line per case, and the failure if there is one."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import torch

    torch.set_num_threads(1)
    random = np.random.default_rng([seed, sorted(load_all()).index(name), batch])
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ["TWINRANK_CACHE_DIR"] = str(Path(folder) / "cache")
        try:
            for _ in ATTACKS[name](random, Path(folder)):
                os.write(1, b".")
                if time.monotonic() > end:
                    break
        except BaseException:
            sys.stdout.flush()
            os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
            return 1
    return 0
