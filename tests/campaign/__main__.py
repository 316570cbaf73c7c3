"""The command `python -m tests.campaign`."""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from .harness import load_all, run_batch

BATCH_SECONDS, PATIENCE, TABLE_MINUTES = 30.0, 300.0, 10.0
ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run batches in turn until the time is over, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="attacks whose names contain this text")
    parser.add_argument("--batch", type=int, help="run one batch in this process")
    parser.add_argument("--seconds", type=float, default=BATCH_SECONDS, help="of a batch")
    chosen = parser.parse_args()
    names = [name for name in sorted(load_all()) if chosen.only is None or chosen.only in name]
    if not names:
        parser.error(f"no attack contains {chosen.only!r}")
    if chosen.batch is not None:
        return run_batch(names[0], chosen.seed, chosen.batch, chosen.seconds)
    return campaign(names, chosen.minutes, chosen.seed, chosen.seconds)


def campaign(names: list[str], minutes: float, seed: int, seconds: float) -> int:
    """Run batches: next is always the attack that has had the least time."""
    begun = shown = time.monotonic()
    spent, cases = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0)
    batches, failures = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    while time.monotonic() - begun < 60 * minutes:
        name = min(names, key=spent.__getitem__)
        start = time.monotonic()
        count, problem = in_a_process(name, seed, batches[name], seconds)
        spent[name] += time.monotonic() - start
        cases[name] += count
        if problem is not None:
            failures[name] += 1
            command = f"--only '{name}' --batch {batches[name]} --seed {seed}"
            print(f"FAILED {name}, case {count + 1} ({command})\n{problem}\n", flush=True)
        batches[name] += 1
        if time.monotonic() > shown + 60 * TABLE_MINUTES:
            shown = time.monotonic()
            print_table(spent, cases, failures)
    print_table(spent, cases, failures)
    return 1 if any(failures.values()) else 0


def print_table(spent: dict[str, float], cases: dict[str, int], failures: dict[str, int]) -> None:
    """The cases and failures of every attack so far."""
    names = sorted(spent)
    width = max(map(len, names))
    total = sum(spent.values())
    print(f"| {'attack':{width}} |   cases | failures | minutes |")
    print(f"|:{'-' * width}-|--------:|---------:|--------:|")
    for name in names:
        print(
            f"| {name:{width}} | {cases[name]:7,} | {failures[name]:8} | {spent[name] / 60:7.1f} |"
        )
    sums = (sum(cases.values()), sum(failures.values()), total / 60)
    print(f"| {'all':{width}} | {sums[0]:7,} | {sums[1]:8} | {sums[2]:7.1f} |\n", flush=True)


def in_a_process(name: str, seed: int, batch: int, seconds: float) -> tuple[int, str | None]:
    """Run a batch: its number of cases, and what went wrong."""
    words = ["--only", name, "--batch", str(batch), "--seed", str(seed), "--seconds", str(seconds)]
    one = dict.fromkeys(("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.campaign", *words],
        cwd=ROOT,
        env={**os.environ, **one, "RUST_BACKTRACE": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=seconds + PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return out.count(b"."), f"no end after {seconds + PATIENCE:.0f} s\n{tail(err)}"
    if process.returncode == 0:
        return out.count(b"."), None
    ended = f"ended with {process.returncode}" if process.returncode != 1 else ""
    return out.count(b"."), f"{ended}\n{tail(err)}".strip()


def tail(err: bytes) -> str:
    """The end of what a process said."""
    return "\n".join(err.decode(errors="replace").splitlines()[-25:])


if __name__ == "__main__":
    sys.exit(main())
