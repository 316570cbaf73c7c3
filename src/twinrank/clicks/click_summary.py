"""Statistics of a log of clicks for people and programs."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from twinrank.clicks.click_log import ClickLog
from twinrank.clicks.position_bias import cells_of
from twinrank.support.errors import rendered

_SHOWN = 10  # positions in the text


@dataclass(frozen=True)
class ClickSummary:
    """Statistics of a log; `str` formats them as text, `to_json` as plain data."""

    impressions: int
    queries: int
    rows: int
    clicks: int
    click_rates: list[float]  # by position
    documents: int
    never_shown: int  # documents of the log's queries
    moved_share: float  # of the documents shown: at several positions
    randomised_share: float  # of the impressions
    problem: str  # why position bias cannot be estimated; empty if it can

    def to_json(self) -> dict[str, Any]:
        """The statistics as plain JSON."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """The text as pairs of a name and a value."""
        rates = ", ".join(f"{rate:.3f}" for rate in self.click_rates[:_SHOWN])
        more = ", …" if len(self.click_rates) > _SHOWN else ""
        return [
            ("impressions", f"{self.impressions:,}"),
            ("queries", f"{self.queries:,}"),
            ("rows", f"{self.rows:,}"),
            ("clicks", f"{self.clicks:,}"),
            ("clicks by position", rates + more),
            ("documents shown", f"{self.documents:,}"),
            ("never shown", f"{self.never_shown:,}"),
            ("at several positions", f"{self.moved_share:.1%} of the documents shown"),
            ("in random order", f"{self.randomised_share:.1%} of the impressions"),
            ("position bias", self.problem or "can be estimated"),
        ]

    def __str__(self) -> str:
        lines = self.lines()
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


def summarise_clicks(log: ClickLog) -> ClickSummary:
    """Compute the statistics of a log."""
    shown = np.bincount(log.position, log.shown, log.positions + 1)[1:]
    clicks = np.bincount(log.position, log.shown * log.clicked, log.positions + 1)[1:]
    seen = np.bincount(log.document, minlength=log.lists.documents) > 0
    first = np.zeros(seen.size, np.int64)
    first[log.document] = log.position
    several = np.zeros(seen.size, np.bool_)
    several[log.document[first[log.document] != log.position]] = True
    problem = cells_of(log, "auto", log.positions)[0].problem()
    candidates = log.query_weights[log.document_query] > 0
    return ClickSummary(
        impressions=log.impressions,
        queries=log.queries,
        rows=round(shown.sum()),
        clicks=log.clicks,
        click_rates=np.divide(clicks, shown, out=np.zeros_like(clicks), where=shown > 0).tolist(),
        documents=int(seen.sum()),
        never_shown=int((candidates & ~seen).sum()),
        moved_share=float(several.sum() / seen.sum()),
        randomised_share=_randomised_share(log),
        problem="" if problem is None else rendered(problem),
    )


def _randomised_share(log: ClickLog) -> float:
    if log.randomised is None:
        return 0.0
    return float(np.average(log.randomised, weights=log.weight if log.is_sum else None))
