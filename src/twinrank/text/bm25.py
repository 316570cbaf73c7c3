"""Candidates of a BM25 first stage."""

from importlib.util import find_spec

from twinrank.support.errors import InputError
from twinrank.text.text_data import TextCollection

__all__ = ["bm25_candidates"]


def bm25_candidates(
    collection: TextCollection, top: int = 50, *, k1: float = 1.2, b: float = 0.75
) -> dict[str, list[str]]:
    """The documents of the corpus with the highest BM25 scores for each query, best first.

    Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009); the
    index is that of the package bm25s (Lù 2024), with its English stop words and without stemming.

    Parameters
    ----------
    collection : TextCollection
        The queries and the corpus.
    top : int, default 50
        The number of documents per query; at most the size of the corpus.
    k1, b : float
        The parameters of BM25: saturation of term frequency, and normalisation by length.

    Returns
    -------
    dict of str to list of str
        The identifiers of the documents by query, for `TextCollection.columns`.

    Raises
    ------
    InputError
        If bm25s is missing, the corpus is empty, or `top` is not positive.

    Examples
    --------
    ```python
    candidates = bm25_candidates(collection, top=50)
    train = collection.columns(candidates, negatives=7)
    ```
    """
    if find_spec("bm25s") is None:
        raise InputError(
            "bm25_candidates needs bm25s; install it with pip install 'twinrank[text]'."
        )
    import bm25s

    if not isinstance(top, int) or top < 1:
        raise InputError(f"top must be a positive whole number, not {top!r}.")
    if not collection.corpus or not collection.queries:
        raise InputError("The collection has no documents or no queries.")
    names = list(collection.corpus)
    index = bm25s.BM25(k1=k1, b=b)

    def tokens(texts: list[str]) -> object:
        return bm25s.tokenize(texts, stopwords="en", show_progress=False)

    index.index(tokens(list(collection.corpus.values())), show_progress=False)
    found, _ = index.retrieve(
        tokens(list(collection.queries.values())), k=min(top, len(names)), show_progress=False
    )
    rows = zip(collection.queries, found.tolist(), strict=True)
    return {query: [names[i] for i in row] for query, row in rows}
