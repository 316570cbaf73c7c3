"""The cache of parsed files: when it counts, when it doesn't, and what becomes of it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from backports import zstd

import twinrank as tr
from twinrank.data import cache, letor, loading, store
from twinrank.support.checksums import sealed

# Scattered queries, text ids, comments: every kind of array is there.
TEXT = """\
2 qid:a 1:0.25 2:-3 4:1e-3 # docid = first
0 qid:b 2:7 3:0.5
1 qid:a 1:9 4:2 # second
3 qid:c 3:-1.5
"""
ARRAYS = ("X", "y", "offsets", "query_ids", "rows", "comments", "comment_ends")
LONG_AGO = (1_000_000_000, 1_000_000_000)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(TEXT)
    os.utime(path, LONG_AGO)
    return path


@pytest.fixture
def base(tmp_path, monkeypatch):
    """The cache folder, for this test only."""
    monkeypatch.setenv("TWINRANK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def parsed(monkeypatch):
    """The files that have been parsed so far."""
    paths = []

    def count(parts, *rest, read=loading._read, **others):
        paths.extend(part.path for part in parts)
        return read(parts, *rest, **others)

    monkeypatch.setattr(loading, "_read", count)
    return paths


def load(path, **choices):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tr.DataWarning)
        return tr.load(path, **choices)


def content(data):
    """All that a dataset holds, to be compared."""
    comments = None if data.comments is None else list(data.comments)
    arrays = [data.X, data.y, data.lists.offsets, data.query_ids]
    arrays.append(data.in_source_order(np.arange(data.documents)))
    return [a.tolist() for a in arrays], comments, data.feature_names, data.notes


def is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


def only(folder):
    """The one thing in a folder."""
    (path,) = folder.iterdir()
    return path


# What a cache is


def test_the_second_load_maps_and_does_not_parse(source, base, parsed):
    plain = content(load(source, cache=False))
    assert not base.exists()
    first, second = load(source), load(source)
    assert len(parsed) == 2
    for data in (first, second):
        assert content(data) == plain
        assert is_mapped(data.X)
        assert is_mapped(data.y)
        with pytest.raises(ValueError, match="read-only"):
            data.X[0, 0] = 1
    assert content(load(source, verify=True)) == plain
    assert len(parsed) == 2


def test_notes_are_told_at_every_load(source, base):
    note = "The rows of 1 query were scattered; they are now grouped."
    for _ in range(2):
        with pytest.warns(tr.DataWarning) as told:
            assert tr.load(source).notes == (note,)
        assert [str(each.message) for each in told] == [f"{source}: {note}"]
        assert told[0].filename == __file__


@pytest.mark.parametrize("suffix", ["txt", "txt.gz", "txt.xz", "txt.zst", "csv", "csv.gz"])
def test_the_manifest_describes_source_and_arrays(tmp_path, base, suffix):
    path = tmp_path / f"data.{suffix}"
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    tr.Dataset.from_arrays(X, [0, 1, 2], group=[2, 1]).save(path)
    data = tr.load(path)
    manifest = json.loads((only(base) / "manifest.json").read_text())
    status, told = path.stat(), manifest["source"]
    state = [status.st_size, status.st_mtime_ns, status.st_ino]
    assert (told["states"], told["files"]) == ([state], [[str(path), []]])
    assert told["checksums"] == [zlib.crc32(path.read_bytes())]
    assert told["parser"] == cache.PARSER
    assert re.fullmatch(rf"data\.{suffix}-1-[0-9a-f]{{16}}", only(base).name)
    assert manifest["arrays"]["X"]["shape"] == [3, 2]
    for name, facts in manifest["arrays"].items():
        array = np.load(only(base) / f"{name}.npy", allow_pickle=False)
        assert [array.dtype.str, list(array.shape)] == [facts["dtype"], facts["shape"]]
        assert zlib.crc32(array.tobytes()) == facts["crc32"]
    assert np.array_equal(data.X, X)
    assert content(tr.load(path, verify=True)) == content(data)


def test_every_choice_has_its_own_cache(source, base, parsed):
    choices = [{}, {"missing": "nan", "non_finite": "keep"}, {"features": 4}, {"features": 9}]
    choices += [{"unjudged": "keep"}, {"non_finite": "clip"}, {"max_features": 50}]
    first = [content(load(source, **choice)) for choice in choices]
    assert len(list(base.iterdir())) == len(parsed) == len(choices)
    again = [content(load(source, **choice)) for choice in choices]
    assert len(parsed) == len(choices)
    assert repr(again) == repr(first)  # NaN is not equal to itself
    assert first[3][0][0][0] == [0.25, -3, 0, np.float32(1e-3), 0, 0, 0, 0, 0]


def test_a_new_parser_makes_caches_void(source, base, parsed, monkeypatch):
    load(source)
    monkeypatch.setattr(cache, "PARSER", "tables of the future")
    load(source)
    assert len(parsed) == 2


# Where caches are


def test_the_folder_asked_for_comes_before_the_variable(source, base, tmp_path):
    load(source, cache_dir=str(tmp_path / "here" / "and there"))
    assert not base.exists()
    assert only(tmp_path / "here" / "and there").is_dir()
    assert cache.cache_folder() == base


def test_the_users_cache_of_each_platform(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("TWINRANK_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    for platform, place in [
        ("linux", ".cache"),
        ("darwin", "Library/Caches"),
        ("win32", "AppData/Local"),
    ]:
        monkeypatch.setattr(sys, "platform", platform)
        assert cache.cache_folder() == tmp_path / place / "twinrank"
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache.cache_folder() == tmp_path / "local" / "twinrank"
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/void")
    assert cache.cache_folder() == tmp_path / ".cache" / "twinrank"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "some" / "where"))
    assert cache.cache_folder() == tmp_path / "some" / "where" / "twinrank"
    monkeypatch.setenv("TWINRANK_CACHE_DIR", "~/mine")
    assert cache.cache_folder() == tmp_path / "mine"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder of temporary files, in a process without a chosen cache that has not warned."""
    for variable in ("TWINRANK_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(cache, "_told", False)
    return folder


def no_home(tmp_path, monkeypatch):
    """The user has no home folder."""

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    return "Could not determine home directory"


def home_in_a_file(tmp_path, monkeypatch):
    """No folder can be made in the home folder; this also holds for root."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    return f"{tmp_path / 'file' / 'home' / '.cache' / 'twinrank'} cannot be written"


def cache_is_a_file(tmp_path, monkeypatch):
    """A file has the name of the cache folder."""
    (tmp_path / "caches").mkdir()
    (tmp_path / "caches" / "twinrank").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return f"{tmp_path / 'caches' / 'twinrank'} cannot be written"


@pytest.mark.parametrize("without", [no_home, home_in_a_file, cache_is_a_file])
def test_without_the_users_cache_data_goes_to_a_private_folder(
    source, parsed, tmp_path, monkeypatch, temporary, without
):
    plain = content(load(source, cache=False))
    reason = without(tmp_path, monkeypatch)
    private = temporary / f"twinrank-{os.getuid()}" / "data"
    with pytest.warns(tr.DataWarning) as told:
        data = tr.load(source)
    first, second = (str(each.message) for each in told)
    assert (
        first == f"Parsed files go to {private}: {reason}. TWINRANK_CACHE_DIR sets another folder."
    )
    assert told[0].filename == __file__  # of the user's call
    assert "scattered" in second
    assert content(data) == plain
    assert is_mapped(data.X)
    assert only(private).name.startswith("train.txt-1-")
    for folder in (private, private.parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.warns(tr.DataWarning) as told:  # once per process
        assert content(tr.load(source)) == plain
    assert ["scattered" in str(each.message) for each in told] == [True]
    assert len(parsed) == 2
    assert list(tmp_path.rglob("*.unfinished")) == []


def test_the_private_folder_is_never_somebody_elses(source, tmp_path, monkeypatch, temporary):
    """Others can write to the folder of temporary files: links and open folders are not used."""
    home_in_a_file(tmp_path, monkeypatch)
    plain, taken = content(load(source, cache=False)), temporary / f"twinrank-{os.getuid()}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    taken.symlink_to(elsewhere)
    assert content(load(source)) == plain
    taken.unlink()
    taken.mkdir()
    taken.chmod(0o777)
    assert content(load(source)) == plain
    assert list(elsewhere.iterdir()) == list(taken.iterdir()) == []


def test_the_warning_about_the_cache_on_the_command_line(source, tmp_path, temporary):
    (tmp_path / "file").write_text("no folder")
    ran = subprocess.run(
        [sys.executable, "-m", "twinrank", "inspect", str(source)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HOME": str(tmp_path / "file"), "TMPDIR": str(temporary)},
    )
    note = f"Note: Parsed files go to {temporary / f'twinrank-{os.getuid()}' / 'data'}: "
    assert (ran.returncode, ran.stderr.count("\n")) == (0, 1)
    assert ran.stderr.startswith(note)
    assert ran.stderr.endswith("TWINRANK_CACHE_DIR sets another folder.\n")


def test_a_chosen_folder_that_cannot_be_written_is_an_error(
    source, tmp_path, monkeypatch, temporary
):
    (tmp_path / "file").write_text("no folder")
    place = tmp_path / "file" / "cache"
    hint = (
        r"\. Choose another cache folder \(cache_dir or TWINRANK_CACHE_DIR\), or pass cache=False\."
    )
    refused = rf"^Can't write {place}.*: Not a directory{hint}$"
    with pytest.raises(tr.FileError, match=refused):
        load(source, cache_dir=place)
    monkeypatch.setenv("TWINRANK_CACHE_DIR", str(place))
    with pytest.raises(tr.FileError, match=refused):
        load(source)
    assert load(source, cache=False).documents == 4
    assert list(temporary.iterdir()) == []


def test_a_chosen_folder_of_an_unknown_user_is_an_error(source, monkeypatch, temporary):
    place = "~nobody-has-this-name/cache"
    with pytest.raises(tr.TwinRankError, match="nobody-has-this-name"):
        load(source, cache_dir=place)
    monkeypatch.setenv("TWINRANK_CACHE_DIR", place)
    with pytest.raises(tr.TwinRankError, match="nobody-has-this-name"):
        load(source)
    assert list(temporary.iterdir()) == []


def test_long_and_odd_names(tmp_path, base, parsed):
    for name in ("x" * 251 + ".txt", "ä" * 125, os.fsdecode(b"\xff\xfe\n.txt"), " ", "-"):
        path = tmp_path / name
        path.write_text(TEXT)
        assert content(load(path)) == content(load(path))
    assert len(parsed) == len(list(base.iterdir())) == 5


# A source that changes


def test_links_and_relative_paths_lead_to_one_cache(source, base, parsed, tmp_path, monkeypatch):
    (tmp_path / "link.txt").symlink_to(source)
    (tmp_path / "folder").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for path in (source, "train.txt", "./train.txt", "link.txt", "folder/link.txt"):
        load(path)
    assert len(parsed) == 1
    source.rename(tmp_path / "moved.txt")
    load("moved.txt")
    assert len(parsed) == 2
    with pytest.raises(tr.FileError, match=r"Can't read train\.txt: No such file"):
        load("train.txt")
    with pytest.raises(tr.FileError, match=r"Can't read link\.txt: No such file"):
        load("link.txt")


def test_a_touched_rewritten_or_replaced_source_is_noticed(source, base, parsed, tmp_path):
    load(source)
    os.utime(source, (1_000_000_001, 1_000_000_001))
    load(source)
    assert len(parsed) == 2
    source.write_text(TEXT.replace("9", "8"))
    assert load(source).X.max() == 8
    other = tmp_path / "other.txt"  # same size and time, another inode
    other.write_text(TEXT.replace("9", "6").replace("7", "5"))
    status = source.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(source)
    assert load(source).X.max() == 6
    source.write_text(TEXT + "0 qid:z 1:77\n")
    assert load(source).X.max() == 77
    assert only(base).is_dir()


def test_what_size_time_and_inode_hide_verify_shows(source, base, parsed):
    load(source)
    with source.open("r+") as file:
        file.write(TEXT.replace("9", "8"))
    os.utime(source, LONG_AGO)
    assert load(source).X.max() == 9
    assert load(source, verify=True).X.max() == 8
    assert load(source).X.max() == 8
    assert len(parsed) == 2


def test_cache_dir_and_verify_on_the_command_line(source, base, tmp_path):
    load(source, cache_dir=tmp_path / "here", unjudged="keep", non_finite="keep")
    with source.open("r+") as file:
        file.write(TEXT.replace("9", "8"))
    os.utime(source, LONG_AGO)
    for options, highest in ([], 9), (["--verify"], 8):
        words = ["convert", source, tmp_path / "copy.txt", "--overwrite", *options]
        words += ["--cache-dir", tmp_path / "here"]
        command = [sys.executable, "-m", "twinrank", *map(str, words)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        assert load(tmp_path / "copy.txt", cache=False).X.max() == highest
    assert only(tmp_path / "here").is_dir()
    assert not base.exists()


def test_changes_in_quick_succession_are_noticed(source, base):
    for i in range(10):
        with source.open("r+") as file:
            file.write(TEXT.replace("9", str(i)))
        assert load(source).X[1, 0] == i


def test_a_source_that_changes_while_it_is_read_is_refused(source, base, tmp_path, monkeypatch):
    other = tmp_path / "other.txt"
    other.write_text(TEXT.replace("9", "8"))
    link = tmp_path / "link.txt"

    def redirect():
        link.unlink()
        link.symlink_to(other)

    for change, complaint in [
        (lambda: source.write_text(TEXT + TEXT), r"changed while it was read; load it again\."),
        (redirect, "changed while it was read"),
        (source.unlink, "Can't read .*: No such file"),
    ]:
        link.unlink(missing_ok=True)
        link.symlink_to(source)
        with monkeypatch.context() as patch:
            check = letor.check_unchanged

            def change_and_check(path, state, change=change, check=check):
                change()  # all rows have been read
                check(path, state)

            patch.setattr(letor, "check_unchanged", change_and_check)
            with pytest.raises(tr.TwinRankError, match=complaint):
                load(link)
        assert list(base.iterdir()) == []


# Damage


def damages(folder):
    """Ways to spoil a folder's array files: what, and to which file."""
    for name in ARRAYS:
        path = folder / f"{name}.npy"
        good = path.read_bytes()
        yield f"{name} cut by a byte", lambda p=path, b=good: p.write_bytes(b[:-1])
        yield f"{name} cut to a header", lambda p=path, b=good: p.write_bytes(b[:128])
        yield f"{name} empty", lambda p=path: p.write_bytes(b"")
        yield f"{name} longer", lambda p=path, b=good: p.write_bytes(b + b"\0")
        yield f"{name} gone", path.unlink
        yield f"{name} a folder", lambda p=path: (p.unlink(), p.mkdir())
        yield f"{name} a pipe", lambda p=path: (p.unlink(), os.mkfifo(p))
        yield f"{name} a zip", lambda p=path, b=good: p.write_bytes(b"PK\3\4" + b[4:])
        yield f"{name} objects", lambda p=path: np.save(p, np.array([Spy()]), allow_pickle=True)
        for i in range(0, 80, 7):
            flipped = bytearray(good)
            flipped[i] ^= 4
            yield f"{name} flipped at {i}", lambda p=path, b=flipped: p.write_bytes(b)


class Spy:
    """Tells when it is unpickled."""

    seen = False

    def __setstate__(self, state):
        Spy.seen = True

    def __getstate__(self):
        return {"state": 1}


def test_a_damaged_cache_is_rebuilt_and_damaged_data_refused(source, base, parsed, tmp_path):
    plain = content(load(source))
    folder = only(base)
    for what, spoil in damages(folder):
        before = len(parsed)
        spoil()
        saved = tmp_path / "saved"
        if "pipe" not in what:
            shutil.copytree(folder, saved)
            with pytest.raises(tr.InputError, match="saved"):
                load(saved)
            shutil.rmtree(saved)
        assert content(load(source)) == plain, what
        assert len(parsed) == before + 1, what
        assert only(base) == folder
    assert not Spy.seen


def test_flipped_values_are_noticed_by_verify(source, base, parsed, tmp_path):
    plain = content(load(source))
    folder = only(base)
    for name in ARRAYS:
        path = folder / f"{name}.npy"
        flipped = bytearray(path.read_bytes())
        flipped[-1] ^= 1
        path.write_bytes(flipped)
        shutil.copytree(folder, tmp_path / name)
        with pytest.raises(tr.InputError, match=f"{name}.npy is damaged: its checksum"):
            load(tmp_path / name, verify=True)
        assert content(load(source, verify=True)) == plain
    assert len(parsed) == 1 + len(ARRAYS)


def test_any_flipped_byte_of_the_manifest_is_noticed(source, base, parsed, tmp_path):
    plain = content(load(source))
    path = only(base) / "manifest.json"
    shutil.copytree(only(base), tmp_path / "saved")
    good = path.read_bytes()
    for i in range(0, len(good), 5):
        flipped = bytearray(good)
        flipped[i] ^= 1 << i % 8
        harmless = good[i : i + 1].isspace()
        (tmp_path / "saved" / "manifest.json").write_bytes(flipped)
        if not harmless:
            with pytest.raises(tr.InputError, match="manifest"):
                load(tmp_path / "saved")
        if i % 4 == 0:
            path.write_bytes(flipped)
            assert content(load(source)) == plain, i


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(value, place, to):
    """A JSON value with another value in one place."""
    if not place:
        return to
    copy = list(value) if isinstance(value, list) else dict(value)
    copy[place[0]] = changed(value[place[0]], place[1:], to)
    return copy


def test_a_manifest_of_wrong_types_is_no_manifest(source, base, tmp_path):
    """Wrong values everywhere, each with the right checksum."""
    plain = content(load(source))[0]
    path = only(base) / "manifest.json"
    saved = tmp_path / "saved"
    shutil.copytree(only(base), saved)
    good = store.read_manifest(saved)
    wrong = [None, False, -1, 10**30, 1.5, "x", "|O", [], [[3]], {}]
    for i, (place, value) in enumerate(product(places(good), wrong)):
        manifest = changed(good, place, value)
        if manifest == good:
            continue
        if isinstance(manifest, dict):
            manifest = sealed(manifest)
        (saved / "manifest.json").write_text(json.dumps(manifest))
        try:
            assert content(load(saved))[0] == plain
        except tr.InputError as error:
            assert "saved" in str(error)  # noqa: PT017
        else:
            free = place[0] in ("source", "notes", "feature_names") or "crc32" in place
            assert free or ("checksum" in place and value is None)
        if i % 5 == 0:
            path.write_text(json.dumps(manifest))
            assert content(load(source))[0] == plain


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "9" * 5000, "\ud800", "null", "{}", '{"format": 1}', "PK\3\4"]
)
def test_what_is_no_manifest_at_all(source, base, text):
    plain = content(load(source))
    path = only(base) / "manifest.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(tr.InputError, match=r"manifest\.json"):
        load(only(base))
    assert content(load(source)) == plain


def test_another_version_says_so(source, base):
    load(source)
    path = only(base) / "manifest.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(
        tr.InputError, match=r"version 2 of the format.*\. Convert the data again\."
    ):
        load(only(base))


def test_objects_are_never_unpickled(source, base):
    """Not even if the manifest announces them."""
    plain = content(load(source))
    folder = only(base)
    np.save(folder / "y.npy", np.array([Spy()] * 4, dtype=object), allow_pickle=True)
    manifest = store.read_manifest(folder)
    manifest["arrays"]["y"] |= {"dtype": "|O"}
    (folder / "manifest.json").write_text(json.dumps(sealed(manifest)))
    with pytest.raises(tr.InputError, match="damaged at array 'y'"):
        load(folder)
    assert content(load(source)) == plain
    assert not Spy.seen


def test_something_else_in_the_caches_place(source, base, tmp_path):
    plain = content(load(source))
    folder = only(base)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep me")
    for put in [
        lambda: folder.write_text("a file"),
        lambda: folder.mkdir(),
        lambda: shutil.copytree(precious, folder),
        lambda: folder.symlink_to(precious),
        lambda: folder.symlink_to(precious / "file"),
        lambda: folder.symlink_to(tmp_path / "nowhere"),
        lambda: folder.symlink_to(folder),
        lambda: os.mkfifo(folder),
    ]:
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
        put()
        assert content(load(source)) == content(load(source)) == plain
        assert only(base) == folder
        assert not folder.is_symlink()
    assert only(precious).read_text() == "keep me"


def test_the_cache_of_another_file_is_foreign(source, base, tmp_path):
    load(source)
    folder = only(base)
    other = tmp_path / "other.txt"
    other.write_text(TEXT.replace("9", "8"))
    load(other)
    (stranger,) = set(base.iterdir()) - {folder}
    shutil.rmtree(folder)
    stranger.rename(folder)
    assert load(source).X.max() == 9


def test_data_that_is_replaced_while_it_is_loaded(source, base, tmp_path, monkeypatch):
    """Old labels with new features would go unnoticed: shapes are the same."""
    load(source).save(tmp_path / "saved")
    source.write_text(TEXT.replace("9", "8"))
    new = load(source)
    read = store._read_array

    def replace_before_y(folder, name, facts):
        if name == "y":
            monkeypatch.undo()
            new.save(tmp_path / "saved")
        return read(folder, name, facts)

    monkeypatch.setattr(store, "_read_array", replace_before_y)
    with pytest.raises(tr.InputError, match=r"replaced while it was read; load it again\."):
        load(tmp_path / "saved")
    assert load(tmp_path / "saved", verify=True).X.max() == 8


# Several processes, and processes that end early


def rows(value, documents=600, features=20):
    """LETOR text with this value in all places."""
    values = " ".join(f"{i + 1}:{value}" for i in range(features))
    return "".join(f"{i % 3} qid:{i // 20} {values} # d{i}\n" for i in range(documents))


BUILDER = """
import sys, twinrank as tr
for _ in sys.stdin:
    data = tr.load(sys.argv[1])
    print(data.X.min(), data.X.max(), data.documents, data.docids[-1], flush=True)
"""


def test_processes_that_build_at_once_all_succeed(tmp_path, base):
    source = tmp_path / "train.txt"
    command = [sys.executable, "-c", BUILDER, str(source)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    builders = [subprocess.Popen(command, **streams) for _ in range(3)]
    try:
        for i in range(9):
            if i % 3 == 2:  # the same source, a cache that is damaged
                (only(base) / "y.npy").write_bytes(b"")
            else:
                source.write_text(rows(value := i + 1))
            for builder in builders:
                builder.stdin.write("\n")
            for builder in builders:
                assert builder.stdout.readline() == f"{value}.0 {value}.0 600 d599\n"
            assert only(base).name.startswith("train.txt-")
    finally:
        for builder in builders:
            builder.communicate()
    assert [builder.returncode for builder in builders] == [0] * 3


def test_threads_that_build_at_once_all_succeed(tmp_path, base):
    source = tmp_path / "train.txt"
    with ThreadPoolExecutor(6) as pool:
        for value in range(1, 6):
            source.write_text(rows(value))
            for data in pool.map(load, [source] * 6):
                assert data.X.min() == data.X.max() == value
            assert only(base).name.startswith("train.txt-")


# Loads a file in children that get a signal at call number 1, …, of all the calls they make.
INTERRUPTED = """
import os, signal, sys
import twinrank as tr
from pathlib import Path

source, base, number = Path(sys.argv[1]), Path(os.environ["TWINRANK_CACHE_DIR"]), int(sys.argv[2])
count = 0

def load_in_child(turn, last):
    os.utime(source, (turn, turn))  # the cache is there, but old
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    def call(frame, event, argument):
        global count
        count += 1
        if count == last:
            sys.setprofile(None)
            os.kill(os.getpid(), number)
    sys.setprofile(call)
    ended = False
    try:
        tr.load(source)
    except BaseException:
        ended = True
    sys.setprofile(None)  # the exception is gone, so context managers that it held are closed
    Path(sys.argv[3]).write_text(str(count))
    os._exit(ended)

tr.load(source)
load_in_child(1, 0)
total = int(Path(sys.argv[3]).read_text())
ended = litter = 0
for turn in range(40):
    status = load_in_child(turn + 2, total * turn // 40 + 1)
    ended += os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 1
    for folder in base.iterdir():
        if folder.name.startswith("."):
            litter += 1
        else:
            data = tr.load(folder, verify=True)
            assert (data.X == 7).all() and data.documents == 600
print(ended, litter)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_build_that_ends_early_leaves_nothing_that_counts(tmp_path, base, number):
    """SIGKILL: leftovers are swept by the next build; Ctrl-C: there are none."""
    source = tmp_path / "train.txt"
    source.write_text(rows(7))
    command = [sys.executable, "-c", INTERRUPTED, str(source), str(int(number))]
    command.append(str(tmp_path / "calls"))
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    ended, litter = map(int, ran.stdout.split())
    assert ended > 30
    assert litter > 5 if number == signal.SIGKILL else litter == 0
    os.utime(source, LONG_AGO)
    data = load(source)
    assert (data.X == 7).all()
    assert only(base).name.startswith("train.txt-")


def test_ctrl_c_on_the_command_line(tmp_path, base):
    source = tmp_path / "train.txt.zst"
    source.write_bytes(zstd.compress(rows(7, 2000).encode() * 1000))  # 300 MB
    command = [sys.executable, "-m", "twinrank", "inspect", str(source)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as inspecting:
        while not (base.exists() and list(base.iterdir())):
            assert inspecting.poll() is None
        inspecting.send_signal(signal.SIGINT)
        _, told = inspecting.communicate(timeout=60)
    assert inspecting.returncode not in (0, 2)
    assert "Traceback" not in told
    assert list(base.iterdir()) == []


# Memory

PEAK = """
import resource, sys, twinrank as tr
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
tr.load(sys.argv[1], cache=False)
before = peak()
data = tr.load(sys.argv[2], cache=sys.argv[3] == "cached")
print(peak() - before, data.X.nbytes / 2**20, data.documents)
"""


@pytest.mark.slow
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("how", ["cached", "in memory"])
def test_memory_is_the_matrix_and_a_little(tmp_path, base, how, scattered):
    """900 MB of text, so that a second matrix would show; pages of mapped files are counted."""
    line = " ".join(f"{i + 1}:0.{i:04}" for i in range(136))
    block = "".join(f"1 qid:000000 {line} # {i}\n" for i in range(200)).encode()
    source, small = tmp_path / "train.txt.zst", tmp_path / "small.txt"
    small.write_bytes(block)
    with zstd.open(source, "wb", level=1) as file:
        for i in range(3000):
            query = i % 2000 if scattered else i
            file.write(block.replace(b"qid:000000", b"qid:%06d" % query))
    command = [sys.executable, "-W", "ignore", "-c", PEAK, str(small), str(source), how]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    growth, matrix, documents = map(float, ran.stdout.split())
    assert documents == 600_000
    assert growth < matrix + 200
