"""Make the notebooks from the scripts: python examples/make_notebooks.py.

In a script, `# %%` starts a code cell and `# %% [markdown]` a text cell, as in most editors.
"""

import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).parent
NAMES = ("quickstart", "own_measure")
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook(script: Path) -> Any:
    """A notebook with the cells of a script."""
    cells = []
    for part in re.split(r"^# %%", script.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        kind, _, text = part.partition("\n")
        if kind.strip() == "[markdown]":
            lines = [line.removeprefix("#").removeprefix(" ") for line in text.strip().split("\n")]
            cells.append(new_markdown_cell("\n".join(lines)))
        else:
            cells.append(new_code_cell(text.strip()))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # so that the same script gives the same file
    return new_notebook(cells=cells, metadata={"kernelspec": _KERNEL})


def run(book: Any) -> Any:
    """Run a notebook and store the output of its cells."""
    from nbclient import NotebookClient

    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    for cell in book.cells:
        cell.get("metadata", {}).pop("execution", None)  # times would change the file at every run
    book.metadata = {"kernelspec": _KERNEL}
    return book


def main() -> None:
    """Run and write all notebooks."""
    for name in NAMES:
        book = run(notebook(HERE / f"{name}.py"))
        nbformat.write(book, HERE / "notebooks" / f"{name}.ipynb")


if __name__ == "__main__":
    main()
