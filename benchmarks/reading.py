"""Reading LETOR text: TwinRank's parser against scikit-learn's, on a file of MSLR's shape."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

import twinrank as tr
from common import (
    Bar,
    clock,
    console,
    describe_environment,
    milliseconds,
    parser,
    race,
    save,
    show_bars,
    show_table,
    times,
)

NO_CACHE, CACHED, AGAIN = "load, cache=False", "load, cache built", "load again, from the cache"
SKLEARN = "scikit-learn load_svmlight_file"


def make_file(path: Path, megabytes: int) -> None:
    """Write lines as MSLR-WEB30K has them: 136 features, six decimals at most."""
    queries = 100
    while not path.exists() or path.stat().st_size < megabytes * 1_000_000:
        data = tr.synthetic_web_search(queries=queries, seed=0)
        rounded = tr.Dataset.from_arrays(np.round(data.X, 6), data.y, group=data.lists.sizes)
        rounded.save(path)
        queries = int(queries * 1.02 * megabytes * 1_000_000 / path.stat().st_size) + 1


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--megabytes", type=int, default=220, help="size of the file (220)")
    options.add_argument("--rounds", type=int, default=5, help="timed reads of each (5)")
    chosen = options.parse_args()
    console.print(describe_environment())
    with tempfile.TemporaryDirectory() as folder:
        path, cache = Path(folder) / "train.txt", Path(folder) / "cache"
        make_file(path, chosen.megabytes)
        size = path.stat().st_size

        def build() -> tr.Dataset:
            shutil.rmtree(cache, ignore_errors=True)
            return tr.load(path, cache_dir=cache)

        ours: dict[str, Callable[[], object]] = {
            NO_CACHE: lambda: tr.load(path, cache=False),
            CACHED: build,
        }
        data = build()  # compiles, or loads compiled code
        timings = race(ours, rounds=chosen.rounds)
        again = race({AGAIN: lambda: tr.load(path, cache_dir=cache)}, rounds=chosen.rounds)
        seconds = {name: timing.median for name, timing in (timings | again).items()}
        seconds[SKLEARN] = clock(lambda: load_svmlight_file(str(path), query_id=True))
        X, y, qid = load_svmlight_file(str(path), query_id=True, dtype=np.float32)
        same = np.array_equal(X.toarray(), data.X) and np.array_equal(y, data.y)
        same = same and np.array_equal(qid, data.qid)
    show_table(
        f"{size / 1e6:,.0f} MB, {data.documents:,} documents, {data.features} features",
        ["", "time", "MB/s", "against scikit-learn"],
        [
            [name, milliseconds(s), f"{size / s / 1e6:,.0f}", times(seconds[SKLEARN] / s)]
            for name, s in seconds.items()
        ],
    )
    ratio = seconds[SKLEARN] / seconds[CACHED]
    bars = [
        Bar("first load at least 20× scikit-learn, cache built", times(ratio), ratio >= 20),
        Bar("identical features, labels and query ids", "yes" if same else "no", same),
        Bar("second load below 100 ms", milliseconds(seconds[AGAIN]), seconds[AGAIN] < 0.1),
    ]
    show_bars(bars)
    save(chosen.json, {"bytes": size, "seconds": seconds}, bars)


if __name__ == "__main__":
    main()
