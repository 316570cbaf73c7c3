"""`twinrank compare`: methods by name, trained and set side by side."""

import sys

import numpy as np
import pytest

import twinrank as tr
from twinrank.cli import main
from twinrank.study.comparing import METHODS, compare_methods
from twinrank.study.methods import Method, method


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a command in a folder of its own: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["twinrank", *words])
        with pytest.raises(SystemExit) as left:
            main()
        shown = capsys.readouterr()
        return left.value.code, shown.out, shown.err

    return command


@pytest.fixture(scope="module")
def sets():
    parts = tr.synthetic_web_search(queries=60, seed=1).split(0.6, 0.2)
    return dict(zip(("train", "validation", "test"), parts, strict=True))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AP-type3", Method("AP", "type3", "CE4.L")),
        ("nDCG@10-type1 (R5)", Method("nDCG@10", "type1", "R5")),
        (" P(rel=2)@5-type2 (MLP(width=8)) ", Method("P(rel=2)@5", "type2", "MLP(width=8)")),
    ],
)
def test_methods_are_read_and_written(name, expected):
    assert method(name) == expected
    assert method(str(expected)) == expected
    assert method(expected) is expected


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("AP", "can't read the method 'AP'"),
        ("nDGC-type3", "unknown measure 'nDGC'; did you mean nDCG"),
        ("AP-type4", "unknown strategy 'type4'"),
        ("AP-type3 (CE6)", "unknown architecture 'CE6'"),
    ],
)
def test_a_method_that_is_none(name, complaint):
    with pytest.raises(tr.InputError) as error:
        method(name)
    assert complaint in str(error.value)


def test_the_default_methods_exist():
    assert len({method(name) for name in METHODS}) == len(METHODS)


def test_methods_are_measured_on_the_test_queries_alone(sets):
    one = Method("nDCG", "type3", "MLP(width=8, depth=1)")
    parameters = {"epochs": 2, "batch_documents": 2_000, "random_state": 3}
    told = []

    def begin(which):
        told.append(which)
        return []

    found = compare_methods([one], sets, ["nDCG@5", "AP"], parameters, begin)
    ranker = tr.Ranker(**parameters, **one.parameters())
    ranker.fit(sets["train"], eval_set={"validation": sets["validation"]})
    test = sets["test"]
    expected = tr.evaluate(ranker.predict(test), test.y, test.lists, ["nDCG@5", "AP"])
    assert told == [one]
    assert found.epochs == {str(one): 2}
    for name, values in expected.values.items():
        assert np.array_equal(found.comparison.values[str(one)][name], values, equal_nan=True)


def test_the_command(run):
    small = "MLP(width=8, depth=1)"
    code, out, err = run(
        *("compare", "--epochs", "1", "--set", "batch_documents=20000", "--out", "table.md"),
        *("--methods", f"AP-type3 ({small}); nDCG-type1 (Linear)", "--measures", "nDCG@5; AP"),
    )
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["nDCG@5", "AP", "epochs", "time"]
    assert lines[2].startswith(f"AP-type3 ({small})")
    assert lines[3].startswith("nDCG-type1 (Linear)")
    assert "Convention: twinrank" in out
    assert "•: the best mean of its column" in out
    assert "Wilcoxon" in out
    assert "AP-type3" in err
    with open("table.md") as file:  # noqa: PTH123
        assert "| nDCG-type1 (Linear) |" in file.read()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--methods", "AP"], "can't read the method"),
        (["--measures", "nDCG@5; APP"], "unknown measure 'APP'"),
        (["--set", "epochz=3"], "unknown parameter of Ranker 'epochz'; did you mean epochs"),
        (["nowhere"], "can't read nowhere"),
    ],
)
def test_mistakes_at_the_command_line(run, words, complaint):
    code, out, err = run("compare", *words)
    assert (code, out) == (2, "")
    assert complaint in err
    assert "Traceback" not in err
