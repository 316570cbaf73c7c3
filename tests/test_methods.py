"""Methods by name: an objective, a strategy and a model."""

import pytest

import twinrank as tr
from twinrank.study.comparing import METHODS
from twinrank.study.methods import Method, method


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AP-type3", Method("AP", "type3", "Small")),
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
