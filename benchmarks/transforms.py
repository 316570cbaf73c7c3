"""Transforms of a million documents' features against one plain NumPy pass, (X − mu) / sd."""

from functools import partial

import numpy as np
import torch

import twinrank as tr
from common import (
    Bar,
    Call,
    Timings,
    console,
    describe_environment,
    lognormal_sizes,
    milliseconds,
    parser,
    race,
    save,
    show_bars,
    show_table,
    times,
)
from twinrank.data.transforms import Standardise, Transform, transform

NAMES = ("QueryZScore", "QueryMinMax", "Standardise", "SignedLog1p", "Clip(low=-5, high=5)",
         "SignedLog1p + QueryZScore")  # fmt: skip
NUMPY = "NumPy (X − mu) / sd"
NEW, OUT, ALONE = "new array", "out=", "out=, one thread"
FIT, ONE_LIST = "fit", "one list, out="
BAR = 3.0


def features(documents: int, width: int) -> np.ndarray:
    """Draw features of all scales, a third of them counts with many ties, a few constant."""
    random = np.random.default_rng(0)
    X = random.standard_normal((documents, width), dtype=np.float32)
    X *= np.geomspace(1e-3, 1e6, width, dtype=np.float32)
    X[:, ::3] = np.floor(np.abs(X[:, ::3]))
    X[:, ::40] = 1
    return X


def lists_of(documents: int) -> tr.Lists:
    """Cut documents into lists of 120 on average, the longest with 1,000."""
    sizes = np.array(lognormal_sizes(documents // 120, mean=120, longest=1_000, seed=0))
    ends = np.minimum(np.cumsum(sizes), documents)
    ends[-1] = documents
    return tr.Lists(np.r_[0, ends])


def alone(call: Call) -> None:
    """Call with one thread only."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        call()
    finally:
        torch.set_num_threads(before)


def contestants(X: np.ndarray, lists: tr.Lists) -> dict[str, dict[str, Call]]:
    """NumPy's pass and every transform, by column of the table, and others.

    Columns are raced one by one: a virtual machine may take seconds to find memory that lay idle,
    so that new arrays must not wait for calls that need none. NumPy's pass makes two of them, one
    for the difference: the column `out=`, where there is none to make, is the stricter one.
    """
    mu, sd, out = X.mean(axis=0), X.std(axis=0) + 1, np.empty_like(X)
    fitted: dict[str, Transform] = {name: transform(name).fit(X, lists) for name in NAMES}

    def in_numpy() -> None:
        np.divide(np.subtract(X, mu, out=out), sd, out=out)

    new = {name: partial(one, X, lists) for name, one in fitted.items()}
    given = {name: partial(one, X, lists, out=out) for name, one in fitted.items()}
    together = tr.Lists.from_sizes([len(X)])
    chain = transform("SignedLog1p + QueryZScore + Standardise")
    return {
        NEW: {NUMPY: lambda: (X - mu) / sd, **new},
        OUT: {NUMPY: in_numpy, **given},
        ALONE: {NUMPY: in_numpy, **{name: partial(alone, call) for name, call in given.items()}},
        "others": {
            NUMPY: in_numpy,
            f"Standardise, {FIT}": partial(Standardise().fit, X, lists),
            f"{chain}, {FIT}": partial(chain.fit, X, lists),
            f"QueryZScore, {ONE_LIST}": partial(fitted["QueryZScore"], X, together, out=out),
        },
    }


def ratio(timings: Timings, name: str) -> float:
    return timings[name].median / timings[NUMPY].median


def show_times(results: dict[str, Timings], shape: tuple[int, int]) -> None:
    """Print a row per transform: time, and in brackets as a multiple of NumPy's in the column."""

    def cell(timings: Timings, name: str) -> str:
        return f"{milliseconds(timings[name].median)} ({times(ratio(timings, name))})"

    columns = (NEW, OUT, ALONE)
    show_table(
        f"{shape[0]:,} documents × {shape[1]} features, lists of 120: median time (÷ NumPy's)",
        ["", *columns],
        [[name, *(cell(results[how], name) for how in columns)] for name in (NUMPY, *NAMES)],
    )
    others = results["others"]
    show_table("Others", ["", "median time"], [[name, cell(others, name)] for name in others])


def bars_of(results: dict[str, Timings]) -> list[Bar]:
    """Hold the promised figures against the measured ones."""
    measured = {how: ratio(results[how], "QueryZScore") for how in (NEW, OUT)}
    return [
        Bar(f"QueryZScore, {how}: ≤ {BAR:g}× NumPy's pass", times(value), value <= BAR)
        for how, value in measured.items()
    ]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--documents", type=int, default=1_000_000, help="rows (default 1M)")
    options.add_argument("--features", type=int, default=136, help="columns (default 136)")
    chosen = options.parse_args()
    console.print(describe_environment())
    for column in contestants(features(1_200, 3), lists_of(1_200)).values():  # compiles
        for call in column.values():
            call()
    X = features(chosen.documents, chosen.features)
    columns = contestants(X, lists_of(chosen.documents))
    results = {how: race(calls, rounds=7, budget=20.0) for how, calls in columns.items()}
    bars = bars_of(results)
    show_times(results, (chosen.documents, chosen.features))
    show_bars(bars)
    figures = {
        how: {name: timing.summary() for name, timing in timings.items()}
        for how, timings in results.items()
    }
    save(chosen.json, figures, bars)


if __name__ == "__main__":
    main()
