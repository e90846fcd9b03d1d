"""BM25+ (Trotman, Puurula, Burgess 2014) with the scores of ``rank_bm25`` 0.2.2, which searches the
keys of upstream's key-value memory; to the last bit, because a model is shown them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


class BM25Plus:
    """Scores documents, given as lists of tokens, against queries. Raises `ZeroDivisionError` where
    there is no document, as that package does."""

    def __init__(
        self, corpus: Sequence[Sequence[str]], k1: float = 1.5, b: float = 0.75, delta: float = 1
    ) -> None:
        self._k1, self._delta = k1, delta
        self._counts = [Counter(document) for document in corpus]
        lengths = [len(document) for document in corpus]
        mean = sum(lengths) / len(lengths)
        self._norms = [k1 * (1 - b + b * length / mean) for length in lengths]
        found = Counter(token for counts in self._counts for token in counts)
        self._idf = {token: math.log((len(lengths) + 1) / n) for token, n in found.items()}

    def get_scores(self, query: Sequence[str]) -> list[float]:
        """One score a document; a token that the query repeats counts each time."""
        scores = [0.0] * len(self._counts)
        shares: dict[str, list[float]] = {}
        for token in query:
            if token not in self._idf:
                continue
            if token not in shares:
                shares[token] = [
                    self._share(token, counts[token], norm)
                    for counts, norm in zip(self._counts, self._norms, strict=True)
                ]
            scores = [a + b for a, b in zip(scores, shares[token], strict=True)]
        return scores

    def _share(self, token: str, count: int, norm: float) -> float:
        return self._idf[token] * (self._delta + (count * (self._k1 + 1)) / (norm + count))
