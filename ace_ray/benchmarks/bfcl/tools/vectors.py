"""What stands in for ``sentence_transformers`` and ``faiss`` in upstream's vector memory.

A sandbox makes no requests: the vectors come with the calls. The loop asks for those of every text
that a step may embed (`Toolbox`, calls ``texts`` and ``vectors``), so a replay of the calls needs
no endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

_VECTORS: ContextVar[Mapping[str, Sequence[float]]] = ContextVar("bfcl_vectors")


@contextmanager
def known(vectors: Mapping[str, Sequence[float]]) -> Iterator[None]:
    """Within it, encoders know ``vectors`` by their texts."""
    token = _VECTORS.set(vectors)
    try:
        yield
    finally:
        _VECTORS.reset(token)


class Encoder:
    """`SentenceTransformer`, as far as it is used."""

    def __init__(self, name: str, device: str = "cpu") -> None: ...

    def get_sentence_embedding_dimension(self) -> int:
        return 0  # nothing here depends on it

    def encode(self, texts: Sequence[Any], normalize_embeddings: bool = False) -> Any:
        """Rows of float32, L2-normalised. Raises `LookupError` for a text without a vector."""
        import numpy as np

        vectors = _VECTORS.get({})
        rows = [vectors.get(text) if isinstance(text, str) else None for text in texts]
        found = [row for row in rows if row is not None]
        if len(found) != len(rows):
            raise LookupError("there is no embedding of this text")
        matrix = np.asarray(found, dtype=np.float32)
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        return matrix / np.maximum(norms, 1e-12)


class FlatIndex:
    """`faiss.IndexFlatIP` and, around it, `faiss.IndexIDMap`: inner products, highest first."""

    def __init__(self, inner: Any = None) -> None:
        self._rows: list[tuple[int, Any]] = []

    def add_with_ids(self, vectors: Any, ids: Any) -> None:
        self._rows += [(int(one), row) for row, one in zip(vectors, ids, strict=True)]

    def remove_ids(self, ids: Any) -> None:
        gone = {int(one) for one in ids}
        self._rows = [row for row in self._rows if row[0] not in gone]

    def reset(self) -> None:
        self._rows = []

    def search(self, queries: Any, k: int) -> tuple[Any, Any]:
        """(scores, ids) of the ``k`` nearest, a row a query. Raises `AssertionError` for k < 1."""
        import numpy as np

        if k < 1:
            raise AssertionError
        matrix = np.stack([row for _, row in self._rows])
        ids = np.array([one for one, _ in self._rows], dtype=np.int64)
        scores = np.asarray(queries) @ matrix.T
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, order, axis=1), ids[order]


def sentence_transformers() -> ModuleType:
    module = ModuleType("sentence_transformers")
    module.__dict__["SentenceTransformer"] = Encoder
    return module


def faiss() -> ModuleType:
    module = ModuleType("faiss")
    module.__dict__.update(IndexFlatIP=FlatIndex, IndexIDMap=FlatIndex)
    return module
