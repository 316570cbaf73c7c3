"""Formulas as MathML, written when the pages are built: they need no script and no request."""

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

_log = logging.getLogger(__name__)


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(_mathml(node))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    writer.body.append(_mathml(node, as_block=True) + "</div>\n")
    raise nodes.SkipNode


def _mathml(node: nodes.Element, as_block: bool = False) -> str:
    try:
        return str(tex2mathml(node.astext(), as_block=as_block))
    except MathError as error:
        _log.warning("cannot read %r: %s", node.astext(), error, location=node)
        return ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register `html_math_renderer = "mathml"`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
