"""Parsers and references that share nothing with the library: CSV, ranks, pair sums, nDCG."""

import math

import numpy as np


class Malformed(Exception):  # noqa: N818
    """The text is not CSV."""


def parse_csv(text: bytes) -> list[list[str]]:
    """The rows of CSV text as RFC 4180 has it; line feeds end lines, too. Empty lines are skipped.

    Written as a recursive-descent parser over characters: slow and obvious.
    """
    if b"\0" in text:
        raise Malformed("NUL")
    try:
        letters = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed("UTF-8") from error
    letters = letters.replace("\r\n", "\n\ue000")  # a mark in place of the return
    rows, place = [], 0
    while place < len(letters):
        row, place, blank = _row(letters, place)
        if not blank:
            rows.append(row)
    return [[field.replace("\n\ue000", "\r\n") for field in row] for row in rows]


def _row(letters: str, place: int) -> tuple[list[str], int, bool]:
    row = []
    while True:
        field, place, quoted = _field(letters, place)
        row.append(field)
        if place >= len(letters):
            break
        if letters[place] == ",":
            place += 1
            continue
        place += 1  # the line feed
        if letters[place : place + 1] == "\ue000":
            place += 1
        break
    return row, place, row == [""] and not quoted


def _field(letters: str, place: int) -> tuple[str, int, bool]:
    if letters[place : place + 1] == '"':
        place += 1
        content = []
        while True:
            if place >= len(letters):
                raise Malformed("unclosed quote")
            if letters[place] != '"':
                content.append(letters[place])
                place += 1
            elif letters[place + 1 : place + 2] == '"':
                content.append('"')
                place += 2
            else:
                place += 1
                break
        if place < len(letters) and letters[place] not in ",\n":
            raise Malformed("text after a quote")
        return "".join(content), place, True
    begin = place
    while place < len(letters) and letters[place] not in ",\n":
        if letters[place] == '"':
            raise Malformed("stray quote")
        if letters[place] == "\r":
            raise Malformed("bare return")
        place += 1
    return letters[begin:place], place, False


def pair_sum_rows(y, labels, g, strategy, alpha, rows):
    """∂L/∂y of some documents of one list, in float64, by the formula: one row of pairs each."""
    y, labels, g = (np.asarray(x, np.float64) for x in (y, labels, g))
    result = []
    for a in rows:
        with np.errstate(over="ignore", invalid="ignore"):
            x = alpha * (y[a] - y)
        u = np.sign(labels[a] - labels)
        near = np.exp(-np.abs(x))
        if strategy == "type1":
            terms = (g - g[a]) * alpha * near / (1 + near) ** 2
        elif strategy == "type2":
            terms = -(g + g[a]) * u * alpha * near / (1 + near) ** 2
        else:
            step = np.where(u * x < 0, 1.0, near) / (1 + near)
            terms = -2 * alpha * (g + g[a]) * u * step
        result.append(math.fsum(terms))
    return np.array(result)


def ranks_by_sorting(scores, order_of_ties):
    """Ranks from 1, the largest score first; ties in the order of `order_of_ties`."""
    keys = sorted(range(len(scores)), key=lambda i: (-float(scores[i]), order_of_ties[i]))
    ranks = [0] * len(scores)
    for rank, i in enumerate(keys, 1):
        ranks[i] = rank
    return ranks


def ndcg(ranks, labels, k):
    """nDCG@k of one list by its definition, with gains 2^y − 1."""
    gains = [2.0 ** float(y) - 1 for y in labels]
    dcg = math.fsum(g / math.log2(r + 1) for g, r in zip(gains, ranks, strict=True) if r <= k)
    best = sorted(gains, reverse=True)[:k]
    ideal = math.fsum(g / math.log2(i + 2) for i, g in enumerate(best))
    return dcg / ideal if ideal else None
