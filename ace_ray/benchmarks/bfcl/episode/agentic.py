"""Run the episodes of the agentic categories: memory and web search.

The question of a memory entry refers to earlier conversations. ace_ray runs these conversations
first, so that the model fills a memory; the question's episode starts with this memory. A web
search entry offers two tools that call configured services. Their results have the shapes of
upstream's ``web_search.py``. The results depend on the date and on the services, so the scores are
not comparable with the leaderboard's."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.episode.conversation import (
    Conversation,
    Embedder,
    EpisodeSettings,
    Sandbox,
)
from ace_ray.benchmarks.bfcl.episode.services import Service, ServiceFailed
from ace_ray.benchmarks.bfcl.options import WebSearchConfig
from ace_ray.benchmarks.bfcl.tools.environment import MAX_CALL_CHARS
from ace_ray.benchmarks.bfcl.tools.evaluate import evaluate
from ace_ray.benchmarks.context import EpisodeContext
from ace_ray.benchmarks.messages import add_system
from ace_ray.errors import PromptTooLong
from ace_ray.models.http import Reply, Transport
from ace_ray.types import Entry, Episode, digest

# A conversation with one of these endings does not change the memory.
_FORGOTTEN = ("context", "deadline")


async def prepare_memory(
    entry: Entry,
    context: EpisodeContext,
    settings: EpisodeSettings,
    conversations: Sequence[Mapping[str, Any]],
    embed: Embedder | None = None,
) -> dict[str, Any]:
    """Run the conversations that fill the memory of an entry's scenario, in order. Each
    conversation starts with the memory that the previous one left.

    Args:
        entry: any entry with this scenario and kind of memory.
        conversations: ``{"id", "question": [[message, ...] per turn]}``.

    Returns:
        {"snapshot": the final memory, "conversations": [{"id", "ended", "messages", "turns",
        "results"}, ...]}. A conversation truncated by the context or the deadline does not change
        the memory, as in upstream; a stop at the step limit keeps changes. Conversations that the
        deadline prevented are listed as empty, with the ending "deadline".

    Raises:
        RowError: the candidate did not answer before the deadline, its engine failed a health
            check, or the sandbox is lost."""
    records: list[dict[str, Any]] = []
    snapshot: dict[str, Any] = {}
    for number, prerequisite in enumerate(conversations, start=1):
        async with context.sandbox() as session:
            sandbox = Sandbox(session, embed)
            await sandbox.restore(snapshot)
            context.episode.messages = []
            first, *turns = prerequisite["question"]
            conversation, opening = await _begin(entry, context, settings, sandbox, first)
            try:
                ending = await conversation.play([opening, *turns])
            except PromptTooLong:  # this conversation is dropped too; others may fit
                ending = "context"
            if ending not in _FORGOTTEN:
                snapshot = await sandbox.snapshot()
        record = {"id": prerequisite["id"], "messages": context.episode.messages}
        records.append(record | conversation.state(ending))
        if ending == "deadline":
            never = {"messages": [], "turns": [], "results": [], "ended": ending}
            records += [{"id": talk["id"], **never} for talk in conversations[number:]]
            break
    return {"snapshot": snapshot, "conversations": records}


async def memory_rollout(
    entry: Entry, context: EpisodeContext, settings: EpisodeSettings, embed: Embedder | None = None
) -> Episode:
    """Run the episode of one memory question, starting with the memory in ``context.prepared``.

    `Episode.state` has ``turns``, ``results`` and ``ended`` as in multi-turn entries. ``memory`` is
    the snapshot at the start, and ``memory_sha256`` its hash. ``memory_end`` is the snapshot at the
    end. ``prepared`` lists {"id", "ended"} of the conversations that filled the memory. If the
    context or the deadline truncated one of them, the memory may lack the answer, and ``ended`` is
    "preparation". If the question's episode was truncated, too, ``ended`` is "context" or
    "deadline"."""
    before = context.prepared or {}
    snapshot = dict(before.get("snapshot", {}))
    prepared = [
        {"id": record["id"], "ended": record["ended"]} for record in before.get("conversations", ())
    ]
    async with context.sandbox() as session:
        sandbox = Sandbox(session, embed)
        await sandbox.restore(snapshot)
        question = add_system(settings.prompts.texts.agentic, entry.data["question"][0])
        conversation, opening = await _begin(entry, context, settings, sandbox, question)
        ending = await conversation.play([opening])
        end = await sandbox.snapshot()
    if ending not in _FORGOTTEN and any(record["ended"] in _FORGOTTEN for record in prepared):
        ending = "preparation"
    context.episode.state = {
        **conversation.state(ending),
        "memory": snapshot,
        "memory_sha256": digest(snapshot),
        "memory_end": end,
        "prepared": prepared,
    }
    return context.episode


async def _begin(
    entry: Entry,
    context: EpisodeContext,
    settings: EpisodeSettings,
    sandbox: Sandbox,
    messages: Sequence[Mapping[str, Any]],
) -> tuple[Conversation, list[dict[str, Any]]]:
    """Return a new conversation, and its first messages, which begin with the memory's content."""
    functions, _ = settings.functions(entry)
    tools = settings.tools(functions)
    conversation = Conversation(context, sandbox.step, tools, settings.results)
    backend = entry.category.removeprefix("memory_")
    text = settings.prompts.memory(entry.data["scenario"], backend, await sandbox.dump())
    return conversation, settings.opening(add_system(text, messages), functions)


MAX_RESULTS = 50
# Maximum characters of a page that a model sees.
MAX_PAGE_CHARS = 100_000
# Maximum calls of one step. Each is a request to a service.
MAX_STEP_CALLS = 500
# HTTP status by which the fetch service reports that the page has failed, not the service itself.
# The body gives the reason. A status other than 200 and 424 is a failure of the service.
PAGE_FAILED = 424
_FIELD_CHARS = 10_000
_CAUSE_CHARS = 200
_MODES = ("raw", "markdown", "truncate")


class WebSearchAPI:
    """The web search tools. The class has upstream's name, since Python's errors show the name to
    the model.

    Raises `ServiceFailed` if a service fails; the row is then not scored as wrong."""

    def __init__(self, config: WebSearchConfig, transport: Transport, *, snippets: bool) -> None:
        self._search = Service(config.search, transport)
        self._fetch = Service(config.fetch, transport)
        self._snippets = snippets
        self._tools: Mapping[str, Callable[..., Any]] = {
            "search_engine_query": self.search_engine_query,
            "fetch_url_content": self.fetch_url_content,
        }

    async def step(self, calls: list[str]) -> list[str]:
        """Run the calls of one step, and return their results in the format that a model sees."""
        results = [await self._execute(text) for text in calls[:MAX_STEP_CALLS]]
        refused = f"Error during execution: more than {MAX_STEP_CALLS} calls in one step"
        return results + [refused] * (len(calls) - len(results))

    async def _execute(self, text: str) -> str:
        try:
            if len(text) > MAX_CALL_CHARS:
                raise ValueError(f"a call of more than {MAX_CALL_CHARS} characters")
            result = await evaluate(text, self._tools, _refuse_nesting)
        except ServiceFailed:
            raise
        except Exception as error:  # noqa: BLE001 - the model sees any error of its call
            return f"Error during execution: {error}"
        return json.dumps(result) if isinstance(result, dict) else str(result)

    async def search_engine_query(
        self, keywords: Any, max_results: Any = 10, region: Any = "wt-wt"
    ) -> list[dict[str, str]] | dict[str, str]:
        limit = MAX_RESULTS if max_results is None else min(int(max_results), MAX_RESULTS)
        params = {"q": str(keywords), "max_results": str(max(0, limit)), "region": str(region)}
        reply = await self._search.get(params)
        if reply.status != 200:  # the service or our configuration is wrong
            raise ServiceFailed(f"the search returned HTTP {reply.status}")
        fields = ("title", "href", "body") if self._snippets else ("title", "href")
        return [
            {field: str(result.get(field, ""))[:_FIELD_CHARS] for field in fields}
            for result in _results(reply)[: max(0, limit)]
        ]

    async def fetch_url_content(self, url: Any, mode: Any = "raw") -> dict[str, str]:
        if not str(url).startswith(("http://", "https://")):
            raise ValueError(f"no http(s) address: {url}")
        if mode not in _MODES:
            modes = ", ".join(_MODES)
            return {"error": f"{url} could not be read: mode must be one of {modes}"}
        reply = await self._fetch.get({"url": str(url), "mode": str(mode)})
        text = reply.body.decode("utf-8", "replace")[:MAX_PAGE_CHARS]
        if reply.status == PAGE_FAILED:
            cause = " ".join(text.split())[:_CAUSE_CHARS] or "no such page"
            return {"error": f"{url} could not be read: {cause}"}
        if reply.status != 200:
            raise ServiceFailed(f"the fetch service returned HTTP {reply.status}")
        return {"content": text}


def _results(reply: Reply) -> list[Mapping[str, Any]]:
    try:
        results = json.loads(reply.body)
    except (ValueError, RecursionError):
        results = None
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise ServiceFailed("the search did not return a list of objects")
    return results


def _refuse_nesting(call: Coroutine[Any, Any, Any]) -> None:
    call.close()
    raise ValueError("a call among the arguments")


async def web_search_rollout(
    entry: Entry,
    context: EpisodeContext,
    settings: EpisodeSettings,
    config: WebSearchConfig,
    transport: Transport,
) -> Episode:
    """Run a web search entry's episode. `Episode.state` has ``turns``, ``results`` and ``ended``.
    Raises `RowError` if the model or a service fails."""
    functions, _ = settings.functions(entry)
    tools = WebSearchAPI(config, transport, snippets=bool(entry.data["show_snippet"]))
    messages = add_system(settings.prompts.texts.agentic, entry.data["question"][0])
    conversation = Conversation(context, tools.step, settings.tools(functions), settings.results)
    ending = await conversation.play([settings.opening(messages, functions)])
    context.episode.state = conversation.state(ending)
    return context.episode
