"""Toolkits of banking_knowledge, built from the user's copy, and search in its documents.

In 1.0.1 the copy's classes format the answers of a search, and `Search` ranks the documents.
In inspect-evals tools are methods of records, and functions declare their schemas."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

# Upstream's default for all searches.
_TOP_K = 10
# Upstream's answers name the duration of a search. Here it is 0, so that answers are repeatable.
_NO_TIME = SimpleNamespace(retrieval_ms=0.0, postprocessing_ms=0.0, total_ms=0.0)


class Search:
    """Ranks documents like upstream's ``RetrievalPipeline``: "grep" by matches of a pattern, "bm25"
    with upstream's library rank-bm25."""

    def __init__(self, kind: str, documents: Sequence[Mapping[str, str]]) -> None:
        self._documents = {document["id"]: document for document in documents}
        self._bm25: Any = None
        if kind == "bm25":
            from rank_bm25 import BM25Okapi

            self._bm25 = BM25Okapi([d["content"].lower().split() for d in documents])

    def retrieve(self, query: str, return_timing: bool = False) -> Any:
        """Return (document id, score) of the best documents, with their timing if requested."""
        # For a query such as null, upstream's grep fails and its BM25 does not.
        is_empty = (self._bm25 is not None and not query) or not query.strip()
        scores = {} if is_empty else self._scores(query)
        results = sorted(scores.items(), key=lambda pair: pair[1], reverse=True)[:_TOP_K]
        return SimpleNamespace(results=results, timing=_NO_TIME) if return_timing else results

    def _scores(self, query: str) -> dict[str, float]:
        if self._bm25 is not None:
            scores = map(float, self._bm25.get_scores(query.lower().split()))
            return dict(zip(self._documents, scores, strict=True))
        try:
            pattern = re.compile(query, re.IGNORECASE)
        except re.error:
            pattern = re.compile(re.escape(query), re.IGNORECASE)
        counts = {key: len(pattern.findall(d["content"])) for key, d in self._documents.items()}
        return {key: float(count) for key, count in counts.items() if count}

    def get_document_title(self, document_id: str) -> str:
        return self._documents[document_id]["title"]

    def get_document_content(self, document_id: str) -> str:
        return self._documents[document_id]["content"]


def inspect_kits(
    member: Callable[[str, str], Any], db: Any, searches: Mapping[str, Any], with_grep: bool
) -> dict[str, Any]:
    """Return the tools of each side in inspect-evals, which work on the database ``db``. ``member``
    returns a member of a module of the copy. If ``with_grep``, the agent can search."""
    agent = member("BankingAgentTools", "BankingAgentTools").model_construct(db=db)
    agent.agent_unlocked_tools, agent.user_given_tools_state = {}, {}
    user = member("BankingUserTools", "BankingUserTools").model_construct(db=db)
    functions = [*member("tools", "all_banking_agent_tools")]
    functions += [member("tools", "banking_grep")] if with_grep else []
    return {
        "assistant": InspectKit(agent, functions, getattr(searches.get("grep"), "grep", None)),
        "user": InspectKit(user, member("user_tools", "all_banking_user_tools")),
    }


class InspectKit:
    """Tools of one side in inspect-evals, in the form of upstream's toolkits. They are methods of
    ``record``; ``functions`` return functions that declare them. ``search`` is the tool "grep"."""

    def __init__(self, record: Any, functions: Sequence[Any], search: Any = None) -> None:
        self._record, self._search, self.db = record, search, record.db
        self._declared = {f.__name__.removeprefix("banking_"): f() for f in functions}

    def has_tool(self, name: str) -> bool:
        return name in self._declared

    tool_mutates_state = has_tool

    def use_tool(self, tool_name: str, **arguments: Any) -> Any:
        if tool_name not in self._declared:
            raise ValueError(f"Tool '{tool_name}' not found.")
        tool = self._search if tool_name == "grep" else getattr(self._record, tool_name)
        return tool(**arguments)

    def get_tools(self) -> dict[str, Any]:
        schemas = {name: _schema(name, function) for name, function in self._declared.items()}
        return {name: SimpleNamespace(openai_schema=schema) for name, schema in schemas.items()}


def _schema(name: str, function: Any) -> dict[str, Any]:
    """Return a tool in OpenAI's form. Its description is the whole docstring."""
    from pydantic import create_model

    fields: dict[str, Any] = {
        p.name: (p.annotation, ... if p.default is p.empty else p.default)
        for p in inspect.signature(function).parameters.values()
    }
    parameters = create_model("parameters", **fields).model_json_schema()
    described = {"description": inspect.getdoc(function), "parameters": parameters}
    return {"type": "function", "function": {"name": name, **described}}
