"""Choose the APIs that agents are offered if the option ``tool_scope`` is not ``query``.

The pool has the APIs of all queries in the data, and of the tool directory if one is given, each
once. All function names differ (`tools.distinct_apis`), so that every API can be called.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import bm25s
import numpy as np

from ace_ray.benchmarks.stabletoolbench.api_schemas import Doc
from ace_ray.benchmarks.stabletoolbench.apis.cache import names_key
from ace_ray.benchmarks.stabletoolbench.callable_names import (
    api_name,
    standardize,
    standardize_category,
)
from ace_ray.benchmarks.stabletoolbench.options import Distractors, Retrieved, Scope
from ace_ray.benchmarks.stabletoolbench.prompts import Texts
from ace_ray.benchmarks.stabletoolbench.tools import Api, distinct_apis, published_names, schemas
from ace_ray.errors import UserError
from ace_ray.types import Entry, digest

RETRIEVER = {"library": f"bm25s {bm25s.__version__}", "k1": 1.5, "b": 0.75, "stopwords": "english"}
_WHERE = "benchmarks.stabletoolbench.tool_scope"
# No model takes more; the prompts of all queries would not fit the driver's memory either.
MAX_TOKENS = 2_000_000
_CHARS_PER_TOKEN = 4


def all_docs(entries: Iterable[Entry], directory: Iterable[Doc]) -> list[Doc]:
    """Return the APIs of ``entries``, then the other APIs of ``directory``, each once."""
    docs: dict[tuple[str, ...], Doc] = {}
    for entry in entries:
        for doc in entry.data["apis"]:
            docs.setdefault(published_names(doc), doc)
    # The directory may write categories and tools in their standard form.
    keys = {_standard_key(doc) for doc in docs.values()}
    for doc in directory:
        if (key := _standard_key(doc)) not in keys:
            keys.add(key)
            docs[published_names(doc)] = doc
    return list(docs.values())


class ToolPool:
    """A pool of APIs, with a choice of APIs for the agent of each query."""

    def __init__(
        self, docs: Sequence[Doc], scope: Scope, entries: Sequence[Entry], texts: Texts
    ) -> None:
        """Choose each entry's APIs. Raises `UserError` if ``scope`` asks for too many."""
        self.apis = distinct_apis(docs, texts)
        self.sha256 = digest(docs)
        self._mean_chars = sum(map(len, map(json.dumps, schemas(self.apis, texts)))) / len(docs)
        # Indices of the offered APIs by the entry's key, in the order of the prompt.
        self._indices: dict[tuple[str, ...], Sequence[int]]
        if isinstance(scope, Retrieved):
            _require_at_most(scope.retrieved, len(docs), "retrieved")
            indices = _retrieve(docs, [e.data["query"] for e in entries], scope.retrieved)
            self._indices = dict(zip([e.key for e in entries], indices, strict=True))
        elif isinstance(scope, Distractors):
            numbers = {published_names(doc): number for number, doc in enumerate(docs)}
            needed = {
                e.key: {numbers[published_names(doc)] for doc in e.data["apis"]} for e in entries
            }
            limit = len(docs) - max(map(len, needed.values()))
            _require_at_most(scope.distractors, limit, "distractors")
            self._indices = {
                key: _add_distractors(needed[key], len(docs), scope, key) for key in needed
            }
        elif (tokens := int(self._mean_chars * len(docs) / _CHARS_PER_TOKEN)) > MAX_TOKENS:
            problem = f"all {len(docs):,} APIs have about {tokens:,} tokens, which fit no model"
            raise UserError(problem, where=_WHERE, fix="write {retrieved: 40}")
        else:
            self._indices = dict.fromkeys([e.key for e in entries], range(len(docs)))

    def apis_of(self, entry: Entry) -> list[Api]:
        """Return the APIs that the entry's agent is offered, in the order of the prompt."""
        return [self.apis[number] for number in self._indices[entry.key]]

    def offered_apis(self) -> list[Api]:
        """Return the APIs that the agent of any entry is offered."""
        return [self.apis[n] for n in sorted(set().union(*self._indices.values()))]

    def fitting_scope(self, context_tokens: int, chars_per_token: float) -> str:
        """Return the scope whose prompts fill half of a context; "" if the context is too short."""
        count = int(context_tokens / 2 * chars_per_token / self._mean_chars)
        count = min(count, len(self.apis)) // 10 * 10 or count
        return f"set tool_scope: {{retrieved: {count}}} (half of the context)" if count else ""


def _retrieve(docs: Sequence[Doc], queries: Iterable[str], count: int) -> Iterator[list[int]]:
    """Yield the indices of the ``count`` best APIs for each query, best first; ties keep their
    order. BM25 compares names, descriptions and parameters of APIs."""
    # With numba, where it is installed, scores would be rounded otherwise.
    bm25 = bm25s.BM25(k1=RETRIEVER["k1"], b=RETRIEVER["b"], backend="numpy")
    bm25.index(_tokens([_search_text(doc) for doc in docs]), show_progress=False)
    for words in (_tokens([query])[0] for query in queries):
        if not words:  # the library raises for an empty query
            yield list(range(count))
        else:
            yield np.argsort(-bm25.get_scores(words), kind="stable")[:count].tolist()


def _tokens(texts: list[str]) -> list[list[str]]:
    tokens: list[list[str]] = bm25s.tokenize(
        texts, stopwords=RETRIEVER["stopwords"], return_ids=False, show_progress=False
    )
    return tokens


def _search_text(doc: Doc) -> str:
    words = [doc["category"], doc["tool"], doc["api"], doc["description"], doc["tool_description"]]
    for parameter in (*doc["required"], *doc["optional"]):
        words += [parameter["name"], parameter["description"]]
    return " ".join(words).replace("_", " ")


def _add_distractors(
    query_indices: set[int], total: int, scope: Distractors, key: tuple[str, ...]
) -> list[int]:
    """Return ``query_indices`` and distractors, random other indices below ``total``, shuffled so
    that positions do not tell which is which. ``scope.seed`` and ``key`` determine the result."""
    draw = random.Random(digest(scope.seed, *key))
    count = scope.distractors + len(query_indices)
    drawn = [n for n in draw.sample(range(total), count) if n not in query_indices]
    offered = [*sorted(query_indices), *drawn][:count]
    draw.shuffle(offered)
    return offered


def _standard_key(doc: Any) -> str:
    return names_key(
        standardize_category(doc["category"]), standardize(doc["tool"]), api_name(doc["api"])
    )


def _require_at_most(count: int, limit: int, kind: str) -> None:
    if count > limit:
        problem = f"{kind} is {count:,}, but the pool has only {limit:,} such APIs"
        raise UserError(problem, where=_WHERE, fix=f"write at most {limit:,}, or all")
