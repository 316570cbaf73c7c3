"""What `quality.py` shows of test queries, once a variant was chosen."""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from common import Bar, show_table
from quality_methods import LAMBDAMART, VALIDATION, Variant
from twinrank.evaluation.comparison import compare
from twinrank.evaluation.significance import p_value

if TYPE_CHECKING:
    from quality import Book

MEASURES = ("nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10", "AP")
SIGNIFICANT = ("nDCG@5", "nDCG@10")
LEVEL = 0.01


def markdown(books: "Sequence[Book]", variants: Sequence[Variant], ours: str) -> str:
    """The table of docs/choosing.md: validation, and means over the test queries of each set.

    A star is a difference to the best of the column, p < 0.01, as `compare` tests it.
    """
    compared = [compare(book.values) for book in books]
    shown = [m for m in MEASURES if m != "nDCG@3"]
    head = ["", "validation", *(f"{b.source.name} {m}" for b in books for m in shown)]
    lines = [head, ["---", *("---:" for _ in head[1:])]]
    for variant in sorted(variants, key=lambda v: -fmean(b.validation(v) for b in books)):
        name = f"**{variant.name}**" if variant.name == ours else variant.name
        line = [name, f"{fmean(book.validation(variant) for book in books):.3f}"]
        for found in compared:
            for measure in shown:
                p = found.p_values[measure].get(variant.name, 1.0)  # the best has none
                mark = r"\*" if p < found.level else ""
                line.append(f"{found.means[variant.name][measure]:.3f}{mark}")
        lines.append(line)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def difference(one: Any, other: Any) -> tuple[float, float]:
    """By how much one is above another in the mean, and the p-value of that."""
    return float(np.nanmean(one) - np.nanmean(other)), p_value(one, other)


def gains(books: "Sequence[Book]", ours: str) -> dict[str, list[tuple[float, float]]]:
    """A variant against LambdaMART: each measure on each set, and on all queries together."""
    found: dict[str, list[tuple[float, float]]] = {}
    rows = []
    for measure in MEASURES:
        pairs = [(b.values[ours][measure], b.values[LAMBDAMART][measure]) for b in books]
        pairs.append(tuple(np.concatenate(side) for side in zip(*pairs, strict=True)))
        found[measure] = [difference(*pair) for pair in pairs]
        row = [measure]
        for (one, _), (gain, p) in zip(pairs, found[measure], strict=True):
            row += [f"{np.nanmean(one):.4f}", f"{gain:+.4f}", f"{p:.3g}"]
        rows.append(row)
    names = [*(book.source.name for book in books), "all queries"]
    columns = [column for name in names for column in (name, "gain", "p")]
    show_table(f"{ours} against {LAMBDAMART}", ["", *columns], rows)
    return found


def verdict(books: "Sequence[Book]", ours: str, nets: bool) -> list[Bar]:
    """Our chosen variant against LambdaMART.

    A net is to be level with it in nDCG@5, trees are to be above it everywhere.
    """
    found = gains(books, ours)
    if nets:
        on_sets = [gain for gain, _ in found[VALIDATION][:-1]]
        measured = ", ".join(f"{gain:+.4f}" for gain in on_sets)
        return [Bar(f"{ours}: at least {LAMBDAMART} in {VALIDATION}", measured, min(on_sets) >= 0)]
    least = min(gain for one in found.values() for gain, _ in one[:-1])
    together = [found[measure][-1] for measure in SIGNIFICANT]
    p = min((p for gain, p in together if gain > 0), default=1.0)
    return [
        Bar(f"{ours}: above {LAMBDAMART} everywhere", f"at least {least:+.4f}", least > 0),
        Bar(f"{ours}: p < {LEVEL:g} on {' or '.join(SIGNIFICANT)}", f"{p:.3g}", p < LEVEL),
    ]


def show_averaged(books: "Sequence[Book]", variants: Sequence[Variant], ours: str) -> None:
    """Our chosen variant against the others, each with its seeds' scores averaged, all queries."""
    averaged = [book.averaged() for book in books]
    rows = []
    for name in (v.name for v in variants if v.varies and not v.ours):
        row = [name]
        for measure in (*SIGNIFICANT, "AP"):
            one = np.concatenate([book.values[ours][measure] for book in books])
            other = np.concatenate([found[name][measure] for found in averaged])
            gain, p = difference(one, other)
            row += [f"{gain:+.4f}", f"{p:.3g}"]
        rows.append(row)
    if not rows:
        return
    columns = [column for measure in (*SIGNIFICANT, "AP") for column in (measure, "p")]
    show_table(f"{ours} against the averaged seeds of others", ["", *columns], rows)


def show_strategies(books: "Sequence[Book]") -> None:
    """What a strategy gains over another one, all else equal."""
    rows = []
    for better, worse in (("type3", "type2"), ("type2", "type1"), ("type3", "type1")):
        for name in books[0].values:
            other = name.replace(better, worse)
            if better not in name or other not in books[0].values:
                continue
            row = [f"{name} against {worse}"]
            for book in books:
                gain, p = difference(book.values[name][VALIDATION], book.values[other][VALIDATION])
                row += [f"{gain:+.4f}", f"{p:.3g}"]
            rows.append(row)
    if not rows:
        return
    columns = [column for book in books for column in (book.source.name, "p")]
    show_table(f"Strategies, {VALIDATION} of the test queries", ["", *columns], rows)
