"""Numbers for people: counted nouns, durations, sizes."""

import math

_PLURALS = {"query": "queries"}


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the singular or the plural.

    >>> counted(1, "query"), counted(2000, "query"), counted(3, "document")
    ('1 query', '2,000 queries', '3 documents')
    """
    plural = _PLURALS.get(noun, noun + "s")
    return f"{count:,} {noun if count == 1 else plural}"


def duration(seconds: float) -> str:
    """A duration in words.

    >>> duration(40), duration(200), duration(9000), duration(1e6)
    ('40 seconds', '3 minutes', '2.5 hours', '11.6 days')
    """
    if seconds < 90:
        return f"{max(round(seconds), 1)} second{'' if round(seconds) <= 1 else 's'}"
    if seconds < 5400:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def format_seconds(seconds: float) -> str:
    """A time in at most two units.

    >>> format_seconds(0.42), format_seconds(75), format_seconds(7_500)
    ('0.4 s', '1 min 15 s', '2 h 5 min')
    """
    if not math.isfinite(seconds):
        return "–"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_bytes(count: float) -> str:
    """A number of bytes.

    >>> format_bytes(900), format_bytes(2_500_000), format_bytes(3.2e9), format_bytes(math.nan)
    ('1 kB', '2.5 MB', '3.2 GB', '–')
    """
    if not math.isfinite(count):
        return "–"
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            size = count / factor
            return f"{size:,.0f} {unit}" if size >= 100 else f"{size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"
