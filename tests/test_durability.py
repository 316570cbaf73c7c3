"""Promises about files: flushed before they get their name, one writer at a time, checksums."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import twinrank as tr
from twinrank import InputError
from twinrank.experiments.study.study import Study
from twinrank.experiments.study.study_source import Source
from twinrank.support import files
from twinrank.support.checksums import check_seal, checksum, sealed
from twinrank.support.locks import LOCK, is_empty, locked


@pytest.fixture
def disk(monkeypatch):
    """What happens to files, in order: ("flush", name) and ("rename", name)."""
    events = []

    def fsync(number):
        events.append(("flush", Path(f"/proc/self/fd/{number}").readlink().name))

    def renaming(call):
        def renamed(self, target):
            events.append(("rename", target.name))
            return call(self, target)

        return renamed

    monkeypatch.setattr(os, "fsync", fsync)
    for name in ("rename", "replace"):
        monkeypatch.setattr(files.Path, name, renaming(getattr(files.Path, name)))
    return events


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_a_file_is_flushed_before_it_gets_its_name(tmp_path, disk):
    with files.replacing(tmp_path / "run.json") as partial:
        partial.write_text("{}")
    assert [kind for kind, _ in disk] == ["flush", "rename", "flush"]
    assert disk[0][1] == partial.name
    assert disk[1:] == [("rename", "run.json"), ("flush", tmp_path.name)]


@linux
def test_a_folder_is_flushed_before_it_gets_its_name(tmp_path, disk):
    content = {"config.json": b"{}", "net/model.safetensors": b"x"}
    files.write_folder(tmp_path / "model", content)
    before = disk[: disk.index(("rename", "model"))]
    assert {name for _, name in before} >= {"config.json", "model.safetensors", "net"}
    assert disk[-1] == ("flush", tmp_path.name)


class TestLocks:
    def test_the_second_is_told_who_holds_it(self, tmp_path):
        run = tmp_path / "new" / "run"
        with locked(run, "training"):
            with (
                pytest.raises(
                    InputError, match=rf"Process {os.getpid()} on .* has been training in"
                ),
                locked(run, "training"),
            ):
                pass
            assert is_empty(run)
        assert not run.parent.exists()  # nothing was written

    def test_the_death_of_the_holder_frees_it(self, tmp_path):
        code = f"""
import os, pathlib
from twinrank.support.locks import locked
with locked(pathlib.Path({str(tmp_path)!r}), "training"):
    os._exit(9)
"""
        subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
        assert (tmp_path / LOCK).exists()
        with locked(tmp_path, "training"):
            pass
        assert list(tmp_path.iterdir()) == []


DATA = tr.synthetic_web_search(queries=8)
NET = {"architecture": "MLP(width=4, depth=1)", "ensemble_size": 1}


def test_one_training_and_one_study_per_folder(tmp_path):
    study = Study(Source(queries=9, cut=3), ["MSE"])
    with locked(tmp_path / "run", "training"):
        with pytest.raises(InputError, match="has been training in"):
            tr.Ranker(epochs=1, **NET).fit(DATA, run=tmp_path / "run")
        with pytest.raises(InputError, match="has been training in"):
            study.run(tmp_path / "run", progress=False)


def flip(path, place, bit=1):
    content = bytearray(path.read_bytes())
    content[place] ^= bit
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["y", "offsets", "query_ids"])
def test_a_flipped_bit_in_a_cache_is_noticed(tmp_path, name):
    source = tmp_path / "a.txt"
    DATA.save(source)
    os.utime(source, (1, 1))
    tr.load(source, cache_dir=tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    flip(folder / f"{name}.npy", -2)
    again = tr.load(source, cache_dir=tmp_path / "cache")
    assert again.y.tolist() == DATA.y.tolist()
    assert again.lists == DATA.lists
    assert again.query_ids.tolist() == DATA.query_ids.tolist()


def test_a_flipped_bit_in_a_run_is_noticed(tmp_path):
    run = tmp_path / "run"
    tr.Ranker(epochs=1, **NET).fit(DATA, run=run)
    for name in ("checkpoint.safetensors", "run.json"):
        content = (run / name).read_bytes()
        for place in range(9, len(content), len(content) // 12):
            flip(run / name, place, 4)
            with pytest.raises(InputError):
                tr.Ranker(epochs=2, **NET).fit(DATA, run=run, resume=True)
            (run / name).write_bytes(content)
    tr.Ranker(epochs=2, **NET).fit(DATA, run=run, resume=True)


def test_the_name_of_a_checksum_is_protected_too():
    content = sealed({"epochs": 3})
    changed = {("crc36" if key == "crc32" else key): value for key, value in content.items()}
    with pytest.raises(InputError, match="checksum is wrong"):
        check_seal(changed, "run.json")
    for free in ({"epochs": 9}, {**content, "epochs": 9, "crc32": None}):
        check_seal(free, "run.json")
        assert free == {"epochs": 9}


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 100_003])
def test_every_bit_counts_for_a_checksum(size):
    content = np.random.default_rng(0).bytes(size)
    for place in range(0, size, 997):
        changed = bytearray(content)
        changed[place] ^= 1 << (place % 8)
        assert checksum(bytes(changed)) != checksum(content)
    assert checksum(content) == checksum(np.frombuffer(content, np.uint8))
    assert checksum(content) != checksum(content + b"\0")
