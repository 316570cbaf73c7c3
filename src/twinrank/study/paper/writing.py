"""Tables as files."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from twinrank.display.tables import Table
from twinrank.support.files import replacing


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lines of CSV, with nothing where a value is None or NaN."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([["" if cell is None or cell != cell else cell for cell in r] for r in rows])
    return text.getvalue()


def write_tables(folder: Path, name: str, tables: Sequence[Table], data: str) -> list[Path]:
    """Tables as text, Markdown and LaTeX, one after the other, and their data, which is CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = {
        ".txt": [table.to_text() for table in tables],
        ".md": [table.to_markdown() for table in tables],
        ".tex": [table.to_latex() for table in tables],
        ".csv": [data.rstrip("\n")],
    }
    written = []
    for suffix, texts in shown.items():
        path = folder / f"{name}{suffix}"
        with replacing(path) as partial:
            partial.write_text("\n\n".join(texts) + "\n", "utf-8")
        written.append(path)
    return written
