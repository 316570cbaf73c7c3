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
_RIVALS = (*_SURROGATES, "ApproxNDCG", "LambdaMART(L)")
_MAP = "paperAP@5"
_CLAIMS: Sequence[tuple[str, str, Sequence[tuple[str, str]]]] = (
    # nDCG-type2 is not claimed to be better than nDCG-type1.
    ("type2 > type1", VALIDATION, [(f"{n}-type2", f"{n}-type1") for n in _OBJECTIVES[:3]]),
    ("type3 > type2", VALIDATION, [(f"{n}-type3", f"{n}-type2") for n in _OBJECTIVES]),
    ("type3 > type1", VALIDATION, [(f"{n}-type3", f"{n}-type1") for n in _OBJECTIVES]),
    ("nDCG best of type1", VALIDATION, [("nDCG-type1", f"{n}-type1") for n in _OBJECTIVES[:3]]),
    ("nDCG-type1 ≈ ApproxNDCG", VALIDATION, [("nDCG-type1", "ApproxNDCG")]),
    ("nDCG-type1 > surrogates", VALIDATION, [("nDCG-type1", name) for name in _SURROGATES]),
    ("AP-type3 > surrogates", VALIDATION, [("AP-type3", name) for name in _RIVALS[:4]]),
    ("nDCG-type3 > rivals", VALIDATION, [("nDCG-type3", name) for name in _RIVALS]),
    ("Pre-type3 > ApproxNDCG", VALIDATION, [("Pre-type3", "ApproxNDCG")]),
    ("ApproxNDCG > surrogates", VALIDATION, [("ApproxNDCG", name) for name in _SURROGATES]),
    ("ListMLE has the best MAP", _MAP, [("ListMLE", n) for n in (*_SURROGATES[1:], "ApproxNDCG")]),
    (
        "AP-type3 is best",
        VALIDATION,
        [("AP-type3", f"{n}-type3") for n in ("Pre", "nERR@10", "nDCG")],
    ),
    ("LambdaMART > nets", VALIDATION, [("LambdaMART(L)", "AP-type3")]),
    (
        "open: equal trees",
        VALIDATION,
        [(f"{n}-type3 (trees)", "LambdaMART(L)") for n in _OBJECTIVES],
    ),
)
"""Section 7.1: the claim, its measure, and pairs of methods, the first of which is to be better.

With ≈, they are to be equal."""


@dataclass(frozen=True, eq=False)
class Claim:
    """A comparison that the paper makes, on our data."""

    claim: str
    better: Measured
    worse: Measured
    measure: str = VALIDATION

    @property
    def difference(self) -> float:
        """The difference in the measure, averaged over folds and seeds."""
        return self.better.mean(self.measure) - self.worse.mean(self.measure)

    @property
    def spread(self) -> float:
        """The standard deviation of the difference over seeds; NaN for one seed."""
        means = [row.means[self.measure].mean(axis=1) for row in (self.better, self.worse)]
        return spread(means[0] - means[1])

    @property
    def p(self) -> float:
        """Wilcoxon's p-value over queries."""
        values = [row.evaluation.values[self.measure] for row in (self.better, self.worse)]
        return p_value(values[0], values[1])

    @property
    def verdict(self) -> str:
        """Whether the claim holds; "unclear" if the difference is not significant."""
        alike = "≈" in self.claim
        if np.isnan(self.difference) or self.p >= SIGNIFICANCE:
            return "no difference" if alike else "unclear"
        return "no" if alike else "yes" if self.difference > 0 else "no, opposite"


def claims_of(results: ReproductionResults) -> list[Claim]:
    """The claims about methods that were measured."""
    return list(_claims_of(results)) if results.tables else []


def _claims_of(results: ReproductionResults) -> Iterator[Claim]:
    rows = results.chosen
    for claim, measure, pairs in _CLAIMS:
        for better, worse in pairs:
            if better in rows and worse in rows:
                yield Claim(claim, rows[better], rows[worse], measure)


def claim_table(claims: Sequence[Claim]) -> ResultTable:
    """Each claim with the differences, p-values and whether it holds.

    A claim has a line of its own and its comparisons below, so that the table fits 80 columns.
    """
    rows, last = [], ""
    for each in claims:
        if each.claim != last:
            rows.append([Cell(each.claim), *[Cell("")] * 4])
        last = each.claim
        rows.append(
            [
                Cell(f"  {each.better.method}"),
                Cell(each.worse.method),
                Cell(signed(each.difference) + plus_minus(each.spread)),
                Cell(f"{each.p:.2g}"),
                Cell(each.verdict),
            ]
        )
    return ResultTable(
        f"Claims of the paper, in {VALIDATION}",
        ["claim, better", "worse", "difference", "p", "holds"],
        rows,
        [
            f"yes, no: p < {SIGNIFICANCE:g} (Wilcoxon's signed-rank test on queries). "
            "The paper leaves trees on direct objectives open.",
            "ListMLE's claim is in MAP@5. ≈: the paper finds both alike.",
        ],
    )


def claim_csv(claims: Sequence[Claim]) -> str:
    """The same with all digits."""
    head = ["claim", "measure", "better", "worse", "difference", "spread", "p_value", "holds"]
    lines = (
        [
            c.claim,
            c.measure,
            c.better.method,
            c.worse.method,
            c.difference,
            c.spread,
            c.p,
            c.verdict,
        ]
        for c in claims
    )
    return csv_text([head, *lines])
