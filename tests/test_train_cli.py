"""`twinrank train` and `twinrank predict`: runs that survive, and scores in the right order."""

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
from twinrank.support.files import _temporary

SMALL = ["--set", "architecture=CE4.L(width=8, depth=2, dropout=0.2)"]
STEPS = [*SMALL, "--set", "batch_documents=200", "--set", "perturbation=0.1", "--seed", "5"]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Batches are tiny here: a second thread costs more than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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


def refused(answer, *parts):
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err
    return True


def lines_of(run):
    return (run / "history.jsonl").read_text().splitlines()


def weights(run):
    return (run / "model" / "model.safetensors").read_bytes()


# Runs


def test_what_a_run_leaves(run_folder, files):
    names = ["checkpoint.safetensors", "curves.png", "curves.svg", "history.jsonl", "model"]
    assert sorted(p.name for p in run_folder.iterdir()) == [*names, "run.json"]
    about = json.loads((run_folder / "run.json").read_text())
    assert about["source"]["data"] == str(files / "train.txt")
    assert about["parameters"].keys() == tr.Ranker().get_params().keys()
    assert {"python", "torch", "numpy", "twinrank"} <= about["versions"].keys()
    assert about["threads"] == torch.get_num_threads()
    lines = (run_folder / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]
    assert (run_folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (run_folder / "curves.svg").read_text()
    assert tr.Ranker.load(run_folder / "model").n_features_in_ == 136


def test_folds_and_every_way_to_set_a_parameter(files, tmp_path, cli):
    (tmp_path / "c.toml").write_text(
        'architecture = "Linear"\nobjective = "AP"\nlearning_rate = 0.5\nepochs = 7\n'
        'transforms = ["SignedLog1p", "QueryZScore"]\ncategories = {3 = 2}\n'
        'early_stopping = "none"\n'
    )
    words = ["--config", tmp_path / "c.toml", "--set", "learning_rate=0.25", "--set", "clip=none"]
    words += ["--epochs", 1, "--strategy", "type1", "--seed", 3, "--fold", 1]
    code, out, err = cli("train", files.parent, *words, "--out", tmp_path / "run")
    assert code == 0
    assert re.fullmatch(r"Model in .*run/model \(1 epoch, best in epoch 1: 0\.\d{4}\)\n", out)
    assert re.fullmatch(r"epoch 1/1  loss .* validation nDCG@5 .* test nDCG@5 .*\n", err)
    used = json.loads((tmp_path / "run" / "run.json").read_text())["parameters"]
    expected = {
        "architecture": "Linear", "objective": "AP", "learning_rate": 0.25, "epochs": 1,
        "strategy": "type1", "random_state": 3, "clip": None, "categories": {"3": 2},
        "transforms": ["SignedLog1p", "QueryZScore"], "early_stopping": None,
    }  # fmt: skip
    assert {name: used[name] for name in expected} == expected
    again = [*words, "--quiet", "--out", tmp_path / "again"]
    assert cli("train", files.parent, *again) == (0, "", "")
    assert weights(tmp_path / "run") == weights(tmp_path / "again")


def test_no_transform(files, tmp_path, cli):
    words = ["--set", "transforms=none", "--set", "architecture=Linear", "--epochs", 1]
    (tmp_path / "run").mkdir()  # as it is when the first file of a run could not be finished
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
        plan = about["plan"]
        assert (plan["batch_documents"], plan["weight_decay"], plan["shuffle"]) == (1, 0.5, False)
    architecture = tr.Ranker.load(tmp_path / "run/model").model_.scorer.architecture
    assert (architecture.norm, architecture.last_norm) == ("query", True)
    assert cli("predict", tmp_path / "run", files / "test.txt", "-o", tmp_path / "s.txt")[0] == 0


def test_mistakes_are_one_line_and_leave_nothing(files, tmp_path, cli):
    train, out = files / "train.txt", tmp_path / "out"
    (tmp_path / "bad.toml").write_text("epochs = = 3")
    (tmp_path / "unknown.toml").write_text("epoch = 3")
    (tmp_path / "narrow.txt").write_text("1 qid:1 1:1 2:1\n0 qid:1 1:2 2:2\n")
    (tmp_path / "single.txt").write_text("1 qid:1 1:1 2:1\n0 qid:2 1:2 2:2\n")
    (tmp_path / "file").write_text("mine")
    for words, message in [
        ([tmp_path / "nowhere.txt"], "can't read"),
        ([train, "--valid", tmp_path / "nowhere.txt"], "can't read"),
        ([train, "--valid", tmp_path / "narrow.txt"], "say --features 136"),
        ([tmp_path / "single.txt", "--valid", tmp_path / "narrow.txt"], "can teach"),
        ([train, "--objective", "nDGC"], "Did you mean 'nDCG'"),
        ([train, "--strategy", "type4"], "Did you mean 'type"),
        ([train, "--architecture", "CE4L"], "Did you mean 'CE4.L'"),
        ([train, "--set", "epohcs=3"], "Did you mean 'epochs'"),
        ([train, "--set", "epochs"], "write key=value"),
        ([train, "--set", "epochs=many"], "epochs must be a positive whole number"),
        ([train, "--set", "weight_decay=x"], "weight_decay must be"),
        ([train, "--set", "validation_measure=nDGC"], "Did you mean 'nDCG'"),
        ([train, "--set", "device=gpu"], "no device 'gpu'"),
        ([train, "--set", "categories={500=3}"], "columns are 0 to 135"),
        ([train, "--set", "transforms=QuaryZScore"], "Did you mean 'QueryZScore'"),
        ([train, "--set", "random_state=-1"], "random_state must be from 0"),
        ([train, "--config", tmp_path / "bad.toml"], "bad.toml is not TOML"),
        ([train, "--config", tmp_path / "unknown.toml"], "Did you mean 'epochs'"),
        ([train, "--config", tmp_path / "nowhere.toml"], "can't read"),
        ([train, "--fold", 1], "--fold goes with a folder"),
        ([files.parent, "--fold", 2], "no fold 2"),
        ([files.parent, "--valid", train], "--valid and --test go with a file"),
        ([tmp_path], "no folds in"),
        (["--valid", train], "--valid and --test go with a file"),
    ]:
        assert refused(cli("train", *words, "--out", out), message)
        assert not out.exists()
    for name in ("file", ""):
        assert refused(cli("train", train, "--out", tmp_path / name), "choose another --out")
    assert (tmp_path / "file").read_text() == "mine"


def test_resuming_what_cant_be_resumed(run_folder, files, tmp_path, cli):
    words = ["train", "--resume", run_folder]
    for more in (["--epochs", 9], [files / "train.txt"], ["--set", "epochs=9"], ["--out", "x"]):
        assert refused(cli(*words, *more), "--resume takes")
    assert refused(cli("train", "--resume", files), "there is no run.json in it")
    copy = tmp_path / "copy"
    shutil.copytree(run_folder, copy)
    good = json.loads((copy / "run.json").read_text())
    moved = tmp_path / "train.txt"
    moved.write_text("".join((files / "train.txt").read_text().splitlines(keepends=True)[:-1]))
    other = tmp_path / "other.txt"  # the same labels and lengths, other features
    other.write_text((files / "train.txt").read_text().replace(" 5:", " 5:1"))
    changes = [{key: wrong} for key in good for wrong in (None, [], "x", 3.5, {})]
    changes += [{"source": good["source"] | {"data": str(path)}} for path in (moved, other)]
    changes += [{"parameters": good["parameters"] | {"epochs": "x"}}]
    for change in changes:
        if not change.keys() & {"versions", "plan"}:  # which are for people
            (copy / "run.json").write_text(json.dumps(good | change))
            assert refused(cli("train", "--resume", copy))
    for text in ("", "{", "[]", json.dumps(good | {"version": 2})):
        (copy / "run.json").write_text(text)
        assert refused(cli("train", "--resume", copy), "run.json")
    (copy / "run.json").write_text(json.dumps(good | {"threads": 99}))
    code, _, err = cli("train", "--resume", copy)
    assert code == 0
    assert "Note: the run began with 99 threads" in err
    assert weights(copy) == weights(run_folder)  # it was complete


# Killed, interrupted

# Trains, and has a signal sent to itself: at some step, or halfway through some checkpoint.
CHILD = """
import os, signal, sys
from twinrank.cli import main
from twinrank.training import checkpoints

kind, count, calls = sys.argv[1], int(sys.argv[2]), []
on_step, save = checkpoints.Checkpoints.on_step, checkpoints.save

def step(self, trainer):
    on_step(self, trainer)
    calls.append(1)
    if kind == "interrupt" and len(calls) == count:
        os.kill(os.getpid(), signal.SIGINT)

def half(*arguments, **more):
    content = save(*arguments, **more)
    if kind == "kill" and len(calls) == count:
        for left in checkpoints_folder.glob(".*partial*"):
            left.write_bytes(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return content

from pathlib import Path
checkpoints_folder = Path(sys.argv[3])
checkpoints.Checkpoints.on_step, checkpoints.save = step, half
sys.argv = ["twinrank", *sys.argv[4:]]
main()
"""


def environment():
    return os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}


def child(kind, count, run, *words):
    """The code of a child, and what it shows on a terminal of its own."""
    command = [sys.executable, "-c", CHILD, kind, str(count), str(run), *map(str, words)]
    control, terminal = pty.openpty()
    choices = {"stderr": terminal, "env": environment() | {"COLUMNS": "80"}}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, **choices) as process:
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


def test_interrupted_then_killed_then_taken_up(files, tmp_path, cli):
    """The weights are those of a run that nothing happened to, bit for bit.

    The children have a terminal, so that there is a live bar too.
    """
    begin = ["train", files / "train.txt", "--valid", files / "vali.txt", *STEPS, "--epochs", 4]
    assert cli(*begin, "--out", tmp_path / "whole")[0] == 0
    run = tmp_path / "a run"
    begin += ["--out", run, "--save-every", 0]
    code, shown = child("interrupt", 16, run, *begin)
    assert code == 130
    assert "\x1b[" in shown
    assert re.search(r"Epoch 2/4 .* docs/s .*[-\d]:[-\d]{2}:[-\d]{2}", shown)  # the time left
    assert re.search(r"loss -\S+  validation nDCG@5 0\.\d{4}  best in epoch \d: 0\.\d{4}", shown)
    last = shown.splitlines()[-1]
    assert re.search(r"Stopped in epoch \d, after step \d+\. Go on with: twinrank train ", last)
    assert last.endswith(f"--resume '{run}'")
    assert not (run / "model").exists()
    told = cli("predict", run, files / "test.txt", "-o", tmp_path / "s.txt")
    assert refused(told, f"isn't complete; finish it with: twinrank train --resume '{run}'")
    before = (run / "checkpoint.safetensors").read_bytes()
    code, _ = child("kill", 3, run, "train", "--resume", run, "--save-every", 0)
    assert code == -signal.SIGKILL
    assert (run / "checkpoint.safetensors").read_bytes() != before
    assert cli("train", "--resume", run)[0] == 0
    assert weights(run) == weights(tmp_path / "whole")
    assert not list(run.glob(".*"))
    histories = [
        [json.loads(line) | {"seconds": 0} for line in lines_of(r)]
        for r in (run, tmp_path / "whole")
    ]
    assert histories[0] == histories[1]


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


# Trouble with files

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
            f"When that is mended, go on from the last checkpoint with: {resume}"
        )
        for line, name in zip(lines, ("history.jsonl", "new", "other.txt"), strict=True):
            assert line.startswith(f"Error: can't write {here / 'run' / name}: Permission denied")
        assert not list((here / "run").glob(".*"))
    finally:
        (here / "run").chmod(0o755)
        shutil.rmtree(here)


# Scores


def test_scores_in_the_sources_order(run_folder, tmp_path, cli):
    data = tr.synthetic_web_search(queries=3)
    order = np.random.default_rng(0).permutation(data.documents)
    frame = pl.DataFrame(data.X, schema=list(data.feature_names)).with_columns(
        qid=pl.Series(data.qid), label=pl.Series(data.y)
    )
    frame[order].write_csv(tmp_path / "scattered.csv")
    right = tr.Ranker.load(run_folder / "model").predict(data)[order]
    files = [tmp_path / f"out{suffix}" for suffix in (".txt", ".parquet", ".csv", ".trec")]
    for out in files:
        words = [tmp_path / "scattered.csv", "--no-cache", "-o", out]
        code, told, err = cli("predict", run_folder, *words)
        assert (code, told) == (0, f"Wrote {out}: {data.documents:,} scores\n")
        assert err.count("\n") == 1  # that rows were put together
    close = {"rtol": 0, "atol": 1e-5}
    np.testing.assert_allclose(np.loadtxt(files[0]), right, **close)
    for table in (pl.read_parquet(files[1]), pl.read_csv(files[2])):
        assert table.columns == ["qid", "docid", "score", "rank"]
        np.testing.assert_allclose(table["score"], right, **close)
        assert table["qid"].cast(pl.Int64).to_list() == data.qid[order].astype(int).tolist()
        assert table["docid"].cast(pl.Int64).to_list() == list(range(data.documents))
    rows = [line.split() for line in files[3].read_text().splitlines()]
    found = {int(docid): float(score) for _, _, docid, _, score, _ in rows}
    np.testing.assert_allclose([found[i] for i in range(data.documents)], right, **close)
    for _, (qid, _, docid, _, _, _) in enumerate(rows):
        assert qid == str(data.qid[order][int(docid)])


def test_a_run_that_trec_eval_reads(run_folder, files, tmp_path, cli):
    out = tmp_path / "test.run"
    assert cli("predict", run_folder, files / "test.txt", "-o", out, "--tag", "mine")[0] == 0
    data = tr.load(files / "test.txt")
    with out.open() as file:
        run = pytrec_eval.parse_run(file)
    qrels = {str(q): {} for q in data.query_ids}
    for i, (qid, label) in enumerate(zip(data.qid, data.y, strict=True)):
        qrels[str(qid)][str(i)] = int(label > 0)
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


def test_predictions_that_cant_be_made(run_folder, files, tmp_path, cli):
    (tmp_path / "narrow.txt").write_text("1 qid:1 1:1 2:1\n0 qid:1 1:2 2:2\n")
    (tmp_path / "wide.txt").write_text("1 qid:1 1:1 137:1\n0 qid:1 1:2 2:2\n")
    words, test = ["predict", run_folder], files / "test.txt"
    narrow, out = tmp_path / "narrow.txt", ["-o", tmp_path / "s.txt"]
    assert refused(
        cli(*words, narrow, *out), "has 2 features, but the model has 136", "--features 136"
    )
    assert cli(*words, narrow, *out, "--features", 136)[0] == 0
    assert refused(cli(*words, tmp_path / "wide.txt", *out), "137 features", "136")
    assert refused(cli(*words, tmp_path / "nowhere.txt", *out), "can't read")
    assert refused(cli("predict", files, test, *out), "is not a model")
    assert refused(cli("predict", tmp_path / "nowhere", test, *out), "is not a model")
    assert refused(cli(*words, test, "-o", tmp_path / "s.xlsx"), "choose a name with .txt")
    assert refused(cli(*words, test, "-o", tmp_path / "no" / "s.txt"), "can't write")
    (tmp_path / "twice.csv").write_text("qid,label,docid,x\na,1,d,2\na,0,d,3\n")
    (tmp_path / "blank.csv").write_text("qid,label,docid,x\na b,1,d 1,2\na b,0,d2,3\n")
    model = tr.Ranker(architecture="Linear", transforms="none", epochs=1)
    model.fit([[1.0], [2.0]], [0, 1], qid=[1, 1]).save(tmp_path / "model")
    told = cli("predict", tmp_path / "model", tmp_path / "blank.csv", "-o", tmp_path / "s.run")
    assert refused(told, "can't hold a query id that is empty or has blanks")
    told = cli("predict", tmp_path / "model", tmp_path / "twice.csv", "-o", tmp_path / "s.run")
    assert refused(told, "the same document id twice")


def test_features_that_arent_finite_are_named(files, tmp_path, cli):
    lines = [x for x in (files / "train.txt").read_text().splitlines() if x[0] != "#"]
    lines[3] = re.sub(" 5:[^ ]+", " 5:nan", lines[3])
    (tmp_path / "nan.txt").write_text("\n".join(lines) + "\n")
    words = ["train", tmp_path / "nan.txt", "--valid", files / "vali.txt", "--quiet"]
    words += ["--set", "transforms=none", "--set", "batch_documents=12000"]
    words += ["--out", tmp_path / "run"]
    query = re.search(r"qid:(\S+)", lines[3])[1]
    told = cli(*words, "--non-finite", "keep")
    assert refused(
        told, f"in epoch 1, step 1, on the queries {query}; their features aren't finite"
    )


def test_trees_leave_a_run_as_nets_do(files, tmp_path, cli):
    run, config = tmp_path / "trees", tmp_path / "best.toml"
    config.write_text('objective = "AP"\nnum_leaves = 5\nengine_params = {min_data_in_leaf = 3}\n')
    words = ["train", files / "train.txt", "--trees", "--valid", files / "vali.txt"]
    more = ["--epochs", 6, "--config", config, "--set", "n_jobs=1", "--seed", 3, "--out", run]
    code, out, err = cli(*words, *more)
    assert code == 0
    assert "Model in" in out
    assert "round 6/6" in err
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert [record["round"] for record in history] == [1, 2, 3, 4, 5, 6]
    assert all((run / name).stat().st_size for name in ("run.json", "curves.svg", "curves.png"))
    assert tr.BoostedRanker.load(run).best_iteration_ <= 6  # the run's folder will do
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
    assert refused(cli("train", "--resume", run), "trees are grown in one go")
    assert refused(cli(*words, "--out", run), "isn't empty")
    assert refused(cli(*words, "--architecture", "R5"), "--trees goes without")
    assert refused(cli(*words, "--set", "num_leavs=3"), "num_leaves")
    for wrong in ("objective=AAP", "n_estimators=0", "engine=catboost"):
        assert refused(cli(*words, "--set", wrong, "--out", tmp_path / "none"))
    assert not (tmp_path / "none").exists()
