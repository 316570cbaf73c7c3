"""Where in its source a value stands, as an error says it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Places:
    """Words for places: arrays count from 0, as subscripts do; frames have columns, and row 1.

    >>> Places().feature(3, 0), Places(("bm25",)).label(3)
    ('X[3, 0]', 'y[3]')
    >>> Places(("bm25",), "train.csv").feature(3, 0)
    "train.csv: column 'bm25' in row 4"
    """

    names: tuple[str, ...] | None = None  # of the features
    frame: str = ""  # what a frame is called; arrays have no such name
    label_column: str = ""

    def name(self, column: int) -> str:
        """A feature."""
        return str(column) if self.names is None else repr(self.names[column])

    def feature(self, row: int, column: int) -> str:
        """A feature of a document."""
        if self.frame:
            return f"{self.frame}: column {self.name(column)} in row {row + 1}"
        named = "" if self.names is None else f" ({self.name(column)})"
        return f"X[{row}, {column}]{named}"

    def label(self, row: int) -> str:
        """The label of a document."""
        if self.frame:
            return f"{self.frame}: column {self.label_column!r} in row {row + 1}"
        return f"y[{row}]"
