"""Which APIs an agent is offered: its query's own, or some of the whole pool.

Upstream offers the query's APIs, or in its open-domain pipeline the top k of a trained retriever.
Ours is BM25 by the library ``bm25s``; the other scopes are the query's APIs among ``k`` distractors
and the whole pool.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ace_ray.benchmarks.stabletoolbench.data.shapes import Doc
from ace_ray.benchmarks.stabletoolbench.names import function_name
from ace_ray.benchmarks.stabletoolbench.prompts import OWN, Texts
from ace_ray.benchmarks.stabletoolbench.tools import Rules, apis_of, schemas
from ace_ray.errors import UserError
from ace_ray.mistakes import did_you_mean
from ace_ray.records import Entry, digest

Kind = Literal["query", "distractors", "retrieved", "all"]
_WHERE = "benchmarks.stabletoolbench.tool_scope"
_FIX = "write query, all, {distractors: <number>} or {retrieved: <number>}"
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Scope:
    """What is offered; ``k`` counts distractors or retrieved APIs, 0 otherwise."""

    kind: Kind = "query"
    k: int = 0

    def as_json(self) -> Any:
        """As a config writes it."""
        return {self.kind: self.k} if self.k else self.kind


def parse_scope(value: Any, where: str = _WHERE) -> Scope:
    """The scope that a config's ``value`` describes. Raises `UserError`."""
    if value == "query":
        return Scope("query")
    if value == "all":
        return Scope("all")
    if isinstance(value, Mapping) and len(value) == 1:
        ((kind, k),) = value.items()
        if kind in ("distractors", "retrieved"):
            if not isinstance(k, int) or isinstance(k, bool) or k < 1:
                raise UserError(
                    f"{kind} is {k!r:.40}", where=where, fix="write a number of at least 1"
                )
            return Scope(kind, k)
    fix = did_you_mean(value, ["query", "all"], _FIX)
    raise UserError(f"{value!r:.60} is no scope", where=where, fix=fix)


class ToolPool:
    """All different APIs of a data set, and the ones that each query is offered.

    Every choice is the same for the same pool, scope, seed and query, wherever it is made.
    """

    def __init__(self, entries: Sequence[Entry], scope: Scope, *, seed: int = 0) -> None:
        """``entries`` are those of all groups, whatever part of them is run. Raises `UserError`
        when the pool is too small for the scope, or the retriever is not installed."""
        self.scope, self.seed = scope, seed
        self.docs = list(
            {
                (doc["category"], doc["tool"], doc["api"]): doc
                for entry in entries
                for doc in entry.data["apis"]
            }.values()
        )
        self._index: _Index | None = None
        most = len(self.docs)
        if scope.kind == "distractors":
            most -= max(len(entry.data["apis"]) for entry in entries)
        if scope.k > most:
            raise UserError(
                f"{scope.kind} is {scope.k:,}, and there are {len(self.docs):,} APIs",
                where=_WHERE,
                fix=f"write at most {most:,}, or all",
            )
        if scope.kind == "retrieved":
            _library()

    def __getstate__(self) -> dict[str, Any]:
        # The index is made again faster than it travels.
        return self.__dict__ | {"_index": None}

    def docs_of(self, entry: Entry) -> list[Doc]:
        """The APIs that ``entry``'s agent is offered, in the order in which it sees them."""
        own: list[Doc] = entry.data["apis"]
        if self.scope.kind == "query":
            return own
        if self.scope.kind == "all":
            return self.docs
        if self.scope.kind == "distractors":
            return self._among_distractors(entry)
        if self._index is None:
            self._index = _Index(self.docs)
        return [self.docs[place] for place in self._index.top(entry.data["query"], self.scope.k)]

    def require_fits(self, max_chars: int, rules: Rules, texts: Texts = OWN) -> None:
        """Raise `UserError` when the scope is ``all`` and the schemas of the pool have more than
        ``max_chars`` characters of JSON."""
        if self.scope.kind != "all":
            return
        everything = Entry("", "", "", "", {"apis": self.docs}, None)
        offered = schemas(apis_of(everything, rules, texts), rules, texts)
        chars = sum(len(json.dumps(schema)) for schema in offered)
        if chars > max_chars:
            raise UserError(
                f"the schemas of all {len(self.docs):,} APIs have {chars:,} characters (about "
                f"{chars // _CHARS_PER_TOKEN:,} tokens), more than the {max_chars:,} that fit",
                where=_WHERE,
                fix="write {retrieved: 20} or {distractors: 20}, or use a model with more context",
            )

    def identity(self) -> dict[str, Any]:
        """What of it can move a score (JSON values)."""
        identity: dict[str, Any] = {"tool_scope": self.scope.as_json()}
        if self.scope.kind != "query":
            identity |= {"pool_apis": len(self.docs), "pool_sha256": digest(self.docs)}
        if self.scope.kind == "distractors":
            identity["tool_scope_seed"] = self.seed
        if self.scope.kind == "retrieved":
            identity["retriever"] = f"bm25s {_library().__version__}, lucene, k1 1.5, b 0.75"
        return identity

    def _among_distractors(self, entry: Entry) -> list[Doc]:
        draw = random.Random(digest(self.seed, entry.id))
        offered: list[Doc] = list(entry.data["apis"])
        taken = {_function(doc) for doc in offered}
        others = draw.sample(self.docs, len(self.docs))
        wanted = len(offered) + self.scope.k
        for doc in others:
            if len(offered) == wanted:
                break
            # A second function of the same name could not be called.
            if (name := _function(doc)) not in taken:
                taken.add(name)
                offered.append(doc)
        # Their place would tell the query's own apart.
        draw.shuffle(offered)
        return offered


class _Index:
    """BM25 over names, descriptions and parameters of APIs."""

    def __init__(self, docs: Sequence[Doc]) -> None:
        library = _library()
        self._tokenize = library.tokenize
        # Numba, where it is installed, would round differently.
        self._bm25 = library.BM25(k1=1.5, b=0.75, backend="numpy", auto_compile=False)
        self._bm25.index(self._tokens([_text(doc) for doc in docs]), show_progress=False)

    def top(self, query: str, k: int) -> list[int]:
        """Places of the ``k`` best, best first; of equals the earlier."""
        scores = self._bm25.get_scores(self._tokens([query])[0]).tolist()
        return sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:k]

    def _tokens(self, texts: list[str]) -> list[list[str]]:
        tokens: list[list[str]] = self._tokenize(
            texts, stopwords="english", return_ids=False, show_progress=False
        )
        return tokens


def _text(doc: Doc) -> str:
    texts = [doc["category"], doc["tool"], doc["api"], doc["description"], doc["tool_description"]]
    for parameter in (*doc["required"], *doc["optional"]):
        texts += [parameter["name"], parameter["description"]]
    return " ".join(texts).replace("_", " ")


def _function(doc: Doc) -> str:
    return function_name(doc["api"], doc["tool"])


def _library() -> Any:
    try:
        import bm25s  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise UserError(
            "retrieving APIs needs the package bm25s, which is not installed",
            where=_WHERE,
            fix="pip install bm25s, or write tool_scope: query",
        ) from error
    return bm25s
