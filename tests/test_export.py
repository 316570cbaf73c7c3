"""Exported models: ONNX files score as `predict` does, and the engines read their own files."""

import copy
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import lightgbm as lgb
import numpy as np
import pytest
import torch

import twinrank as tr
from twinrank.data.transforms import TRANSFORMS, QueryZScore, Transform, transform
from twinrank.data.transforms.combined import except_columns
from twinrank.deployment import onnx_graph
from twinrank.deployment.onnx_export import onnx_model, session
from twinrank.learning.models.architecture import ACTIVATIONS, architecture
from twinrank.learning.models.ensemble import build_net
from twinrank.learning.models.net_model import NetModel
from twinrank.learning.models.scorer import Scorer, score_all
from twinrank.learning.training.settings import DEFAULTS

pytestmark = pytest.mark.usefixtures("one_thread")

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
ReferenceEvaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator

FEATURES = 12
NAMES = [f"f{i}" for i in range(FEATURES)]
SIZES = (1, 5, 100, 1000)
CHAINS = ("none", "Clip(low=-1)", "SignedLog1p + QueryMinMax", "Standardise + QueryZScore")
UNIONS = (
    "QueryZScore | SignedLog1p + Standardise",
    "SignedLog1p + (PiecewiseLinear(bins=5) | Quantile) | MissingIndicator",
    "Quantile(n_quantiles=9, output_distribution=normal) + PiecewiseLinear(bins=3) + QueryZScore",
)
CATEGORIES = {2: 3, 7: 40}


def model_of(net, transform):
    return NetModel(features=FEATURES, net=net, transform=transform)


def untrained(name="CE4.L", transforms="QueryZScore", mode="default", categories=None):
    """An untrained model with random weights and statistics."""
    generator = torch.Generator().manual_seed(3)
    X = np.random.default_rng(0).lognormal(size=(200, FEATURES))
    X[:, 4] = 7  # constant in training
    X[:, 8] = np.floor(X[:, 8])  # ties
    X[::7, [2, 5, 9]] = np.nan
    fitted = transform(transforms).fit(X, tr.Lists.from_sizes([200]))
    fitted = except_columns(fitted, categories or {})
    inputs = fitted.outputs(FEATURES)
    scorer = Scorer(inputs, architecture(name, mode), categories, generator).eval()
    with torch.no_grad():
        for key, tensor in scorer.state_dict().items():
            if key.endswith(("running_var", "running_mean")):
                tensor.uniform_(0.3, 2, generator=generator)
            elif tensor.ndim == 1 and tensor.is_floating_point():  # biases, and weights of norms
                tensor.add_(torch.randn(tensor.shape, generator=generator) / 4)
    return model_of(scorer, fitted)


def features(size, kind, seed=0):
    random = np.random.default_rng([seed, size])
    X = random.normal(size=(size, FEATURES))
    X[:, ::2] = 100 * np.exp(X[:, ::2])
    X[:, 1] = 3  # a constant within the query
    if kind == "same":
        X[:] = X[0]
    if kind == "missing":
        X[random.random(X.shape) < 0.3] = np.nan
        X[:, 5] = np.nan
    return X.astype(np.float32)


def parity(model, kinds=("plain", "same", "missing"), sizes=SIZES, most=1e-5):
    """Compare a session's scores with ours, relative to the largest score or, if less, to 1."""
    run = session(onnxruntime, onnx_model(model).SerializeToString())
    for size in sizes:
        for kind in kinds:
            X = features(size, kind)
            for column, count in model.net.categories.items():
                X[:, column] = np.random.default_rng(1).integers(-2, count + 2, size)
                X[0, column] = (0.5, np.nan)[kind == "missing"]
            data = tr.Dataset.from_arrays(X, group=[size], unjudged="keep", non_finite="keep")
            ours = model.score(data)
            (theirs,) = run.run(None, {"X": X})
            assert theirs.shape == (size,)
            assert theirs.dtype == np.float32
            assert np.isfinite(ours).all()
            difference = np.abs(theirs - ours).max() / max(1, np.abs(ours).max())
            assert difference <= most, (size, kind, difference)


# Parity


@pytest.mark.parametrize("name", ["R5", "CE5", "R4.L", "CE4.L", "Linear"])
def test_parity_for_each_architecture(name):
    parity(untrained(name))


@pytest.mark.parametrize("name", ["R5", "CE5", "R4.L", "CE4.L"])
def test_parity_in_paper_mode(name):
    # Without documents that are all the same: statistics of the query magnify float32's rounding
    # errors by √(1 / ε) ≈ 300 a layer where documents hardly differ, and torch's aren't ours.
    model = untrained(name, mode="paper")
    parity(model, ("plain", "missing"), (1, 5, 100))
    parity(model, ("same",), (1,))


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_parity_for_each_transform(kind):
    by_value = kind.__name__ in ("Clip", "SignedLog1p")
    parity(
        untrained(transforms=kind.__name__), ("plain", "same") if by_value else ("plain", "missing")
    )


@pytest.mark.parametrize("chain", [*CHAINS, *UNIONS])
def test_parity_for_transforms_in_a_row(chain):
    keeps = chain in ("none", "Clip(low=-1)")
    parity(untrained(transforms=chain), ("plain",) if keeps else ("plain", "missing"))


@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize("transforms", ["QueryZScore", "Standardise", "none", *UNIONS])
def test_parity_for_categories(transforms, mode):
    kinds = ("plain",) if transforms == "none" else ("plain", "missing")
    parity(untrained(transforms=transforms, mode=mode, categories=CATEGORIES), kinds, (1, 100))


def test_parity_where_all_columns_are_categories():
    parity(untrained(categories=dict.fromkeys(range(FEATURES), 4)), ("plain",), (1, 100))


@pytest.mark.parametrize("name", [f"MLP(activation={a}, width=20)" for a in ACTIVATIONS])
def test_parity_for_each_activation(name):
    parity(untrained(name), ("plain",), (1, 100))


@pytest.mark.parametrize("norm", ["layer", "none"])
def test_parity_for_other_norms(norm):
    parity(untrained(f"MLP(norm={norm}, width=20, depth=2)"), ("plain",), (1, 100))


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    "options",
    [
        "context=pool",
        "context=attention",
        "context=attention, blocks=2, induced=5, shared=true",
        "shared=true, context=pool, norm=layer",
        "shared=true, norm=none",
        "embedding=linear",
        "embedding=periodic, shared=true",
    ],
)
def test_parity_for_each_option(options, size):
    generator = torch.Generator().manual_seed(3)
    chosen = architecture(f"Small(width=20, {options})")
    net = build_net(FEATURES, chosen, size, CATEGORIES, generator).eval()
    model = untrained(categories=CATEGORIES)
    parity(model_of(net, model.transform), ("plain", "missing"), (1, 7, 100))


def test_values_from_tiny_to_huge_go_through_the_logarithm():
    chain = "SignedLog1p + QueryZScore"
    run = session(onnxruntime, onnx_model(untrained("Linear", chain)).SerializeToString())
    for scale in (1e-30, 1e-12, 1e-6, 1e-3, 1.0, 1e6, 1e30):
        X = features(50, "plain") * np.float32(scale)
        X[:, 3] *= -1
        data = tr.Dataset.from_arrays(X, group=[50], unjudged="keep")
        ours = untrained("Linear", chain).score(data)
        assert np.abs(run.run(None, {"X": X})[0] - ours).max() <= 1e-5, scale


# The reference implementation of GatherElements fails on the 256 rows of a default Quantile.
@pytest.mark.parametrize("chain", ["QueryZScore", "SignedLog1p + QueryMinMax", UNIONS[2]])
def test_the_reference_implementation_of_onnx_gives_the_same(chain):
    model = onnx_model(untrained(transforms=chain, categories=CATEGORIES))
    run = session(onnxruntime, model.SerializeToString())
    for kind in ("plain", "missing"):
        X = features(30, kind)
        with np.errstate(all="ignore"):  # 1 / 0 is computed, but not used
            (expected,) = ReferenceEvaluator(model).run(None, {"X": X})
        np.testing.assert_allclose(run.run(None, {"X": X})[0], expected, atol=1e-5)


def test_no_documents_have_no_scores():
    run = session(onnxruntime, onnx_model(untrained()).SerializeToString())
    assert run.run(None, {"X": np.empty((0, FEATURES), np.float32)})[0].shape == (0,)


def test_each_transform_has_its_nodes():
    assert set(onnx_graph.TRANSFORM_NODES) == set(TRANSFORMS)

    class Own(Transform):
        pass

    with pytest.raises(tr.InputError, match=r"Own can't be exported .* Clip"):
        onnx_model(model_of(untrained().net, Own()))


# Values that predict refuses give NaN


@pytest.mark.parametrize(
    ("chain", "all_documents"),
    [
        ("QueryZScore", True),
        ("QueryMinMax", True),
        ("QueryMinMax + Standardise", True),  # which takes NaN for a missing value
        ("QueryZScore + Clip(low=-5, high=5)", True),
        ("Standardise", False),
        ("PiecewiseLinear", False),
        ("Clip(high=9) | SignedLog1p", False),
        ("Clip + Standardise | QueryZScore", True),
        ("(Clip | QueryZScore) + Standardise", True),
        ("SignedLog1p", False),
        ("none", False),
    ],
)
@pytest.mark.parametrize("name", ["R5", "CE4.L"])
def test_infinite_features_give_nan(chain, all_documents, name):
    run = session(onnxruntime, onnx_model(untrained(name, chain)).SerializeToString())
    for value in (np.inf, -np.inf):
        X = features(6, "plain")
        X[2, 3] = value
        (scores,) = run.run(None, {"X": X})
        expected = np.ones(6, bool) if all_documents else np.arange(6) == 2
        np.testing.assert_array_equal(np.isnan(scores), expected)


def test_infinite_features_are_clipped_where_the_model_does():
    X = features(6, "plain")
    X[2, 3] = np.inf
    model = untrained(transforms="Clip(low=-9, high=9) + QueryZScore")
    run = session(onnxruntime, onnx_model(model).SerializeToString())
    data = tr.Dataset.from_arrays(X, group=[6], unjudged="keep", non_finite="keep")
    np.testing.assert_allclose(run.run(None, {"X": X})[0], model.score(data), atol=1e-5)


def test_missing_features_that_nothing_fills_in_give_nan():
    run = session(onnxruntime, onnx_model(untrained(transforms="SignedLog1p")).SerializeToString())
    X = features(4, "plain")
    X[1, 0] = np.nan
    np.testing.assert_array_equal(np.isnan(run.run(None, {"X": X})[0]), [0, 1, 0, 0])


def test_the_number_of_features_is_fixed():
    run = session(onnxruntime, onnx_model(untrained()).SerializeToString())
    with pytest.raises(Exception, match="Got: 5 Expected: 12"):
        run.run(None, {"X": np.zeros((3, 5), np.float32)})


# Files


@pytest.fixture(scope="module")
def fitted():
    random = np.random.default_rng(0)
    X = random.lognormal(size=(90, FEATURES)).astype(np.float32)
    y = np.clip(np.rint(X[:, 0]), 0, 3)
    y[::15] = 1
    return tr.Dataset.from_arrays(X, y, group=[15] * 6, feature_names=NAMES)


@pytest.fixture(scope="module")
def ranker(fitted):
    return tr.Ranker(objective="AP", architecture="CE4.L(width=8)", epochs=2).fit(fitted)


def test_a_rankers_file_scores_as_the_ranker(ranker, fitted, tmp_path):
    path = tmp_path / "model.onnx"
    ranker.export(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    run = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ours = ranker.predict(fitted)
    for rows in fitted.lists:
        (theirs,) = run.run(None, {"X": fitted.X[rows]})
        np.testing.assert_allclose(theirs, ours[rows], rtol=0, atol=1e-5)


def test_metadata_of_a_file(ranker, tmp_path):
    ranker.export(tmp_path / "model.onnx")
    file = onnx.load(tmp_path / "model.onnx")
    metadata = {entry.key: entry.value for entry in file.metadata_props}
    assert metadata["twinrank"] == file.producer_version == tr.__version__
    assert json.loads(metadata["feature_names"]) == NAMES
    assert (metadata["objective"], metadata["strategy"]) == ("AP", "type3")
    assert metadata["transforms"] == DEFAULTS["net"]["default"]["transforms"]
    assert metadata["one_query_per_call"] == "true"
    assert json.loads(metadata["architecture"])["width"] == 8
    assert "one query per call" in file.doc_string
    shape = file.graph.input[0].type.tensor_type.shape.dim
    assert (shape[0].dim_param, shape[1].dim_value) == ("documents", FEATURES)
    by_row = {
        e.key: e.value for e in onnx_model(untrained(transforms="Standardise")).metadata_props
    }
    assert by_row["one_query_per_call"] == "false"
    assert by_row["feature_names"] == "null"


def test_a_graph_with_other_scores_is_not_written(ranker, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    monkeypatch.setitem(onnx_graph.TRANSFORM_NODES, QueryZScore, onnx_graph._minmax)
    with pytest.raises(tr.InputError, match="Not exported: onnxruntime's scores of 100 documents"):
        ranker.export(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_bytes() == b"before"


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_says_how_to_install_it(ranker, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(tr.InputError, match=r"pip install 'twinrank\[onnx\]'"):
        ranker.export(tmp_path / "model.onnx")


def test_only_fitted_rankers_are_exported(tmp_path):
    for ranker in (tr.Ranker(), tr.BoostedRanker()):
        with pytest.raises(Exception, match="not fitted"):
            ranker.export(tmp_path / "model.onnx")


def test_a_custom_net_is_not_exported(fitted, tmp_path):
    ranker = tr.Ranker(architecture=lambda features: torch.nn.Linear(features, 1), epochs=1)
    with pytest.raises(tr.InputError, match=r"is your own net: export it with torch\.onnx\.export"):
        ranker.fit(fitted).export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


# In a service


# Trees


TREES = [
    {},
    {"transforms": "QueryZScore"},
    {"transforms": "Clip(low=-1, high=9) + Standardise"},
    {"ensemble_size": 2},
    {"engine": "xgboost"},
    {"engine": "xgboost", "transforms": "QueryMinMax", "ensemble_size": 2},
    {"engine": "xgboost", "objective": "rank:ndcg"},
    {"engine": "xgboost", "engine_params": {"booster": "dart", "rate_drop": 0.5}},
]


def thresholds(data, missing):
    """The data, with missing values, values between those of the data, and neighbours of them."""
    X = data.X.copy()
    X[1::3] = np.nextafter(X[1::3], np.float32(np.inf))
    X[2::3] = (X[2::3] + np.sort(X, axis=0)[2::3]) / 2
    if missing:
        X[::4, ::2] = np.nan
    return X


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("settings", TREES, ids=str)
def test_parity_for_trees(fitted, settings, missing):
    if settings.get("engine") == "xgboost":
        pytest.importorskip("xgboost")
    X = fitted.X.copy()
    if missing:
        X[::5, :3] = np.nan
    data = tr.Dataset.from_arrays(X, fitted.y, group=[15] * 6, non_finite="keep")
    boosted = trees(data, **settings)
    run = session(onnxruntime, onnx_model(boosted.model_).SerializeToString())
    for probe in (X, thresholds(fitted, False), thresholds(fitted, True)):
        expected = boosted.predict(probe, group=[15] * 6)
        (scores, *rest) = (run.run(None, {"X": part})[0] for part in np.split(probe, 6))
        scores = np.concatenate([scores, *rest])
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("transforms", ["none", "SignedLog1p", "Standardise", "QueryZScore"])
def test_trees_give_nan_for_infinite_features(fitted, transforms):
    boosted = trees(fitted, transforms=transforms)
    run = session(onnxruntime, onnx_model(boosted.model_).SerializeToString())
    X = fitted.X[:6].copy()
    X[2, 3], X[4, 5] = np.inf, np.nan
    all_documents = transforms == "QueryZScore"
    expected = np.ones(6, bool) if all_documents else np.arange(6) == 2
    np.testing.assert_array_equal(np.isnan(run.run(None, {"X": X})[0]), expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine_params": {"linear_tree": True}}, "linear model in each leaf"),
        ({"engine_params": {"zero_as_missing": True}}, "zero_as_missing treats 0 as missing"),
        ({"engine": "xgboost", "transforms": "SignedLog1p"}, "without SignedLog1p"),
    ],
)
def test_trees_that_onnx_cannot_hold(fitted, settings, message, tmp_path):
    if settings.get("engine") == "xgboost":
        pytest.importorskip("xgboost")
    X = np.floor(fitted.X * 3)
    data = tr.Dataset.from_arrays(X, fitted.y, group=[15] * 6)
    with pytest.raises(tr.InputError, match=message):
        trees(data, **settings).export(tmp_path / "model.onnx")
    assert not any(tmp_path.iterdir())


def test_several_threads_predict_at_once(ranker, fitted):
    queries = [fitted.X[rows] for rows in fitted.lists] * 20
    expected = [ranker.predict(X, group=[len(X)]) for X in queries]
    with ThreadPoolExecutor(8) as pool:
        scores = list(pool.map(lambda X: ranker.predict(X, group=[len(X)]), queries))
    assert all(map(np.array_equal, scores, expected))


@pytest.mark.parametrize("training", [True, False])
def test_scoring_leaves_the_net_as_it_was(ranker, fitted, training):
    net = copy.deepcopy(ranker.model_.net).train(training)
    scores = score_all(net, fitted, ranker.model_.transform, 1000)
    np.testing.assert_array_equal(scores[:, 0], ranker.predict(fitted))
    assert all(part.training == training for part in net.modules())


# Trees


def trees(data, **settings):
    return tr.BoostedRanker(n_estimators=3, num_leaves=4, n_jobs=1, **settings).fit(data)


def test_lightgbm_reads_its_own_file(fitted, tmp_path):
    boosted = trees(fitted, transforms="none")
    boosted.export(tmp_path / "model.txt")
    theirs = lgb.Booster(model_file=tmp_path / "model.txt").predict(fitted.X, raw_score=True)
    np.testing.assert_array_equal(theirs.astype(np.float32), boosted.predict(fitted))


@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_xgboost_reads_its_own_file(fitted, tmp_path, suffix):
    xgb = pytest.importorskip("xgboost")
    boosted = trees(fitted, engine="xgboost", transforms="none")
    boosted.export(tmp_path / f"model.{suffix}")
    booster = xgb.Booster(model_file=tmp_path / f"model.{suffix}")
    theirs = booster.predict(xgb.DMatrix(fitted.X), output_margin=True)
    np.testing.assert_array_equal(theirs, boosted.predict(fitted))


# The command


def test_export_a_net(cli, ranker, fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ranker.save("net")
    code, shown, errors = cli("export", "net")
    assert (code, errors) == (0, "")
    wrote, summary = shown.splitlines()
    assert wrote == (
        "Wrote model.onnx: X [documents, 12] → scores [documents], float32, one query per call; "
        f"transforms included: {DEFAULTS['net']['default']['transforms']}"
    )
    assert re.fullmatch(
        r"\d+ kB\. predict takes [\d.]+ µs per document\. Scores of 101 rows differ by at most "
        r"\S+\.",
        summary,
    )
    code, shown, _ = cli("export", "net", "-o", "other.onnx")
    assert code == 0
    assert (tmp_path / "other.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()


def test_export_trees(cli, fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trees(fitted, transforms="none").save("trees")
    code, shown, errors = cli("export", "trees")
    assert (code, errors) == (0, "")
    assert shown.startswith(
        "Wrote model.txt: 15 trees in LightGBM's own format\n15 trees, 58 leaves, "
    )
    code, shown, _ = cli("export", "trees", "-o", "model.onnx")
    assert code == 0
    assert "transforms included: none" in shown
    code, _, errors = cli("export", "trees", "-o", "model.pt")
    assert code == 2
    assert "to ONNX or in LightGBM's own format; choose a name that ends in .onnx" in errors
    assert not (tmp_path / "model.pt").exists()


def test_export_trees_with_their_transforms(cli, fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trees(fitted).save("trees")
    code, shown, errors = cli("export", "trees")
    assert (code, errors) == (0, "")
    assert shown.startswith("Wrote model.onnx: X [documents, 12] → scores [documents]")
    assert "one query per call; transforms included: none | QueryZScore\n15 trees, " in shown
    coded = fitted.X.copy()
    coded[:, 0] = np.arange(len(coded)) % 3
    coded = tr.Dataset.from_arrays(coded, fitted.y, group=fitted.lists.sizes)
    trees(coded, categorical_features=[0]).save("trees")
    code, _, errors = cli("export", "trees")
    assert (code, "model.onnx exists; add --overwrite to replace it" in errors) == (2, True)
    code, shown, errors = cli("export", "trees", "--overwrite")
    assert (code, errors) == (0, "")
    assert shown.startswith("Wrote model.onnx: X [documents, 12] → scores [documents]")


def test_export_notes_transforms_that_a_file_of_trees_lacks(cli, fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trees(fitted, transforms="QueryZScore").save("trees")
    code, _, errors = cli("export", "trees", "-o", "model.txt")
    assert code == 0
    assert (
        "Note: The file does not hold the transform: apply QueryZScore first, query by query."
        in errors
    )


def test_mistakes_of_export_are_one_line(cli, ranker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ranker.save("net")
    (tmp_path / "folder.onnx").mkdir()
    for words, complaint in (
        (["net", "-o", "model.pt"], "Choose a name with .onnx, for the format ONNX"),
        (["nowhere"], "nowhere is not a model"),
        (["net", "-o", "nowhere/model.onnx"], "Can't write nowhere/model.onnx: No such file"),
        (["net", "-o", "folder.onnx", "--overwrite"], "Can't write folder.onnx: Is a directory"),
        ([], "Missing argument"),
    ):
        code, _, errors = cli("export", *words)
        assert code == 2, words
        assert complaint in errors
        assert "Traceback" not in errors
