"""Writer of LETOR text, with the shortest numbers that read back as the same float32."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.letor import LONGEST_ID, NAMES
from twinrank.data.streams import written
from twinrank.data.table import Texts
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

_BLOCK = 1 << 22  # bytes of features formatted at a time
_ENOUGH = 9  # digits that identify any float32


def write_letor(data: "Dataset", path: Path, name: Path) -> None:
    """Write a dataset to `path`, zeros included, compressed by the suffix of `name`."""
    ids = [str(query).encode() for query in data.query_ids]
    _check(data, ids, name)
    row = "%.9g qid:%%b" + "".join(f" {i + 1}:%.9g" for i in range(data.features))
    with written(path, name) as file:
        if data.feature_names is not None:
            file.write(NAMES + json.dumps(list(data.feature_names)).encode() + b"\n")
        for queries in data.batches(max(_BLOCK // (4 * data.features), 1)).plan(0):
            part = data.select(queries)
            comments = [b""] * part.documents
            if part.comments is not None:
                comments = [b" #" + text if text else b"" for text in part.comments.all_raw()]
            values = shortest(np.column_stack([part.y, part.X])).tolist()
            own = np.repeat(queries, part.lists.sizes).tolist()
            lines = (
                (row % tuple(numbers)).encode() % ids[query] + comment + b"\n"
                for numbers, query, comment in zip(values, own, comments, strict=True)
            )
            file.write(b"".join(lines))


def shortest(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the number with the fewest digits, from six on, that is rounded to each float32.

    >>> shortest(np.array([0.1, 16777216, 1.17549435e-38], np.float32)).tolist()
    [0.1, 16777216.0, 1.1754944e-38]
    """
    with np.errstate(all="ignore"):
        exact = values.astype(np.float64)
        found = exact.copy()
        exponent = np.floor(np.log10(np.abs(exact), where=exact != 0, out=np.zeros_like(exact)))
        for digits in range(_ENOUGH, 5, -1):
            scale = np.where(np.isfinite(exponent), digits - 1 - exponent, 0)
            up, down = 10.0 ** np.maximum(scale, 0), 10.0 ** np.maximum(-scale, 0)
            rounded = np.rint(exact * up / down) / up * down
            found = np.where(rounded.astype(np.float32) == values, rounded, found)
    return found


def _check(data: "Dataset", ids: list[bytes], name: Path) -> None:
    """Raise an error for ids and comments that LETOR text cannot represent."""
    for i, text in enumerate(ids):
        too_long = len(text) > LONGEST_ID
        if not text or too_long or any(byte <= 32 or byte == ord("#") for byte in text):
            raise InputError(
                f"Can't write {name}: query id {str(data.query_ids[i])[:60]!r} is empty, too long, "
                f"or contains blanks or '#'; write CSV or Parquet instead of LETOR text."
            )
    if data.comments is not None and _breaks_lines(data.comments):
        raise InputError(
            f"Can't write {name}: a document id contains a line break; write CSV or Parquet "
            f"instead of LETOR text."
        )


def _breaks_lines(comments: Texts) -> bool:
    """Return True if a comment contains a line break or ends with a carriage return."""
    filled = comments.ends[np.diff(comments.ends, prepend=0) > 0]
    content: Any = comments.content
    return bool((content == ord("\n")).any() or (content[filled - 1] == ord("\r")).any())
