"""Web search entries: a question, and two tools behind configured services.

The tools answer in the shapes of upstream's ``web_search.py``; what they find depends on the day
and on the services, so these entries are never comparable with the leaderboard's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ace_ray.benchmarks.bfcl.episode.conversation import Conversation, EpisodeSettings
from ace_ray.benchmarks.bfcl.episode.services import Service, ServiceFailed
from ace_ray.benchmarks.bfcl.options import WebSearchConfig
from ace_ray.benchmarks.bfcl.prompts import with_system
from ace_ray.benchmarks.bfcl.tools.environment import MAX_CALL_CHARS
from ace_ray.benchmarks.bfcl.tools.evaluate import evaluate
from ace_ray.benchmarks.context import EpisodeContext
from ace_ray.models.http import Reply, Transport
from ace_ray.types import Entry, Episode

MAX_RESULTS = 50
MAX_PAGE_CHARS = 100_000
"""Maximum characters of a page that a model sees."""
MAX_STEP_CALLS = 500
"""Maximum calls of one step. Each is a request to a service."""
PAGE_FAILED = 424
"""Status (failed dependency) of the fetch service if a page, and not the service, has failed. The
body gives the reason. Any other status but 200 is a failure of the service."""
_FIELD_CHARS = 10_000
_CAUSE_CHARS = 200
_MODES = ("raw", "markdown", "truncate")


class WebSearchAPI:
    """The two tools. Named like upstream's class, so that errors of Python read alike.

    Raises `ServiceFailed` if a service is down: that makes no answer wrong."""

    def __init__(self, config: WebSearchConfig, transport: Transport, *, snippets: bool) -> None:
        self._search = Service(config.search, transport)
        self._fetch = Service(config.fetch, transport)
        self._snippets = snippets
        self._tools: Mapping[str, Callable[..., Any]] = {
            "search_engine_query": self.search_engine_query,
            "fetch_url_content": self.fetch_url_content,
        }

    async def step(self, calls: list[str]) -> list[str]:
        """Run the calls of one step, and return their results as a model sees them."""
        results = [await self._execute(text) for text in calls[:MAX_STEP_CALLS]]
        refused = f"Error during execution: more than {MAX_STEP_CALLS} calls in one step"
        return results + [refused] * (len(calls) - len(results))

    async def _execute(self, text: str) -> str:
        try:
            if len(text) > MAX_CALL_CHARS:
                raise ValueError(f"a call of more than {MAX_CALL_CHARS} characters")
            result = await evaluate(text, self._tools, _no_nesting)
        except ServiceFailed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a call is its result
            return f"Error during execution: {error}"
        return json.dumps(result) if isinstance(result, dict) else str(result)

    async def search_engine_query(
        self, keywords: Any, max_results: Any = 10, region: Any = "wt-wt"
    ) -> list[dict[str, str]] | dict[str, str]:
        wanted = MAX_RESULTS if max_results is None else min(int(max_results), MAX_RESULTS)
        asked = {"q": str(keywords), "max_results": str(max(0, wanted)), "region": str(region)}
        reply = await self._search.get(asked)
        if reply.status != 200:  # the service's fault, or our configuration's
            raise ServiceFailed(f"the search answers HTTP {reply.status}")
        fields = ("title", "href", "body") if self._snippets else ("title", "href")
        return [
            {field: str(result.get(field, ""))[:_FIELD_CHARS] for field in fields}
            for result in _results(reply)[: max(0, wanted)]
        ]

    async def fetch_url_content(self, url: Any, mode: Any = "raw") -> dict[str, str]:
        if not str(url).startswith(("http://", "https://")):
            raise ValueError(f"no http(s) address: {url}")
        if mode not in _MODES:
            return _not_fetched(url, f"mode is none of {', '.join(_MODES)}")
        reply = await self._fetch.get({"url": str(url), "mode": str(mode)})
        text = reply.body.decode("utf-8", "replace")[:MAX_PAGE_CHARS]
        if reply.status == PAGE_FAILED:
            return _not_fetched(url, " ".join(text.split())[:_CAUSE_CHARS] or "no such page")
        if reply.status != 200:
            raise ServiceFailed(f"the fetch service answers HTTP {reply.status}")
        return {"content": text}


def _not_fetched(url: Any, cause: str) -> dict[str, str]:
    return {"error": f"{url} could not be read: {cause}"}


def _results(reply: Reply) -> list[Mapping[str, Any]]:
    try:
        results = json.loads(reply.body)
    except (ValueError, RecursionError):
        results = None
    if not isinstance(results, list) or not all(isinstance(one, dict) for one in results):
        raise ServiceFailed("the search answers with something else than a list of objects")
    return results


def _no_nesting(call: Coroutine[Any, Any, Any]) -> None:
    call.close()
    raise ValueError("a call among the arguments")


async def rollout(
    entry: Entry,
    context: EpisodeContext,
    settings: EpisodeSettings,
    config: WebSearchConfig,
    transport: Transport,
) -> Episode:
    """Play the episode of a web search entry; ``state`` is as in multi-turn entries.

    Raises `RowError`, among it `ServiceFailed`."""
    functions, _ = settings.functions(entry)
    tools = WebSearchAPI(config, transport, snippets=bool(entry.data["show_snippet"]))
    messages = with_system(settings.prompts.texts.agentic, entry.data["question"][0])
    conversation = Conversation(context, tools.step, settings.tools(functions), settings.results)
    ended = await conversation.play([settings.opening(messages, functions)])
    context.episode.state = conversation.state(ended)
    return context.episode
