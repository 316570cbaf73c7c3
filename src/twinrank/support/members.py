"""How many members a ranker has unless one says otherwise."""

MEMBERS = 5
FEW = 100_000
"""Documents up to which a training is short (docs/choosing.md)."""


def members_for(documents: int) -> int:
    """Several where documents are few.

    >>> members_for(10_000), members_for(2_000_000)
    (5, 1)
    """
    return MEMBERS if documents <= FEW else 1
