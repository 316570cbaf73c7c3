"""Boosting round by round: measuring, stopping early, telling how it goes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from twinrank.boosting.engine import Grower
from twinrank.measures import Measure

ROUND, SECONDS = "round", "seconds"
"""What a round's record holds beside the values on the evaluation sets."""


class Callback:
    """What boosting tells; a subclass says what it is interested in."""

    def on_start(self, boosting: "Boosting") -> None:
        """The first tree is about to be grown."""

    def on_round(self, boosting: "Boosting", record: dict[str, Any]) -> None:
        """A tree was grown; the record is what was measured. Set `stop_reason` to end it here."""

    def on_stop(self, boosting: "Boosting") -> None:
        """The last tree was grown, or something failed."""


@dataclass(eq=False)
class Boosting:
    """How far it is."""

    rounds: int
    measure: Measure
    sets: Sequence[str]
    """The names of the evaluation sets."""
    early_stopping: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    best_round: int = 0
    best_value: float | None = None
    stop_reason: str = ""

    @property
    def selects(self) -> str | None:
        """The evaluation set that selects the best round: "validation", or else the first."""
        return "validation" if "validation" in self.sets else next(iter(self.sets), None)

    def run(self, grower: Grower, callbacks: Sequence[Callback] = ()) -> None:
        """Grow trees until there are enough, no better ones come, or none can be grown."""
        begun = time.perf_counter()
        try:
            for callback in callbacks:
                callback.on_start(self)
            for number in range(1, self.rounds + 1):
                if not grower.grow():
                    self.stop_reason = f"no split helps after {number - 1} rounds"
                    break
                values = grower.values(self.measure) if self.sets else {}
                record = {ROUND: number, **values, SECONDS: time.perf_counter() - begun}
                self._note(record)
                for callback in callbacks:
                    callback.on_round(self, record)
                if self.stop_reason:
                    break
        finally:
            for callback in callbacks:
                callback.on_stop(self)

    def _note(self, record: dict[str, Any]) -> None:
        self.history.append(record)
        number, value = record[ROUND], record.get(self.selects or "")
        if value is None:
            self.best_round = number
            return
        if self.best_value is None or value > self.best_value:
            self.best_round, self.best_value = number, value
        if self.early_stopping and number - self.best_round >= self.early_stopping:
            self.stop_reason = (
                f"no better {self.measure} than {self.best_value:.4f} (round {self.best_round}) "
                f"for {self.early_stopping} rounds"
            )
