"""Columns of text as codes: what a frame's categories become in a dataset."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.table import Floats, Table
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    import narwhals as nw

    from twinrank.data.dataset import Dataset

Categories = Mapping[int, tuple[str, ...]]
"""The texts of columns, by number; the column has their numbers, and −1 for missing values."""

MOST_TEXTS = 1 << 24
"""Above this, float32 cannot hold every number."""


def text_codes(series: "nw.Series[Any]") -> tuple[Floats, tuple[str, ...]] | None:
    """Return the codes of a column of text, and the texts in the order of their first appearance.

    Empty texts are missing; NaN, if there are no others. The result is None if the column is not
    text, or if some texts are numbers: these may be meant as numbers, unless the column has a
    frame's type for categories.
    """
    import narwhals as nw

    if series.dtype not in (nw.String, nw.Categorical, nw.Enum):
        return None
    known: dict[str, int] = {"": -1}
    missing = series.is_null().to_list()
    codes = np.empty(len(missing), np.float32)
    for row, value in enumerate(series.to_list()):
        text = "" if missing[row] else as_text(value)
        codes[row] = known.setdefault(text, len(known) - 1)
    texts = tuple(known)[1:]
    if len(texts) >= MOST_TEXTS:
        raise _too_many_texts(series.name, len(texts))
    if series.dtype == nw.String and any(map(is_number, texts)):
        return None
    return (codes, texts) if texts else (np.full_like(codes, np.nan), ())


class JoinedTexts:
    """The texts of columns over all blocks, in the order of their first appearance."""

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        self._known = {
            int(column): {text: code for code, text in enumerate(own)}
            for column, own in texts.items()
        }
        self._recorded = {column: len(own) for column, own in self._known.items()}

    def join(
        self,
        X: Floats,
        texts: Categories,
        numeric: Collection[int],
        names: Sequence[str],
        where: str,
    ) -> None:
        """Number a block's texts as those of all blocks so far. `numeric` columns have numbers."""
        for column in {*self._known, *texts}:
            if column in numeric:
                name = names[column]
                raise InputError(
                    f"{where}: column {name!r} has {'text' if column in texts else 'numbers'}"
                    f" here and {'numbers' if column in texts else 'text'} in the rows "
                    f"before; give it one type, or leave it out: ignore=[{name!r}]"
                )
            known, codes = self._known.setdefault(column, {}), X[:, column]
            own = [known.setdefault(text, len(known)) for text in texts.get(column, ())]
            if len(known) >= MOST_TEXTS:
                raise _too_many_texts(names[column], len(known))
            codes[:] = np.array([*own, -1], np.float32)[np.nan_to_num(codes, nan=-1).astype(int)]

    def added(self) -> dict[str, list[str]]:
        """The texts since the last call."""
        added = {}
        for column, known in self._known.items():
            added[str(column)] = list(known)[self._recorded.get(column, 0) :]
            self._recorded[column] = len(known)
        return added

    def categories(self) -> dict[int, tuple[str, ...]]:
        """The texts of all columns that have some."""
        return {column: tuple(known) for column, known in self._known.items() if known}


def _too_many_texts(name: str, texts: int) -> InputError:
    """Return the error about a column with more texts than can be numbered."""
    return InputError(f"column {name!r} has {texts:,} texts, more than {MOST_TEXTS - 1:,}")


def many_texts_note(name: str, texts: int, rows: int) -> str:
    """Return the note about a column of text that may be an id, which is no feature."""
    return (
        f"feature {name!r} has {texts:,} different texts in {rows:,} rows; to leave an id out, "
        f"pass ignore=[{name!r}]"
    )


def as_text(value: Any) -> str:
    """Return a category as text; a whole number has no point.

    >>> as_text(3.0), as_text("3.0"), as_text(0.5)
    ('3', '3.0', '0.5')
    """
    if isinstance(value, float | np.floating) and value == value // 1:
        return str(int(value))
    return str(value)


def is_number(text: str) -> bool:
    """True if a text can be read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def with_features(
    data: "Dataset",
    X: npt.NDArray[Any],
    names: Sequence[str] | None,
    categories: Categories | None = None,
) -> "Dataset":
    """Return the queries of a dataset with other features, in the dataset's order."""
    from twinrank.data.dataset import Dataset

    table = Table(
        np.ascontiguousarray(X, np.float32),
        data.y,
        data.lists,
        data.query_ids,
        data.comments,
        None if names is None else tuple(names),
        None,
        data.notes,
        dict(categories or {}),
    )
    return Dataset(table, data.name)
