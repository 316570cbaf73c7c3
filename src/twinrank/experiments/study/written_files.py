"""Files with results: text, JSON, CSV, TOML, and tables in several formats.

Every file appears complete or not at all.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinrank.support.errors import InputError, Parts, explained
from twinrank.support.files import read_json, replacing
from twinrank.support.locks import is_empty
from twinrank.support.tables import Table


def write_text(path: Path, text: str) -> Path:
    """Write a text that ends with one line break."""
    with explained("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        partial.write_text(text.rstrip("\n") + "\n", "utf-8")
    return path


def write_json(path: Path, value: Any) -> Path:
    """Write a value as JSON."""
    return write_text(path, json.dumps(value, indent=1, ensure_ascii=False))


def write_tables(folder: Path, name: str, tables: Sequence[Table], data: str = "") -> list[Path]:
    """Write tables, one after the other, as text, Markdown and LaTeX, and their data as CSV."""
    texts = {
        "txt": [table.to_text() for table in tables],
        "md": [table.to_markdown() for table in tables],
        "tex": [table.to_latex() for table in tables],
        "csv": [data] if data else [],
    }
    return [
        write_text(folder / f"{name}.{suffix}", "\n\n".join(parts))
        for suffix, parts in texts.items()
        if parts
    ]


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV, with empty cells for None and NaN.

    >>> csv_text(["name", "value"], [["a", 0.5], ["b", None]]).splitlines()
    ['name,value', 'a,0.5', 'b,']
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([["" if cell is None or cell != cell else cell for cell in r] for r in rows])
    return text.getvalue()


def write_toml(path: Path, values: Mapping[str, Any], comments: Sequence[str] = ()) -> Path:
    """Write keys and values as TOML, after some lines of comment."""
    lines = [f"# {' '.join(line.split())}" for line in comments]
    lines += [f"{_toml_key(key)} = {toml(value)}" for key, value in values.items()]
    return write_text(path, "\n".join(lines))


def toml(value: Any) -> str:
    """A value as TOML. None is the word "none", as in `parameters_of`.

    >>> toml({"a": [1, 0.5, True], "b": None})
    '{a = [1, 0.5, true], b = "none"}'
    """
    if value is None:
        return '"none"'
    if isinstance(value, Mapping):
        items = (f"{_toml_key(key)} = {toml(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float):
        return repr(value)  # nan and inf, where JSON has NaN and Infinity
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(name: Any) -> str:
    text = str(name)
    plain = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if plain else json.dumps(text)


def saved_settings(folder: Path, name: str, kind: str, remedy: Parts) -> Any:
    """The settings file of an existing folder, None if the folder is empty.

    A folder with other files raises an error, since it is not the folder of a `kind`.
    """
    if (folder / name).is_file():
        return read_json(folder / name)
    if not is_empty(folder):
        raise InputError(f"{folder} contains other files and is not a {kind} folder. ", *remedy)
    return None
