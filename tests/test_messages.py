"""Messages of errors and warnings: one style, and the same parts for Python and the shell."""

import ast
import inspect
import pickle
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import twinrank as tr
from twinrank.cli.data_options import as_option
from twinrank.core.measures import measure, names
from twinrank.data.transforms import Clip, Quantile
from twinrank.learning.models.architecture import Architecture
from twinrank.learning.training.callbacks import TrainingInterrupted
from twinrank.learning.training.learner import TrainingError
from twinrank.support.errors import (
    Argument,
    DataWarning,
    FileError,
    InputError,
    MissingPackageError,
    TwinRankError,
    rendered,
)

SOURCE = Path(tr.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}
NODES = [node for tree in TREES.values() for node in ast.walk(tree)]


def message_classes():
    """The names of the exceptions and warnings of TwinRank, and of scikit-learn's."""
    bases = {"NotFittedError"}
    found = {"TwinRankError", "DataWarning"}
    while found - bases:
        bases |= found
        found = {
            node.name
            for node in NODES
            if isinstance(node, ast.ClassDef) and {getattr(b, "id", "") for b in node.bases} & bases
        }
    return bases


def constants():
    """The texts that modules name in capital letters, by name."""
    texts = {}
    for tree in TREES.values():
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                texts |= {target.id: node.value for target in node.targets}
    return texts


def known_names():
    """The names that users write: public functions, their arguments, and those of methods."""
    public = [getattr(tr, name) for name in tr.__all__ if name != "text"]
    public += [Architecture, Clip, Quantile, tr.embeddings.EmbeddingRankingLoss]
    public += [type(measure(name)) for name in names()]
    if find_spec("sentence_transformers") is not None:
        public += [getattr(tr.text, name) for name in tr.text.__all__]
    found = {"twinrank"}
    for each in public:
        methods = inspect.getmembers(each, callable) if inspect.isclass(each) else []
        for function in [each, *(own for name, own in methods if not name.startswith("_"))]:
            if getattr(function, "__module__", "").startswith("twinrank") and callable(function):
                found |= {function.__name__, *inspect.signature(function).parameters}
    return found - {"a"}  # an article


CLASSES, CONSTANTS, KNOWN = message_classes(), constants(), known_names()


def called(node):
    """The name of the function or class that a call names."""
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def is_complete(part):
    """True if the last part of a message ends a sentence."""
    if isinstance(part, ast.JoinedStr):
        part = part.values[-1]
    if isinstance(part, ast.FormattedValue):
        part = part.value
    if isinstance(part, ast.Name):
        part = CONSTANTS.get(part.id, part)
    if isinstance(part, ast.Call):
        return called(part) in ("unknown", "suggestion")
    if isinstance(part, ast.Constant):
        return str(part.value).rstrip("'\")").endswith((".", "?", "!"))
    return isinstance(part, ast.Starred)


def is_begun(part):
    """True if a message begins with a capital letter, an option, or the name of an argument."""
    if isinstance(part, ast.JoinedStr):
        part = part.values[0]
    if isinstance(part, ast.Name):
        part = CONSTANTS.get(part.id, part)
    if not isinstance(part, ast.Constant):
        return True
    text = str(part.value)
    word = re.match(r"\w*", text)[0]
    return text[0].isupper() or text[0].isdigit() or text[0] in "'\"-" or word in KNOWN


def is_sentence(call):
    """True if a message is in the style of the project; that for choices is in `InputError`."""
    if not call.args:
        return any(keyword.arg == "choices" for keyword in call.keywords)
    return is_begun(call.args[0]) and is_complete(call.args[-1])


def test_every_message_is_a_sentence():
    wrong = []
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and called(node) in CLASSES and not is_sentence(node):
                wrong.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "right"),
    [
        ("InputError('X is empty.')", True),
        ("InputError('X is empty')", False),
        ("InputError('the file is empty.')", False),
        ("InputError('scores has shape 3.')", True),
        ("InputError(f'{path} is damaged: {error}')", False),
        ("InputError(f'{path} is damaged: ', *error.parts)", True),
        ("InputError(Argument('mode'), ' is wrong.')", True),
        ("InputError('Leave out ', Argument('mode'))", False),
        ("InputError(unknown('test', test, TESTS))", True),
        ("InputError(f'{path}: {unknown(kind, key, known)}')", True),
        ("InputError(argument='ties', value=ties, choices=TIES)", True),
        ("InputError(NO_TREE)", True),
        ("InputError(message)", False),
    ],
)
def test_the_check_of_style_tells_sentences_apart(source, right):
    assert is_sentence(ast.parse(source, mode="eval").body) is right


@pytest.mark.parametrize(
    ("argument", "python", "option"),
    [
        (Argument("unjudged", "keep"), "unjudged='keep'", "--unjudged keep"),
        (Argument("query", "q id"), "query='q id'", "--query 'q id'"),
        (Argument("query", "…"), "query='…'", "--query …"),
        (Argument("label", False), "label=False", "--no-label"),
        (Argument("cache", False), "cache=False", "--no-cache"),
        (Argument("zero_based", True), "zero_based=True", "--zero-based"),
        (Argument("ignore", ["date"]), "ignore=['date']", "--ignore date"),
        (Argument("ignore", ["a", "b"]), "ignore=['a', 'b']", "--ignore a --ignore b"),
        (Argument("features", 46), "features=46", "--features 46"),
        (Argument("max_features"), "max_features", "--max-features"),
        (Argument("ties", "docid"), "ties='docid'", "--ties docid"),
        (Argument("docids"), "docids", "--docid"),
        (Argument("random_state"), "random_state", "--seed"),
        (Argument("mode", "paper"), "mode='paper'", "--paper"),
        (Argument("engine", "lightgbm"), "engine='lightgbm'", "--set engine=lightgbm"),
        (Argument("ensemble_size", 1), "ensemble_size=1", "--set ensemble_size=1"),
        (
            Argument("transforms", "Clip(low=0)"),
            "transforms='Clip(low=0)'",
            "--set 'transforms=Clip(low=0)'",
        ),
        (Argument("engine"), "engine", "engine"),
    ],
)
def test_python_shows_an_argument_and_the_command_line_an_option(argument, python, option):
    assert (str(argument), as_option(argument)) == (python, option)


def test_one_error_has_a_message_for_python_and_one_for_the_command_line(cli, tmp_path):
    settings = {"engine": "xgboost", "mode": "paper"}
    with pytest.raises(InputError) as caught:
        tr.BoostedRanker(**settings).check_parameters()
    said = "{} has settings of LightGBM, but the engine is 'xgboost'. Use {}."
    assert str(caught.value) == said.format("mode='paper'", "engine='lightgbm'")
    options = ("--trees", "--paper", "--set", "engine=xgboost", "--out", tmp_path / "run")
    code, _, error = cli("train", *options)
    assert code == 2
    assert error == f"Error: {said.format('--paper', '--set engine=lightgbm')}\n"


def test_an_unknown_choice_is_reported_as_an_option(cli):
    with pytest.raises(
        InputError, match=r"Unknown ties 'radnom'\. Did you mean 'random'\?"
    ) as error:
        tr.evaluate([1.0], [1.0], tr.Lists.from_sizes([1]), ["AP"], ties="radnom")
    assert (error.value.argument, error.value.value) == ("ties", "radnom")
    assert "random" in error.value.choices
    code, _, said = cli("evaluate", "--run", "a", "--qrels", "b", "--ties", "radnom")
    assert (code, said) == (2, "Error: Unknown --ties 'radnom'. Did you mean 'random'?\n")


def test_warnings_show_options_on_the_command_line(cli, tmp_path):
    file = tmp_path / "short.txt"
    rows = [
        f"{i % 2} qid:{q} 1:{i} 2:{q}" for q, n in enumerate([12, 3, 12, 3], 1) for i in range(n)
    ]
    file.write_text("\n".join(rows) + "\n")
    said = "{} keeps queries with at least 10 documents, 1 of them relevant."
    data = tr.load(file, cache=False)
    net = tr.Ranker(mode="paper", epochs=1)
    with pytest.warns(DataWarning, match=re.escape(said.format("mode='paper'"))):
        net.fit(data)
    options = ("--valid", file, "--paper", "--epochs", 1, "--out", tmp_path / "run")
    code, _, error = cli("train", file, *options)
    assert code == 0
    assert f"Note: {said.format('--paper')}" in error


@pytest.mark.parametrize(
    "kind",
    [
        DataWarning,
        FileError,
        InputError,
        MissingPackageError,
        TrainingError,
        TrainingInterrupted,
        TwinRankError,
    ],
)
def test_pickling_keeps_the_parts(kind):
    told = kind("Can't read x. Pass ", Argument("label", False), " or ", Argument("ignore"), ".")
    again = pickle.loads(pickle.dumps(told))
    assert type(again) is kind
    assert again.parts == told.parts
    assert str(again) == "Can't read x. Pass label=False or ignore."
    assert again.render(as_option) == "Can't read x. Pass --no-label or --ignore."


def test_pickling_keeps_what_is_wrong():
    error = InputError(argument="ties", value="radnom", choices=["random", "stable"])
    again = pickle.loads(pickle.dumps(error))
    assert (again.argument, again.value, again.choices) == ("ties", "radnom", ("random", "stable"))
    assert again.render(as_option) == "Unknown --ties 'radnom'. Did you mean 'random'?"


def test_a_note_may_be_plain_text():
    assert rendered("Two queries are empty.", as_option) == "Two queries are empty."
