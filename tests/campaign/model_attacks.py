"""Attacks on model folders: hostile configurations, weights and engine files."""

import copy
import json
import shutil
from contextlib import suppress

import numpy as np

import twinrank as tr
from twinrank import TwinRankError
from twinrank.learning.estimators.saved_ranker import load_model
from twinrank.support.checksums import checksum, sealed

from .data_attacks import mutated
from .harness import attack

HOSTILE = [None, True, False, 0, -1, 1, 2**31, 2**63, 10**40, -(10**40), 0.5, -0.0, 1e308, 1e-320,
           "", "x", "nan", "\0", "\ud800", "auto", "none", "a" * 5000, "../etc/passwd", "os:exit",
           "MLP(width=100000000)", "[1]", [], [0], [[]], [None] * 50, {}, {"name": "Clip"},
           "QueryZScore | " * 200 + "none", list(range(300))]  # fmt: skip
TREES = {"n_estimators": 4, "num_leaves": 5, "n_jobs": 1}
NET = {"architecture": "MLP(width=5, depth=2)", "epochs": 1}


def rankers():
    """A small ranker of each kind and engine."""
    return {
        "net": tr.Ranker(
            **NET, ensemble_size=2, transforms="QueryZScore", categorical_features=[1]
        ),
        "attention": tr.Ranker(architecture="Listwise", epochs=1, ensemble_size=1),
        "quantiles": tr.Ranker(**NET, ensemble_size=1),
        "lightgbm": tr.BoostedRanker(**TREES, categorical_features=[3]),
        "linear": tr.BoostedRanker(
            **TREES, ensemble_size=1, transforms="none", engine_params={"linear_tree": True}
        ),
        "xgboost": tr.BoostedRanker(engine="xgboost", **TREES, categorical_features=[3]),
        "blend": tr.Blend([tr.Ranker(**NET, ensemble_size=1), tr.BoostedRanker(**TREES)]),
    }


def saved_models(folder, names=None):
    """Folders of models, their scores, and the data."""
    data = tr.synthetic_web_search(queries=15)
    X = np.array(data.X)
    X[:, 1], X[:, 3] = np.abs(X[:, 1]) % 4 // 1, np.abs(X[:, 3]) % 9 // 1
    data = tr.Dataset.from_arrays(X, data.y, group=data.lists.sizes)
    for name, ranker in rankers().items():
        if names is None or name in names:
            try:
                ranker.fit(data).save(folder / name)
            except tr.InputError as error:
                if name != "attention":
                    raise AssertionError(name) from error
                continue
            yield folder / name, ranker.predict(data), data


def places(value, path=()):
    """The paths to all values of a JSON document."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(value, path, new):
    """A copy of a document with another value at a path."""
    if not path:
        return new
    result = copy.copy(value)
    result[path[0]] = changed(value[path[0]], path[1:], new)
    return result


def use(folder, data):
    """Load a model and use it; TwinRankError is the only exception that may come out."""
    ranker = load_model(folder)
    scores = ranker.predict(data)
    assert scores.shape == (data.documents,)
    repr(ranker)
    return ranker, scores


@attack("models: hostile config.json")
def configurations(random, folder):
    """Every field replaced by hostile values, with the right checksum."""
    models = list(saved_models(folder))
    while True:
        model, _, data = models[random.integers(len(models))]
        paths = list(model.rglob("config.json"))
        path = paths[random.integers(len(paths))]
        good = path.read_bytes()
        config = json.loads(good)
        del config["crc32"], config["has_crc32"]
        spots = list(places(config))
        for _ in range(20):
            spot = spots[random.integers(len(spots))]
            new = changed(config, spot, HOSTILE[random.integers(len(HOSTILE))])
            text = json.dumps(sealed(new) if isinstance(new, dict) else new)
            path.write_text(text, "utf-8", "surrogatepass")
            with suppress(TwinRankError):
                use(model, data)
            yield
        path.write_bytes(good)


@attack("models: flipped bits")
def flips(random, folder):
    """One flipped bit in any file but the history: always an error."""
    models = list(saved_models(folder))
    while True:
        model, _, data = models[random.integers(len(models))]
        paths = [path for path in model.rglob("*.*") if path.name != "history.jsonl"]
        path = paths[random.integers(len(paths))]
        good = path.read_bytes()
        for _ in range(10):
            content = bytearray(good)
            content[random.integers(len(content))] ^= 1 << int(random.integers(8))
            path.write_bytes(content)
            try:
                use(model, data)
            except TwinRankError:
                pass
            else:
                old, new = (json.loads(x) if path.suffix == ".json" else x for x in (good, content))
                assert old == new, f"{path.name}: a flip went unnoticed"
            yield
        path.write_bytes(good)


def reseal(model, path):
    """Recompute the checksums after a change of a file."""
    config = json.loads((path.parent / "config.json").read_text())
    del config["crc32"]
    config["checksums"][path.name] = checksum(path.read_bytes())
    (path.parent / "config.json").write_text(json.dumps(sealed(config)))


@attack("models: tampered weights")
def weights(random, folder):
    """Header and data of safetensors, with the right checksum."""
    models = list(saved_models(folder, ("net", "attention", "quantiles", "blend")))
    while True:
        model, _, data = models[random.integers(len(models))]
        path = next(model.rglob("model.safetensors"))
        good = path.read_bytes()
        header = 8 + int.from_bytes(good[:8], "little")
        for _ in range(20):
            if random.random() < 0.7:
                content = mutated(random, good[:header], most=3) + good[header:]
            else:
                content = good[:header] + mutated(random, good[header:], most=3)
            path.write_bytes(content)
            reseal(model, path)
            with suppress(TwinRankError):
                use(model, data)
            yield
        path.write_bytes(good)
        reseal(model, path)


TOKENS = [b"0", b"-1", b"1", b"-2", b"7", b"2000000000", b"-2000000000", b"99999999999999999999",
          b"nan", b"inf", b"1e308", b"1e999", b"", b" ", b"x", b"0.5", b"3 3 3", b"="]  # fmt: skip
MARKS = {".json": b",", ".txt": b"="}


def with_other_token(random, content, split):
    """A file with one or two of its words replaced."""
    words = content.split(split)
    for _ in range(random.integers(1, 3)):
        words[random.integers(len(words))] = TOKENS[random.integers(len(TOKENS))]
    return split.join(words)


@attack("models: tampered trees")
def trees(random, folder):
    """Engine files with the right checksum: an error or a model, never a crash."""
    models = list(saved_models(folder, ("lightgbm", "linear", "xgboost")))
    while True:
        model, _, data = models[random.integers(len(models))]
        path = next(path for path in model.iterdir() if path.stem == "model")
        good = path.read_bytes()
        for _ in range(20):
            match random.integers(4):
                case 0:
                    content = mutated(random, good, most=3)
                case 1:
                    content = with_other_token(random, good, b" ")
                case 2:
                    content = with_other_token(random, good, MARKS[path.suffix])
                case _:
                    lines = good.split(b"\n") if path.suffix == ".txt" else good.split(b"]")
                    i, j = random.integers(0, len(lines), 2)
                    lines[i], lines[j] = lines[j], lines[i]
                    content = (b"\n" if path.suffix == ".txt" else b"]").join(lines)
            path.write_bytes(content)
            reseal(model, path)
            try:
                ranker, _ = use(model, data)
                ranker.model_.contributions(data)
                ranker.model_.gains()
                ranker.save(folder / "again")
                shutil.rmtree(folder / "again")
            except TwinRankError:
                pass
            yield
        path.write_bytes(good)
        reseal(model, path)
