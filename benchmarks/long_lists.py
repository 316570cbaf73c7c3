"""How the pair sum and DirectLoss grow with the length of one list, up to a million documents."""

import json
import subprocess
import sys
from pathlib import Path

import torch

from common import (
    DIRECT,
    LONG,
    STRATEGIES,
    Bar,
    Batch,
    Call,
    Timings,
    console,
    describe_environment,
    direct_loss,
    make_batch,
    milliseconds,
    pair_call,
    parser,
    race,
    save,
    show_bars,
    show_table,
    times,
)

LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
DIRECT_UP_TO = 100_000  # a million would take the direct kernel a hundred times as long again
KERNELS = (LONG, DIRECT)
LOSS = "DirectLoss nDCG"


def one_list(length: int, dtype: torch.dtype = torch.float32) -> Batch:
    return make_batch(f"{length:,} documents", [length], seed=length, dtype=dtype)


def measure(batch: Batch, kernels: tuple[str, ...]) -> Timings:
    """Time the pair sum with each kernel, and the whole loss, for each strategy."""
    calls: dict[str, Call] = {}
    for strategy in STRATEGIES:
        calls |= {f"{kernel} {strategy}": pair_call(batch, kernel, strategy) for kernel in kernels}
        calls[f"{LOSS} {strategy}"] = direct_loss(batch, "nDCG", strategy)
    return race(calls, rounds=7, budget=3.0)


def error_of_long(batch: Batch, strategy: str) -> float:
    """Compare the two kernels: max |long − direct| / max |direct|."""
    long, direct = (pair_call(batch, kernel, strategy)() for kernel in KERNELS)
    return float((long - direct).abs().max() / direct.abs().max())


def memory(line: str) -> float | None:
    """Read one line of this process's memory in bytes; None on systems without /proc."""
    # Not getrusage's ru_maxrss: on Linux a new process inherits its parent's peak.
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    fields = dict(text.split(":", 1) for text in status.read_text().splitlines() if ":" in text)
    return 1024 * float(fields[line].split()[0]) if line in fields else None


def report_extra_memory(what: str) -> None:
    """Print by how many bytes a million documents raise the peak; run in a process of its own."""
    small, large = (
        direct_loss(batch, "nDCG") if what == LOSS else pair_call(batch, what, "type3")
        for batch in (one_list(10_000), one_list(LENGTHS[-1]))
    )
    small()  # loads the compiled code, starts the threads
    before = memory("VmRSS")
    large()
    peak = memory("VmHWM")
    print(json.dumps(None if before is None or peak is None else peak - before))


def extra_memory(what: str) -> float | None:
    """Measure in a fresh process, where nothing has raised the peak before."""
    command = [sys.executable, __file__, "--extra-memory-of", what]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: float | None = json.loads(answer)
    return result


def show_times(results: dict[int, Timings]) -> None:
    """Print a row per strategy and call, a column per length, and the growth of the last step."""
    rows = []
    for strategy in STRATEGIES:
        for call in ("direct", "long", LOSS):
            name = f"{call} {strategy}"
            row = [
                milliseconds(timings[name].median) if name in timings else "–"
                for timings in results.values()
            ]
            growth = "–" if call == "direct" else times(growth_of(results, name))
            rows.append([name, *row, growth])
        ratios = [
            times(speed_of_long(timings, strategy)) if f"direct {strategy}" in timings else "–"
            for timings in results.values()
        ]
        rows.append([f"direct / long {strategy}", *ratios, ""])
    show_table(
        "One list, five grades, float32: median time",
        ["", *(f"{length:,}" for length in results), "1M / 100k"],
        rows,
    )


def growth_of(results: dict[int, Timings], name: str) -> float:
    return results[1_000_000][name].median / results[100_000][name].median


def speed_of_long(timings: Timings, strategy: str) -> float:
    return timings[f"direct {strategy}"].median / timings[f"long {strategy}"].median


def bars_of(results: dict[int, Timings], extra: dict[str, float | None]) -> list[Bar]:
    """Hold the promised figures against the measured ones."""
    bars = []
    for call in ("long", LOSS):
        growth = {name: growth_of(results, f"{call} {name}") for name in STRATEGIES}
        worst = max(growth, key=growth.__getitem__)
        measured = f"{times(growth[worst])} ({worst})"
        claim = f"{call}: 1M documents ≤ 15× the time of 100k"
        bars.append(Bar(claim, measured, growth[worst] <= 15))
    speed = {name: speed_of_long(results[100_000], name) for name in STRATEGIES}
    worst = min(speed, key=speed.__getitem__)
    claim = "long at 100k ≥ 50× faster than direct"
    bars.append(Bar(claim, f"{times(speed[worst])} ({worst})", speed[worst] >= 50))
    for what, size in extra.items():
        measured = "–" if size is None else f"{size / 1e6:,.0f} MB"
        claim = f"{what}: under 1 GB of extra memory at 1M documents"
        bars.append(Bar(claim, measured, None if size is None else size < 1e9))
    return bars


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--extra-memory-of", choices=["long", LOSS], help="print one figure of memory, in bytes"
    )
    chosen = options.parse_args()
    if chosen.extra_memory_of:
        report_extra_memory(chosen.extra_memory_of)
        return
    console.print(describe_environment())
    measure(one_list(100), KERNELS)  # compiles
    results = {
        length: measure(one_list(length), KERNELS if length <= DIRECT_UP_TO else (LONG,))
        for length in LENGTHS
    }
    errors = {
        str(dtype).removeprefix("torch."): {
            strategy: error_of_long(one_list(10_000, dtype), strategy) for strategy in STRATEGIES
        }
        for dtype in (torch.float32, torch.float64)
    }
    extra = {what: extra_memory(what) for what in ("long", LOSS)}
    bars = bars_of(results, extra)
    show_times(results)
    show_table(
        "long against direct at 10,000 documents: max |difference| / max |direct|",
        ["precision", *STRATEGIES],
        [[name, *(f"{value:.1e}" for value in row.values())] for name, row in errors.items()],
    )
    show_bars(bars)
    figures = {
        "lengths": {
            length: {name: timing.summary() for name, timing in timings.items()}
            for length, timings in results.items()
        },
        "error_of_long_at_10000": errors,
        "extra_bytes_at_1000000": extra,
    }
    save(chosen.json, figures, bars)


if __name__ == "__main__":
    main()
