"""Attacks on readers and the cache: mutated text, damaged files, kills, a full disk."""

import gzip
import lzma
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

import letor_reference
import twinrank as tr
from twinrank import Dataset, TwinRankError

from .harness import attack
from .parsers import Malformed, parse_csv

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECES = [b" ", b"\n", b"\r", b"\r\n", b"\0", b'"', b",", b":", b"#", b"qid:", b"-1", b"1e39",
          b"nan", b"inf", b"\xff", b"\xef\xbb\xbf", b"0", b"9" * 30, b"\t", b"e", b"+",
          b"1:"]  # fmt: skip


def mutated(random, content: bytes, pieces=PIECES, most=4) -> bytes:
    """Text after a few random edits."""
    text = bytearray(content)
    for _ in range(random.integers(1, most + 1)):
        place = int(random.integers(0, len(text) + 1))
        match random.integers(0, 5):
            case 0:
                text[place:place] = pieces[random.integers(len(pieces))]
            case 1:
                del text[place : place + int(random.integers(1, 12))]
            case 2 if place < len(text):
                text[place] ^= 1 << int(random.integers(8))
            case 3:
                other = int(random.integers(0, len(text) + 1))
                text[place:place] = text[other : other + int(random.integers(1, 30))]
            case _:
                del text[place : len(text) if random.random() < 0.1 else place]
    return bytes(text)


def dataset(random, queries=6, features=3) -> Dataset:
    """Small random data."""
    sizes = random.integers(1, 7, queries)
    X = random.normal(size=(sizes.sum(), features)) * 10.0 ** random.integers(-3, 4, features)
    y = random.integers(0, 4, sizes.sum())
    return Dataset.from_arrays(X.astype(np.float32), y, group=sizes)


def bits(x):
    """float32 values by their bits; every NaN is the same."""
    x = np.ascontiguousarray(x, np.float32)
    return np.where(np.isnan(x), 0x7FC00000, x.view(np.uint32))


def assert_same(one: Dataset, other: Dataset) -> None:
    """The same rows, labels and queries, to the last bit."""
    assert np.array_equal(bits(one.X), bits(other.X)), "features differ"
    assert np.array_equal(bits(one.y), bits(other.y)), "labels differ"
    assert one.lists == other.lists, "lists differ"
    assert one.query_ids.tolist() == other.query_ids.tolist(), "query ids differ"


@attack("data: LETOR text")
def letor(random, folder):
    """Mutated text against the reference parser."""
    path = folder / "a.txt"
    while True:
        dataset(random).save(path)
        plain = path.read_bytes()
        for _ in range(100):
            content = mutated(random, plain)
            choices = {
                "missing": ("zero", "nan")[random.integers(2)],
                "unjudged": ("error", "keep", "drop")[random.integers(3)],
                "non_finite": ("error", "keep", "clip")[random.integers(3)],
            }
            path.write_bytes(content)
            try:
                expected = letor_reference.parse(content, letor_reference.Choices(**choices))
            except letor_reference.Problem:
                expected = None
            try:
                actual = tr.load(path, cache=False, progress=False, **choices)
            except TwinRankError:
                actual = None
            assert (expected is None) == (actual is None), content
            if actual is not None:
                assert np.array_equal(bits(actual.X), bits(expected.X)), content
                assert np.array_equal(bits(actual.y), bits(expected.y)), content
                assert actual.qid.astype(str).tolist() == expected.qid, content
            yield


def field(random, text: str) -> str:
    return f'"{text.replace(chr(34), 2 * chr(34))}"' if random.random() < 0.2 else text


@attack("data: CSV text")
def csv_text(random, folder):
    """Mutated text against another parser: no row may vanish, no value may change."""
    path = folder / "a.csv"
    while True:
        rows = [["qid", "label", "docid", "a", "b"]]
        for i in range(int(random.integers(1, 8))):
            values = [f"{x:.6g}" for x in random.normal(size=2)]
            rows.append([f"q{i // 3}", str(random.integers(0, 4)), f"d{i}", *values])
        end = ("\n", "\r\n")[random.integers(2)]
        plain = end.join(",".join(field(random, x) for x in row) for row in rows).encode()
        for _ in range(25):
            content = mutated(random, plain, most=3)
            path.write_bytes(content)
            try:
                actual = tr.load(path, cache=False, progress=False, unjudged="keep")
            except TwinRankError:
                actual = None
            check_csv(content, actual)
            yield


def check_csv(content: bytes, actual) -> None:
    """What was loaded must be what the other parser reads; errors are always allowed."""
    if actual is None:
        return
    try:
        header, *rows = parse_csv(content)
    except Malformed as reason:
        raise AssertionError(f"malformed ({reason}) but loaded: {content!r}") from reason
    assert all(len(row) == len(header) for row in rows), content
    rows = [row for row in rows if any(row)]
    assert actual.documents == len(rows), content
    ids = [row[header.index("qid")] for row in rows] if "qid" in header else None
    if ids is not None:
        order = actual.in_source_order(np.arange(actual.documents))
        assert actual.qid[order].astype(str).tolist() == ids, content
        for name in actual.feature_names or ():
            texts = [row[header.index(name)] for row in rows]
            place = list(actual.feature_names).index(name)
            column = actual.X[order, place]
            if (known := actual.categories.get(place)) is not None:  # no text is a number
                shown = ["" if code < 0 else known[int(code)] for code in column]
                assert shown == texts, content
                continue
            with np.errstate(over="ignore"):
                values = np.array([float(text) for text in texts]).astype(np.float32)
            assert np.array_equal(bits(values), bits(column)), content


LOADER = """
import sys, warnings
import twinrank as tr
warnings.simplefilter("ignore")
for path in sys.argv[1:]:
    try:
        tr.load(path, cache=False, unjudged="keep", non_finite="keep")
    except tr.TwinRankError:
        pass
    print(path, flush=True)
"""


def loaded_in_a_process(places):
    """Load files; polars may end the process if a damaged length asks for too much memory."""
    while places:
        words = [sys.executable, "-c", LOADER, *map(str, places)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=250)
        done = len(ended.stdout.splitlines())
        yield from (None for _ in range(done))
        if ended.returncode:
            aborted = ended.returncode == -signal.SIGABRT and "memory allocation" in ended.stderr
            assert aborted, (places[done].read_bytes(), ended.returncode, ended.stderr[-2000:])
            done += 1  # a limit that docs/reliability.md states
            yield
        places = places[done:]


@attack("data: Parquet, Feather and frames")
def frames(random, folder):
    """Files as written load with the same bits; damaged ones give data or a clear error."""
    import polars as pl

    while True:
        data = dataset(random)
        for suffix in (".parquet", ".feather"):
            path = folder / f"a{suffix}"
            data.save(path)
            assert_same(tr.load(path, cache=False), data)
            yield
            content, places = path.read_bytes(), []
            for i in range(150):
                damaged = bytearray(content)
                if random.random() < 0.3:
                    del damaged[int(random.integers(len(damaged))) :]
                for _ in range(random.integers(1, 4)):
                    if damaged:
                        damaged[random.integers(len(damaged))] ^= 1 << int(random.integers(8))
                places.append(folder / f"{i}{suffix}")
                places[-1].write_bytes(damaged)
            yield from loaded_in_a_process(places)
        kinds = [pl.Int8, pl.UInt64, pl.Int128, pl.Float32, pl.Boolean, pl.Decimal(20, 3), pl.Date,
                 pl.Datetime("ns"), pl.Duration("ms"), pl.Categorical, pl.Binary]  # fmt: skip
        for kind in kinds:
            numbers = pl.Series(random.integers(0, 100, 6).tolist())
            try:
                column = numbers.cast(pl.String).cast(kind) if kind == pl.Categorical else None
                column = numbers.cast(kind) if column is None else column
            except pl.exceptions.PolarsError:
                continue
            name = ("qid", "label", "a", "docid")[random.integers(4)]
            columns = {"qid": [1, 1, 1, 2, 2, 2], "label": [0, 1] * 3, "docid": list("abcdef")}
            frame = pl.DataFrame({**columns, "a": [1.0] * 6, name: column})
            with suppress(TwinRankError):
                assert Dataset.from_frame(frame).documents == 6
            yield


@attack("data: compressed files")
def compressed(random, folder):
    """Truncated and flipped: never other data where the format has checksums."""
    packers = {
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".zst": lambda x: zstd.compress(x, options={zstd.CompressionParameter.checksum_flag: 1}),
    }
    while True:
        data = dataset(random, queries=30)
        for form in (".txt", ".csv"):
            plain = folder / f"a{form}"
            data.save(plain)
            for suffix, pack in packers.items():
                path, content = folder / f"a{form}{suffix}", pack(plain.read_bytes())
                path.write_bytes(content)
                assert_same(tr.load(path, cache=False), data)
                for _ in range(6):
                    damaged = bytearray(content)
                    cut = random.random() < 0.5
                    if cut:
                        del damaged[int(random.integers(len(damaged))) :]
                    else:
                        damaged[random.integers(len(damaged))] ^= 1 << int(random.integers(8))
                    path.write_bytes(damaged)
                    try:
                        loaded = tr.load(path, cache=False, unjudged="keep", non_finite="keep")
                    except TwinRankError:
                        loaded = None
                    assert loaded is None or not cut, "a truncated file was loaded"
                    if loaded is not None:
                        assert_same(loaded, data)
                    yield


def entry(base: Path) -> Path:
    (folder,) = (path for path in base.iterdir() if not path.name.startswith("."))
    return folder


@attack("cache: flips, truncation, stale sources")
def cache_damage(random, folder):
    """A damaged entry is rebuilt; features are checked with verify=True."""
    number = 0
    while True:
        number += 1
        base, source = folder / f"c{number}", folder / f"s{number}.txt"
        data = dataset(random, queries=40)
        data.save(source)
        os.utime(source, (1, 1))
        assert_same(tr.load(source, cache_dir=base), data)
        for _ in range(20):
            path = random.choice(sorted(entry(base).iterdir()))
            content = bytearray(path.read_bytes())
            if content and random.random() < 0.8:
                content[random.integers(len(content))] ^= 1 << int(random.integers(8))
            else:
                del content[int(random.integers(len(content) + 1)) :]
            path.unlink()
            path.write_bytes(content)
            assert_same(tr.load(source, cache_dir=base, verify=path.name == "X.npy"), data)
            yield
        other = source.read_bytes()
        place = other.rindex(b":") + 1
        changed = other[:place] + bytes([other[place] ^ 1 or 49]) + other[place + 1 :]
        with source.open("r+b") as file:  # the same inode, size and time
            file.write(changed)
        os.utime(source, (1, 1))
        try:
            fresh = tr.load(source, cache=False)
        except TwinRankError:
            continue
        assert_same(tr.load(source, cache_dir=base, verify=True), fresh)
        yield


@attack("cache: concurrent and killed builders, full disk")
def cache_builders(random, folder):
    """Several builders at once, some killed; others without space. Then the data is right."""
    number = 0
    while True:
        number += 1
        base, source = folder / f"c{number}", folder / f"s{number}.txt"
        data = dataset(random, queries=300)
        data.save(source)
        os.utime(source, (1, 1))
        children = []
        for i in range(4):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    if i == 3:
                        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                        most = int(random.integers(1, 20_000))
                        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
                    try:
                        assert_same(tr.load(source, cache_dir=base, progress=False), data)
                        code = 0
                    except TwinRankError:
                        code = 0 if i == 3 else 2
                except BaseException as error:
                    os.write(2, f"{error!r}\n".encode())
                finally:
                    os._exit(code)
            children.append(child)
        time.sleep(random.exponential(0.01))
        os.kill(children[0], signal.SIGKILL)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert codes[0] in (0, -signal.SIGKILL), codes
        assert codes[1:] == [0, 0, 0], codes
        assert_same(tr.load(source, cache_dir=base, verify=True), data)
        # The next builder removes what a killed one has left.
        left = [path for path in base.iterdir() if f"-{children[0]}-" not in path.name]
        assert len(left) == 1, left
        yield
