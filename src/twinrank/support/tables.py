"""Tables as text, Markdown, LaTeX, HTML and CSV."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from twinrank.support.errors import explained
from twinrank.support.files import write_text

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "–": "--", "ʸ": "$^y$", "≥": r"$\ge$",
    "[": "{[}", "*": "{*}",  # at the start of a row LaTeX reads them as options of \\
}  # fmt: skip
_MARKDOWN = re.compile(r"[\\`*_\[\]<>&|~#$]")
_BEST = "•"


@dataclass(frozen=True)
class Cell:
    """The text of a cell, with a mark of one character such as * if needed."""

    text: str
    best: bool = False
    mark: str = ""


@dataclass(frozen=True)
class ResultTable:
    """A table with a title and notes; the first column has names, the others have numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    about_best: str = ""
    """The note about cells that are the best of their column."""

    def to_text(self, colour: bool = False, width: int | None = None) -> str:
        """Plain text; the best cell of a column has a dot or, on a colour terminal, is bold.

        A table that is wider than `width` continues below with its other columns, and notes have
        several lines.
        """
        rows = [[_plain(cell, colour) for cell in row] for row in self.rows]
        columns = range(len(self.columns))
        # Marks are to the right of the numbers, so that these stay aligned.
        hang = [int(any(row[i].mark for row in rows)) for i in columns]
        rows.insert(0, [Cell(_line(name)) for name in self.columns])
        widths = [max(len(row[i].text) for row in rows) + hang[i] for i in columns]
        padded = [_padded(row, widths, hang, colour) for row in rows]
        padded.insert(1, ["─" * each for each in widths])
        blocks = _blocks(widths, width)
        lines: list[str] = []
        for block in blocks:
            lines += [""] if lines else []
            lines += ["  ".join([row[0], *(row[i] for i in block)]).rstrip() for row in padded]
        title = [_line(self.title)] if self.title else []
        notes = self._notes("Bold" if colour else _BEST)
        if width is not None:
            notes = [line for note in notes for line in wrap(note, width) or [""]]
        return "\n".join([*title, *lines, *notes])

    def to_markdown(self) -> str:
        """A Markdown table; the best cell of a column is bold."""
        lines = [f"**{_markdown(self.title)}**", ""] if self.title else []
        lines.append("| " + " | ".join(map(_markdown, self.columns)) + " |")
        lines.append("|" + "|".join(["---"] + ["---:"] * (len(self.columns) - 1)) + "|")
        for row in self.rows:
            cells = [
                (f"**{_markdown(c.text)}**" if c.best else _markdown(c.text)) + _markdown(c.mark)
                for c in row
            ]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join([*lines, *(f"\n{_markdown(note)}" for note in self._notes("Bold"))])

    def to_latex(self) -> str:
        """A LaTeX table for the package booktabs; the best cell of a column is bold."""
        lines = [r"\begin{table}", r"\centering"]
        title = re.sub(r"^Table \d+[:,] ", "", self.title)  # LaTeX numbers tables itself
        lines += [rf"\caption{{{_latex(title[:1].upper() + title[1:])}}}"] if title else []
        lines.append(rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}")
        lines += [r"\toprule", " & ".join(map(_latex, self.columns)) + r" \\", r"\midrule"]
        for row in self.rows:
            cells = [
                (rf"\textbf{{{_latex(c.text)}}}" if c.best else _latex(c.text))
                + (rf"\textsuperscript{{{_latex(c.mark)}}}" if c.mark else "")
                for c in row
            ]
            lines.append(" & ".join(cells) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\footnotesize {_latex(note)}" for note in self._notes("Bold")]
        return "\n".join([*lines, r"\end{table}"])

    def to_html(self) -> str:
        """An HTML table; the best cell of a column is bold."""
        head = "".join(f'<th scope="col">{escape(_line(c))}</th>' for c in self.columns)
        body = [f"<tr>{''.join(_html(c, i) for i, c in enumerate(row))}</tr>" for row in self.rows]
        caption = f"<caption>{escape(_line(self.title))}</caption>" if self.title else ""
        notes = "".join(f"\n<p>{escape(note)}</p>" for note in self._notes("Bold"))
        return (
            f"<table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
            + "\n".join(body)
            + f"\n</tbody></table>{notes}"
        )

    def _notes(self, best: str) -> list[str]:
        has_best = bool(self.about_best) and any(cell.best for row in self.rows for cell in row)
        return [*([f"{best}: {self.about_best}."] if has_best else []), *map(_line, self.notes)]


def write_tables(folder: Path, name: str, tables: Sequence[ResultTable], data: str = "") -> None:
    """Write tables, one after the other, as text, Markdown and LaTeX, and their data as CSV."""
    with explained("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
    for suffix, render in (
        ("txt", ResultTable.to_text), ("md", ResultTable.to_markdown), ("tex", ResultTable.to_latex)
    ):  # fmt: skip
        write_text(folder / f"{name}.{suffix}", "\n\n".join(render(table) for table in tables))
    if data:
        write_text(folder / f"{name}.csv", data)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV, with empty cells for None and NaN.

    >>> csv_text([["name", "value"], ["a", 0.5], ["b", None]]).splitlines()
    ['name,value', 'a,0.5', 'b,']
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([["" if cell is None or cell != cell else cell for cell in r] for r in rows])
    return text.getvalue()


def _plain(cell: Cell, colour: bool) -> Cell:
    """A cell with a dot as its mark if it is the best and cannot be bold."""
    mark = cell.mark or (_BEST if cell.best and not colour else "")
    return Cell(_line(cell.text), cell.best, mark)


def _blocks(widths: list[int], width: int | None) -> list[list[int]]:
    """The numbers of the columns beside the first that fit in the width, block by block."""
    blocks: list[list[int]] = [[]]
    used = widths[0]
    for i, own in enumerate(widths[1:], 1):
        if width is not None and blocks[-1] and used + 2 + own > width:
            blocks.append([])
            used = widths[0]
        blocks[-1].append(i)
        used += 2 + own
    return blocks


def _padded(row: Sequence[Cell], widths: list[int], hang: list[int], colour: bool) -> list[str]:
    cells = []
    for i, cell in enumerate(row):
        width = widths[i] - hang[i]
        text = cell.text.ljust(width) if i == 0 else cell.text.rjust(width)
        text = f"\033[1m{text}\033[0m" if colour and cell.best else text
        cells.append(text + (cell.mark or " " * hang[i]))
    return cells


def _html(cell: Cell, column: int) -> str:
    text = escape(_line(cell.text))
    text = f"<strong>{text}</strong>" if cell.best else text
    text += f"<sup>{escape(cell.mark)}</sup>" if cell.mark else ""
    return f"<td>{text}</td>" if column else f'<th scope="row">{text}</th>'


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(lambda match: "\\" + match[0], _line(text))


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in _line(text))


def _line(text: str) -> str:
    """The text on one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
