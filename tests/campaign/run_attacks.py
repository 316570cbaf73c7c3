"""Attacks on run folders: kills at random moments, damaged checkpoints, two trainings at once."""

import json
import os
import shutil
import signal
import time

import numpy as np

import twinrank as tr
from twinrank import TwinRankError

from .harness import attack

NET = {"architecture": "MLP(width=6, depth=1)", "epochs": 5, "batch_documents": 40}
TREES = {"n_estimators": 30, "num_leaves": 6, "n_jobs": 1, "early_stopping": None}
STOPPED = ("Stopped", "KeyboardInterrupt")  # what a signal causes
TRAIN, NEW = tr.synthetic_web_search(queries=24).split(0.7, 0.3, random_state=0)


def rankers():
    """A ranker of each kind and engine, with random draws in training."""
    return {
        "net": tr.Ranker(**NET, ensemble_size=2),
        "lightgbm": tr.BoostedRanker(**TREES, ensemble_size=2, colsample_bytree=0.5),
        "xgboost": tr.BoostedRanker(**TREES, ensemble_size=2, engine="xgboost"),
        "blend": tr.Blend([tr.Ranker(**NET, ensemble_size=1), tr.BoostedRanker(**TREES)]),
    }


def files(model):
    """The files of a model without times."""
    contents = {path.relative_to(model): path.read_bytes() for path in model.rglob("*.*")}
    return {name: x for name, x in contents.items() if name.name != "history.jsonl"}


def in_child(name, folder, resume):
    """Train in a forked process; its id."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            rankers()[name].fit(TRAIN, eval_set=NEW, run=folder, resume=resume)
            code = 0
        except TwinRankError as error:
            (folder.parent / f"error{os.getpid()}").write_text(str(error))
            code = 2
        except BaseException as error:
            (folder.parent / f"error{os.getpid()}").write_text(repr(error))
        finally:
            os._exit(code)
    return child


def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def reference(name, folder):
    """The files of an undisturbed training, and its seconds."""
    begun = time.monotonic()
    rankers()[name].fit(TRAIN, eval_set=NEW, run=folder / f"whole-{name}")
    return files(folder / f"whole-{name}" / "model"), time.monotonic() - begun


@attack("runs: kills at random moments")
def kills(random, folder):
    """Killed and resumed until it ends: the model of an undisturbed training, bit by bit."""
    names = list(rankers())
    name = names[random.integers(len(names))]
    reference(name, folder)  # compiles
    shutil.rmtree(folder / f"whole-{name}")
    expected, seconds = reference(name, folder)
    number = 0
    while True:
        number += 1
        run = folder / f"run{number}"
        while True:
            resume = (run / "run.json").is_file()
            child = in_child(name, run, resume)
            time.sleep(random.uniform(0, 1.2 * seconds))
            how = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[random.integers(3)]
            if os.waitpid(child, os.WNOHANG)[0] == 0:
                os.kill(child, how)
                code = ended(child)
            else:
                code = 0
            if (run / "model").exists():
                break
            problems = [path.read_text() for path in folder.glob("error*")]
            problems = [text for text in problems if not text.startswith(STOPPED)]
            assert not problems, (code, problems)
            for path in folder.glob("error*"):
                path.unlink()
            yield
        for path in folder.glob("error*"):
            path.unlink()
        if (run / "model" / "config.json").exists():
            assert files(run / "model") == expected, name
        shutil.rmtree(run)
        yield


@attack("runs: damaged checkpoints and run.json")
def damage(random, folder):
    """A flip or a cut: an error, or the same model."""
    names = ["net", "lightgbm", "xgboost"]
    name = names[random.integers(len(names))]
    expected, _ = reference(name, folder)
    begun = folder / "begun"
    while not (begun / "checkpoint.safetensors").exists() or (begun / "model").exists():
        shutil.rmtree(begun, ignore_errors=True)
        child = in_child(name, begun, False)
        while not (begun / "checkpoint.safetensors").exists():
            time.sleep(0.001)
        os.kill(child, signal.SIGTERM)
        ended(child)
    for path in folder.glob("error*"):
        path.unlink()
    while True:
        run = folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(begun, run)
        path = run / ("run.json" if random.random() < 0.3 else "checkpoint.safetensors")
        content = bytearray(path.read_bytes())
        if random.random() < 0.85:
            header = 1500 if random.random() < 0.5 else len(content)
            content[random.integers(min(header, len(content)))] ^= 1 << int(random.integers(8))
        else:
            del content[int(random.integers(len(content))) :]
        same = path.suffix == ".json" and _equal(path.read_bytes(), bytes(content))
        path.write_bytes(content)
        try:
            ranker = rankers()[name].fit(TRAIN, eval_set=NEW, run=run, resume=True)
        except TwinRankError:
            assert not same
        else:
            assert files(run / "model") == expected, f"{name}: {path.name} was damaged"
            assert np.isfinite(ranker.predict(NEW)).all()
        yield


def _equal(one, other):
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False


@attack("runs: two trainings in one folder")
def two_at_once(random, folder):
    """Exactly one succeeds, and its folder is whole."""
    names = list(rankers())
    name = names[random.integers(len(names))]
    expected, seconds = reference(name, folder)
    number = 0
    while True:
        number += 1
        run = folder / f"run{number}"
        first = in_child(name, run, False)
        time.sleep(random.uniform(0, 0.5 * seconds) * random.integers(2))
        second = in_child(name, run, False)
        codes = sorted([ended(first), ended(second)])
        problems = [path.read_text() for path in folder.glob("error*")]
        assert codes == [0, 2], (codes, problems)
        assert "has been training in" in problems[0] or "exists and is not an empty" in problems[0]
        assert files(run / "model") == expected
        for path in folder.glob("error*"):
            path.unlink()
        shutil.rmtree(run)
        yield
