"""Fingerprints of functions: what changes them, what does not, and that other processes agree."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import twinrank as tr
from twinrank.support.code_identity import code_identity

FACTOR = 2.0
NAMES = frozenset({"a", "b", "c"})
calls = []
count = 0


def helper(x):
    return FACTOR * x


def uses_helper(x):
    return helper(x) if x in NAMES else x


def with_globals(function, **changed):
    """The same function, with other globals of its module."""
    return FunctionType(function.__code__, {**function.__globals__, **changed}, function.__name__)


def power(exponent):
    return lambda x: x**exponent


def with_loss(measure):
    loss = tr.DirectLoss(measure)
    return lambda scores, labels, lists: loss(scores, labels, lists)


def weighted(weights):
    return lambda x: weights * x


class Scaled:
    def __init__(self, factor):
        self.factor, self.calls = factor, 0

    def __call__(self, x):
        self.calls += 1
        return self.factor * x


def logged(x):
    global count
    count += 1
    calls.append(x)
    return x


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (power(2), power(2), power(3)),
        (with_loss("AP"), with_loss("AP"), with_loss("nDCG")),
        (weighted(np.ones(3)), weighted(np.ones(3)), weighted(np.zeros(3))),
        (Scaled(2), Scaled(2), Scaled(3)),
        (Scaled(2).__call__, Scaled(2).__call__, Scaled(3).__call__),
        (functools.partial(pow, 2), functools.partial(pow, 2), functools.partial(pow, 3)),
        (lambda x, y=1: x + y, None, lambda x, y=2: x + y),
        (lambda x, *, y=1: x + y, None, lambda x, *, y=2: x + y),
        (lambda x: x + 1, None, lambda x: x + 2),  # the same instructions, another constant
        (helper, with_globals(helper), with_globals(helper, FACTOR=3.0)),
        (uses_helper, with_globals(uses_helper), with_globals(uses_helper, helper=logged)),
    ],
)  # fmt: skip
def test_what_a_function_uses_counts(one, same, other):
    if same is not None:
        assert code_identity(one) == code_identity(same)
    assert code_identity(one) == code_identity(one)
    assert code_identity(one) != code_identity(other)


def test_what_changes_while_it_runs_does_not_count():
    counter = 0

    def own(x):
        nonlocal counter
        counter += 1
        calls.append(x)
        return x

    for function in (own, logged, Scaled(2)):
        before = code_identity(function)
        function(1)
        assert code_identity(function) == before


def test_recursion_ends_and_text_without_addresses():
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    assert code_identity(factorial) == code_identity(factorial)
    assert code_identity(object()) == code_identity(object())


def test_other_processes_agree():
    """Hashes of texts differ between processes, and with them the order of sets."""
    code = "import test_code_identity as t; print(t.code_identity(t.uses_helper))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            cwd=Path(__file__).parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
