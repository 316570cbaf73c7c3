"""What a person sees while trees are grown: a live bar on a terminal, plain lines elsewhere."""

import sys
from typing import Any

from twinrank.boosting.rounds import ROUND, SECONDS, Boosting, Callback


def line_of(boosting: Boosting, record: dict[str, Any]) -> str:
    """What was measured after a round, and the best of it so far."""
    parts = [f"{name} {boosting.measure} {record[name]:.4f}" for name in boosting.sets]
    if boosting.best_value is not None:
        parts.append(f"best {boosting.best_value:.4f} (round {boosting.best_round})")
    return "  ".join(parts)


class Lines(Callback):
    """A line on standard error for every tenth round and the last."""

    def on_round(self, boosting: Boosting, record: dict[str, Any]) -> None:
        """Say what was measured."""
        number = record[ROUND]
        if number % 10 == 0 or number == boosting.rounds or boosting.stop_reason:
            parts = [
                f"round {number}/{boosting.rounds}",
                line_of(boosting, record),
                f"{record[SECONDS]:.0f} s",
            ]
            print("  ".join(filter(None, parts)), file=sys.stderr, flush=True)

    def on_stop(self, boosting: Boosting) -> None:
        """Say why it ended early."""
        if boosting.stop_reason:
            print(f"stopped: {boosting.stop_reason}", file=sys.stderr)


class Bar(Callback):
    """A live bar: rounds, the latest and the best value, time left."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def on_start(self, boosting: Boosting) -> None:
        """Put the bar on the screen."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[found]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._bar.start()
        self._task = self._bar.add_task("Boosting", total=boosting.rounds, found="")

    def on_round(self, boosting: Boosting, record: dict[str, Any]) -> None:
        """Move on, and show what was measured."""
        number = record[ROUND]
        self._bar.update(
            self._task,
            completed=number,
            description=f"Round {number}/{boosting.rounds}",
            found=line_of(boosting, record),
        )

    def on_stop(self, boosting: Boosting) -> None:
        """Take the bar down."""
        if self._bar is not None:
            self._bar.stop()
        if boosting.stop_reason:
            print(f"stopped: {boosting.stop_reason}", file=sys.stderr)


def reporter(quiet: bool = False) -> list[Callback]:
    """The callback that fits where standard error goes; none if quiet."""
    if quiet:
        return []
    return [Bar() if sys.stderr.isatty() else Lines()]
