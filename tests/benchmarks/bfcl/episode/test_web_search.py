"""Web search and embeddings through configured services; the services are made up."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.episode import agentic, services
from ace_ray.benchmarks.bfcl.episode.agentic import WebSearchAPI
from ace_ray.benchmarks.bfcl.episode.agentic import web_search_rollout as rollout
from ace_ray.benchmarks.bfcl.episode.conversation import EpisodeSettings
from ace_ray.benchmarks.bfcl.episode.services import Embeddings, Service, ServiceFailed
from ace_ray.benchmarks.bfcl.options import EmbeddingsConfig, ServiceConfig, WebSearchConfig
from ace_ray.benchmarks.bfcl.prompts import own_prompts
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.models.http import HttpRequest, Reply
from ace_ray.types import Sampling
from tests.benchmarks.bfcl.synthetic_bfcl import COPY, DOCS
from tests.scripted_model import ScriptedModel

CONFIG = WebSearchConfig(
    search=ServiceConfig(url="https://search.example/find"),
    fetch=ServiceConfig(url="https://fetch.example/page"),
)
SERVICE = ServiceConfig(url="https://a.example")
HITS = [{"title": "T", "href": "https://a.example", "body": "B", "more": 1}] * 3
SEARCH, FETCH = "search_engine_query('a')", "fetch_url_content('https://a.example')"


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_RETRIES", 0)
    monkeypatch.setattr(agentic, "MAX_PAGE_CHARS", 20)


class Web:
    """Answers requests with the result of ``answer`` for (url, params), and keeps them."""

    def __init__(self, answer: Callable[[str, Mapping[str, str]], Any]) -> None:
        self.answer = answer
        self.requests: list[HttpRequest] = []

    async def fetch(self, request: HttpRequest) -> Reply:
        self.requests.append(request)
        reply = self.answer(request.url, request.params)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Reply):
            return reply
        body = reply if isinstance(reply, str) else json.dumps(reply)
        return Reply(200, {}, body.encode())


def web(url: str, params: Mapping[str, str]) -> Any:
    return HITS if "search" in url else "x" * 50


def results(*calls: str, answer: Any = web, snippets: bool = True) -> list[str]:
    tools = WebSearchAPI(CONFIG, Web(answer), snippets=snippets)
    return asyncio.run(tools.step(list(calls)))


def test_search_and_page() -> None:
    transport = Web(web)
    tools = WebSearchAPI(CONFIG, transport, snippets=True)
    call = "search_engine_query(keywords='a b', max_results=2)"
    (result,) = asyncio.run(tools.step([call]))
    assert result == str([{"title": "T", "href": "https://a.example", "body": "B"}] * 2)
    (request,) = transport.requests
    assert request.params == {"q": "a b", "max_results": "2", "region": "wt-wt"}
    assert (request.method, request.url) == ("GET", "https://search.example/find")
    assert results(FETCH) == ['{"content": "' + "x" * 20 + '"}']


def test_wrong_calls_are_refused_without_a_request() -> None:
    def never(url: str, params: Mapping[str, str]) -> Any:
        raise AssertionError("a request was made")

    for call, problem in (
        ("fetch_url_content(url='file:///etc/passwd')", "Error during execution: no http(s)"),
        ("fetch_url_content()", "WebSearchAPI.fetch_url_content() missing 1 required"),
        ("search_engine_query(keywords=fetch_url_content('https://a'))", "a call among"),
        ("open(file='x')", "name 'open' is not defined"),
        ("search_engine_query(keywords='" + "a" * 200_000 + "')", "a call of more than"),
    ):
        answers = results(*[call] * 501, answer=never)
        assert problem in answers[0], call[:100]
        assert "more than 500 calls in one step" in answers[-1]


def test_page_that_is_not_there_is_an_answer() -> None:
    for body, text in ((b"HTTP 404\n" + b"x" * 9_999, "HTTP 404 x"), (b"", "no such page")):
        (page,) = results(FETCH, answer=lambda *_, body=body: Reply(424, {}, body))
        assert json.loads(page)["error"].startswith(f"https://a.example could not be read: {text}")
        assert len(page) < 300


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (FETCH, Reply(404, {}, b"no")),
        (SEARCH, Reply(500, {}, b"")),
        (SEARCH, {"error": "x"}),
        (SEARCH, "[" * 100_000),
        (SEARCH, [1, 2]),
        (SEARCH, TimeoutError("late")),
    ],
)
def test_failed_service_makes_no_answer_wrong(call: str, answer: Any) -> None:
    with pytest.raises(ServiceFailed):
        results(call, answer=lambda *_: answer)


def test_service_is_tried_again_as_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_RETRIES", 2)
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    def fetch_reply(answer: Any) -> Reply:
        return asyncio.run(Service(SERVICE, Web(answer), pause=pause).get({}))

    replies = [Reply(429, {"Retry-After": "7"}, b""), OSError("gone"), Reply(200, {}, b"ok")]
    assert fetch_reply(lambda *_: replies.pop(0)).body == b"ok"
    assert (waits[0], len(waits)) == (7, 2)
    with pytest.raises(ServiceFailed, match=r"a.example gave no answer in 3 attempts: HTTP 503"):
        fetch_reply(lambda *_: Reply(503, {}, b""))
    with pytest.raises(ServiceFailed, match="in 1 attempts"):
        fetch_reply(lambda *_: Reply(429, {"Retry-After": "100000"}, b""))


def test_key_is_sent_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "s3cret\n")
    config = ServiceConfig(url="https://a.example", api_key_env="SOME_KEY")
    transport = Web(lambda *_: OSError("refused s3cret"))
    with pytest.raises(ServiceFailed) as raised:
        asyncio.run(Service(config, transport).get({}))
    assert transport.requests[0].headers["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in str(raised.value)


def test_embeddings_are_asked_once_a_text() -> None:
    config = EmbeddingsConfig(url="https://a.example/v1/embeddings", model="m")
    bodies: list[Any] = []

    class Endpoint:
        async def fetch(self, request: HttpRequest) -> Reply:
            bodies.append(json.loads(request.body or b""))
            texts = bodies[-1]["input"]
            rows = [{"index": n, "embedding": [len(t), 0]} for n, t in enumerate(texts)]
            return Reply(200, {}, json.dumps({"data": rows[::-1]}).encode())

    embed = Embeddings(config, Service(config, Endpoint()))
    assert asyncio.run(embed(["a", "bb", "a"])) == [[1, 0], [2, 0], [1, 0]]
    assert asyncio.run(embed(["bb"])) == [[2, 0]]
    assert bodies == [{"model": "m", "input": ["a", "bb"]}]
    for body in ('{"data": []}', "x", '{"data": [{"index": 0, "embedding": "x"}]}', "[" * 99_999):
        broken = Embeddings(config, Service(config, Web(lambda *_, body=body: body)))
        with pytest.raises(ServiceFailed):
            asyncio.run(broken(["a"]))


def test_episode_asks_and_answers() -> None:
    entry = load(COPY, ["web_search_no_snippet"])[0]
    turn = ["[search_engine_query(keywords='a')]", "{'answer': 'x'}"]
    model = ScriptedModel(*turn)
    context = EpisodeContext(RoleModel(model, Sampling()))
    settings = EpisodeSettings(own_prompts(), DOCS)
    episode = asyncio.run(rollout(entry, context, settings, CONFIG, Web(web)))
    assert model.chats[0][0]["content"].endswith(f"\n\n{own_prompts().texts.agentic}")
    assert model.chats[1][-1]["role"] == "tool"
    assert "body" not in model.chats[1][-1]["content"]
    assert (episode.state["turns"], episode.state["ended"]) == ([turn], "")
