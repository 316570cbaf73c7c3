"""What a search leaves: the best parameters as TOML, all trials, tables, and what they took."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twinrank.display.tables import Cell, Table
from twinrank.study.tuning.search import Tuning
from twinrank.study.tuning.space import NET
from twinrank.study.tuning.trials import Tried, best_of
from twinrank.support.files import replacing

BEST = "best.toml"
_USE = {
    NET: "twinrank train DATA --config {file}",
    "trees": "twinrank train DATA --trees --config {file}",
}


def write_best(out: Path, tuning: Tuning, trials: Sequence[Tried]) -> list[Path]:
    """Write the parameters of the best trial and, of several kinds of models, of each one's."""
    best = {BEST: best_of(trials)[0]}
    if len(tuning.models) > 1:
        for model in tuning.models:
            for one in best_of([one for one in trials if one.model == model])[:1]:
                best[f"best-{model}.toml"] = one
    for name, one in best.items():
        head = [
            f"{tuning.measure} {one.value:.4f} on the validation queries ({one.name}).",
            f"Use it with: {_USE[one.model].format(file=name)}",
        ]
        with replacing(out / name) as partial:
            lines = [*(f"# {line}" for line in head), *_lines(one.parameters)]
            partial.write_text("\n".join(lines) + "\n", "utf-8")
    return [out / name for name in best]


def _lines(parameters: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {toml(value)}" for key, value in parameters.items()]


def toml(value: Any) -> str:
    """A value as TOML has it; nothing is the word "none", as in `parameters_of`.

    >>> toml({"a": [1, 0.5, True], "b": None})
    '{a = [1, 0.5, true], b = "none"}'
    """
    if value is None:
        return '"none"'
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)} = {toml(one)}' for key, one in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float):
        return repr(value)  # json would write NaN and Infinity, which are other words there
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: Any) -> str:
    text = str(name)
    plain = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if plain else json.dumps(text)


def write_trials(out: Path, trials: Sequence[Tried]) -> None:
    """All trials, as trials.csv and trials.json."""
    with replacing(out / "trials.json") as partial:
        text = json.dumps([asdict(one) for one in trials], indent=1, ensure_ascii=False)
        partial.write_text(text + "\n", "utf-8")
    names = list(dict.fromkeys(name for one in trials for name in one.chosen))
    about = ("model", "number", "state", "value", "after", "seconds", "error")
    with replacing(out / "trials.csv") as partial, partial.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*about, *names])
        for one in trials:
            own = [getattr(one, key) for key in about]
            writer.writerow([*own, *(one.chosen.get(name, "") for name in names)])


def best_tables(tuning: Tuning, trials: Sequence[Tried], count: int = 5) -> list[Table]:
    """The best trials of each kind of model side by side; the best kind first."""
    by_model = [best_of([o for o in trials if o.model == model])[:count] for model in tuning.models]
    ordered = best_of([best[0] for best in by_model if best])
    groups = [next(best for best in by_model if first in best) for first in ordered]
    return [_side_by_side(tuning, best) for best in groups]


def _side_by_side(tuning: Tuning, best: Sequence[Tried]) -> Table:
    """A column per trial, a row per setting."""
    searched = tuning.space(best[0].model).dimensions
    names = [name for name in searched if any(name in one.chosen for one in best)]
    rows = [
        [Cell(tuning.measure), *(Cell(f"{one.value:.4f}", i == 0) for i, one in enumerate(best))],
        [Cell("reached after"), *(Cell(_after(one)) for one in best)],
        [Cell("seconds"), *(Cell(f"{one.seconds or 0:.1f}") for one in best)],
    ]
    rows += [[Cell(name), *(Cell(_word(one.chosen.get(name))) for one in best)] for name in names]
    columns = ["", *(one.name for one in best)]
    return Table(f"The best trials: {best[0].model}", columns, rows)


def _after(one: Tried) -> str:
    return f"{'epoch' if one.model == NET else 'round'} {one.after}"


def _word(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def summary(tuning: Tuning, trials: Sequence[Tried]) -> str:
    """What came out, in a sentence or two."""
    best = best_of(trials)[0]
    states = [one.state for one in trials]
    counts = [f"{states.count(s)} {s}" for s in ("complete", "pruned", "failed") if s in states]
    said = f"Best {tuning.measure} on the validation queries: {best.value:.4f} ({best.name})."
    first = next((o for o in trials if o.model == best.model and o.number == 1), None)
    if first is not None and first.value is not None and first is not best:
        said += f" The defaults had {first.value:.4f}."
    return f"{said} {len(trials)} trials: {', '.join(counts)}."
