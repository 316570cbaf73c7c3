"""Docstrings as Markdown with NumPy-style sections.

Sphinx reads docstrings as reStructuredText. This extension passes each to the parser of the pages
instead. Formulas are indented, names are in backquotes, examples are doctests. Sections such as
"Parameters" become definition lists.
"""

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.utils import new_document
from myst_parser.config.main import MdParserConfig
from myst_parser.mdit_to_docutils.sphinx_ import SphinxRenderer
from myst_parser.parsers.mdit import create_md_parser
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

LISTS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns")
TEXTS = ("Examples", "Notes", "References", "See Also")
_SPECIAL = re.compile(r"([\\`*_<>\[\]{}$|])")


class Docstring(SphinxDirective):
    """The text of a docstring, as Markdown."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Parse the text into nodes."""
        source, _ = self.get_source_info()
        document = new_document(source, self.state.document.settings)
        config = MdParserConfig(enable_extensions={"deflist"})
        parser = create_md_parser(config, SphinxRenderer)
        parser.options["document"] = document
        parser.render(as_markdown("\n".join(self.content)))
        return document.children


def as_markdown(text: str) -> str:
    """A docstring as Markdown: sections as definition lists, doctests as code."""
    parts = []
    for title, lines in _sections(text.splitlines()):
        if title:
            parts.append(f"```{{rubric}} {title}\n```")
        if title in LISTS:
            parts.extend(_entry(title, *entry) for entry in _entries(lines))
        else:
            parts.append(_with_fenced_doctests(lines))
    return "\n\n".join(part for part in parts if part)


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each section's title, empty for the text before the first, and its lines."""
    title, start = "", 0
    for i in range(len(lines) - 1):
        if lines[i] in (*LISTS, *TEXTS) and set(lines[i + 1]) == {"-"}:
            yield title, lines[start:i]
            title, start = lines[i], i + 2
    yield title, lines[start:]


def _entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each entry's first line, and the lines that describe it, without their indentation."""
    head: str | None = None
    body: list[str] = []
    for line in lines:
        if line[:1].strip():
            if head is not None:
                yield head, body
            head, body = line, []
        else:
            body.append(line[4:])
    if head is not None:
        yield head, body


def _entry(title: str, head: str, body: list[str]) -> str:
    """One item of a definition list."""
    name, separator, kind = head.partition(" : ")
    if title in ("Returns", "Yields") and not separator:
        term = f"*{_escaped(name)}*"
    else:
        term = ", ".join(f"`{part}`" for part in name.split(", "))
        term += f": *{_escaped(kind)}*" if kind else ""
    described = _with_fenced_doctests(body).strip().splitlines() or [" "]
    indented = [f"  {line}".rstrip() for line in described[1:]]
    return "\n".join([term, f": {described[0]}", *indented])


def _escaped(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return _SPECIAL.sub(r"\\\1", text.strip())


def _with_fenced_doctests(lines: list[str]) -> str:
    """Text in which every doctest is a fenced block."""
    fenced: list[str] = []
    in_doctest = False
    for line in [*lines, ""]:
        if line.startswith(">>>") and not in_doctest:
            in_doctest = True
            fenced.append("```pycon")
        elif in_doctest and not line.strip():
            in_doctest = False
            fenced.append("```")
        fenced.append(line)
    return "\n".join(fenced).strip("\n")


def _wrap(*arguments: Any) -> None:
    """Put the lines of a docstring, autodoc's last argument, into the directive above."""
    lines: list[str] = arguments[-1]
    if any(line.strip() for line in lines):
        lines[:] = [".. docstring::", "", *(f"   {line}" for line in lines), ""]


def setup(app: Sphinx) -> dict[str, Any]:
    """Take over all docstrings of autodoc."""
    app.add_directive("docstring", Docstring)
    app.connect("autodoc-process-docstring", _wrap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
