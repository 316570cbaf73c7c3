"""`twinrank train` and `twinrank predict`: runs, resuming, errors, and the order of scores."""

import json
import os
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import pytrec_eval
import torch

import twinrank as tr
from twinrank.cli import main
from twinrank.learning.training.process_group import ProcessGroup
from twinrank.learning.training.run_folder import Run
from twinrank.support.files import _temporary

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ["--set", "architecture=CE4.L(width=8, depth=2, dropout=0.2)"]
STEPS = [*SMALL, "--set", "batch_documents=200", "--set", "perturbation=0.1", "--seed", "5"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A fold of small data as LETOR text."""
    folder = tmp_path_factory.mktemp("data") / "Fold1"
    folder.mkdir()
    parts = tr.synthetic_web_search(queries=24).split(0.5, 0.25)
    for name, part in zip(("train", "vali", "test"), parts, strict=True):
        part.save(folder / f"{name}.txt")
    return folder


@pytest.fixture(scope="module")
def run_folder(files, tmp_path_factory):
    """A complete run of two epochs."""
    out = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        words = ["train", files / "train.txt", "--valid", files / "vali.txt", "--epochs", 2]
        patch.setattr(sys, "argv", [str(w) for w in ("twinrank", *words, *SMALL, "--out", out)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return out


def refused(result, *parts):
    """True if a command failed with one line that contains these parts."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err
    return True


def history_of(run):
    """The records of a run's history."""
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


def without_seconds(run):
    return [record | {"seconds": 0} for record in history_of(run)]


def weights(run):
    return (run / "model" / "model.safetensors").read_bytes()


# Runs


def test_files_of_a_run(run_folder, files):
    names = ["checkpoint.safetensors", "curves.png", "curves.svg", "history.jsonl", "model"]
    assert sorted(p.name for p in run_folder.iterdir()) == [*names, "run.json"]
    about = json.loads((run_folder / "run.json").read_text())
    assert about["source"]["data"] == str(files / "train.txt")
    assert about["parameters"].keys() == tr.Ranker().get_params().keys()
    assert {"python", "torch", "numpy", "twinrank"} <= about["versions"].keys()
    assert about["threads"] == torch.get_num_threads()
    assert [record["iteration"] for record in history_of(run_folder)] == [1, 2]
    assert (run_folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (run_folder / "curves.svg").read_text()
    assert tr.Ranker.load(run_folder / "model").n_features_in_ == 136


def test_folds_and_all_ways_to_set_a_parameter(files, tmp_path, cli):
    (tmp_path / "c.toml").write_text(
        'architecture = "Linear"\nobjective = "AP"\nlearning_rate = 0.5\nepochs = 7\n'
        'transforms = ["SignedLog1p", "QueryZScore"]\ncategorical_features = [3]\n'
        'early_stopping = "none"\n'
    )
    words = ["--config", tmp_path / "c.toml", "--set", "learning_rate=0.25", "--set", "clip=none"]
    words += ["--epochs", 1, "--strategy", "type1", "--seed", 3, "--fold", 1]
    code, out, err = cli("train", files.parent, *words, "--out", tmp_path / "run")
    assert code == 0
    assert re.fullmatch(r"Model in .*run/model \(1 epoch, nDCG@5 0\.\d{4} in epoch 1\)\n", out)
    assert re.fullmatch(r"epoch 1/1  loss .* validation nDCG@5 .* test nDCG@5 .*\n", err)
    used = json.loads((tmp_path / "run" / "run.json").read_text())["parameters"]
    expected = {
        "architecture": "Linear", "objective": "AP", "learning_rate": 0.25, "epochs": 1,
        "strategy": "type1", "random_state": 3, "clip": None, "categorical_features": [3],
        "transforms": ["SignedLog1p", "QueryZScore"], "early_stopping": None,
    }  # fmt: skip
    assert {name: used[name] for name in expected} == expected
    again = [*words, "--quiet", "--out", tmp_path / "again"]
    assert cli("train", files.parent, *again) == (0, "", "")
    assert weights(tmp_path / "run") == weights(tmp_path / "again")


def test_no_transform(files, tmp_path, cli):
    words = ["--set", "transforms=none", "--set", "architecture=Linear", "--epochs", 1]
    (tmp_path / "run").mkdir()  # as a run leaves it that was killed while it wrote its first file
    name = _temporary(tmp_path / "run/run.json", "run.json", "partial").name
    (tmp_path / "run" / name.replace(f"-{os.getpid()}-", "-4194999-")).write_text("{")
    assert cli("train", files / "train.txt", *words, "--out", tmp_path / "run")[0] == 0
    assert str(tr.Ranker.load(tmp_path / "run/model").model_.transform) == "none"


def test_paper_mode(files, tmp_path, cli):
    words = ["train", files / "train.txt", "--paper", "--epochs", 1, *SMALL]
    words += ["--set", "weight_decay=0.5"]
    code, _, err = cli(*words, "--objective", "AP", "--out", tmp_path / "run")
    assert (code, "loss" in err) == (0, True)
    for path in ("run/run.json", "run/model/config.json"):
        about = json.loads((tmp_path / path).read_text())
        about = about.get("provenance", about)
        assert about["parameters"]["batch_documents"] == "auto"
        assert about["parameters"]["weight_decay"] == 0.5
        resolved = about["resolved"]
        assert (resolved["batch_documents"], resolved["shuffle"]) == (1, False)
        assert "weight_decay" not in resolved
        assert about["plan"]["iterations"] == 1
    architecture = tr.Ranker.load(tmp_path / "run/model").model_.net.architecture
    assert (architecture.norm, architecture.last_norm) == ("query", True)
    assert cli("predict", tmp_path / "run", files / "test.txt", "-o", tmp_path / "s.txt")[0] == 0


def test_paper_mode_says_what_it_leaves_out(tmp_path, cli):
    lines = [
        f"{d % 2} qid:{q} 1:{d * q % 7} 2:{d}\n"
        for q in range(1, 9)
        for d in range(12 if q % 2 else 6)
    ]
    (tmp_path / "train.txt").write_text("".join(lines))
    words = ["train", tmp_path / "train.txt", "--valid", tmp_path / "train.txt", "--paper"]
    words += ["--epochs", 1, *SMALL]
    code, _, err = cli(*words, "--out", tmp_path / "run")
    assert code == 0
    assert (
        "Note: --paper keeps queries with at least 10 documents, 1 of them relevant. "
        "It leaves out 4 of 8 queries (training) and 4 of 8 queries (validation).\n"
    ) in err
    model = tr.Ranker.load(tmp_path / "run/model").model_
    assert model.provenance["data"]["queries"] == 4
    assert cli(*words, "--quiet", "--out", tmp_path / "again")[2] == ""


def test_a_share_of_the_training_queries(files, tmp_path, cli):
    """Validation data stays whole; the run that is resumed has the same queries."""
    out = tmp_path / "run"
    words = ["train", files / "train.txt", "--valid", files / "vali.txt", *SMALL, "--epochs", 1]
    assert cli(*words, "--sample-queries", 0.5, "--out", out)[0] == 0
    provenance = json.loads((out / "model" / "config.json").read_text())["provenance"]
    assert provenance["data"]["queries"] == 6
    assert cli("train", "--resume", out)[0] == 0
    for wrong in (0, 1, 1.5):
        assert refused(cli(*words, "--sample-queries", wrong), "must lie between 0 and 1")
    assert refused(cli("train", "--resume", out, "--sample-queries", 0.5), "remove the other")


def test_an_error_is_one_line_and_leaves_no_folder(files, tmp_path, cli):
    train, out = files / "train.txt", tmp_path / "out"
    (tmp_path / "bad.toml").write_text("epochs = = 3")
    (tmp_path / "unknown.toml").write_text("epoch = 3")
    (tmp_path / "narrow.txt").write_text("1 qid:9 1:1 2:1\n0 qid:9 1:2 2:2\n")
    (tmp_path / "single.txt").write_text("1 qid:1 1:1 2:1\n0 qid:2 1:2 2:2\n")
    (tmp_path / "file").write_text("mine")
    for words, message in [
        ([tmp_path / "nowhere.txt"], "Can't read"),
        ([train, "--valid", tmp_path / "nowhere.txt"], "Can't read"),
        ([train, "--valid", tmp_path / "narrow.txt"], "Pass --features 136"),
        (
            [tmp_path / "single.txt", "--valid", tmp_path / "narrow.txt"],
            "Cannot train on any of 2 queries",
        ),
        ([train, "--objective", "nDGC"], "Did you mean 'nDCG'"),
        ([train, "--strategy", "type4"], "Did you mean 'type"),
        ([train, "--architecture", "CE4L"], "Did you mean 'CE4.L'"),
        ([train, "--set", "epohcs=3"], "Did you mean 'epochs'"),
        ([train, "--set", "epochs"], "write key=value"),
        ([train, "--set", "epochs=many"], "epochs must be a positive whole number"),
        ([train, "--set", "weight_decay=x"], "weight_decay must be"),
        ([train, "--set", "validation_measure=nDGC"], "Did you mean 'nDCG'"),
        ([train, "--set", "device=gpu"], "no device 'gpu'"),
        ([train, "--set", "categorical_features=[500]"], "columns are 0 to 135"),
        ([train, "--set", "transforms=QuaryZScore"], "Did you mean 'QueryZScore'"),
        ([train, "--set", "random_state=-1"], "--seed must be at least 0"),
        ([train, "--config", tmp_path / "bad.toml"], "bad.toml is not TOML"),
        ([train, "--config", tmp_path / "unknown.toml"], "Did you mean 'epochs'"),
        ([train, "--config", tmp_path / "nowhere.toml"], "Can't read"),
        ([train, "--fold", 1], "--fold needs a folder"),
        ([files.parent, "--fold", 2], "no fold 2"),
        ([files.parent, "--valid", train], "--valid needs a file"),
        ([tmp_path], "no folds in"),
        (["--valid", train], "--valid needs a file"),
    ]:
        assert refused(cli("train", *words, "--out", out), message)
        assert not out.exists()
    for name in ("file", ""):
        assert refused(cli("train", train, "--out", tmp_path / name), "Choose another folder")
    assert (tmp_path / "file").read_text() == "mine"


def test_runs_that_cannot_be_resumed(run_folder, files, tmp_path, cli):
    words = ["train", "--resume", run_folder]
    for more in (["--epochs", 9], [files / "train.txt"], ["--set", "epochs=9"], ["--out", "x"]):
        assert refused(cli(*words, *more), "--resume reads")
    assert refused(cli("train", "--resume", files), "it has no run.json")
    copy = tmp_path / "copy"
    shutil.copytree(run_folder, copy)
    good = json.loads((copy / "run.json").read_text())
    del good["crc32"], good["has_crc32"]
    moved = tmp_path / "train.txt"
    moved.write_text("".join((files / "train.txt").read_text().splitlines(keepends=True)[:-1]))
    changed = tmp_path / "changed.txt"  # the same labels and lengths, different features
    changed.write_text((files / "train.txt").read_text().replace(" 5:", " 5:1"))
    changes = [{key: wrong} for key in good for wrong in (None, [], "x", 3.5, {})]
    changes += [{"source": good["source"] | {"data": str(path)}} for path in (moved, changed)]
    changes += [{"parameters": good["parameters"] | {"epochs": "x"}}]
    for change in changes:
        if not change.keys() & {"versions", "plan", "resolved"}:  # these are for people
            (copy / "run.json").write_text(json.dumps(good | change))
            assert refused(cli("train", "--resume", copy))
    for text in ("", "{", "[]", json.dumps(good | {"version": 3})):
        (copy / "run.json").write_text(text)
        assert refused(cli("train", "--resume", copy), "run.json")
    (copy / "run.json").write_text(json.dumps(good | {"threads": 99}))
    code, _, err = cli("train", "--resume", copy)
    assert code == 0
    assert "Note: The run started with 99 threads" in err
    assert weights(copy) == weights(run_folder)  # it was complete


# Interrupted and killed runs

# Trains, and sends itself a signal: after some step, or halfway through some checkpoint.
CHILD = """
import os, signal, sys
from twinrank.cli import main
from twinrank.learning.training import checkpoints

kind, count, calls = sys.argv[1], int(sys.argv[2]), []
on_step_end, save = checkpoints.Checkpoints.on_step_end, checkpoints.save

def step(self, trainer):
    on_step_end(self, trainer)
    calls.append(1)
    if kind == "interrupt" and len(calls) == count:
        os.kill(os.getpid(), signal.SIGINT)

def half(*arguments, **options):
    content = save(*arguments, **options)
    if kind == "kill" and len(calls) == count:
        for partial in checkpoints_folder.glob(".*partial*"):
            partial.write_bytes(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return content

from pathlib import Path
checkpoints_folder = Path(sys.argv[3])
checkpoints.Checkpoints.on_step_end, checkpoints.save = step, half
sys.argv = ["twinrank", *sys.argv[4:]]
main()
"""


def environment():
    return os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}


def child(kind, count, run, *words):
    """The exit code of a child process, and its output on a terminal."""
    command = [sys.executable, "-c", CHILD, kind, str(count), str(run), *map(str, words)]
    control, terminal = pty.openpty()
    options = {"stderr": terminal, "env": environment() | {"COLUMNS": "80"}}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, **options) as process:
        os.close(terminal)
        shown = b""
        while select.select([control], [], [], 60)[0]:
            try:
                shown += os.read(control, 65536)
            except OSError:  # the other end is closed
                break
        code = process.wait(60)
    os.close(control)
    return code, shown.decode().replace("\r\n", "\n")


def test_interrupted_then_killed_then_resumed(files, tmp_path, cli):
    """The weights equal those of an uninterrupted run, bit for bit.

    The child processes have a terminal, so that the live bar is tested too.
    """
    begin = ["train", files / "train.txt", "--valid", files / "vali.txt", *STEPS, "--epochs", 4]
    assert cli(*begin, "--out", tmp_path / "whole")[0] == 0
    run = tmp_path / "a run"
    begin += ["--out", run, "--save-every", 0]
    code, shown = child("interrupt", 12, run, *begin)
    assert code == 130
    assert "\x1b[" in shown
    assert re.search(r"Epoch 2/4 .* docs/s .*[-\d]:[-\d]{2}:[-\d]{2}", shown)  # the time left
    assert re.search(r"loss -\S+  validation nDCG@5 0\.\d{4}  best 0\.\d{4} \(epoch \d\)", shown)
    last = shown.splitlines()[-1]
    assert re.search(r"Stopped in epoch 2, step \d+\. Continue with: twinrank train ", last)
    assert last.endswith(f"--resume '{run}'")
    assert not (run / "model").exists()
    result = cli("predict", run, files / "test.txt", "-o", tmp_path / "s.txt")
    assert refused(result, f"is not complete. Finish it with twinrank train --resume '{run}'")
    before = (run / "checkpoint.safetensors").read_bytes()
    code, _ = child("kill", 2, run, "train", "--resume", run, "--save-every", 0)
    assert code == -signal.SIGKILL
    assert (run / "checkpoint.safetensors").read_bytes() != before
    assert cli("train", "--resume", run)[0] == 0
    assert weights(run) == weights(tmp_path / "whole")
    assert not list(run.glob(".*"))
    assert without_seconds(run) == without_seconds(tmp_path / "whole")


@pytest.mark.slow
def test_killed_at_many_moments(files, tmp_path, cli):
    begin = ["train", files / "train.txt", *STEPS, "--epochs", 30, "--set", "early_stopping=none"]
    assert cli(*begin, "--out", tmp_path / "whole")[0] == 0
    run, killed = tmp_path / "run", 0
    begin += ["--out", run, "--save-every", 0]
    for attempt in range(40):
        words = ["train", "--resume", run, "--save-every", 0] if run.exists() else begin
        command = [sys.executable, "-m", "twinrank", *map(str, words)]
        process = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
        seen = (run / "checkpoint.safetensors").stat().st_mtime_ns if killed else 0
        while process.poll() is None:
            path = run / "checkpoint.safetensors"
            if path.exists() and path.stat().st_mtime_ns != seen:
                break
            time.sleep(0.001)
        time.sleep(random.Random(attempt).random() * 0.3)
        process.kill()
        if process.wait() == 0:
            break
        killed += 1
    assert killed >= 3
    assert cli("train", "--resume", run)[0] == 0
    assert weights(run) == weights(tmp_path / "whole")


# File errors

UNPRIVILEGED = """
import json, os, sys
from pathlib import Path
from twinrank.cli import main

def run(*words):
    sys.argv = ["twinrank", *words]
    try:
        main()
    except SystemExit as ended:
        return ended.code or 0
    return 0

train, folder = sys.argv[1:]
assert run("train", train, "--set", "architecture=Linear", "--epochs", "1", "--out", folder) == 0
assert run("predict", folder, train, "-o", folder + "/scores.txt") == 0
path = Path(folder, "run.json")
about = json.loads(path.read_text())
about["parameters"]["epochs"] = 3
about["crc32"] = None
path.write_text(json.dumps(about))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
else:
    Path(folder).chmod(0o555)
sys.stderr.write("---\\n")
codes = [run("train", "--resume", folder), run("train", train, "--out", folder + "/new")]
codes += [run("predict", folder, train, "-o", folder + "/other.txt")]
print(codes)
"""


@pytest.mark.slow
def test_no_permission(files):
    here = Path(tempfile.mkdtemp())
    try:
        here.chmod(0o755)
        shutil.copy(files / "train.txt", here)
        command = [sys.executable, "-c", UNPRIVILEGED, here / "train.txt", here / "run"]
        env = environment() | {"TWINRANK_CACHE_DIR": str(here / "cache")}
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
        assert answer.stdout.splitlines()[-1:] == ["[2, 2, 2]"], answer.stderr
        lines = answer.stderr.partition("---\n")[2].splitlines()
        resume = f"twinrank train --resume {here / 'run'}"
        assert lines.pop(1) == (
            f"When that is fixed, continue from the last checkpoint with: {resume}"
        )
        for line, name in zip(lines, ("", "new", "other.txt"), strict=True):
            assert line.startswith(f"Error: Can't write {here / 'run' / name}: Permission denied")
        assert not list((here / "run").glob(".*"))
    finally:
        (here / "run").chmod(0o755)
        shutil.rmtree(here)


class RecordingGroup(ProcessGroup):
    """A process that records its messages to the others, and may have received one."""

    def __init__(self, rank=0, received=""):
        self.rank, self.received, self.sent = rank, received, []

    def all_gather(self, value):
        self.sent.append(value)
        return [value, self.received]


def test_all_processes_learn_that_the_folder_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("mine")
    folder, main = tmp_path / "file" / "run", RecordingGroup()
    with pytest.raises(tr.FileError, match="Can't write") as error:
        Run(folder, group=main).begin("net", {}, {})
    assert main.sent == [str(error.value)]
    with pytest.raises(tr.InputError, match="Can't write"):
        Run(folder, group=RecordingGroup(1, main.sent[0])).begin("net", {}, {})


# Scores


def test_scores_are_in_the_order_of_the_source(run_folder, tmp_path, cli):
    data = tr.synthetic_web_search(queries=3)
    order = np.random.default_rng(0).permutation(data.documents)
    frame = pl.DataFrame(data.X, schema=list(data.feature_names)).with_columns(
        qid=pl.Series(data.qid), label=pl.Series(data.y)
    )
    frame[order].write_csv(tmp_path / "scattered.csv")
    expected = tr.Ranker.load(run_folder / "model").predict(data)[order]
    files = [tmp_path / f"out{suffix}" for suffix in (".txt", ".parquet", ".csv", ".trec")]
    for out in files:
        words = [tmp_path / "scattered.csv", "--no-cache", "-o", out]
        code, printed, err = cli("predict", run_folder, *words)
        assert (code, printed) == (0, f"Wrote {out}: {data.documents:,} scores\n")
        assert err.count("\n") == 1  # the note that rows were sorted by query
    close = {"rtol": 0, "atol": 1e-5}
    queries = data.qid[order].astype(str).tolist()
    numbers = [queries[: i + 1].count(query) for i, query in enumerate(queries)]  # in the query
    np.testing.assert_allclose(np.loadtxt(files[0]), expected, **close)
    for table in (pl.read_parquet(files[1]), pl.read_csv(files[2])):
        assert table.columns == ["qid", "docid", "score", "rank"]
        np.testing.assert_allclose(table["score"], expected, **close)
        assert table["qid"].cast(pl.String).to_list() == queries
        assert table["docid"].cast(pl.Int64).to_list() == numbers
    rows = [line.split() for line in files[3].read_text().splitlines()]
    scores = {(qid, int(docid)): float(score) for qid, _, docid, _, score, _ in rows}
    written = [scores[key] for key in zip(queries, numbers, strict=True)]
    np.testing.assert_allclose(written, expected, **close)


def test_a_run_that_trec_eval_reads(run_folder, files, tmp_path, cli):
    out = tmp_path / "test.run"
    assert cli("predict", run_folder, files / "test.txt", "-o", out, "--tag", "mine")[0] == 0
    code, _, err = cli(
        "predict", run_folder, files / "test.txt", "-o", f"{out}2.run", "--tag", "a b"
    )
    assert code == 2
    assert "can't hold a tag that is empty or has blanks" in err
    data = tr.load(files / "test.txt")
    with out.open() as file:
        run = pytrec_eval.parse_run(file)
    qrels = {str(q): {} for q in data.query_ids}
    for qid, docid, label in zip(data.qid, data.docids_or_numbers, data.y, strict=True):
        qrels[str(qid)][str(docid)] = int(label > 0)
    values = pytrec_eval.RelevanceEvaluator(qrels, {"map"}).evaluate(run)
    scores = tr.Ranker.load(run_folder / "model").predict(data)
    mine = tr.evaluate(scores, data.y, data.lists, ["AP"]).means["AP"]
    assert np.mean([v["map"] for v in values.values()]) == pytest.approx(mine, abs=1e-6)
    rows = [line.split() for line in out.read_text().splitlines()]
    assert {row[5] for row in rows} == {"mine"}
    for qid in run:
        ranked = [(int(row[3]), float(row[4])) for row in rows if row[0] == qid]
        assert [rank for rank, _ in ranked] == list(range(1, len(ranked) + 1))
        assert ranked == sorted(ranked, key=lambda pair: -pair[1])


def test_errors_of_predict(run_folder, files, tmp_path, cli):
    (tmp_path / "narrow.txt").write_text("1 qid:1 1:1 2:1\n0 qid:1 1:2 2:2\n")
    (tmp_path / "wide.txt").write_text("1 qid:1 1:1 137:1\n0 qid:1 1:2 2:2\n")
    words, test = ["predict", run_folder], files / "test.txt"
    narrow, out = tmp_path / "narrow.txt", ["-o", tmp_path / "s.txt"]
    assert refused(
        cli(*words, narrow, *out), "has 2 features, but the model has 136", "--features 136"
    )
    assert cli(*words, narrow, *out, "--features", 136)[0] == 0
    assert refused(cli(*words, narrow, *out), "s.txt exists; add --overwrite to replace it")
    out = [*out, "--overwrite"]
    assert cli(*words, narrow, *out, "--features", 136)[0] == 0
    assert refused(cli(*words, tmp_path / "wide.txt", *out), "137 features", "136")
    assert refused(cli(*words, tmp_path / "nowhere.txt", *out), "Can't read")
    assert refused(cli("predict", files, test, *out), "is not a model")
    assert refused(cli("predict", tmp_path / "nowhere", test, *out), "is not a model")
    assert refused(cli(*words, test, "-o", tmp_path / "s.xlsx"), "Choose a name with .txt")
    assert refused(cli(*words, test, "-o", tmp_path / "no" / "s.txt"), "Can't write")
    (tmp_path / "twice.csv").write_text("qid,label,docid,x\na,1,d,2\na,0,d,3\n")
    (tmp_path / "blank.csv").write_text("qid,label,docid,x\na b,1,d 1,2\na b,0,d2,3\n")
    model = tr.Ranker(architecture="Linear", transforms="none", epochs=1)
    model.fit([[1.0], [2.0]], [0, 1], qid=[1, 1]).save(tmp_path / "model")
    result = cli("predict", tmp_path / "model", tmp_path / "blank.csv", "-o", tmp_path / "s.run")
    assert refused(result, "can't hold a query id that is empty or has blanks")
    result = cli("predict", tmp_path / "model", tmp_path / "twice.csv", "-o", tmp_path / "s.run")
    assert refused(result, "the same document id twice")


# The same checks for nets and trees

KINDS = {"net": SMALL, "trees": ["--trees", "--set", "n_jobs=1"]}
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_errors_are_those_of_fit(kind, files, tmp_path, cli):
    """The command and `fit` refuse the same data with the same sentence."""
    text = (files / "vali.txt").read_text()
    (tmp_path / "none.txt").write_text(re.sub(r"^\d ", "0 ", text, flags=re.MULTILINE))
    data, irrelevant = tr.load(files / "train.txt"), tr.load(tmp_path / "none.txt")
    estimator = tr.Ranker() if kind == "net" else tr.BoostedRanker()
    with pytest.raises(tr.InputError) as expected:
        estimator.fit(data, eval_set=irrelevant)
    assert "Evaluation set 'validation' has no relevant document" in str(expected.value)
    out = tmp_path / "run"
    words = ["train", *KINDS[kind], "--out", out]
    result = cli(*words, files / "train.txt", "--valid", tmp_path / "none.txt")
    assert refused(result, str(expected.value))
    with pytest.raises(tr.InputError) as expected:
        estimator.fit(irrelevant)
    result = cli(*words, tmp_path / "none.txt", "--valid", files / "test.txt")
    assert refused(result, str(expected.value), "Cannot train on any of 6 queries")
    assert refused(cli(*words, files / "train.txt", "--set", "select=test"), "Unknown evaluation")
    assert refused(cli(*words, files / "train.txt", "--set", "early_stopping=0"), "early_stopping")
    assert not out.exists()


@kinds
def test_values_that_are_not_finite(kind, files, tmp_path, cli):
    lines = [x for x in (files / "train.txt").read_text().splitlines() if x[0] != "#"]
    query = re.search(r"qid:(\S+)", lines[3])[1]
    words = ["train", "--valid", files / "vali.txt", "--epochs", 2, "--non-finite", "keep"]
    words += [*KINDS[kind], "--quiet", "--set", "transforms=none"]
    for value in ("nan", "inf"):
        changed = [*lines[:3], re.sub(" 5:[^ ]+", f" 5:{value}", lines[3]), *lines[4:]]
        (tmp_path / f"{value}.txt").write_text("\n".join(changed) + "\n")
    missing = cli(*words, tmp_path / "nan.txt", "--out", tmp_path / "nan")
    infinite = cli(*words, tmp_path / "inf.txt", "--out", tmp_path / "inf")
    assert not (tmp_path / "inf").exists()
    if kind == "trees":  # trees take missing values
        assert missing == (0, "", "")
        assert refused(infinite, f"Feature 5 of a document of query {query} is infinite. Put Clip")
        return
    said = f"Feature 5 is missing (NaN) in query {query}, and --set transforms=none"
    assert refused(missing, said)
    assert refused(infinite, "Feature 5 is infinite (inf, or too large for float32) in query")
    assert not (tmp_path / "nan").exists()


# Trees


def test_trees_have_the_same_run_folder_as_nets(files, run_folder, tmp_path, cli):
    run, config = tmp_path / "trees", tmp_path / "best.toml"
    config.write_text('objective = "AP"\nnum_leaves = 5\nengine_params = {min_data_in_leaf = 3}\n')
    words = ["train", files / "train.txt", "--trees", "--valid", files / "vali.txt"]
    more = ["--epochs", 6, "--config", config, "--set", "n_jobs=1", "--seed", 3, "--out", run]
    code, out, err = cli(*words, *more)
    assert code == 0
    assert re.search(r"Model in .*model \(6 rounds, nDCG@5 0\.\d{4} in round \d\)\n", out)
    assert "round 6/6" in err
    assert [record["iteration"] for record in history_of(run)] == [1, 2, 3, 4, 5, 6]
    assert {p.name for p in run.iterdir()} == {p.name for p in run_folder.iterdir()}
    assert all(p.stat().st_size for p in run.iterdir())
    about = [json.loads((folder / "run.json").read_text()) for folder in (run, run_folder)]
    assert about[0].keys() == about[1].keys()
    assert about[0]["resolved"]["ensemble_size"] == 5
    loaded = tr.BoostedRanker.load(run)  # the folder of the run
    assert loaded.best_iteration_ <= 6
    assert loaded.history_ == history_of(run)
    assert cli("predict", run, files / "vali.txt", "-o", tmp_path / "scores.txt")[0] == 0
    train, valid = tr.load(files / "train.txt"), tr.load(files / "vali.txt")
    expected = tr.BoostedRanker(
        "AP",
        num_leaves=5,
        engine_params={"min_data_in_leaf": 3},
        n_estimators=6,
        n_jobs=1,
        random_state=3,
    ).fit(train, eval_set=valid)
    scores = np.loadtxt(tmp_path / "scores.txt", np.float32)
    assert np.array_equal(scores, expected.predict(valid))
    assert refused(cli(*words, "--out", run), "is not an empty folder")
    assert refused(
        cli(*words, "--architecture", "R5"), "BoostedRanker has no option --architecture"
    )
    assert refused(cli(*words, "--set", "num_leavs=3"), "num_leaves")
    for wrong in ("objective=AAP", "n_estimators=0", "engine=catboost"):
        assert refused(cli(*words, "--set", wrong, "--out", tmp_path / "none"))
    assert not (tmp_path / "none").exists()
    before = (run / "model" / "model.txt").read_bytes()
    assert cli("train", "--resume", run)[0] == 0  # it was complete
    assert (run / "model" / "model.txt").read_bytes() == before


@pytest.mark.parametrize(
    "settings",
    [
        ["engine_params={min_data_in_leaf=3}", "colsample_bytree=0.5", "ensemble_size=2"],
        pytest.param(
            ["engine_params={bagging_fraction=0.5, bagging_freq=1}", "ensemble_size=1"],
            marks=pytest.mark.slow,
        ),
        pytest.param(["engine=xgboost", "ensemble_size=2"], marks=pytest.mark.slow),
    ],
    ids=["lightgbm", "lightgbm that starts again", "xgboost"],
)
def test_trees_are_interrupted_and_resumed(settings, files, tmp_path, cli):
    """SIGINT to a real process: it saves, says how to continue, and exits with 130."""
    words = ["train", files / "train.txt", "--valid", files / "vali.txt", "--trees"]
    for setting in (*settings, "n_jobs=1", "early_stopping=none", "num_leaves=8"):
        words += ["--set", setting]
    words += ["--epochs", 150]
    run = tmp_path / "run"
    command = [sys.executable, "-m", "twinrank", *map(str, [*words, "--out", run])]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        while not (run / "history.jsonl").exists() or len(history_of(run)) < 3:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    stopped = re.search(r"Stopped after round (\d+)\. Continue with: (.*)\n$", err)
    assert stopped[2] == f"twinrank train --resume {run}"
    assert 3 <= int(stopped[1]) == len(history_of(run)) < 150
    assert not (run / "model").exists()
    result = cli("predict", run, files / "test.txt", "-o", tmp_path / "s.txt")
    assert refused(result, f"Finish it with twinrank train --resume {run}")
    code, out, _ = cli("train", "--resume", run)
    assert (code, "150 rounds" in out) == (0, True)
    assert cli(*words, "--quiet", "--out", tmp_path / "whole") == (0, "", "")
    assert without_seconds(run) == without_seconds(tmp_path / "whole")
    (name,) = (p.name for p in (run / "model").iterdir() if p.stem == "model")
    models = [(folder / "model" / name).read_bytes() for folder in (run, tmp_path / "whole")]
    assert models[0] == models[1]


def test_tensorboard_shows_trees(files, tmp_path, cli):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    words = ["train", files / "train.txt", "--trees", "--valid", files / "vali.txt", "--epochs", 4]
    run = tmp_path / "run"
    assert cli(*words, "--set", "n_jobs=1", "--tensorboard", "--quiet", "--out", run)[0] == 0
    curves = events.EventAccumulator(str(run / "tensorboard")).Reload()
    assert curves.Tags()["scalars"] == ["nDCG@5/validation"]
    points = curves.Scalars("nDCG@5/validation")
    assert [point.step for point in points] == [1, 2, 3, 4]
    expected = [record["validation"] for record in history_of(run)]
    assert [point.value for point in points] == pytest.approx(expected)


# A net of your own

OWN_NET = """
import torch

class Wide(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(features, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )

    def forward(self, X):
        return self.layers(X)
"""


@pytest.mark.slow
def test_resuming_a_net_of_your_own_needs_its_name(files, tmp_path, cli, monkeypatch):
    (tmp_path / "mynets.py").write_text(OWN_NET)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)  # for the child process
    run, whole = tmp_path / "run", tmp_path / "whole"
    words = ["train", files / "train.txt", "--architecture", "mynets:Wide", "--epochs", 3]
    words += ["--set", "batch_documents=200", "--set", "ensemble_size=2"]
    code, shown = child("interrupt", 12, run, *words, "--out", run)
    assert code == 130
    resume = f"--resume {run} --architecture mynets:Wide"
    assert shown.endswith(f"Continue with: twinrank train {resume}\n")
    assert refused(cli("train", "--resume", run), "trains your own net", resume)
    assert refused(cli("train", "--resume", run, "--architecture", "Small"), "mynets:Wide, not")
    code, out, err = cli("train", "--resume", run, "--architecture", "mynets:Wide")
    assert (code, "3 epochs" in out) == (0, True), err
    assert cli(*words, "--quiet", "--out", whole) == (0, "", "")
    assert weights(run) == weights(whole)
    predict = ["predict", run, files / "test.txt", "-o", tmp_path / "scores.txt"]
    assert refused(cli(*predict), "Its net is your own. Pass --architecture mynets:Wide")
    assert cli(*predict, "--architecture", "mynets:Wide")[0] == 0
    scores = tr.Ranker.load(run, architecture="mynets:Wide").predict(tr.load(files / "test.txt"))
    np.testing.assert_allclose(np.loadtxt(tmp_path / "scores.txt"), scores, atol=1e-5)
