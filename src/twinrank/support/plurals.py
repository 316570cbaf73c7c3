"""Counted nouns with their plural forms."""

_PLURALS = {"query": "queries"}


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the singular or the plural.

    >>> counted(1, "query"), counted(2000, "query"), counted(3, "document")
    ('1 query', '2,000 queries', '3 documents')
    """
    plural = _PLURALS.get(noun, noun + "s")
    return f"{count:,} {noun if count == 1 else plural}"
