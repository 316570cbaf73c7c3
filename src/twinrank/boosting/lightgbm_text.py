"""A strict reader of LightGBM's text format: it checks a model before LightGBM parses it.

LightGBM trusts the numbers in its files: sizes, counts, and indices of features, nodes and leaves.
Wrong ones read or write memory that it does not own. This reader accepts what LightGBM 4 writes for
one class: the same lines in the same order, arrays of the right lengths, indices in range, finite
values, and children that form a tree. It visits each byte once, at about 1 GB/s.
"""

import re
from typing import Any

import numpy as np

from twinrank.support.compiled import compiled
from twinrank.support.errors import InputError

_HEADER = re.compile(
    r"tree\nversion=v[234]\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=\d{1,7}\n"
    r"max_feature_idx=(?P<last>\d{1,8})\n"
    r"(?:objective=(?P<objective>[\w.:+ -]{1,200})\n)?(?:average_output\n)?"
    r"feature_names=(?P<names>[^\n]*)\n(?:monotone_constraints=(?P<monotone>[-\d ]*)\n)?"
    r"feature_infos=(?P<infos>[^\n]*)\ntree_sizes=(?P<sizes>[\d ]*)\n\n",
    re.ASCII,
)
_INFO = re.compile(r"none|\[[-+.\deEnaif]{1,40}:[-+.\deEnaif]{1,40}\]|-?\d{1,10}(?::-?\d{1,10})*")
_END = b"end of trees\n"
_TAIL = re.compile(
    r"end of trees\n\n?feature_importances:\n(?:[^\n=]*=\d{1,10}\n)*\nparameters:\n"
    r"(?:\[\w+: [^\n\0]*\]\n)*\nend of parameters\n\n?(?:pandas_categorical:[^\n]*\n)?",
    re.ASCII,
)
_KEYS = (
    "num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type",
    "left_child", "right_child", "leaf_value", "leaf_weight", "leaf_count", "internal_value",
    "internal_weight", "internal_count", "cat_boundaries", "cat_threshold", "is_linear",
    "leaf_const", "num_features", "leaf_features", "leaf_coeff", "shrinkage",
)  # fmt: skip
(_LEAVES, _CATS, _FEATURE, _GAIN, _THRESHOLD, _DECISION, _LEFT, _RIGHT, _VALUE, _WEIGHT, _COUNT,
 _INNER_VALUE, _INNER_WEIGHT, _INNER_COUNT, _BOUNDARIES, _CAT_THRESHOLD, _LINEAR, _CONST,
 _NUM_FEATURES, _LEAF_FEATURES, _COEFF, _SHRINKAGE) = range(len(_KEYS))  # fmt: skip
_NAMES = np.frombuffer("".join(f"{key}=" for key in _KEYS).encode(), np.uint8)
_ENDS = np.cumsum([len(key) + 1 for key in _KEYS])
_INTEGERS = (_FEATURE, _DECISION, _LEFT, _RIGHT, _COUNT, _INNER_COUNT, _BOUNDARIES,
             _CAT_THRESHOLD, _NUM_FEATURES, _LEAF_FEATURES)  # fmt: skip
_IS_INTEGER = np.isin(np.arange(len(_KEYS)), _INTEGERS)
_DEEPEST = 4096  # LightGBM's contributions recurse
_NONE = np.int64(-(2**62))  # a token that is no integer
_SPACE, _FEED, _POINT, _PLUS, _MINUS, _ZERO, _NINE, _E, _e = 32, 10, 46, 43, 45, 48, 57, 69, 101


def check_text(text: str, content: bytes, name: str) -> int:
    """Check LightGBM's text, and return its number of features; InputError names the line."""
    header = _HEADER.match(text)
    if header is None:
        raise InputError(f"{name} is damaged: its header is not that of a LightGBM model.")
    features = int(header["last"]) + 1
    infos, names = header["infos"].split(" "), header["names"].split(" ")
    monotone = header["monotone"]
    fits = len(infos) == len(names) == features and (
        monotone is None or len(monotone.split(" ")) == features
    )
    if not fits or not all(map(_INFO.fullmatch, infos)):
        raise InputError(f"{name} is damaged: its header does not fit {features:,} features.")
    end = content.rfind(b"\n" + _END) + 1
    if end <= 0 or _TAIL.fullmatch(content[end:].decode()) is None:
        raise InputError(f"{name} is damaged: the lines after the trees are not LightGBM's.")
    start = len(header[0].encode())
    sizes = [int(size) for size in header["sizes"].split()]
    if start + sum(sizes) != end:
        raise InputError(f"{name} is damaged: tree_sizes does not fit the trees.")
    ends = start + np.cumsum(np.array([0, *sizes], np.int64))
    place = int(_check_trees(np.frombuffer(content, np.uint8), ends, features, *_space(sizes)))
    if place >= 0:
        line = content.count(b"\n", 0, place) + 1
        raise InputError(f"{name} is damaged: line {line} is not that of a valid tree.")
    return features


def _space(sizes: list[int]) -> tuple[Any, Any, Any]:
    """Space for the integers of a tree, which has fewer than it has bytes."""
    most = max(sizes, default=0) // 2 + 2
    return np.empty((len(_KEYS), most), np.int64), np.empty(most, np.int64), np.empty(most, np.int8)


@compiled
def _check_trees(text: Any, ends: Any, features: int, numbers: Any, depth: Any, seen: Any) -> Any:
    """The place of the first problem, or −1."""
    for tree in range(ends.size - 1):
        place, stop = ends[tree], ends[tree + 1]
        place = _number_after(text, place, stop, b"Tree=", tree)
        if place < 0:
            return ends[tree]
        leaves, cats, linear = 0, 0, 0
        for key in range(_ENDS.size):
            if key in (_BOUNDARIES, _CAT_THRESHOLD) and cats == 0:
                continue
            if key in (_CONST, _NUM_FEATURES, _LEAF_FEATURES, _COEFF) and linear == 0:
                continue
            begin = 0 if key == 0 else _ENDS[key - 1]
            for i in range(begin, _ENDS[key]):
                if place >= stop or text[place] != _NAMES[i]:
                    return place
                place += 1
            line = place
            place, count = _tokens(text, place, stop, _IS_INTEGER[key] or key < 2, numbers[key])
            if place < 0:
                return line
            if key == _LEAVES:
                leaves = numbers[key, 0]
                if count != 1 or not 1 <= leaves < numbers.shape[1]:
                    return line
            elif key == _CATS:
                cats = numbers[key, 0]
                if count != 1 or not 0 <= cats < leaves:
                    return line
            elif key == _LINEAR:
                linear = numbers[key, 0]
                if count != 1 or not 0 <= linear <= 1:
                    return line
            elif not _fits(key, count, leaves, cats, numbers):
                return line
        if not _is_tree(leaves, cats, features, linear, numbers, depth, seen):
            return ends[tree]
        if place + 2 != stop or text[place] != _FEED or text[place + 1] != _FEED:
            return place
    return -1


@compiled
def _number_after(text: Any, place: int, stop: int, name: Any, number: int) -> int:
    """The place after a line with this name and number, or −1."""
    for letter in name:
        if place >= stop or text[place] != letter:
            return -1
        place += 1
    value, begin = 0, place
    while place < stop and _ZERO <= text[place] <= _NINE and place - begin < 10:
        value = 10 * value + text[place] - _ZERO
        place += 1
    if place == begin or place >= stop or text[place] != _FEED or value != number:
        return -1
    return place + 1


@compiled
def _tokens(text: Any, place: int, stop: int, whole: bool, numbers: Any) -> tuple[int, int]:
    """Read the numbers of a line: the place after it, or −1, and their count.

    Integers are stored, of others those without a sign, a point and an exponent.
    """
    count = 0
    while place < stop:
        byte = text[place]
        if byte == _FEED:
            return place + 1, count
        if byte == _SPACE:
            place += 1
            continue
        if count == numbers.size:
            return -1, count
        negative, begin = byte == _MINUS, place
        if negative or (byte == _PLUS and not whole):
            place, begin = place + 1, place + 1
        value, points, digits = 0, 0, 0
        while place < stop and (_ZERO <= text[place] <= _NINE or text[place] == _POINT):
            if text[place] == _POINT:
                points += 1
            else:
                digits += 1
                if digits < 18:
                    value = 10 * value + text[place] - _ZERO
            place += 1
        if digits == 0 or points > 1 or place - begin > 40 or (whole and (points or digits > 10)):
            return -1, count
        numbers[count] = -value if negative else value
        if points or digits > 10:
            numbers[count] = _NONE
        if place < stop and text[place] in (_E, _e):
            place = _after_exponent(text, place + 1, stop)
            if place < 0 or whole:
                return -1, count
            numbers[count] = _NONE
        if place >= stop or text[place] not in (_SPACE, _FEED):
            return -1, count
        count += 1
    return -1, count


@compiled
def _after_exponent(text: Any, place: int, stop: int) -> int:
    """The place after an exponent that keeps a double finite, or −1."""
    negative = False
    if place < stop and text[place] in (_PLUS, _MINUS):
        negative = text[place] == _MINUS
        place += 1
    begin, exponent = place, 0
    while place < stop and _ZERO <= text[place] <= _NINE and place - begin < 4:
        exponent = 10 * exponent + text[place] - _ZERO
        place += 1
    return -1 if place == begin or exponent > (400 if negative else 300 - 40 + 48) else place


@compiled
def _fits(key: int, count: int, leaves: int, cats: int, numbers: Any) -> bool:
    """True if an array has the right length."""
    if key == _SHRINKAGE:
        return count == 1
    if key == _BOUNDARIES:
        return count == cats + 1
    if key == _CAT_THRESHOLD:
        return count > 0 and count == numbers[_BOUNDARIES, cats]
    if key in (_LEAF_FEATURES, _COEFF):
        total = 0
        for i in range(leaves):
            if not 0 <= numbers[_NUM_FEATURES, i] <= numbers.shape[1]:
                return False
            total += numbers[_NUM_FEATURES, i]
        numbers[_NUM_FEATURES, leaves] = total
        return count == total
    if key in (_VALUE, _CONST, _NUM_FEATURES):
        return count == leaves
    if key in (_WEIGHT, _COUNT):
        return count == leaves or (leaves == 1 and count == 0)
    return count == leaves - 1


@compiled
def _is_tree(
    leaves: int, cats: int, features: int, linear: int, numbers: Any, depth: Any, seen: Any
) -> bool:
    """True if the children form a tree, and all indices are in range."""
    for i in range(cats):
        if not 0 <= numbers[_BOUNDARIES, i] < numbers[_BOUNDARIES, i + 1]:
            return False
    if cats and numbers[_BOUNDARIES, 0] != 0:
        return False
    for i in range(numbers[_BOUNDARIES, cats] if cats else 0):
        if not 0 <= numbers[_CAT_THRESHOLD, i] < 2**32:
            return False
    for i in range(numbers[_NUM_FEATURES, leaves] if linear else 0):
        if not 0 <= numbers[_LEAF_FEATURES, i] < features:
            return False
    for i in range(leaves):
        seen[i], depth[i] = 0, 0
    for i in range(leaves - 1):
        decision = numbers[_DECISION, i]
        if not 0 <= numbers[_FEATURE, i] < features or not 0 <= decision < 12:
            return False
        if decision & 1 and not 0 <= numbers[_THRESHOLD, i] < cats:
            return False
        if depth[i] > _DEEPEST or numbers[_INNER_COUNT, i] < 0:
            return False
        for side in (_LEFT, _RIGHT):
            child = numbers[side, i]
            if child >= 0:  # an inner node comes after its parent, and has one parent
                if not i < child < leaves - 1 or depth[child]:
                    return False
                depth[child] = depth[i] + 1
            else:
                if not 0 <= -child - 1 < leaves or seen[-child - 1]:
                    return False
                seen[-child - 1] = 1
    return True
