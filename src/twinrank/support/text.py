"""Counted nouns with their plural forms."""


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "query"), counted(2000, "query"), counted(3, "document")
    ('1 query', '2,000 queries', '3 documents')
    """
    plural = {"query": "queries"}.get(what, what + "s")
    return f"{count:,} {what if count == 1 else plural}"
