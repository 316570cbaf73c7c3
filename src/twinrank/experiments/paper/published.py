"""The paper's experiment: the published values of Tables 4 to 7, and the protocol.

Yu (2020), "Optimize What You Evaluate With", on MSLR-WEB30K. MAP@k of the tables is `paperAP@k`;
nERR was measured but not printed ("due to space constraints"), so it has no published values.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from twinrank.learning.models.architecture import architecture
from twinrank.learning.training.settings import FEWEST
from twinrank.support.errors import InputError, unknown

ARCHITECTURES = ("R5", "CE5", "R4.L", "CE4.L")
PAPER_CUTOFFS = (1, 3, 5, 10, 20)
FAMILIES = {"nDCG": "nDCG", "paperAP": "MAP", "nERR": "nERR"}
"""Measures of the tables, and the paper's names for them."""
PAPER_MEASURES = tuple(f"{name}@{k}" for name in FAMILIES for k in PAPER_CUTOFFS)
VALIDATION = "nDCG@5"
SIGNIFICANCE = 0.01
EPOCHS, TREE_COUNT, FOLDS = 100, 1000, 5
WASSRANK, AUTHORS_COST = "WassRank", "gain"
"""A method whose costs the author's code computes in its own way, and the name of that way."""
LEAST_HESSIAN = 200.0
"""The least hessian of a leaf of LambdaMART(L)."""
FEWEST_DOCUMENTS, FEWEST_RELEVANT = FEWEST["paper"]
"""Queries with fewer are left out of training, validation and test data."""
MSLR = (30_295, 3_749_144, 136)
"""Queries, documents and features of MSLR-WEB30K after this filter (section 6.1 of the paper)."""
TOLERANCE = 0.01
"""Data with the layout of MSLR-WEB30K whose size differs by less is taken for it."""

TABLES = {
    4: "baselines",
    5: "direct optimisation, type1",
    6: "direct optimisation, type2",
    7: "direct optimisation, type3",
    8: "direct optimisation on trees (not in the paper)",
}
FIGURE_2 = (
    "WassRank",
    "ListNet",
    "ListMLE",
    "LambdaMART(L)",
    "ApproxNDCG",
    "nERR@10-type3",
    "AP-type3",
    "nDCG-type3",
)
TREES_METHOD = "LambdaMART(L)"
_DIRECT_TREES = {
    f"{name}-type3 (trees)": f"{name}-type3 (Boosted)" for name in ("Pre", "AP", "nERR@10", "nDCG")
}
"""Measures on LambdaMART's trees, which the paper leaves to future work: the names of the rows, and
those in `study.methods`."""

# nDCG@1, 3, 5, 10, 20, then MAP@1, 3, 5, 10, 20; an asterisk: differs from the best, p < 0.01.
_PUBLISHED = """
4 ListMLE (CE5)        0.4637* 0.4474* 0.4507* 0.4668* 0.4881* 0.2888 0.2838 0.2839 0.2883 0.2947
4 ListNet (R4.L)       0.4665* 0.4495* 0.4534* 0.4708* 0.4942* 0.2710* 0.2620* 0.2620* 0.2666* 0.2751*
4 ApproxNDCG (R4.L)    0.4768* 0.4538* 0.4554* 0.4691* 0.4890* 0.2829* 0.2757* 0.2754* 0.2779* 0.2832*
4 WassRank (CE4.L)     0.4684* 0.4460* 0.4473* 0.4611* 0.4814* 0.2814* 0.2748* 0.2737* 0.2765* 0.2824*
4 LambdaMART(L)        0.4933 0.4743 0.4776 0.4948 0.5166 0.2874 0.2829* 0.2835* 0.2879* 0.2941*
5 Pre-type1 (R4.L)     0.4440* 0.4302* 0.4363* 0.4535* 0.4753* 0.2863 0.2812 0.2821 0.2865 0.2932
5 AP-type1 (R4.L)      0.4424* 0.4288* 0.4337* 0.4499* 0.4713* 0.2866 0.2813 0.2816 0.2850 0.2909
5 nERR@10-type1 (R5)   0.4609* 0.4412* 0.4418* 0.4518* 0.4632* 0.2795* 0.2716* 0.2699* 0.2684* 0.2653*
5 nDCG-type1 (R4.L)    0.4754 0.4556 0.4565 0.4705 0.4906 0.2811* 0.2757* 0.2751* 0.2775* 0.2834*
6 Pre-type2 (R4.L)     0.4741 0.4551 0.4587* 0.4764 0.4986 0.2841 0.2790 0.2801 0.2851 0.2920
6 AP-type2 (R5)        0.4764 0.4573 0.4606 0.4757 0.4954 0.2842 0.2791 0.2801 0.2843 0.2900
6 nERR@10-type2 (R5)   0.4694* 0.4455* 0.4451* 0.4557* 0.4685* 0.2795* 0.2717* 0.2702* 0.2705* 0.2698*
6 nDCG-type2 (R4.L)    0.4753 0.4551* 0.4568* 0.4709 0.4916 0.2791* 0.2729* 0.2728* 0.2755* 0.2817*
7 Pre-type3 (R5)       0.4807* 0.4589* 0.4628 0.4800 0.5013 0.2852 0.2796 0.2807 0.2856 0.2919
7 AP-type3 (CE4.L)     0.4855 0.4630 0.4646 0.4805 0.5012 0.2849 0.2790 0.2789* 0.2832* 0.2887*
7 nERR@10-type3 (CE5)  0.4834 0.4553* 0.4551* 0.4680* 0.4869* 0.2792* 0.2708* 0.2694* 0.2709* 0.2754*
7 nDCG-type3 (CE4.L)   0.4833 0.4598* 0.4604* 0.4744* 0.4951* 0.2788* 0.2720* 0.2708* 0.2734* 0.2790*
"""  # noqa: E501
_LINE = re.compile(r"(\d) (.+?)(?: \(([A-Z0-9.]+)\))? {2,}(.+)")


@dataclass(frozen=True)
class Published:
    """A row of Tables 4 to 7: a method, its best architecture (None for trees) and its values."""

    table: int
    method: str
    architecture: str | None
    values: dict[str, float]
    marked: frozenset[str]
    """Measures in which it differs from the best of its table (p < 0.01)."""


def _rows() -> Iterator[Published]:
    names = [name for name in PAPER_MEASURES if not name.startswith("nERR")]
    for line in _PUBLISHED.strip().splitlines():
        match = _LINE.fullmatch(line)
        assert match is not None, line
        cells = dict(zip(names, match[4].split(), strict=True))
        yield Published(
            int(match[1]),
            match[2],
            match[3],
            {name: float(cell.rstrip("*")) for name, cell in cells.items()},
            frozenset(name for name, cell in cells.items() if cell.endswith("*")),
        )


PUBLISHED = {row.method: row for row in _rows()}
"""The rows by the paper's name of the method, in the order of the tables."""
ROWS = PUBLISHED | {name: Published(8, name, None, {}, frozenset()) for name in _DIRECT_TREES}
"""The same with our own rows, which have no published values."""


def in_table(method: str, number: int) -> bool:
    """True if a table has a row for the method; Table 8 repeats that of LambdaMART(L)."""
    return ROWS[method].table == number or (number == 8 and method == TREES_METHOD)


def methods_of(tables: Sequence[int]) -> list[str]:
    """The paper's names of the methods in some tables."""
    return [name for name in ROWS if any(in_table(name, number) for number in tables)]


def system(method: str, model: str | None, wassrank_cost: str = AUTHORS_COST) -> str:
    """The name in `study.methods` of a method on an architecture.

    >>> system("AP-type3", "CE4.L"), system("LambdaMART(L)", None)
    ('AP-type3 (CE4.L)', 'LambdaMART')
    >>> system("WassRank", "CE5", "label")
    'WassRank(cost=label) (CE5)'
    """
    if method == WASSRANK and wassrank_cost != AUTHORS_COST:
        method = f"{WASSRANK}(cost={wassrank_cost})"
    if model is not None:
        return f"{method} ({model})"
    return "LambdaMART" if method == TREES_METHOD else _DIRECT_TREES[method]


def models(method: str, architectures: Sequence[str] | None) -> Sequence[str | None]:
    """The architectures of a method; None is the one that the paper chose for it, or trees."""
    own = ROWS[method].architecture
    return (own,) if own is None or architectures is None else architectures


def architectures(text: str) -> list[str] | None:
    """Architectures by name, all four for "all", or None for "paper", the published choices.

    >>> architectures("R5, CE4.L")
    ['R5', 'CE4.L']
    """
    if text.strip() == "paper":
        return None
    if text.strip() == "all":
        return list(ARCHITECTURES)
    names = list(dict.fromkeys(name for name in re.split(r"[,;\s]+", text) if name))
    if not names:
        raise InputError("--architectures must be all, paper, or names such as R5,CE4.L.")
    for name in names:
        if name not in ARCHITECTURES:
            raise InputError(unknown("architecture", name, [*ARCHITECTURES, "all", "paper"]))
        architecture(name)
    return names


def parameters(method: str, epochs: int, rounds: int | None = None) -> dict[str, Any]:
    """The paper's settings (`mode="paper"`), by default with ten times as many trees as epochs."""
    if ROWS[method].architecture is None:
        return {"mode": "paper", "n_estimators": rounds or TREE_COUNT * epochs // EPOCHS}
    return {"mode": "paper", "epochs": epochs}
