"""Promises about files: flushed before they get their name, one writer at a time, checksums."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from twinrank import InputError
from twinrank.support import files
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
                pytest.raises(InputError, match=rf"Process {os.getpid()} on .* is training in"),
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
