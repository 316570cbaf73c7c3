"""Text from data and file names as a terminal can show it."""

import json
import re

_STYLES = re.compile("(\033\\[[01]m)")  # our own: bold and its end


def printable(text: str) -> str:
    r"""Text with control characters, such as escape sequences, written as JSON writes them.

    Line ends, tabs and the sequences for bold text stay as they are.

    >>> print(printable("bm25\x1b]0;title\x07"))
    bm25\u001b]0;title\u0007
    """
    if text.isprintable():
        return text
    return "".join(
        part if _STYLES.fullmatch(part) else "".join(map(_escaped, part))
        for part in _STYLES.split(text)
    )


def _escaped(letter: str) -> str:
    if letter.isprintable() or letter in "\n\t":
        return letter
    return json.dumps(letter)[1:-1] if letter != "\x7f" else "\\u007f"
