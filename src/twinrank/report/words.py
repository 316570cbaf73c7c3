"""Figures as words: times, sizes, chances, differences."""

import math


def time(seconds: float) -> str:
    """A time in at most two units.

    >>> time(0.42), time(75), time(7_500), time(float("nan"))
    ('0.4 s', '1 min 15 s', '2 h 5 min', '–')
    """
    if not math.isfinite(seconds):
        return "–"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: float) -> str:
    """A number of bytes.

    >>> size(900), size(2_500_000), size(3.2e9), size(float("nan"))
    ('1 kB', '2.5 MB', '3.2 GB', '–')
    """
    if not math.isfinite(count):
        return "–"
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            shown = count / factor
            return f"{shown:,.0f} {unit}" if shown >= 100 else f"{shown:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def chance(p: float) -> str:
    """A p-value.

    >>> chance(0.0312), chance(1e-9), chance(1.0)
    ('p = 0.031', 'p < 0.0001', 'p = 1')
    """
    if math.isnan(p):
        return "p unknown"
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def mean(value: float) -> str:
    """A mean, or a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:.4f}"


def difference(value: float) -> str:
    """A difference with its sign.

    >>> difference(0.01234), difference(-0.5), difference(0.0)
    ('+0.0123', '−0.5000', '0.0000')
    """
    shown = f"{value:+.4f}".replace("-", "−")
    return shown[1:] if float(f"{value:.4f}") == 0 else shown
