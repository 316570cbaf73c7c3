"""The claims of the paper about its tables, each as a comparison of two methods."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from twinrank.evaluation.significance import p_value
from twinrank.experiments.paper.paper_tables import Measured, plus_minus, signed, spread
from twinrank.experiments.paper.published import SIGNIFICANCE, VALIDATION
from twinrank.experiments.paper.reproduction import ReproductionResults
from twinrank.support.tables import Cell, ResultTable, csv_text

_OBJECTIVES = ("Pre", "AP", "nERR@10", "nDCG")
_SURROGATES = ("ListMLE", "ListNet", "WassRank")
_CLAIMS: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (
    # nDCG-type2 is not claimed to be better than nDCG-type1.
    ("type2 > type1", [(f"{name}-type2", f"{name}-type1") for name in _OBJECTIVES[:3]]),
    ("type3 > type2", [(f"{name}-type3", f"{name}-type2") for name in _OBJECTIVES]),
    ("type3 > type1", [(f"{name}-type3", f"{name}-type1") for name in _OBJECTIVES]),
    ("direct > surrogates", [("nDCG-type1", name) for name in _SURROGATES]),
    ("direct > surrogates", [("AP-type3", name) for name in (*_SURROGATES, "ApproxNDCG")]),
    ("ApproxNDCG > surrogates", [("ApproxNDCG", name) for name in _SURROGATES]),
    ("AP-type3 is best", [("AP-type3", f"{n}-type3") for n in ("Pre", "nERR@10", "nDCG")]),
    ("LambdaMART(L) > nets", [("LambdaMART(L)", "AP-type3")]),
    ("open: equal trees", [(f"{n}-type3 (trees)", "LambdaMART(L)") for n in _OBJECTIVES]),
)
"""Section 7.1: the claim, and pairs of methods of which the first is to be better in nDCG@5."""


@dataclass(frozen=True, eq=False)
class Claim:
    """A comparison that the paper makes, on our data."""

    claim: str
    better: Measured
    worse: Measured

    @property
    def difference(self) -> float:
        """The difference in nDCG@5, averaged over folds and seeds."""
        return self.better.mean(VALIDATION) - self.worse.mean(VALIDATION)

    @property
    def spread(self) -> float:
        """The standard deviation of the difference over seeds; NaN for one seed."""
        means = [row.means[VALIDATION].mean(axis=1) for row in (self.better, self.worse)]
        return spread(means[0] - means[1])

    @property
    def p(self) -> float:
        """Wilcoxon's p-value over queries."""
        values = [row.evaluation.values[VALIDATION] for row in (self.better, self.worse)]
        return p_value(values[0], values[1])

    @property
    def verdict(self) -> str:
        """Whether the claim holds."""
        if np.isnan(self.difference) or self.p >= SIGNIFICANCE:
            return "not significant"
        return "yes" if self.difference > 0 else "no, the opposite"


def claims_of(results: ReproductionResults) -> list[Claim]:
    """The claims about methods that were measured."""
    return list(_claims_of(results)) if results.tables else []


def _claims_of(results: ReproductionResults) -> Iterator[Claim]:
    rows = results.chosen
    for claim, pairs in _CLAIMS:
        for better, worse in pairs:
            if better in rows and worse in rows:
                yield Claim(claim, rows[better], rows[worse])


def claim_table(claims: Sequence[Claim]) -> ResultTable:
    """Each claim with the difference in nDCG@5, its p-value and whether it holds."""
    rows = [
        [
            Cell(each.claim),
            Cell(each.better.method),
            Cell(each.worse.method),
            Cell(signed(each.difference) + plus_minus(each.spread)),
            Cell(f"{each.p:.2g}"),
            Cell(each.verdict),
        ]
        for each in claims
    ]
    return ResultTable(
        f"Claims of the paper, in {VALIDATION}",
        ["claim", "better", "worse", "difference", "p", "holds"],
        rows,
        [
            f"yes, no: p < {SIGNIFICANCE:g} (Wilcoxon's signed-rank test on queries). "
            "The paper leaves trees on direct objectives open."
        ],
    )


def claim_csv(claims: Sequence[Claim]) -> str:
    """The same with all digits."""
    head = ["claim", "better", "worse", "difference", "spread", "p_value", "holds"]
    lines = (
        [c.claim, c.better.method, c.worse.method, c.difference, c.spread, c.p, c.verdict]
        for c in claims
    )
    return csv_text([head, *lines])
