"""What is wrong with a line, in words."""

from pathlib import Path

from twinrank.data.letor import rows
from twinrank.support.errors import InputError

_LONGEST = 60  # characters of the offending text that are shown


def problem(
    path: Path, line: int, begin: int, text: bytes, what: int, place: int, end: int, limit: int
) -> InputError:
    """The error for `text[place:end]`, in the line that begins at `begin` and has this number."""
    column = len(text[begin:place].decode("utf-8", errors="replace")) + 1
    offending = _shown(text[place:end])
    where = f"{path}, line {line}, column {column}"
    return InputError(f"{where}: {_words(what, offending, text[place:end], limit)}")


def _shown(piece: bytes) -> str:
    text = piece[: 4 * _LONGEST + 4].decode("utf-8", errors="backslashreplace")
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "…"
    return repr(text) if not text.isprintable() else f"'{text}'"


def _words(what: int, shown: str, piece: bytes, limit: int) -> str:
    if what == rows.LABEL:
        if piece.startswith((b"\xff\xfe", b"\xfe\xff")):
            return "this is UTF-16 text; save the file as UTF-8"
        doubt = "; is this a text in UTF-8?" if b"\0" in piece else ""
        return f"expected a label (a number), found {shown}{doubt}"
    if what == rows.LABEL_RANGE:
        return f"a label must be a finite number ≥ 0 (or −1, unjudged), not {shown}"
    if what == rows.UNJUDGED:
        return (
            "label −1 says unjudged; choose what becomes of such documents: "
            "unjudged='keep' (they count as 0 where measured) or unjudged='drop'"
        )
    if what == rows.QID:
        return f"expected qid:ID after the label, found {shown if piece else 'nothing'}"
    if what == rows.ID_TEXT:
        return f"a query id must be UTF-8 without control characters, found {shown}"
    if what == rows.ID_LENGTH:
        return f"a query id must have at most {rows.LONGEST_ID:,} bytes, found {shown}"
    if what == rows.INDEX:
        return f"expected a feature as index:value, found {shown}"
    if what == rows.ZERO:
        return f"feature indices begin with 1, found {shown}; zero_based=True if not"
    if what == rows.ORDER:
        return f"feature indices must increase within a line, but {shown} repeats or goes back"
    if what == rows.LIMIT:
        choose = "features= and max_features= set it"
        return f"index beyond the limit of {limit:,} features: {shown}; {choose}"
    if what == rows.VALUE:
        return f"the value of a feature must be a number, found {shown}"
    return (
        f"{shown} is not a finite float32; choose what becomes of such values: "
        f"non_finite='keep' or non_finite='clip' (infinities to ±3.4e38)"
    )
