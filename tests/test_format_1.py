"""Models that were saved in format 1 still load, and score as before."""

import json

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import twinrank as tr
from twinrank.learning.estimators.saved_ranker import load_model

TRAIN, NEW = tr.synthetic_web_search(queries=14).split(0.7, 0.3, random_state=0)
NET = "MLP(width=8, depth=2)"
NET_OF_3 = "MLP(width=8, depth=2, members=3)"


def downgrade(folder):
    """Turn the folder of a model into the one that format 1 had."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name in ("crc32", "has_crc32", "checksums"):
        del config[name]
    size = config.pop("ensemble_size")
    about = {"rounds": config.pop("best_iteration"), "best_value": config.pop("best_score")}
    parameters = config["provenance"]["parameters"]
    chosen = parameters.pop("ensemble_size")
    if config.pop("kind") == "trees":
        config |= {"format": "twinrank-boosted-model", "members": size}
        config["provenance"] |= about
        for name in ("select", "validate_every"):
            del parameters[name]
        parameters["members"] = chosen
    else:
        config["architecture"]["members"] = size
        if parameters["architecture"] != "auto" and size > 1:
            parameters["architecture"] = f"{parameters['architecture'][:-1]}, members={size})"
        weights = folder / "model.safetensors"
        tensors = load_file(weights)
        save_file({name.replace("models.", "members."): t for name, t in tensors.items()}, weights)
    path.write_text(json.dumps({**config, "version": 1}))
    (folder / "history.jsonl").unlink()
    return config


RANKERS = {
    "net": tr.Ranker(architecture=NET, ensemble_size=1, epochs=2),
    "ensemble of nets": tr.Ranker(
        architecture=NET, ensemble_size=3, epochs=2, categorical_features=[1]
    ),
    "default net": tr.Ranker(epochs=1),
    "trees": tr.BoostedRanker(n_estimators=3, num_leaves=4, ensemble_size=1),
    "default trees": tr.BoostedRanker(n_estimators=3, num_leaves=4, categorical_features=[3]),
    "XGBoost": tr.BoostedRanker(n_estimators=3, num_leaves=4, ensemble_size=2, engine="xgboost"),
}


@pytest.mark.parametrize("name", RANKERS)
def test_models_in_format_1_load(name, tmp_path):
    ranker = RANKERS[name]
    if name == "XGBoost":
        pytest.importorskip("xgboost")
    ranker.fit(TRAIN, eval_set=NEW).save(tmp_path / "model")
    size = ranker.model_.ensemble_size
    config = downgrade(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert type(loaded) is type(ranker)
    assert np.array_equal(loaded.predict(NEW), ranker.predict(NEW))
    assert loaded.get_params() == ranker.get_params()
    assert loaded.model_.ensemble_size == size
    assert loaded.history_ == []
    if loaded.kind == "trees":  # format 1 did not save these for nets
        assert (loaded.best_iteration_, loaded.best_score_) == (
            ranker.best_iteration_,
            ranker.best_score_,
        )
    else:
        assert config["architecture"]["members"] == size
        assert (config["provenance"]["parameters"]["architecture"] == NET_OF_3) == (size == 3)
    loaded.save(tmp_path / "model")  # in format 2
    assert json.loads((tmp_path / "model" / "config.json").read_text())["version"] == 2
    again = load_model(tmp_path / "model")
    assert np.array_equal(again.predict(NEW), ranker.predict(NEW))


def test_trees_without_a_size_are_one_model(tmp_path):
    ranker = RANKERS["trees"].fit(TRAIN)
    ranker.save(tmp_path / "model")
    config = downgrade(tmp_path / "model")
    del config["members"]
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "version": 1}))
    loaded = tr.BoostedRanker.load(tmp_path / "model")
    assert loaded.model_.ensemble_size == 1
    assert np.array_equal(loaded.predict(NEW), ranker.predict(NEW))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": True}, "has version True of the format"),
        ({"version": 0}, "has version 0 of the format"),
        ({"format": "twinrank-other"}, "is not the configuration of a TwinRank model"),
        ({"architecture": "MLP"}, "has version 1 of the format"),
        ({"provenance": 5}, "provenance must be an object"),
        ({"provenance": {"parameters": 5}}, "provenance must be an object"),
    ],
)
def test_damaged_models_in_format_1_are_refused(changes, message, tmp_path):
    RANKERS["net"].fit(TRAIN).save(tmp_path / "model")
    config = downgrade(tmp_path / "model")
    changed = json.dumps({**config, "version": 1, **changes})
    (tmp_path / "model" / "config.json").write_text(changed)
    with pytest.raises(tr.InputError, match=message):
        tr.Ranker.load(tmp_path / "model")
