"""GPU kernels in Triton: sums over the pairs of ragged lists, noise, and ranks by counting.

A program has a tile of rows: up to ROWS documents a of one list. It visits all documents j of the
list, COLUMNS at a time, so that no m × m array exists. A row of `tiles` has the first document of
the tile, and the begin and the end of its list. Every sum has one writer and a fixed order: there
are no atomic additions, and the same input gives the same bits. Sums have the precision of the
scores. Numbers in double precision are read from memory, since Triton passes floats as float32.

The formulas are in `kernels/__init__.py`, `curvature.py`, `swaps.py`, `lambdas.py` and
`logistic.py`. Internal: `tiles.py` launches the kernels.
"""

import triton
import triton.language as tl

RANDOM, STABLE, AVERAGE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)

# The constants of `support/random.py`, as Triton reads globals.
_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15 - 2**64)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9 - 2**64)
_MIX_2 = tl.constexpr(0x94D049BB133111EB - 2**64)
_LOW_33 = tl.constexpr(2**33 - 1)
_LOW_34 = tl.constexpr(2**34 - 1)
_LOW_37 = tl.constexpr(2**37 - 1)
_LOW_52 = tl.constexpr(2**52 - 1)
_SIGN = tl.constexpr(-(2**63))


@triton.jit
def _rows_of(tiles, ROWS: tl.constexpr):
    """The documents of this program's tile, which of them exist, and the bounds of the list."""
    tile = tiles + 3 * tl.program_id(0)
    begin, end = tl.load(tile + 1), tl.load(tile + 2)
    row = tl.load(tile) + tl.arange(0, ROWS)
    return row, row < end, begin, end


@triton.jit
def _log_one_plus(near):
    """log(1 + near) for 0 ≤ near ≤ 1, as `logistic.log_one_plus`."""
    u = near / (2 + near)
    w = u * u
    p = w * 0.17780763826113302 + 0.09880789048764786
    p = p * w + 0.13591305485579894
    p = p * w + 0.15363676248891633
    p = p * w + 0.1818285980047391
    p = p * w + 0.22222190861346283
    p = p * w + 0.2857142911165716
    p = p * w + 0.399999999952876
    p = p * w + 0.6666666666668257
    p = p * w + 2.0
    return u * p


@triton.jit
def sum_pairs(
    tiles, y, keys, g, skip, alpha, sums, curves,
    STRATEGY: tl.constexpr, CURVES: tl.constexpr, SKIP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The pair sum of a strategy over α, and with CURVES its curvature over α².

    `keys` are integers in the order of the labels. With SKIP, documents whose entry of `skip` is
    not 0 keep their sums: another kernel has computed them.
    """
    row, inside, begin, end = _rows_of(tiles, ROWS)
    if SKIP:  # noqa: SIM102 (decided when the kernel is compiled)
        if tl.load(skip + begin) != 0:
            return
    a = tl.load(alpha)
    y_a = tl.load(y + row, mask=inside, other=0.0)[:, None]
    g_a = tl.load(g + row, mask=inside, other=0.0)[:, None]
    key_a = tl.load(keys + row, mask=inside, other=0)[:, None]
    total = tl.zeros([ROWS], dtype=y.dtype.element_ty)
    curve = tl.zeros([ROWS], dtype=y.dtype.element_ty)
    for start in range(begin, end, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        there = column < end
        y_j = tl.load(y + column, mask=there, other=0.0)[None, :]
        g_j = tl.load(g + column, mask=there, other=0.0)[None, :]
        pair = inside[:, None] & there[None, :]
        x = a * (y_a - y_j)
        near = tl.exp(-tl.abs(x))  # e^−|x|, so that nothing overflows
        part = 1 / (1 + near)
        bell = near * part * part
        if STRATEGY == 1:
            both = g_j - g_a
            force = both * bell
        else:
            key_j = tl.load(keys + column, mask=there, other=0)[None, :]
            both = g_j + g_a
            above, below = pair & (key_a > key_j), pair & (key_a < key_j)
            pair = above | below
            if STRATEGY == 2:
                force = tl.where(above, both * bell, -both * bell)
            else:
                rise, fall = tl.where(x > 0, 1.0, near) * part, tl.where(x > 0, near, 1.0) * part
                force = tl.where(above, both * fall, -both * rise)
        total += tl.sum(tl.where(pair, force, 0.0), axis=1)
        if CURVES:
            curve += tl.sum(tl.where(pair, tl.abs(both) * bell, 0.0), axis=1)
    tl.store(sums + row, total, mask=inside)
    if CURVES:
        tl.store(curves + row, curve, mask=inside)


@triton.jit
def sum_swaps(
    tiles, y, keys, worth, ranks, scale, ahead, behind, alpha, sums, curves, samples, documents,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The sum and the curvature of `strategy="swap"`, over α and α², added up over samples.

    `ranks`, `scale`, `ahead` and `behind` have shape (samples, documents), by document.
    """
    row, inside, begin, end = _rows_of(tiles, ROWS)
    a = tl.load(alpha)
    y_a = tl.load(y + row, mask=inside, other=0.0)[:, None]
    worth_a = tl.load(worth + row, mask=inside, other=0.0)[:, None]
    key_a = tl.load(keys + row, mask=inside, other=0)[:, None]
    total = tl.zeros([ROWS], dtype=y.dtype.element_ty)
    curve = tl.zeros([ROWS], dtype=y.dtype.element_ty)
    for start in range(begin, end, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        there = column < end
        y_j = tl.load(y + column, mask=there, other=0.0)[None, :]
        worth_j = tl.load(worth + column, mask=there, other=0.0)[None, :]
        key_j = tl.load(keys + column, mask=there, other=0)[None, :]
        change = tl.zeros([ROWS, COLUMNS], dtype=y.dtype.element_ty)
        by_row, by_column = row, column
        for _ in range(samples):
            rank_a = tl.load(ranks + by_row, mask=inside, other=0)[:, None]
            rank_j = tl.load(ranks + by_column, mask=there, other=0)[None, :]
            before = rank_a < rank_j
            scale_a = tl.load(scale + by_row, mask=inside, other=0.0)[:, None]
            scale_j = tl.load(scale + by_column, mask=there, other=0.0)[None, :]
            ahead_a = tl.load(ahead + by_row, mask=inside, other=0.0)[:, None]
            ahead_j = tl.load(ahead + by_column, mask=there, other=0.0)[None, :]
            behind_a = tl.load(behind + by_row, mask=inside, other=0.0)[:, None]
            behind_j = tl.load(behind + by_column, mask=there, other=0.0)[None, :]
            change += tl.where(
                before,
                scale_a * tl.abs(ahead_a - behind_j),
                scale_j * tl.abs(ahead_j - behind_a),
            )
            by_row += documents
            by_column += documents
        x = a * (y_a - y_j)
        near = tl.exp(-tl.abs(x))
        part = 1 / (1 + near)
        weight = tl.abs(worth_a - worth_j) * change
        rise, fall = tl.where(x > 0, 1.0, near) * part, tl.where(x > 0, near, 1.0) * part
        both = inside[:, None] & there[None, :]
        above, below = both & (key_a > key_j), both & (key_a < key_j)
        force = tl.where(above, -weight * fall, weight * rise)
        total += tl.sum(tl.where(above | below, force, 0.0), axis=1)
        curve += tl.sum(tl.where(above | below, weight * near * part * part, 0.0), axis=1)
    tl.store(sums + row, total, mask=inside)
    tl.store(curves + row, curve, mask=inside)


@triton.jit
def sum_lambdas(
    tiles, y, gains, ranks, discounts, nearness, alpha, values, sums,
    NEAR: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The weighted logistic loss of each document over those of lower gain, and its slope over α.

    `discounts` is D(rank) by document; `nearness` is N(distance), a table, used with NEAR.
    `alpha` has a second entry, the largest gap of two scores.
    """
    row, inside, begin, end = _rows_of(tiles, ROWS)
    a, limit = tl.load(alpha), tl.load(alpha + 1)
    y_a = tl.load(y + row, mask=inside, other=0.0)[:, None]
    gain_a = tl.load(gains + row, mask=inside, other=0.0)[:, None]
    discount_a = tl.load(discounts + row, mask=inside, other=0.0)[:, None]
    rank_a = tl.load(ranks + row, mask=inside, other=0)[:, None]
    value = tl.zeros([ROWS], dtype=y.dtype.element_ty)
    total = tl.zeros([ROWS], dtype=y.dtype.element_ty)
    for start in range(begin, end, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        there = column < end
        pair = inside[:, None] & there[None, :]
        y_j = tl.load(y + column, mask=there, other=0.0)[None, :]
        gain_j = tl.load(gains + column, mask=there, other=0.0)[None, :]
        discount_j = tl.load(discounts + column, mask=there, other=0.0)[None, :]
        weight = tl.abs(discount_a - discount_j)
        if NEAR:
            rank_j = tl.load(ranks + column, mask=there, other=0)[None, :]
            weight += tl.load(nearness + tl.abs(rank_a - rank_j), mask=pair, other=0.0)
        weight = weight * tl.abs(gain_a - gain_j)
        x = tl.minimum(tl.maximum(a * (y_a - y_j), -limit), limit)
        near = tl.exp(-tl.abs(x))
        part = 1 / (1 + near)
        above, below = pair & (gain_a > gain_j), pair & (gain_a < gain_j)
        log = tl.maximum(-x, 0.0) + _log_one_plus(near)
        value += tl.sum(tl.where(above, weight * log, 0.0), axis=1)
        rise, fall = tl.where(x > 0, 1.0, near) * part, tl.where(x > 0, near, 1.0) * part
        force = tl.where(above, -weight * fall, weight * rise)
        total += tl.sum(tl.where(above | below, force, 0.0), axis=1)
    tl.store(values + row, value, mask=inside)
    tl.store(sums + row, total, mask=inside)


@triton.jit
def sum_logistic(
    tiles, y, keys, alpha, values, pairs,
    LOSSES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The logistic loss of each document over those of lower label, and their number.

    Without LOSSES: Σ_j σ(α(s_j − s_i)) over the whole list, the document itself included.
    """
    row, inside, begin, end = _rows_of(tiles, ROWS)
    a, limit = tl.load(alpha), tl.load(alpha + 1)
    y_a = tl.load(y + row, mask=inside, other=0.0)[:, None]
    key_a = tl.load(keys + row, mask=inside, other=0)[:, None]
    value = tl.zeros([ROWS], dtype=y.dtype.element_ty)
    count = tl.zeros([ROWS], dtype=y.dtype.element_ty)
    for start in range(begin, end, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        there = column < end
        pair = inside[:, None] & there[None, :]
        y_j = tl.load(y + column, mask=there, other=0.0)[None, :]
        lead = tl.minimum(tl.maximum(a * (y_j - y_a), -limit), limit)
        near = tl.exp(-tl.abs(lead))
        if LOSSES:
            key_j = tl.load(keys + column, mask=there, other=0)[None, :]
            above = pair & (key_a > key_j)
            term = tl.maximum(lead, 0.0) + _log_one_plus(near)
            value += tl.sum(tl.where(above, term, 0.0), axis=1)
            count += tl.sum(tl.where(above, 1.0, 0.0), axis=1).to(y.dtype.element_ty)
        else:
            term = tl.where(lead > 0, 1.0, near) / (1 + near)
            value += tl.sum(tl.where(pair, term, 0.0), axis=1)
    tl.store(values + row, value, mask=inside)
    if LOSSES:
        tl.store(pairs + row, count, mask=inside)


@triton.jit
def _random_bits(seed, stream, index):
    """As `random.random_bits`."""
    z = seed + (2 * index + stream + 1) * _GOLDEN
    z = (z ^ ((z >> 30) & _LOW_34)) * _MIX_1
    z = (z ^ ((z >> 27) & _LOW_37)) * _MIX_2
    return z ^ ((z >> 31) & _LOW_33)


@triton.jit
def perturb(
    scores, seed, scale, perturbed, keys, documents, size,
    NOISE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Scores + scale · Gumbel noise for all samples, and the keys that order tied scores."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    start = tl.load(seed)
    score = tl.load(scores + index % documents, mask=inside, other=0.0)
    if NOISE:
        bits = (_random_bits(start, 1, index) >> 12) & _LOW_52
        uniform = (bits.to(tl.float64) + 0.5) * (2.0**-52)
        noise = -tl.log(-tl.log(uniform))
        score = (score.to(tl.float64) + tl.load(scale) * noise).to(score.dtype)
    tl.store(perturbed + index, score, mask=inside)
    tl.store(keys + index, _random_bits(start, 0, index) ^ _SIGN, mask=inside)


@triton.jit
def count_ranks(
    tiles, scores, keys, ranks, documents,
    TIES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """1 + the number of documents before each document; the second axis of programs is samples."""
    row, inside, begin, end = _rows_of(tiles, ROWS)
    shift = tl.program_id(1).to(tl.int64) * documents
    y_a = tl.load(scores + shift + row, mask=inside, other=0.0)[:, None]
    key_a = tl.load(keys + shift + row, mask=inside, other=0)[:, None]
    higher = tl.zeros([ROWS], dtype=tl.int32)
    equal = tl.zeros([ROWS], dtype=tl.int32)
    for start in range(begin, end, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        there = column < end
        y_j = tl.load(scores + shift + column, mask=there, other=0.0)[None, :]
        pair = inside[:, None] & there[None, :]
        ahead, same = pair & (y_j > y_a), pair & (y_j == y_a)
        earlier = column[None, :] < row[:, None]
        if TIES == RANDOM:
            key_j = tl.load(keys + shift + column, mask=there, other=0)[None, :]
            ahead = ahead | (same & ((key_j < key_a) | ((key_j == key_a) & earlier)))
        elif TIES == STABLE:
            ahead = ahead | (same & earlier)
        else:
            equal += tl.sum(same.to(tl.int32), axis=1)
        higher += tl.sum(ahead.to(tl.int32), axis=1)
    rank = (1 + higher).to(scores.dtype.element_ty)
    if TIES == AVERAGE:
        rank = rank + (equal - 1).to(rank.dtype) / 2
    tl.store(ranks + shift + row, rank, mask=inside)
