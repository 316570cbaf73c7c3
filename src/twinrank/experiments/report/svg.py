"""SVG inside an HTML page: page colours, unique ids, no scripts and no external files."""

import re
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

from twinrank.support.errors import InputError
from twinrank.support.plots import COLOURS, drawing

SERIES = "series-"  # the prefix of a line's gid, followed by the number of its method
_VARIABLES = {
    **{colour: f"var(--series-{i})" for i, colour in enumerate(COLOURS)},
    "#000000": "currentColor",
    "#666666": "var(--muted)",
    "#e6e6e6": "var(--line)",
    "#ffffff": "var(--page)",
}
_LOOK: Any = {
    "svg.fonttype": "none",  # text stays text, in the font of the page
    "text.parse_math": False,
    "savefig.transparent": True,
    "font.size": 9,
    "xtick.color": "#666666",
    "ytick.color": "#666666",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.labelcolor": "#666666",
    "axes.spines.left": False,
    "axes.xmargin": 0.03,
    "axes.unicode_minus": True,
}
_ALLOWED = {
    "svg", "g", "defs", "use", "symbol", "clipPath", "mask", "pattern", "marker", "path", "rect",
    "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan", "image",
    "linearGradient", "radialGradient", "stop",
}  # fmt: skip
_METHOD = re.compile(rf"{SERIES}(\d+)")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_DIGITS = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


class Drawing:
    """The SVG text, available after the context of `svg_axes` has ended."""

    svg = ""


@contextmanager
def svg_axes(size: tuple[float, float], rows: int = 1) -> Iterator[tuple[Any, Any]]:
    """Axes in one column, and the `Drawing` that receives the SVG text."""
    from matplotlib import rc_context

    result = Drawing()
    with TemporaryDirectory() as folder, rc_context(_LOOK):
        path = Path(folder) / "figure.svg"
        with drawing(path, rows, 1, size) as axes:
            yield axes[:, 0], result
        result.svg = path.read_text("utf-8")


def inline_svg(text: str, prefix: str, names: Mapping[int, str] | None = None) -> str:
    """Convert an SVG document to an element of an HTML page.

    Known colours become CSS variables, so that they follow light and dark mode. Ids that are used
    get a prefix; other ids are removed. Scripts, styles and references to external files are
    removed. `names` are the methods of the lines, by number.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise InputError(f"A figure of the report is not SVG: {error}.") from error
    if _local(root.tag) != "svg":
        raise InputError(f"A figure of the report is not SVG but <{_local(root.tag)}>.")
    used = {name for each in root.iter() for name in _references(each)}
    _clean(root, prefix, used, names or {})
    _make_responsive(root)
    return ElementTree.tostring(root, encoding="unicode", method="html")


def _references(element: ElementTree.Element) -> Iterator[str]:
    """The ids that an element refers to."""
    for name, value in element.attrib.items():
        yield from _REFERENCE.findall(value)
        if _local(name) == "href":
            yield value[1:]


def _clean(
    element: ElementTree.Element, prefix: str, used: Container[str], names: Mapping[int, str]
) -> None:
    """Remove elements and attributes that are not allowed, and ids that are not used, recursively.

    A line gets the number of its method, for scripts, and the name as a tooltip.
    """
    element.tag = _local(element.tag)
    element.text, element.tail = (_without_blanks(t) for t in (element.text, element.tail))
    attributes = {_local(name): value for name, value in element.attrib.items()}
    element.attrib.clear()
    for child in list(element):
        if isinstance(child.tag, str) and _local(child.tag) in _ALLOWED:
            _clean(child, prefix, used, names)
        else:
            element.remove(child)
    own = attributes.pop("id", "")
    if own in used:
        element.set("id", prefix + own)
    for name, value in attributes.items():
        if (kept := _attribute(name, value, prefix)) is not None:
            element.set(name, kept)
    if match := _METHOD.fullmatch(own):
        element.set("data-series", match[1])
        if int(match[1]) in names:
            title = ElementTree.Element("title")
            title.text = names[int(match[1])]
            element.insert(0, title)


def _attribute(name: str, value: str, prefix: str) -> str | None:
    """The new value of an attribute; None to remove it."""
    if name.lower().startswith("on") or "javascript:" in value.lower():
        return None
    if name == "href":
        embedded = value if value.startswith("data:image/") else None
        return f"#{prefix}{value[1:]}" if value.startswith("#") else embedded
    if name in ("d", "points"):
        return _DIGITS.sub(lambda m: f"{float(m[0]):.2f}", _line(value))
    if name in ("x", "y", "width", "height", "cx", "cy", "r"):
        return _DIGITS.sub(lambda m: f"{float(m[0]):.2f}", value)
    value = _REFERENCE.sub(lambda m: f"url(#{prefix}{m[1]})", value)
    if name == "style":
        parts = [p for p in value.split(";") if not p.strip().startswith("font-family")]
        value = ";".join(parts)
    if "url(" in value.replace("url(#", "") or "@import" in value:
        return None
    return _COLOUR.sub(lambda m: _VARIABLES.get(m[0].lower(), m[0]), value)


def _make_responsive(root: ElementTree.Element) -> None:
    """Let the SVG fill its container; the surrounding figure has the description."""
    if "viewBox" not in root.attrib:
        sizes = [re.match(r"[\d.]+", root.get(name, "")) for name in ("width", "height")]
        width, height = (match[0] if match else "100" for match in sizes)
        root.set("viewBox", f"0 0 {width} {height}")
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("aria-hidden", "true")
    root.set("focusable", "false")


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _line(text: str) -> str:
    return " ".join(text.split())


def _without_blanks(text: str | None) -> str | None:
    """None for text that is only white space."""
    return text if text and text.strip() else None
