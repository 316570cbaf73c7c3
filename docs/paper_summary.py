"""The tables of reproducing.md over all data sets: `python docs/paper_summary.py` prints them.

They are read from the pages with the results, paper_*.md.
"""

import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
PAGES = {"MQ2008": "paper_mq2008", "MQ2007": "paper_mq2007", "built-in": "paper_built_in"}
ARCHITECTURES = ("R5", "CE5", "R4.L", "CE4.L")
STRATEGIES = ("type1", "type2", "type3")
RIVALS = ("ListMLE", "ListNet", "WassRank", "ApproxNDCG")
OBJECTIVES = ("Pre", "AP", "nERR@10", "nDCG")


def by_set() -> str:
    """nDCG@5 of every method on every data set, with the architecture that validation chose."""
    cells: dict[str, dict[str, str]] = {}
    for name, page in PAGES.items():
        for system, row in _rows(page, "nDCG@5"):
            if system in ("pooled", "ptranking"):
                continue
            method, architecture = _parts(system)
            value = re.sub(r"[*\\]", "", row["nDCG@5"])
            cells.setdefault(method, {})[name] = ", ".join(filter(None, [value, architecture]))
    return _table(["", *PAGES], {method: list(row.values()) for method, row in cells.items()})


def by_architecture() -> str:
    """Test nDCG@5 of the strategies by architecture, averaged over the four objectives."""
    cells = {}
    for name, page in PAGES.items():
        values = {
            _parts(system): float(row["test nDCG@5"]) for system, row in _rows(page, "test nDCG@5")
        }
        for strategy in STRATEGIES:
            cells[f"{name}, {strategy}"] = [
                f"{sum(values[f'{o}-{strategy}', net] for o in OBJECTIVES) / len(OBJECTIVES):.4f}"
                for net in ARCHITECTURES
            ]
    return _table(["nDCG@5, mean of four objectives", *ARCHITECTURES], cells)


def by_strategy() -> str:
    """Test nDCG@5 of the strategies, averaged over the four objectives, on the chosen nets."""
    cells = {}
    for name, page in PAGES.items():
        values = {
            _parts(system)[0]: float(re.sub(r"[*\\]", "", row["nDCG@5"]).split()[0])
            for system, row in _rows(page, "nDCG@5")
            if system not in ("pooled", "ptranking")
        }
        cells[name] = [
            f"{sum(values[f'{o}-{strategy}'] for o in OBJECTIVES) / len(OBJECTIVES):.4f}"
            for strategy in STRATEGIES
        ]
    return _table(["nDCG@5, mean of four objectives", *STRATEGIES], cells)


def differences() -> str:
    """Differences in nDCG@5 that decide claims without a line in the pages' tables of claims."""
    pairs = [("nDCG-type3", name) for name in (*RIVALS, "LambdaMART(L)")]
    pairs += [
        ("Pre-type3", "ApproxNDCG"),
        ("nDCG-type1", "ApproxNDCG"),
        ("nDCG-type1", "Pre-type1"),
    ]
    cells: dict[str, list[str]] = {f"{a} − {b}": [] for a, b in pairs}
    for page in PAGES.values():
        values = {
            _parts(system)[0]: float(re.sub(r"[*\\]", "", row["nDCG@5"]).split()[0])
            for system, row in _rows(page, "nDCG@5")
            if system not in ("pooled", "ptranking")
        }
        for a, b in pairs:
            cells[f"{a} − {b}"].append(f"{values[a] - values[b]:+.4f}".replace("-", "−"))
    return _table(["nDCG@5", *PAGES], cells)


def _rows(page: str, column: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a page's tables that have a column: their first cell, and the others by name."""
    names: list[str] = []
    for line in (HERE / f"{page}.md").read_text("utf-8").splitlines():
        if not line.startswith("|"):
            names = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if names and column in names and not cells[0].startswith("---"):
            yield cells[0].strip("* "), dict(zip(names[1:], cells[1:], strict=True))
        names = names or cells


def _parts(system: str) -> tuple[str, str]:
    """A method and its architecture, which is empty for trees."""
    match = re.fullmatch(rf"(.*) \(({'|'.join(map(re.escape, ARCHITECTURES))})\)", system)
    return (match[1], match[2]) if match else (system, "")


def _table(columns: list[str], cells: dict[str, list[str]]) -> str:
    """A table in Markdown, with numbers on the right."""
    rows = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    rows += [[name, *row] for name, row in cells.items()]
    lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(lines).replace("|  |", "| |").replace(" --- ", "---").replace(" ---: ", "---:")


if __name__ == "__main__":
    print(by_set(), by_strategy(), differences(), by_architecture(), sep="\n\n")
