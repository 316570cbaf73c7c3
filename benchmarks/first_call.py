"""How long the first call takes, with nothing compiled before and with compiled code on disk."""

import json
import os
import statistics
import subprocess
import sys
import tempfile

from common import console, describe_environment, milliseconds, parser, save, show_table

# Runs in a process of its own. torch comes second, so that the first line shows what the package
# costs before torch is needed, and the first call is not charged for torch's import.
CHILD = """
import json, time
moments = [time.perf_counter()]
import twinrank as tr
moments.append(time.perf_counter())
import torch
moments.append(time.perf_counter())
torch.manual_seed(0)
lists = tr.Lists.from_sizes([120] * 100)
scores = torch.randn(12_000, requires_grad=True)
labels = torch.randint(0, 5, (12_000,)).float()
seconds = [later - earlier for earlier, later in zip(moments, moments[1:])]
for _ in range(2):
    start = time.perf_counter()
    tr.DirectLoss("nDCG")(scores, labels, lists).backward()
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
"""
PHASES = ("import twinrank", "import torch", "first forward + backward", "second")


def run_child(cache: str) -> list[float]:
    """Give the seconds of every phase in a fresh process with its compiled code in `cache`."""
    command = [sys.executable, "-c", CHILD]
    surroundings = {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run(command, env=surroundings, check=True, capture_output=True, text=True)
    seconds: list[float] = json.loads(done.stdout)
    return seconds


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=3, help="fresh folders to try (default 3)")
    chosen = options.parse_args()
    console.print(describe_environment())
    cold, warm = [], []
    for _ in range(chosen.repeats):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(run_child(cache))
            warm.append(run_child(cache))
    medians = {
        name: [statistics.median(column) for column in zip(*runs, strict=True)]
        for name, runs in {"cold": cold, "warm": warm}.items()
    }
    show_table(
        f"100 lists of 120 documents, nDCG-type3, median of {chosen.repeats} fresh processes",
        ["phase", "cold: nothing compiled", "warm: compiled code on disk"],
        [
            [phase, *(milliseconds(medians[state][index]) for state in medians)]
            for index, phase in enumerate(PHASES)
        ],
    )
    figures = {state: dict(zip(PHASES, row, strict=True)) for state, row in medians.items()}
    save(chosen.json, {"seconds": figures})


if __name__ == "__main__":
    main()
