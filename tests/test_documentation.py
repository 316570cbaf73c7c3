"""Every example runs: docstrings, and the README's Python blocks one after the other."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import twinrank

README = (Path(__file__).parents[1] / "README.md").read_text()
MODULES = [
    info.name
    for info in pkgutil.walk_packages(twinrank.__path__, "twinrank.")
    if info.name != "twinrank.__main__"
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    results = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert results.failed == 0


def test_docstrings_with_examples_are_found():
    finder = doctest.DocTestFinder()
    found = sum(
        bool(test.examples)
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
    )
    assert found >= 10


def test_readme(capsys, tmp_path, monkeypatch):
    """All blocks in one namespace, as a reader would paste them; the printed claims hold."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) >= 5
    names: dict[str, object] = {}
    printed = []
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
        printed.append(capsys.readouterr().out)
    assert printed[0].startswith("-0.7934")
    assert "nDCG(gain=linear)@5 P(rel=2)@3 RBP(p=0.5)" in printed[3]
    assert "[3.0, 1.0, 2.0, 2.0, 1.0]" in printed[5]
    assert "Convention: twinrank" in printed[6]
    assert "queries              50\n" in printed[7]


def test_readme_gives_the_two_commands():
    assert "pip install -c constraints.txt . && twinrank " in README
    assert "\npip install -c constraints.txt '.[test]' && pytest\n" in README
