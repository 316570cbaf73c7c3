"""The order of the rooms, the small surface, and what must load without torch."""

import subprocess
import sys
from pathlib import Path

import pytest

import twinrank

ROOT = Path(__file__).parents[1]


def test_a_room_imports_only_rooms_above_it():
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    check = subprocess.run(
        [sys.executable, "-c", lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout + check.stderr
    assert "1 kept, 0 broken" in check.stdout


def test_every_public_name_exists_and_has_a_docstring():
    assert sorted(twinrank.__all__) == twinrank.__all__
    for name in twinrank.__all__:
        assert getattr(twinrank, name).__doc__, name
    assert set(twinrank.__all__) <= set(dir(twinrank))
    with pytest.raises(AttributeError, match="no attribute 'twin_rank'"):
        twinrank.twin_rank  # noqa: B018


@pytest.mark.parametrize(
    "code",
    [
        "import twinrank",
        "from twinrank import Lists, measure, exact_ranks",
        "import numpy as np, twinrank as tr; lists = tr.Lists.from_sizes([3]);"
        "tr.measure('nDCG@2')(np.array([1.0, 2, 3]), np.array([0, 1, 2]), lists)",
    ],
)
def test_works_without_torch(code):
    check = f"{code}\nimport sys\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)


def test_the_version_is_stated_once_more_only_where_it_must():
    for file, line in (
        ("pyproject.toml", f'version = "{twinrank.__version__}"'),
        ("CITATION.cff", f"version: {twinrank.__version__}"),
    ):
        assert line in (ROOT / file).read_text(), file
