"""The pages build without warnings, fetch nothing and fit a phone; the examples run."""

import importlib.util
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import twinrank as tr

ROOT = Path(__file__).parents[1]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")


def module(path):
    """A script as a module."""
    found = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """All pages, built as CONTRIBUTING says, with every reference checked."""
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    folder = tmp_path_factory.mktemp("pages")
    options = ["-W", "--keep-going", "-n", "-q", "-d", folder / "trees", DOCS, folder / "html"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options], capture_output=True, text=True, timeout=300
    )
    assert built.returncode == 0, built.stderr
    return folder / "html"


def test_pages_fetch_nothing(pages):
    """Scripts, styles, fonts and pictures are the pages' own."""
    text = "".join(page.read_text("utf-8") for page in pages.glob("*.html"))
    found = re.findall(r"<(?:script|img|link rel=\"stylesheet\")[^>]*(?:src|href)=\"(.*?)\"", text)
    assert len(found) > 20
    assert not [place for place in found if re.match(r"(https?:)?//", place)]


def test_every_public_name_is_in_the_reference(pages):
    listed = re.findall(r'id="twinrank\.([\w.]+)"', (pages / "api.html").read_text("utf-8"))
    assert set(tr.__all__) <= set(listed)
    modules = {
        name: import_module(f"twinrank.{name}") for name in ("embeddings", "pyterrier", "training")
    }
    names = {f"{key}.{name}" for key, module in modules.items() for name in module.__all__}
    text = {"DirectRankingLoss", "DirectRetrievalLoss", "Evaluator", "RetrievalEvaluator"}
    assert names | {f"text.{name}" for name in text} <= set(listed)


def test_every_command_is_in_the_reference(pages):
    import typer

    from twinrank.cli import app

    text = (pages / "cli.html").read_text("utf-8")
    for name, command in typer.main.get_command(app).commands.items():
        assert f'id="twinrank-{name}"' in text
        options = [one.opts[0] for one in command.params if one.opts[0].startswith("-")]
        assert [name for name in options if f">{name}<" not in text] == []


def test_the_tables_over_all_data_sets_are_those_of_the_pages():
    summary = module(DOCS / "paper_summary.py")
    page = (DOCS / "reproducing.md").read_text("utf-8")
    assert summary.by_set() in page
    assert summary.by_architecture() in page
    assert summary.differences() in page
    assert summary._parts("AP-type3 (CE5)") == ("AP-type3", "CE5")
    assert summary._parts("AP-type3 (trees)") == ("AP-type3 (trees)", "")


def test_docstrings_are_read_as_markdown(pages):
    """Sections become definition lists, and examples become code."""
    text = (pages / "api.html").read_text("utf-8")
    assert re.search(r'<dt><code[^>]*><span class="pre">batch_documents</span></code>: <em>', text)
    assert '<p class="rubric">Parameters</p>' in text
    assert not re.search("<p>(Parameters|Returns|Raises|Examples)</p>", text)
    assert "highlight-pycon" in text
    assert "&gt;&gt;&gt;" in text
    assert "<p>&gt;&gt;&gt;" not in text


def test_sections_of_a_docstring():
    pytest.importorskip("myst_parser")
    docstring = """Scale `x`.

Parameters
----------
x, y : array, shape (n_documents,)
    The values.

    >>> scale(1)
    2
kind : {"a", "b"}, default "a"
    One of two.

Returns
-------
array of float
    The result.

Raises
------
InputError
    If `x` is empty.

Examples
--------
>>> scale(2)
4
"""
    expected = """Scale `x`.

```{rubric} Parameters
```

`x`, `y`: *array, shape (n\\_documents,)*
: The values.

  ```pycon
  >>> scale(1)
  2
  ```

`kind`: *\\{"a", "b"\\}, default "a"*
: One of two.

```{rubric} Returns
```

*array of float*
: The result.

```{rubric} Raises
```

`InputError`
: If `x` is empty.

```{rubric} Examples
```

```pycon
>>> scale(2)
4
```"""
    assert module(DOCS / "extensions" / "docstrings.py").as_markdown(docstring) == expected


@pytest.mark.browser
@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium and its driver")
def test_pages_fit_a_phone(pages):
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.common.exceptions import WebDriverException

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu"):
        options.add_argument(f"--{argument}")
    try:
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    except WebDriverException as error:  # some containers let no browser run
        pytest.skip(f"Chromium doesn't start here: {error.msg}")
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    try:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wide = []
        for page in sorted(pages.glob("*.html")):
            driver.get(page.as_uri())
            if driver.execute_script("return document.documentElement.scrollWidth") > 400:
                wide.append(page.name)
    finally:
        driver.quit()
    assert wide == []


def _labels(picture):
    """The texts of a picture, which matplotlib keeps as comments; fonts may differ."""
    return re.findall("<!-- (.*?) -->", picture.read_text("utf-8"))


def test_every_picture_is_on_a_page():
    figures = module(DOCS / "figures.py")
    drawn = {f"{figure.__name__}.svg" for figure in figures.FIGURES}
    text = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    assert drawn == {one.name for one in figures.PLACE.iterdir()}
    assert drawn == set(re.findall(r"_static/figures/([\w.]+)", text))


@pytest.mark.slow
def test_pictures_are_up_to_date(tmp_path):
    figures = module(DOCS / "figures.py")
    for picture in figures.draw_all(tmp_path):
        assert len(_labels(picture)) > 5
        assert _labels(picture) == _labels(figures.PLACE / picture.name)


@pytest.mark.parametrize("name", ["quickstart", "own_measure"])
def test_notebooks_are_those_of_the_scripts(name):
    nbformat = pytest.importorskip("nbformat")
    made = module(EXAMPLES / "make_notebooks.py").notebook(EXAMPLES / f"{name}.py")
    kept = nbformat.read(EXAMPLES / "notebooks" / f"{name}.ipynb", as_version=4)
    assert [(c.cell_type, c.source) for c in made.cells] == [
        (c.cell_type, c.source) for c in kept.cells
    ]


@pytest.mark.slow
def test_a_notebook_runs():
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    maker = module(EXAMPLES / "make_notebooks.py")
    book = maker.run(maker.notebook(EXAMPLES / "quickstart.py"))
    printed = [out.text for cell in book.cells for out in cell.get("outputs", []) if "text" in out]
    assert any("LambdaMART" in text for text in printed)


@pytest.mark.slow
def test_own_measure_runs(capsys):
    module(EXAMPLES / "own_measure.py")
    assert "on purchases" in capsys.readouterr().out


@pytest.mark.slow
def test_methods_are_compared():
    example = module(EXAMPLES / "compare_methods.py")
    found = example.cross_validate(tr.synthetic_web_search(queries=20), folds=3)
    assert found.lists == 20
    assert set(found.means) == set(example.methods(0))


@pytest.mark.slow
def test_clicks_become_a_ranker(capsys):
    example = module(EXAMPLES / "clicks.py")
    assert example.true["new"] > example.true["old"]
    assert "exported" in capsys.readouterr().out


@pytest.mark.slow
def test_results_become_more_varied(capsys):
    example = module(EXAMPLES / "variety.py")
    assert example.means["α-nDCG"][example.variety] > example.means["nDCG"][example.variety] + 0.01
    assert "α-nDCG@5" in capsys.readouterr().out


@pytest.mark.slow
def test_a_recommender_learns_from_interactions(capsys):
    example = module(EXAMPLES / "recommender.py")
    assert example.test.queries == 120
    assert "BoostedRanker" in capsys.readouterr().out
