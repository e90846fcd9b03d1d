"""Small replacements for the modules that upstream's classes import.

A replacement has only the names that the classes use. The complete module would give access to
other modules (``random._os``), and so to files."""

from __future__ import annotations

import functools
import importlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import PurePath
from types import ModuleType
from typing import Any

from ace_ray.errors import UserError
from ace_ray.sandbox.private_modules import make_module

_VECTORS: ContextVar[Mapping[str, Sequence[float]]] = ContextVar("bfcl_vectors")


@contextmanager
def use_vectors(vectors: Mapping[str, Sequence[float]]) -> Iterator[None]:
    """Context in which `Encoder` uses ``vectors``, a mapping of texts to embeddings."""
    token = _VECTORS.set(vectors)
    try:
        yield
    finally:
        _VECTORS.reset(token)


class Encoder:
    """Replaces `SentenceTransformer`, with only the methods that upstream's classes call."""

    def __init__(self, name: str, device: str = "cpu") -> None: ...

    def get_sentence_embedding_dimension(self) -> int:
        return 0  # the value is not used here

    def encode(self, texts: Sequence[Any], normalize_embeddings: bool = False) -> Any:
        """Return an L2-normalised float32 row per text. Raises `LookupError` for unknown text."""
        import numpy as np

        vectors = _VECTORS.get({})
        rows = [vectors.get(text) if isinstance(text, str) else None for text in texts]
        known_rows = [row for row in rows if row is not None]
        if len(known_rows) != len(rows):
            raise LookupError("there is no embedding of this text")
        matrix = np.asarray(known_rows, dtype=np.float32)
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        return matrix / np.maximum(norms, 1e-12)


class FlatIndex:
    """Replaces `faiss.IndexFlatIP` and its wrapper `faiss.IndexIDMap`: search by inner product."""

    def __init__(self, inner: Any = None) -> None:
        self._rows: list[tuple[int, Any]] = []

    def add_with_ids(self, vectors: Any, ids: Any) -> None:
        self._rows += [(int(row_id), row) for row, row_id in zip(vectors, ids, strict=True)]

    def remove_ids(self, ids: Any) -> None:
        gone = {int(row_id) for row_id in ids}
        self._rows = [row for row in self._rows if row[0] not in gone]

    def reset(self) -> None:
        self._rows = []

    def search(self, queries: Any, k: int) -> tuple[Any, Any]:
        """Return (scores, ids) of the ``k`` nearest vectors, one row per query. Raises
        `AssertionError` for k < 1."""
        import numpy as np

        if k < 1:
            raise AssertionError
        matrix = np.stack([row for _, row in self._rows])
        ids = np.array([row_id for row_id, _ in self._rows], dtype=np.int64)
        scores = np.asarray(queries) @ matrix.T
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, order, axis=1), ids[order]


class BM25Plus:
    """Replaces `rank_bm25.BM25Plus`: scores documents, given as lists of tokens, against queries.
    Raises `ZeroDivisionError` for an empty corpus, as upstream's package does."""

    def __init__(
        self, corpus: Sequence[Sequence[str]], k1: float = 1.5, b: float = 0.75, delta: float = 1
    ) -> None:
        self._k1, self._delta = k1, delta
        self._counts = [Counter(document) for document in corpus]
        lengths = [len(document) for document in corpus]
        mean = sum(lengths) / len(lengths)
        self._norms = [k1 * (1 - b + b * length / mean) for length in lengths]
        frequencies = Counter(token for counts in self._counts for token in counts)
        self._idf = {token: math.log((len(lengths) + 1) / n) for token, n in frequencies.items()}

    def get_scores(self, query: Sequence[str]) -> list[float]:
        """Return one score per document; a token that the query repeats counts each time."""
        scores = [0.0] * len(self._counts)
        for token in query:
            if token in self._idf:
                documents = zip(scores, self._counts, self._norms, strict=True)
                idf, factor = self._idf[token], self._k1 + 1
                scores = [
                    s + idf * (self._delta + (counts[token] * factor) / (norm + counts[token]))
                    for s, counts, norm in documents
                ]
        return scores


def _refuse_files(*_: Any) -> Any:
    raise RuntimeError("memory is not read from files here")


@functools.cache
def _mpmath() -> ModuleType:
    """Return `mpmath` with its own context: changes of the shared context would affect sympy."""
    try:
        context = importlib.import_module("mpmath.ctx_mp").MPContext()
    except ImportError as error:
        problem = "MathAPI needs the package mpmath"
        raise UserError(problem, where="data", fix="run `pip install mpmath`") from error
    return make_module("mpmath", mp=context, log=context.log)


def _datetime_stub() -> ModuleType:
    """Return an empty module in place of one that ``datetime`` imports. ``datetime`` itself takes
    the real module from `sys.modules`."""
    importlib.import_module("_strptime")
    return make_module("of_datetime")


# Names that may be imported, by module.
NAMES: Mapping[str, Sequence[str]] = {
    "abc": ("ABC", "abstractmethod"),
    "copy": ("copy", "deepcopy"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal", "InvalidOperation", "getcontext"),
    "json": ("JSONDecodeError", "dump", "dumps", "load", "loads"),
    "math": tuple(name for name in vars(math) if not name.startswith("_")),
    "numpy": ("array", "asarray", "float32", "float64", "int64", "ndarray"),
    "random": ("Random",),
    "re": ("compile", "findall", "fullmatch", "match", "search", "split", "sub"),
    "typing": ("Any", "Callable", "Dict", "List", "Literal", "Optional", "Set", "Tuple", "Union"),
}
_WHERE_SNAPSHOTS_ARE = (
    "get_directory_structure_by_id", "is_first_memory_prereq_entry", "is_memory_prereq",
)  # fmt: skip
_SMALLER: Mapping[str, Mapping[str, Any]] = {
    "bfcl_eval.utils": dict.fromkeys(_WHERE_SNAPSHOTS_ARE, _refuse_files),
    "faiss": {"IndexFlatIP": FlatIndex, "IndexIDMap": FlatIndex},
    "overrides": dict.fromkeys(("final", "override"), lambda function: function),
    "pathlib": {"Path": PurePath},  # used only in annotations
    "rank_bm25": {"BM25Plus": BM25Plus},
    "sentence_transformers": {"SentenceTransformer": Encoder},
    "subprocess": {},  # imported but not used
}
# Functions that return a replacement, by the name of the module.
STAND_INS: Mapping[str, Callable[[], ModuleType]] = {
    **{name: partial(make_module, name, **has) for name, has in _SMALLER.items()},
    "_strptime": _datetime_stub,
    "mpmath": _mpmath,
    "time": _datetime_stub,
}
