"""Names such as nDCG(gain=linear)@5, and what is said about the ones nobody knows."""

import contextlib
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinrank.support.errors import InputError, TwinRankError, unknown
from twinrank.support.notation import Term, parse

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True)
# Words that read as something else are no strings: that is what `none` and `1e5` are for.
words = names.filter(
    lambda word: word.lower() not in {"none", "true", "false", "nan", "inf", "infinity"}
)
numbers = st.integers() | st.floats(allow_nan=False)
values = st.none() | st.booleans() | numbers | words | st.lists(numbers, max_size=4).map(tuple)
terms = st.builds(
    Term,
    name=names,
    options=st.dictionaries(names, values, max_size=4),
    cutoff=st.none() | st.integers(min_value=1),
)


def typed(value):
    """A value beside its type: 1, 1.0 and True are equal, but not the same option."""
    return type(value), [*map(typed, value)] if isinstance(value, tuple) else value


@given(terms)
def test_what_is_written_reads_back_as_it_was(term):
    again = parse(str(term))
    assert again == term
    assert [*map(typed, again.options.values())] == [*map(typed, term.options.values())]
    assert list(again.options) == list(term.options)  # the order is part of how it prints


@given(terms, st.text(" \t", max_size=3))
def test_spaces_between_the_parts_mean_nothing(term, space):
    text = str(term)
    for mark in "(),=[]@":
        text = text.replace(mark, f"{space}{mark}{space}")
    assert parse(f"{space}{text}{space}") == term


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("nDCG", Term("nDCG")),
        ("nDCG@10", Term("nDCG", {}, 10)),
        ("nDCG()", Term("nDCG")),
        ("P(rel=2)@3", Term("P", {"rel": 2}, 3)),
        ("nDCG(gain=linear)@5", Term("nDCG", {"gain": "linear"}, 5)),
        ("X(a=[0, 1, 3.5], b=[], c=1)", Term("X", {"a": (0, 1, 3.5), "b": (), "c": 1})),
        ("X(a=-1e-3, b=TRUE)", Term("X", {"a": -0.001, "b": True})),
        ("X(a=False, b=None)", Term("X", {"a": False, "b": None})),
        ("X(a=1,)", Term("X", {"a": 1})),
    ],
)
def test_reading(text, term):
    assert parse(text) == term


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (Term("nDCG"), "nDCG"),
        (Term("nDCG", {}, 10), "nDCG@10"),
        (Term("X", {"a": None, "b": True, "c": 0.5}), "X(a=none, b=true, c=0.5)"),
        (Term("X", {"a": (0, 1.5), "b": "word"}, 3), "X(a=[0, 1.5], b=word)@3"),
    ],
)
def test_writing(term, text):
    assert str(term) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"Can't read ''. Write Name, Name@k or Name\(option=value, …\)@k"),
        ("@5", "Can't read '@5'"),
        ("5nDCG", "Can't read '5nDCG'"),
        ("nDCG@", "Can't read 'nDCG@'"),
        ("nDCG@-1", "Can't read 'nDCG@-1'"),
        ("nDCG@2.5", "Can't read 'nDCG@2.5'"),
        ("nDCG@5@6", "Can't read 'nDCG@5@6'"),
        ("nDCG AP", "Can't read 'nDCG AP'"),
        ("nDCG(gain=linear", "Can't read"),
        ("nDCG@5(gain=linear)", "Can't read"),
        ("nDCG@0", "The cutoff in 'nDCG@0' must be at least 1"),
        ("X(a)", r"Can't read option 'a' in 'X\(a\)'. Write key=value"),
        ("X(a=)", "Can't read option 'a='"),
        ("X(a='b')", "Can't read value \"'b'\". Write a number, a word or"),
        ("X((a=b))", "Can't read value 'b\\)'"),
        ("X(=1)", "Can't read option '=1'"),
        ("X(a=1, a=2)", "Option 'a' appears twice"),
        ("X(a=[1, b])", r"The list \[1, b\] must contain only numbers"),
    ],
)
def test_what_cannot_be_read_says_so(text, complaint):
    with pytest.raises(InputError, match=complaint):
        parse(text)


@given(st.text(string.printable, max_size=12))
def test_any_text_is_read_or_refused_as_input(text):
    with contextlib.suppress(InputError):  # any other error fails the test
        assert isinstance(parse(text), Term)


def test_a_term_cannot_be_changed():
    with pytest.raises(AttributeError):
        parse("nDCG@5").cutoff = 6


def test_input_errors_are_value_errors_and_our_own():
    assert issubclass(InputError, ValueError)
    assert issubclass(InputError, TwinRankError)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tpye1", "Unknown kind 'tpye1'. Did you mean 'type1'?"),
        ("TYPE1", "Unknown kind 'TYPE1'. Did you mean 'type1'?"),
        ("numbaa", "Unknown kind 'numbaa'. Did you mean 'Numba'?"),
        ("xyz", "Unknown kind 'xyz'. Choose from type1, stable, Numba."),
        ("", "Unknown kind ''. Choose from type1, stable, Numba."),
    ],
)
def test_the_nearest_name_is_suggested_whatever_its_case(name, said):
    assert unknown("kind", name, ["type1", "stable", "Numba"]) == said


def test_several_near_names_are_listed_the_nearest_first():
    choices = ["abcdef", "abcdeg", "abcdxy", "abcdez"]
    said = unknown("name", "abcdeg", choices)
    assert said.startswith("Unknown name 'abcdeg'. Did you mean 'abcdeg', ")
    assert said.count("abcd") == 1 + 3  # the name itself and at most three suggestions
    assert said.endswith("?")
    assert " or 'abc" in said


@given(st.lists(words, min_size=1, unique_by=str.lower), words)
def test_a_suggestion_is_one_of_the_choices(choices, name):
    message = unknown("name", name, iter(choices)).removeprefix(f"Unknown name {name!r}. ")
    if message.startswith("Did you mean "):
        assert set(re.findall(r"'(\w+)'", message)) <= set(choices)
    else:
        assert message == f"Choose from {', '.join(choices)}."
