"""`twinrank compare --goals`: weighted sums of two goals, and their Pareto front."""

import json

import numpy as np
import pytest

import twinrank as tr
from twinrank.experiments.study.goal_sweep import (
    Point,
    Sweep,
    _covariance,
    _draw,
    _region,
    draw_front,
    front,
    front_table,
)
from twinrank.experiments.study.study_source import Source
from twinrank.support.plots import drawing

GOALS = ("nDCG@5", "nDCG(label=b)@5")
SWEEP = Sweep(GOALS, (0.0, 0.5, 1.0))
NAMES = list(SWEEP.methods)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    random = np.random.default_rng(1)
    X = random.normal(size=(300, 3)).astype(np.float32)
    labels = {name: np.clip(np.rint(X[:, i] + 1), 0, 3) for i, name in enumerate("ab")}
    path = tmp_path_factory.mktemp("shop") / "shop.csv"
    tr.Dataset.from_arrays(X, group=[10] * 30, labels=labels).save(path)
    return path


def points_of(*values):
    """The points of methods with these values of both goals."""
    by_name = {n: dict(zip(GOALS, v, strict=True)) for n, v in zip(NAMES, values, strict=True)}
    return front(SWEEP, by_name, 0.01)


def test_the_methods_of_a_sweep():
    assert SWEEP.objective(0) == "nDCG@5"
    assert SWEEP.objective(0.1) == "0.9 * nDCG@5 + 0.1 * nDCG(label=b)@5"
    assert SWEEP.methods["nDCG(label=b)@5-type3 (Boosted)"] == ("Boosted", 1)
    sweep = Sweep.of(GOALS, [1, 0], ["Boosted", "Small(width=4)"])
    assert sweep.weights == (0, 1)
    assert len(sweep.methods) == 4
    assert Sweep.of(GOALS, quick=True).weights == (0, 0.5, 1)
    study = SWEEP.study(Source(queries=10, cut=3), ["AP"])
    assert list(study.measures) == [*GOALS, "AP"]
    own = {unit.method: unit.parameters["validation_measure"] for unit in study.units}
    assert own[NAMES[1]] == "0.5 * nDCG@5 + 0.5 * nDCG(label=b)@5"


@pytest.mark.parametrize(
    ("goals", "weights", "message"),
    [
        (["AP"], None, "takes two different measures"),
        (["AP", "AP"], None, "takes two different measures"),
        (["AP", "nDGC"], None, "Did you mean 'nDCG'"),
        (["AP", "RR"], [0, 2], "must lie from 0 to 1"),
        (["AP", "RR"], [0, 0], "must be two or more different"),
        (["AP", "RR"], [0.5], "must be two or more different"),
    ],
)
def test_sweeps_that_cannot_be(goals, weights, message):
    with pytest.raises(tr.InputError, match=message):
        Sweep.of(goals, weights)


def test_the_pareto_front(tmp_path):
    random = np.random.default_rng(0)
    noise = [0.01 * random.normal(size=50) for _ in range(6)]
    a = (0.5 + noise[0], 0.2 + noise[1])
    b = (0.3 + noise[2], 0.4 + noise[3])
    worse = (0.2 + noise[4], 0.3 + noise[5])
    points = points_of(a, b, worse)
    assert [point.dominated_by for point in points] == [None, None, NAMES[1]]
    assert [point.significantly for point in points] == [False, False, True]
    other = 1e-3 * random.normal(size=50)
    nearly = (b[0] + other - other.mean() - 1e-5, b[1])
    points = points_of(a, b, nearly)
    assert points[2].dominated_by == NAMES[1]
    assert not points[2].significantly
    table = front_table(SWEEP, points_of(a, b, worse), 0.01)
    assert [row[3].text + row[3].mark for row in table.rows] == ["", "", "0.5*"]
    assert table.rows[0][1].text.startswith(f"{a[0].mean():.4f} [")
    draw_front(tmp_path / "front.png", SWEEP, points)
    assert (tmp_path / "front.png").stat().st_size > 1000


def test_long_names_of_goals_fit_into_the_plot(tmp_path):
    from matplotlib.text import Text

    topics = ", ".join(f"topic_{i}" for i in range(8))
    goals = (f"alpha_nDCG(label=[{topics}])@10", "nDCG(label=margin_of_the_shop, gain=linear)@10")
    point = Point("", "Boosted", 0, (0.3, 0.4), ((0, 1), (0, 1)), (2e-4, 1e-4, 3e-4))
    for names in (goals, goals[::-1]):
        with drawing(tmp_path / "front.png", 1, 1, (6, 4.5)) as panels:
            _draw(panels[0, 0], Sweep.of(names), [point])
            figure = panels[0, 0].figure
            figure.draw_without_rendering()
            for text in figure.findobj(lambda own: isinstance(own, Text) and own.get_text()[9:]):
                box, edge = text.get_window_extent(), figure.bbox
                assert edge.xmin <= box.xmin <= box.xmax <= edge.xmax, text.get_text()
                assert edge.ymin <= box.ymin <= box.ymax <= edge.ymax, text.get_text()


def test_the_region_has_the_means_with_95_percent():
    random = np.random.default_rng(1)
    mixed = np.array([[1.0, 0.0], [0.7, 0.5]])
    inside = 0
    for _ in range(1000):
        values = mixed @ random.normal(size=(2, 80))
        values[0, :20] = np.nan  # queries without the first goal
        a, b, c = _covariance(*values)
        means = np.nanmean(values, axis=1)
        inside += means @ np.linalg.inv([[a, b], [b, c]]) @ means <= 5.991  # the truth is (0, 0)
    assert 930 <= inside <= 965
    point = Point("", "", 0, (0.3, 0.4), ((0, 1), (0, 1)), (2e-4, 1e-4, 3e-4))
    offsets = np.stack(_region(point), 1) - point.means
    inverse = np.linalg.inv([[2e-4, 1e-4], [1e-4, 3e-4]])
    assert np.einsum("ij,jk,ik->i", offsets, inverse, offsets) == pytest.approx(5.991)


def test_the_command_sweeps_and_continues(cli, shop, tmp_path):
    words = ["compare", shop, "--label", "a", "--label", "b", "--cut", 1, "--jobs", 1]
    words += ["--goals", ";".join(GOALS), "--goal-weights", "0,0.5,1", "--set", "n_estimators=3"]
    words += ["--out", tmp_path / "out"]
    code, out, err = cli(*words)
    assert code == 0
    assert "on the Pareto front" in out
    assert "[3/3]" in err
    for name in ("front.png", "front.svg", "front.csv", "front.json", "front.md", "report.html"):
        assert (tmp_path / "out" / name).is_file(), name
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert page.count("Pareto front") > 2
    assert "the objective of each method on the validation queries" in page
    code, out, err = cli(*words, "--json")
    assert code == 0
    assert "[3/3]" not in err  # nothing was trained again
    points = json.loads(out)["front"]
    assert [point["weight"] for point in points] == [0, 0.5, 1]
    assert points[2]["means"][1] > points[0]["means"][1]
    for wrong, message in (
        (["--goals", "nDCG@5; nDCG(label=x)@5"], "column of labels called 'x'"),
        (["--goals", "nDCG@5"], "--goals takes two different measures"),
        (["--goal-weights", "a"], "write numbers, such as 0,0.5,1"),
        (["--goal-weights", "0.5"], "--goal-weights must be two or more different numbers"),
        (["--methods", "LambdaMART"], "LambdaMART is a method, not the model of one"),
    ):
        code, _, err = cli(*words, *wrong, "--out", tmp_path / "other")
        assert code == 2
        assert message in err
    code, _, err = cli("compare", shop, "--goal-weights", "0,1")
    assert code == 2
    assert "--goal-weights needs --goals" in err
    assert not (tmp_path / "other").exists()
