"""The order of the packages, the public names and their docstrings, and imports without torch."""

import inspect
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import twinrank

ROOT = Path(__file__).parents[1]


def test_a_package_imports_only_packages_below_it():
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    check = subprocess.run(
        [sys.executable, "-c", lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout + check.stderr
    assert "4 kept, 0 broken" in check.stdout


def test_every_public_name_exists_and_has_a_docstring():
    assert sorted(twinrank.__all__) == twinrank.__all__
    for name in twinrank.__all__:
        assert getattr(twinrank, name).__doc__, name
    assert set(twinrank.__all__) <= set(dir(twinrank))
    with pytest.raises(AttributeError, match="no attribute 'twin_rank'"):
        twinrank.twin_rank  # noqa: B018


def test_public_modules_are_attributes():
    code = (
        "import sys, twinrank\n"
        "names = ('embeddings', 'text', 'training')\n"
        "assert set(names) <= set(dir(twinrank)) - set(twinrank.__all__)\n"
        "assert all(getattr(twinrank, n) is sys.modules[f'twinrank.{n}'] for n in names)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_module_names_are_unique():
    names = Counter(path.name for path in (ROOT / "src" / "twinrank").rglob("*.py"))
    assert [name for name, count in names.items() if count > 1 and name != "__init__.py"] == []


def parameters_of(name):
    """The parameters of a public function or class; an exception may have no own ones."""
    public = getattr(twinrank, name)
    is_exception = isinstance(public, type) and issubclass(public, BaseException)
    if is_exception and "__init__" not in vars(public):
        return []
    return list(inspect.signature(public).parameters)


def documented_parameters(name):
    """The names in the section "Parameters" of a NumPy-style docstring; None without it."""
    text = inspect.cleandoc(getattr(twinrank, name).__doc__)
    section = re.search(r"^Parameters\n-{10}\n(.*?)(?=^\S[^\n]*\n-{3,}\n|\Z)", text, re.M | re.S)
    if section is None:
        return None
    heads = re.findall(r"^(\S.*?)(?: : .*)?$", section[1], re.M)
    return [name.lstrip("*") for head in heads for name in head.split(", ")]


@pytest.mark.parametrize("name", twinrank.__all__)
def test_every_public_docstring_has_a_parameters_section(name):
    assert not parameters_of(name) or documented_parameters(name) is not None


@pytest.mark.parametrize("name", twinrank.__all__)
def test_every_parameter_is_documented_in_order(name):
    assert (documented_parameters(name) or []) == parameters_of(name)


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


def test_core_trains_alone():
    """A bare PyTorch loop with `core` and `support` only; no other package of ours is imported."""
    code = (
        "import sys, importlib.abc\n"
        "class Refusing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        head, *rest = name.split('.')\n"
        "        if head == 'twinrank' and rest and rest[0] not in ('core', 'support'):\n"
        "            raise ImportError(f'{name} is not part of the core')\n"
        "sys.meta_path.insert(0, Refusing())\n"
        "import torch\n"
        "from twinrank.core.lists import Lists\n"
        "from twinrank.core.losses.direct import DirectLoss\n"
        "from twinrank.core.measures import measure\n"
        "torch.manual_seed(0)\n"
        "X = torch.randn(200, 5)\n"
        "y = (X @ torch.tensor([1.0, -1.0, 0.5, 0.0, 0.0]) > 1).float()\n"
        "lists, net = Lists.from_sizes([20] * 10), torch.nn.Linear(5, 1)\n"
        "def ndcg():\n"
        "    scores = net(X)[:, 0].detach().numpy()\n"
        "    return measure('nDCG')(scores, y.numpy(), lists).mean()\n"
        "before, loss = ndcg(), DirectLoss('nDCG')\n"
        "optimiser = torch.optim.Adam(net.parameters(), 0.05)\n"
        "for _ in range(30):\n"
        "    optimiser.zero_grad()\n"
        "    loss(net(X)[:, 0], y, lists).backward()\n"
        "    optimiser.step()\n"
        "assert ndcg() > max(before, 0.95), (before, ndcg())\n"
        "assert not [m for m in sys.modules if m.startswith('twinrank.learning')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
