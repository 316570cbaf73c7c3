"""Every example runs: docstrings, and the Python blocks of each page, one after the other."""

import doctest
import importlib
import pkgutil
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
import typer

import twinrank
from twinrank.cli import app
from twinrank.core.losses import loss
from twinrank.experiments.study.method_comparison import read_study_file
from twinrank.experiments.tuning.space import spaces_of
from twinrank.learning.models.architecture import architecture
from twinrank.learning.training.settings import DEFAULTS, FEWEST

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
MODULES = [
    info.name
    for info in pkgutil.walk_packages(twinrank.__path__, "twinrank.")
    if info.name != "twinrank.__main__"
]
PRINTED = {  # what comments and prose beside the blocks claim
    "README.md": ["-0.7934"],
    "docs/data.md": ["queries              50\n", "('bm25',)", "GX001"],
    "docs/measures.md": [
        "nDCG(gain=linear)@5 P(rel=2)@3 RBP(p=0.5)",
        "Convention: twinrank",
        "Convention: lightgbm",
    ],
    "docs/mathematics.md": ["[3.0, 1.0, 2.0, 2.0, 1.0]"],
}


def blocks(text, language):
    """The fenced blocks of a language; one marked `python no-run` is of another."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def commands(text):
    """The `twinrank …` lines of a page's shell blocks, as words."""
    lines = "\n".join(blocks(text, "sh")).replace("\\\n", " ").splitlines()
    found = [
        re.search(r"(?:^(?:\w+=\S+ )*|&& |\| |-m )twinrank ([a-z](?:\"[^\"]*\"|[^|<>])*)", line)
        for line in lines
    ]
    return [shlex.split(one[1], comments=True) for one in found if one]


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


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if blocks(text, "python")])
def test_blocks_of_a_page(page, capsys, tmp_path, monkeypatch):
    """All blocks in one namespace, as a reader would paste them; the printed claims hold."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("examples").symlink_to(ROOT / "examples")
    torch.manual_seed(0)
    names: dict[str, object] = {}
    for number, block in enumerate(blocks(PAGES[page], "python"), 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    printed = capsys.readouterr().out
    for claim in PRINTED.get(page, []):
        assert claim in printed


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if commands(text)])
def test_commands_of_a_page_exist(page):
    """Every command parses: its name, its arguments and its options."""
    known = typer.main.get_command(app).commands
    for name, *words in commands(PAGES[page]):
        known[name].make_context(name, words)


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if blocks(text, "toml")])
def test_files_of_a_page_are_read(page, tmp_path):
    for block in blocks(PAGES[page], "toml"):
        (tmp_path / "file.toml").write_text(block, "utf-8")
        if "methods" in block:
            assert read_study_file(tmp_path / "file.toml")["methods"]
        else:
            assert spaces_of(["net"], [], tmp_path / "file.toml")[0].own


@pytest.mark.parametrize("page", PAGES)
def test_no_block_hides_from_these_tests(page):
    languages = re.findall(r"^ *```+([^\s`{].*)$", PAGES[page], flags=re.MULTILINE)
    assert set(languages) <= {"python", "python no-run", "sh", "toml", "text", "json", "bibtex"}


def test_readme_gives_the_two_commands():
    assert "pip install -c constraints.txt '.[nets]' && twinrank " in README
    assert "\npip install -c constraints.txt '.[test]' && pytest\n" in README


def test_readme_is_short():
    assert len(README.splitlines()) <= 120
    assert len(README.partition("## Documentation")[0].split()) < 600


def test_the_papers_settings_are_those_of_the_code():
    """The page on the paper lists values that the paper does not print, and where they are from."""
    page = PAGES["docs/reproducing.md"]
    paper = DEFAULTS["net"]["paper"]
    dropout = architecture(paper["architecture"], "paper").dropout
    rows = {cells[1].strip(): cells[2:4] for cells in (x.split("|") for x in page.splitlines())
            if len(cells) == 6}  # fmt: skip
    assert rows["dropout"][0].strip().startswith(f"{dropout:g} before")
    assert "code" in rows["dropout"][1]
    assert f"≥ {FEWEST['paper'][0]} documents" in rows["queries"][0]
    assert '`cost="gain"`' in rows["WassRank's costs"][0]
    assert loss("WassRank", "paper").cost == "gain"
    assert loss("WassRank").cost == "label"
    assert "our choice" in rows["ListMLE's ties"][1]
    assert "has not been run on MSLR-WEB30K here" in page
