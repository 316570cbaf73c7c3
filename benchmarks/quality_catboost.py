"""CatBoost's YetiRank as a unit of `quality.py`: trained once, kept at once, one thread."""

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import twinrank as tr
from twinrank.study.source import Source
from twinrank.study.units import one_thread
from twinrank.support.files import new_folder, publish, read_json

FOLDER = "catboost"
_OLD_NAMES = {"best_epoch": "best_iteration", "best_value": "best_score"}  # in older files


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a trial gave: the best round by validation, and the scores of the test data there."""

    best_score: float
    best_iteration: int
    seconds: float
    scores: Any


def place(out: Path, source: Source, fold: int, seed: int, setting: dict[str, Any]) -> Path:
    """Where the outcome of a trial is kept."""
    said = json.dumps([source.fingerprint(fold), fold, seed, setting], sort_keys=True)
    return out / FOLDER / hashlib.sha256(said.encode()).hexdigest()[:16]


def read(folder: Path) -> Outcome | None:
    """A finished trial, or None."""
    if not (folder / "unit.json").is_file():
        return None
    about = read_json(folder / "unit.json")
    about = {_OLD_NAMES.get(key, key): value for key, value in about.items()}
    return Outcome(**about, scores=np.load(folder / "scores.npy", allow_pickle=False))


def train(
    folder: str,
    text: str,
    fold: int,
    seed: int,
    setting: dict[str, Any],
    measured: str,
    _leader: int | None = None,
) -> None:
    """Grow trees, take the round that is best on the validation data, and score the test data.

    `num_leaves` is the most leaves of trees that grow leaf by leaf, as the other engines' do.
    Growth ends `early_stopping` rounds after the best by CatBoost's own nDCG@5; of the rounds up to
    there, that with the best `measured` of ours counts.
    """
    from catboost import CatBoostRanker

    sets = Source.from_text(text).sets(fold)
    validation, test = sets["validation"], sets["test"]
    begun = time.perf_counter()
    with one_thread():
        ranker = CatBoostRanker(
            loss_function="YetiRank",
            eval_metric="NDCG:top=5;type=Exp",
            iterations=setting["n_estimators"],
            learning_rate=setting["learning_rate"],
            grow_policy="Lossguide",
            max_leaves=setting["num_leaves"],
            early_stopping_rounds=setting["early_stopping"],
            use_best_model=False,
            random_seed=seed,
            thread_count=1,
            allow_writing_files=False,
            verbose=False,
        )
        ranker.fit(_pool(sets["train"]), eval_set=_pool(validation))
        measure = tr.measure(measured)
        values = [
            float(np.nanmean(measure(scores, validation.y, validation.lists, ties="stable")))
            for scores in ranker.staged_predict(validation.X)
        ]
        best = int(np.argmax(values)) + 1
        scores = np.asarray(ranker.predict(test.X, ntree_end=best), np.float32)
    target = Path(folder)
    about = {"best_score": values[best - 1], "best_iteration": best}
    with new_folder(target) as partial:
        seconds = time.perf_counter() - begun
        (partial / "unit.json").write_text(json.dumps({**about, "seconds": seconds}), "utf-8")
        np.save(partial / "scores.npy", scores, allow_pickle=False)
        publish(partial, target)


def _pool(data: tr.Dataset) -> Any:
    from catboost import Pool

    return Pool(data.X, data.y, group_id=np.repeat(np.arange(data.queries), data.lists.sizes))
