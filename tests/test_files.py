"""Files in trouble: cut archives, full disks, no permission; and files that appear whole."""

import contextlib
import gzip
import json
import lzma
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from backports import zstd

import twinrank as tr
from twinrank.support import files
from twinrank.support.files import new_folder, publish, replacing, sweep
from twinrank.support.memory import PeakMemory

TEXT = "".join(
    f"{i % 3} qid:{i // 9} 1:{i} 2:{i * i % 97 / 8} 3:0.125 # d{i}\n" for i in range(300)
)
CHECKED = {int(zstd.CompressionParameter.checksum_flag): 1}
PACKED = {
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".xz": lzma.compress,
    ".zst": lambda content: zstd.compress(content, options=CHECKED),
}


@pytest.fixture
def base(tmp_path, monkeypatch):
    """The cache folder, for this test only."""
    monkeypatch.setenv("TWINRANK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(*words, **choices):
    command = [sys.executable, "-m", "twinrank", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **choices)


def is_one_line(answer, *parts):
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith("Error: ")
    assert answer.stderr.count("\n") == 1
    for part in parts:
        assert part in answer.stderr
    return True


# Archives


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("suffix", PACKED)
def test_a_cut_archive_is_refused_wherever_it_is_cut(tmp_path, base, suffix, cached):
    path = tmp_path / f"train.txt{suffix}"
    packed = PACKED[suffix](TEXT.encode())
    for size in [*range(24), len(packed) // 2, *range(len(packed) - 20, len(packed))]:
        path.write_bytes(packed[:size])
        os.utime(path, (0, 0))
        with pytest.raises(tr.InputError, match=r"train\.txt\."):
            tr.load(path, cache=cached)
    assert not cached or list(base.iterdir()) == []
    path.write_bytes(packed)
    assert tr.load(path, cache=cached).documents == 300


@pytest.mark.parametrize("suffix", PACKED)
def test_a_flipped_bit_gives_an_error_or_the_right_values(tmp_path, suffix):
    """Some bits of an archive's headers mean nothing; all others are seen."""
    good, path = tmp_path / "good.txt", tmp_path / f"train.txt{suffix}"
    good.write_text(TEXT)
    right = tr.load(good, cache=False)
    packed = PACKED[suffix](TEXT.encode())
    refused = 0
    for i in range(0, len(packed), 11):
        flipped = bytearray(packed)
        flipped[i] ^= 1 << i % 8
        path.write_bytes(flipped)
        try:
            data = tr.load(path, cache=False)
        except tr.InputError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
        else:
            assert np.array_equal(data.X, right.X)
    assert refused > 0.9 * len(packed) / 11


@pytest.mark.parametrize("suffix", PACKED)
def test_what_is_no_archive_or_empty(tmp_path, base, suffix):
    for name, content in [
        ("plain", TEXT.encode()),
        ("nothing", b""),
        ("empty", PACKED[suffix](b"")),
        ("blank", PACKED[suffix](b"\n\n")),
        ("noise", bytes(range(256)) * 40),
        ("followed by text", PACKED[suffix](TEXT.encode()) + TEXT.encode()),
    ]:
        path = tmp_path / f"{name}.txt{suffix}"
        path.write_bytes(content)
        with pytest.raises(tr.InputError, match=name):
            tr.load(path)
    assert list(base.iterdir()) == []


def test_a_damaged_archive_on_the_command_line(tmp_path, base):
    path = tmp_path / "train.txt.gz"
    path.write_bytes(gzip.compress(TEXT.encode())[:-9])
    complaint = f"{path} is truncated: the archive is incomplete"
    assert is_one_line(run("inspect", path), complaint)
    assert list(base.iterdir()) == []


@pytest.mark.parametrize("suffix", PACKED)
def test_pieces_end_to_end_are_one_archive(tmp_path, suffix):
    path = tmp_path / f"train.txt{suffix}"
    first, second = (PACKED[suffix](part.encode()) for part in (TEXT[:999], TEXT[999:]))
    padding = b"" if suffix == ".zst" else bytes(8)
    for whole in (first + second, first + padding + second + padding):
        path.write_bytes(whole)
        assert tr.load(path, cache=False).documents == 300
    path.write_bytes(first + b"?" + second[1:])
    with pytest.raises(tr.InputError, match="damaged, or its suffix is wrong"):
        tr.load(path, cache=False)


@pytest.mark.parametrize("suffix", ["txt", "txt.gz", "txt.xz", "txt.zst", "csv.gz"])
def test_the_same_data_makes_the_same_file(tmp_path, suffix):
    data = tr.Dataset.from_arrays([[1.0], [2.0]], [0, 1], group=[2])
    data.save(tmp_path / f"one.{suffix}")
    time.sleep(0.01)
    data.save(tmp_path / f"two.{suffix}")
    one, two = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("one", "two"))
    assert one == two
    assert b"one" not in one


# What is no file


def test_pipes_and_devices_are_refused_at_once(tmp_path, base):
    os.mkfifo(tmp_path / "pipe.txt")
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.txt", tmp_path / "pipe.csv", "/dev/null", "/dev/zero"):
        with pytest.raises(tr.InputError, match="is a pipe or a device, not a file"):
            tr.load(path)
    with pytest.raises(tr.InputError, match="is a pipe or a device"):
        tr.load(tmp_path / "pipe.txt", cache=False)
    assert is_one_line(run("inspect", "/dev/stdin", input=TEXT), "/dev/stdin is a pipe")
    assert not base.exists()


def test_folders_and_nothing(tmp_path, base):
    with pytest.raises(tr.InputError, match=r"is a folder without 'manifest\.json'"):
        tr.load(tmp_path)
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for name in ("nowhere.txt", "round", "no/where"):
        with pytest.raises(tr.FileError, match="Can't read"):
            tr.load(tmp_path / name)
    assert is_one_line(run("inspect", "nowhere.txt"), "Can't read nowhere.txt: No such file")
    assert not base.exists()


def test_a_file_where_the_cache_should_be(tmp_path):
    (tmp_path / "train.txt").write_text(TEXT)
    for place in ("taken", "taken/within"):
        (tmp_path / "taken").write_text("precious")
        with pytest.raises(
            tr.FileError, match=r"Can't write .*taken.*\. Choose another cache folder"
        ):
            tr.load(tmp_path / "train.txt", cache_dir=tmp_path / place)
        assert (tmp_path / "taken").read_text() == "precious"
    answer = run("inspect", tmp_path / "train.txt", "--cache-dir", tmp_path / "taken")
    assert is_one_line(answer, "Can't write", "--cache-dir")


# No space


@pytest.fixture
def small(tmp_path):
    """A folder with room for little, and a function that changes how little."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=128k,mode=777", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system of its own takes the right to mount it")

    def resize(pages):
        size = f"remount,size={pages * 4}k"
        subprocess.run(["mount", "-o", size, str(folder)], check=True)

    yield folder, resize
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # maps may be open


def large_data():
    X = np.random.default_rng(0).random((1200, 40), dtype=np.float32)
    return tr.Dataset.from_arrays(X, np.arange(1200) % 3, group=[20] * 60)


def test_no_space_at_the_start_of_training_names_the_file(small, cli, tmp_path):
    folder, _ = small
    data = tr.Dataset.from_arrays(np.arange(40.0)[:, None], [0, 1] * 20, group=[4] * 10)
    data.save(tmp_path / "data.txt")
    with (folder / "fill").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1024)):
            pass
    code, _, message = cli("train", tmp_path / "data.txt", "--out", folder / "run")
    assert code == 2
    assert f"Can't write {folder / 'run' / '.lock'}: No space left" in message
    assert [path.name for path in folder.iterdir()] == ["fill"]


def test_no_space_in_training_names_the_file(small):
    folder, _ = small

    class Fill(tr.training.Callback):
        def on_train_begin(self, trainer):
            with (folder / "fill").open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(1024)):
                    pass

        def on_iteration_end(self, trainer, record):
            record["note"] = "long" * 5_000  # more than the last page of the file has room for

    trees = tr.BoostedRanker(n_estimators=3, ensemble_size=1)
    with pytest.raises(tr.FileError, match=r"Can't write .*history.jsonl: No space"):
        trees.fit(large_data(), run=folder / "run", callbacks=[Fill()])


@pytest.mark.parametrize(
    "name", ["t.txt", "t.txt.gz", "t.txt.xz", "t.txt.zst", "t.csv", "t.parquet", "t.feather", "t"]
)
def test_no_space_for_what_is_saved_leaves_what_was_there(tmp_path, small, name):
    folder, _ = small
    target = folder / name
    old = tr.Dataset.from_arrays([[1.0], [2.0]], [0, 1], group=[2])
    for there in (False, True):
        if there:
            old.save(target)
        with pytest.raises(tr.FileError, match=rf"Can't write {target}: No space .*Free disk"):
            large_data().save(target)
        assert list(folder.iterdir()) == ([target] if there else [])
    assert np.array_equal(tr.load(target, cache=False).X, old.X)
    old.save(target)


def test_no_space_for_the_cache_at_any_point(tmp_path, small):
    folder, resize = small
    source = tmp_path / "train.txt"
    source.write_text(TEXT)
    os.utime(source, (0, 0))
    right, refused = tr.load(source, cache=False), 0
    for pages in range(1, 40):
        resize(pages)
        try:
            data = tr.load(source, cache_dir=folder)
        except tr.FileError as error:
            refused += 1
            message = str(error)
            assert f"Can't write {folder / 'train.txt-'}" in message
            assert "No space left on device. Choose another cache folder (cache_dir or" in message
            assert list(folder.iterdir()) == []
        else:
            assert np.array_equal(data.X, right.X)
            break
    assert refused > 3
    assert np.array_equal(tr.load(source, cache_dir=folder, verify=True).X, right.X)


def test_saving_over_what_is_being_read(tmp_path):
    """The old folder's maps, and the old file, stay readable until they are no longer needed."""
    large_data().save(tmp_path / "t")
    data = tr.load(tmp_path / "t")
    X = np.array(data.X)
    data.select(slice(30)).save(tmp_path / "t")
    assert np.array_equal(data.X, X)
    assert np.array_equal(tr.load(tmp_path / "t", verify=True).X, X[:600])
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_no_space_on_the_command_line(tmp_path, small):
    folder, _ = small
    large_data().save(tmp_path / "train.txt")
    (folder / "old.parquet").write_text("old")
    answer = run("inspect", tmp_path / "train.txt", "--cache-dir", folder)
    assert is_one_line(answer, "No space left", "--cache-dir")
    words = ("--overwrite", "--cache-dir", tmp_path / "cache")
    answer = run("convert", tmp_path / "train.txt", folder / "old.parquet", *words)
    assert is_one_line(answer, f"Can't write {folder / 'old.parquet'}", "No space left")
    assert [path.read_text() for path in folder.iterdir()] == ["old"]


# No permission

# Runs commands, first as they come, so that everything is imported, then as nobody.
UNPRIVILEGED = """
import contextlib, io, json, os, sys
from twinrank.cli import main

def run(words):
    told, sys.argv = io.StringIO(), ["twinrank", *words]
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code
        except BaseException as error:
            code = repr(error)
    return [code, told.getvalue()]

first, then = json.loads(sys.argv[1])
assert [code for code, _ in map(run, first)] == [0] * len(first)
assert run(["inspect", "--not-an-option"])[0] == run(["inspect", "nowhere.txt"])[0] == 2
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(json.dumps([run(words) for words in then]))
"""


@pytest.fixture
def open_folder():
    """A folder that anybody can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder)


def answers_to_nobody(first, then):
    """What the command line says to nobody: codes and what is on standard error."""
    commands = json.dumps(
        [[[str(word) for word in words] for words in part] for part in (first, then)]
    )
    ran = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, commands], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_no_permission(open_folder, monkeypatch):
    here = open_folder
    good, full, closed = here / "good.txt", here / "full", here / "closed"
    monkeypatch.setenv("TWINRANK_CACHE_DIR", str(here / "cache"))
    for folder in (full, closed, here / "mine"):
        folder.mkdir()
    for name in ("good.txt", "secret.txt", "secret.csv", "closed/within.txt", "full/t.txt"):
        (here / name).write_text(TEXT)
    tr.load(good, cache=False).save(here / "saved")
    targets = ["t.txt", "t.csv", "t.parquet", "t"]
    denied = "Permission denied"
    cases = [
        (["inspect", here / "secret.txt"], f"Can't read {here / 'secret.txt'}: {denied}"),
        (["inspect", here / "secret.csv"], f"Can't read {here / 'secret.csv'}: {denied}"),
        (["inspect", closed / "within.txt"], f"Can't read {closed / 'within.txt'}: {denied}"),
        (["inspect", here / "saved"], f"Can't read {here / 'saved/y.npy'}: {denied}"),
        (["inspect", good, "--cache-dir", closed], f"Can't write {closed / 'good.txt-'}"),
        (["inspect", good, "--cache-dir", full], f"Can't write {full / 'good.txt-'}"),
        (["inspect", good, "--cache-dir", full / "in"], f"Can't write {full / 'in'}: {denied}"),
        (["convert", good, closed / "new.txt"], f"Can't write {closed / 'new.txt'}: {denied}"),
    ]
    for name in targets:
        target = full / name
        words = ["convert", good, target, "--overwrite"]
        cases.append((words, f"Can't write {target}: {denied}"))
    first = [["inspect", good], *(["convert", good, here / "mine" / name] for name in targets)]
    for name in ("secret.txt", "secret.csv", "saved/y.npy", "closed"):
        (here / name).chmod(0o000)
    full.chmod(0o555)
    hit, *answers = answers_to_nobody(first, [["inspect", good], *(words for words, _ in cases)])
    assert hit == [0, ""]  # a cache that others made can be read
    wrong = [
        (words, code, told)
        for (words, complaint), (code, told) in zip(cases, answers, strict=True)
        if code != 2
        or not told.startswith(f"Error: {complaint}")
        or told.count("\n") != 1
        or ("Choose another cache folder" in told) != ("--cache-dir" in words)
    ]
    assert wrong == []
    assert [path.read_text() for path in full.iterdir()] == [TEXT]


# Names that are there when all is done


def half_written(path, error):
    with replacing(path) as partial:
        partial.write_text("half")
        raise error


def test_replacing_keeps_the_old_file_unless_all_goes_well(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    for error in (ValueError("wrong"), KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)):
            half_written(path, error)
        assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]
    with pytest.raises(tr.FileError, match=f"Can't write {path}: No such file"), replacing(path):
        pass  # nothing was written
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert [p.read_text() for p in tmp_path.iterdir()] == ["new"]


def test_replacing_a_link_a_folder_and_long_names(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    for content in ("first", "second"):
        with replacing(link) as partial:
            partial.write_text(content)
        assert link.is_symlink()
        assert real.read_text() == content
    (tmp_path / "folder").mkdir()
    refused = pytest.raises(tr.FileError, match=f"Can't write {tmp_path / 'folder'}: Is a direct")
    with refused, replacing(tmp_path / "folder") as partial:
        partial.write_text("half")
    for name in ("x" * 255, "ü" * 127, os.fsdecode(b"\xff" * 255)):
        with replacing(tmp_path / name) as partial:
            partial.write_text("content")
        assert (tmp_path / name).read_text() == "content"
    assert len(list(tmp_path.iterdir())) == 6


def test_a_folder_that_is_not_published_goes(tmp_path):
    path = tmp_path / "a" / "b" / "folder"
    with new_folder(path) as partial:
        (partial / "file").write_text("half")
    with pytest.raises(KeyboardInterrupt), new_folder(path):
        raise KeyboardInterrupt
    assert list(path.parent.iterdir()) == []


def filled(path, content):
    with new_folder(path) as partial:
        (partial / "file").write_text(content)
        publish(partial, path)


def test_publish_replaces_whatever_was_there(tmp_path):
    path, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("precious")
    for put in (
        lambda: None,
        lambda: path.write_text("a file"),
        lambda: path.symlink_to(elsewhere),
        lambda: path.symlink_to("nowhere"),
        lambda: path.mkdir(),
        lambda: filled(path, "older"),
    ):
        files.remove(path)
        put()
        filled(path, "new")
        assert not path.is_symlink()
        assert (path / "file").read_text() == "new"
    assert {p.name for p in tmp_path.iterdir()} == {"folder", "elsewhere"}
    assert (elsewhere / "file").read_text() == "precious"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), PermissionError(13, "denied")])
def test_publish_brings_the_old_folder_back(tmp_path, monkeypatch, error):
    path = tmp_path / "folder"
    filled(path, "old")
    rename = Path.rename

    def fail(self, target):
        if target == path and "partial" in self.name:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises((KeyboardInterrupt, tr.FileError)):
        filled(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    assert (path / "file").read_text() == "old"


def left_by(path, process, kind="partial", place=None):
    place = place or files._place()
    return path.with_name(f".{path.name}.twinrank-{kind}-{place}-{process}-0123abcd")


@pytest.fixture
def ended():
    """The number of a process that is no more."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_sweep_removes_what_the_dead_left_and_nothing_else(tmp_path, ended):
    path, far = tmp_path / "folder", "elsewhere-4026531836"
    dead = [left_by(path, ended), left_by(path, 10**20), left_by(path, ended, "replaced")]
    old = left_by(path, 1, place=far)
    others = [
        left_by(path, os.getpid()),
        left_by(path, os.getppid()),
        left_by(path, ended, place=far),  # can't be asked
        left_by(path, ended, place=f"{socket.gethostname()}-1"),  # in another container
        tmp_path / ".mine.partial-1",
        tmp_path / ".mine.twinrank-partial-backup",
        tmp_path / "folder",
    ]
    for folder in dead + others + [old]:
        folder.mkdir()
        (folder / "file").write_text("content")
    os.utime(old, (0, 0))
    for other in others[4:]:
        os.utime(other, (0, 0))
    a_file = left_by(tmp_path / "file", ended)
    a_file.write_text("half")
    sweep(tmp_path)
    assert set(tmp_path.iterdir()) == set(others)


def test_whoever_writes_sweeps(tmp_path, ended):
    left = left_by(tmp_path / "file.csv", ended)
    for write in (lambda: filled(tmp_path / "folder", "new"), lambda: half_saved(tmp_path)):
        left.write_text("half")
        write()
        assert not left.exists()


def half_saved(folder):
    with replacing(folder / "file.csv") as partial:
        partial.write_text("content")


def test_sweep_brings_back_what_the_dead_had_moved(tmp_path, ended):
    """A process killed between the two renames of `publish`."""
    path = tmp_path / "folder"
    aside = left_by(path, ended, "replaced")
    filled(aside, "old")
    filled(left_by(path, ended), "new, but perhaps half")
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    assert (path / "file").read_text() == "old"


def test_peak_memory_is_that_of_the_context():
    before = np.ones(10_000_000)  # 80 MB that the process has anyway
    with PeakMemory() as memory:
        again = np.ones(5_000_000)
        del again
    assert before.all()
    if sys.platform == "linux":
        assert 30_000_000 < memory.added < 60_000_000
        assert memory.bytes > 80_000_000
