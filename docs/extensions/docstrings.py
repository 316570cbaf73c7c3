"""Docstrings are Markdown: formulas are indented, names stand in backquotes, examples are doctests.

Sphinx takes them for reStructuredText; here each goes through the parser of the pages instead.
"""

import re
from typing import Any

from docutils import nodes
from docutils.utils import new_document
from myst_parser.config.main import MdParserConfig
from myst_parser.mdit_to_docutils.sphinx_ import SphinxRenderer
from myst_parser.parsers.mdit import create_md_parser
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_ARGUMENT = re.compile(r"^([a-z]\w*(?:, [a-z]\w*)*): ")


class Docstring(SphinxDirective):
    """The text of a docstring, as Markdown."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The nodes of the text."""
        source, _ = self.get_source_info()
        document = new_document(source, self.state.document.settings)
        parser = create_md_parser(MdParserConfig(), SphinxRenderer)
        parser.options["document"] = document
        parser.render(as_markdown("\n".join(self.content)))
        return document.children


def as_markdown(text: str) -> str:
    """A docstring with its doctests fenced, and lines `name: what it is` as a list."""
    lines: list[str] = []
    testing = False
    for line in text.splitlines():
        if line.startswith(">>>") and not testing:
            testing = True
            lines.append("```pycon")
        elif testing and not line.strip():
            testing = False
            lines.append("```")
        if not testing:
            line = _ARGUMENT.sub(_named, line)
        lines.append(line)
    return "\n".join([*lines, "```"] if testing else lines)


def _named(match: re.Match[str]) -> str:
    names = ", ".join(f"`{name}`" for name in match[1].split(", "))
    return f"- {names}: "


def _wrap(*about: Any) -> None:
    """Put the lines of a docstring, the last of what autodoc tells, into the directive above."""
    lines: list[str] = about[-1]
    if any(line.strip() for line in lines):
        lines[:] = [".. docstring::", "", *(f"   {line}" for line in lines), ""]


def setup(app: Sphinx) -> dict[str, Any]:
    """Take over all docstrings of autodoc."""
    app.add_directive("docstring", Docstring)
    app.connect("autodoc-process-docstring", _wrap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
