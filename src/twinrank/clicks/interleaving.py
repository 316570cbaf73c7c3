"""Team-draft interleaving (Radlinski et al. 2008): two rankers in one list, a test of clicks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.support.arrays import as_floats
from twinrank.support.errors import InputError, check_number


@dataclass(frozen=True)
class Interleaving:
    """A list for one impression, made of two rankings.

    Parameters
    ----------
    documents : tuple
        The documents to show, from the top.
    teams : tuple of str
        "a" or "b" for each document: the ranking that contributed it.
    """

    documents: tuple[Any, ...]
    teams: tuple[str, ...]

    def credit(self, clicked: Sequence[Any]) -> tuple[int, int]:
        """Count the clicks for a and for b.

        Parameters
        ----------
        clicked : sequence
            The documents that were clicked.
        """
        team = dict(zip(self.documents, self.teams, strict=True))
        for document in clicked:
            if document not in team:
                raise InputError(f"{document!r} was clicked, but is not in the interleaved list.")
        teams = [team[document] for document in set(clicked)]
        return teams.count("a"), teams.count("b")


def interleave(
    a: Sequence[Any], b: Sequence[Any], length: int = 10, random_state: Any = None
) -> Interleaving:
    """Interleave two rankings by team draft.

    In each round a coin decides which ranking picks first; then each picks its best document that
    is not in the list yet. So both rankings have the same chance of a click if users click at
    random, and a click is a vote for the ranking that contributed the document.

    Parameters
    ----------
    a, b : sequence
        Document ids, from the best.
    length : int, default 10
        The length of the list.
    random_state : int or numpy.random.Generator, optional
        The seed. Pass one generator for all impressions, or a seed for each.

    Returns
    -------
    Interleaving

    Raises
    ------
    InputError
        If a ranking has a document twice, or length is below 1.

    Examples
    --------
    >>> interleave(["x", "y", "z"], ["x", "w", "y"], length=3, random_state=0).documents
    ('x', 'y', 'w')
    """
    rankings = {"a": list(a), "b": list(b)}
    for name, ranking in rankings.items():
        if len(set(ranking)) < len(ranking):
            raise InputError(f"Ranking {name} has a document twice.")
    check_number("length", length, whole=True, least=1)
    generator = np.random.default_rng(random_state)
    documents: list[Any] = []
    teams: list[str] = []
    shown: set[Any] = set()
    while len(documents) < length:
        before = len(documents)
        for name in ("ab", "ba")[int(generator.integers(2))]:
            best = next((own for own in rankings[name] if own not in shown), None)
            if best is not None and len(documents) < length:
                shown.add(best)
                documents.append(best)
                teams.append(name)
        if len(documents) == before:
            break
    return Interleaving(tuple(documents), tuple(teams))


@dataclass(frozen=True)
class InterleavingTest:
    """The outcome of an interleaving experiment.

    Parameters
    ----------
    wins_a, wins_b, ties : int
        The number of impressions in which a got more clicks, b did, or both got as many.
    preference : float
        The share of wins for b among impressions without a tie; above 0.5 if b is better.
    interval : tuple of float
        Its 95 % interval (Wilson).
    p_value : float
        Of the two-sided sign test.
    """

    wins_a: int
    wins_b: int
    ties: int
    preference: float
    interval: tuple[float, float]
    p_value: float

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"b wins {self.wins_b:,} and a wins {self.wins_a:,} impressions, {self.ties:,} ties: "
            f"preference for b {self.preference:.3f} [{low:.3f}, {high:.3f}], p = "
            f"{self.p_value:.3g}"
        )


def interleaving_test(outcomes: Sequence[tuple[int, int]]) -> InterleavingTest:
    """Test whether users prefer one of two interleaved rankings.

    Parameters
    ----------
    outcomes : sequence of pairs of int
        The clicks for a and for b in each impression, from `Interleaving.credit`. Impressions must
        be independent: use one per user, or sum the clicks of a user.

    Returns
    -------
    InterleavingTest

    Raises
    ------
    InputError
        If no impression has a winner.

    Examples
    --------
    >>> print(interleaving_test([(0, 1)] * 30 + [(1, 0)] * 12 + [(0, 0)] * 8))
    b wins 30 and a wins 12 impressions, 8 ties: preference for b 0.714 [0.564, 0.828], p = 0.00792
    """
    from scipy.stats import binomtest

    clicks = as_floats("outcomes", outcomes)
    if clicks.ndim != 2 or clicks.shape[1] != 2 or not (clicks >= 0).all():
        raise InputError("outcomes must be pairs: the clicks for a and for b, none negative.")
    wins_a, wins_b = (
        int((clicks[:, 0] > clicks[:, 1]).sum()),
        int((clicks[:, 0] < clicks[:, 1]).sum()),
    )
    if wins_a + wins_b == 0:
        raise InputError("No impression has a winner, so that the outcomes say nothing.")
    test = binomtest(wins_b, wins_a + wins_b)
    interval = test.proportion_ci(method="wilson")
    return InterleavingTest(
        wins_a, wins_b, len(clicks) - wins_a - wins_b, wins_b / (wins_a + wins_b),
        (float(interval.low), float(interval.high)), float(test.pvalue),
    )  # fmt: skip
