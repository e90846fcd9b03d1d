"""Web search through configured services, with the services made up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from ace_ray.benchmarks.bfcl.episode.web_search import WebSearchAPI, rollout

from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.episode import services, web_search
from ace_ray.benchmarks.bfcl.episode.conversation import EpisodeSettings
from ace_ray.benchmarks.bfcl.episode.services import (
    Embeddings,
    Service,
    ServiceFailed,
    check_service,
)
from ace_ray.benchmarks.bfcl.options import EmbeddingsConfig, ServiceConfig, WebSearchConfig
from ace_ray.benchmarks.bfcl.prompts import own
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.errors import UserError
from ace_ray.models.http import HttpRequest, Reply
from ace_ray.types import Sampling
from tests.benchmarks.bfcl.mini_set import COPY, DOCS
from tests.scripted_model import ScriptedModel

CONFIG = WebSearchConfig(
    search=ServiceConfig(url="https://search.example/find"),
    fetch=ServiceConfig(url="https://fetch.example/page"),
)


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_RETRIES", 0)
    monkeypatch.setattr(web_search, "MAX_PAGE_CHARS", 20)


HITS = [{"title": "T", "href": "https://a.example", "body": "B", "more": 1}] * 3


class Web:
    """Answers requests with what ``answer`` says of (url, params), and keeps them."""

    def __init__(self, answer: Callable[[str, Mapping[str, str]], Any]) -> None:
        self.answer = answer
        self.asked: list[HttpRequest] = []

    async def fetch(self, request: HttpRequest) -> Reply:
        self.asked.append(request)
        found = self.answer(request.url, request.params)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, Reply):
            return found
        body = found if isinstance(found, str) else json.dumps(found)
        return Reply(200, {}, body.encode())


def web(url: str, params: Mapping[str, str]) -> Any:
    return HITS if "search" in url else "x" * 50


def results(*calls: str, answer: Any = web, snippets: bool = True) -> list[str]:
    tools = WebSearchAPI(CONFIG, Web(answer), snippets=snippets)
    return asyncio.run(tools.step(list(calls)))


def test_a_search() -> None:
    transport = Web(web)
    tools = WebSearchAPI(CONFIG, transport, snippets=True)
    call = "search_engine_query(keywords='a b', max_results=2)"
    (found,) = asyncio.run(tools.step([call]))
    one = {"title": "T", "href": "https://a.example", "body": "B"}
    assert found == str([one, one])
    (asked,) = transport.asked
    assert asked.params == {"q": "a b", "max_results": "2", "region": "wt-wt"}
    assert (asked.method, asked.url) == ("GET", "https://search.example/find")


def test_without_snippets() -> None:
    (found,) = results("search_engine_query('a')", snippets=False)
    assert found == str([{"title": "T", "href": "https://a.example"}] * 3)


def test_a_page() -> None:
    assert results("fetch_url_content(url='https://a.example')") == [
        '{"content": "' + "x" * 20 + '"}'
    ]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            "fetch_url_content(url='file:///etc/passwd')",
            "Error during execution: no http(s) address",
        ),
        (
            "fetch_url_content('https://a.example', 'pdf')",
            "mode is none of raw, markdown, truncate",
        ),
        ("fetch_url_content()", "WebSearchAPI.fetch_url_content() missing 1 required"),
        ("search_engine_query(query='a')", "WebSearchAPI.search_engine_query()"),
        ("search_engine_query(keywords='a', max_results='x')", "Error during execution: invalid"),
        ("search_engine_query(keywords=fetch_url_content('https://a'))", "a call among"),
        ("open(file='x')", "name 'open' is not defined"),
        ("search_engine_query(keywords='" + "a" * 200_000 + "')", "a call of more than"),
    ],
)
def test_calls_that_are_refused(call: str, said: str) -> None:
    def never(url: str, params: Mapping[str, str]) -> Any:
        raise AssertionError("a request was made")

    (found,) = results(call, answer=never)
    assert said in found


def test_a_page_that_is_not_there_is_an_answer() -> None:
    call = "fetch_url_content('https://a.example')"
    (found,) = results(call, answer=lambda *_: Reply(424, {}, b"HTTP 404\n" + b"x" * 9_999))
    said = json.loads(found)["error"]
    assert said.startswith("https://a.example could not be read: HTTP 404 x")
    assert len(said) < 300
    (found,) = results(call, answer=lambda *_: Reply(424, {}, b""))
    assert json.loads(found)["error"].endswith(": no such page")


@pytest.mark.parametrize("status", [204, 301, 400, 401, 403, 404, 407, 500])
def test_a_fetch_service_that_fails_is_nobodys_wrong_answer(status: int) -> None:
    with pytest.raises(ServiceFailed, match=f"HTTP {status}"):
        results(
            "fetch_url_content('https://a.example')", answer=lambda *_: Reply(status, {}, b"no")
        )


@pytest.mark.parametrize(
    "answer",
    [
        lambda *_: Reply(500, {}, b""),
        lambda *_: Reply(403, {}, b"no"),
        lambda *_: {"error": "x"},
        lambda *_: "no json",
        lambda *_: "[" * 100_000,
        lambda *_: [1, 2],
        lambda *_: TimeoutError("late"),
    ],
)
def test_a_search_that_is_down_is_nobodys_wrong_answer(answer: Any) -> None:
    with pytest.raises(ServiceFailed):
        results("search_engine_query('a')", answer=answer)


class TestService:
    def test_it_tries_again_and_waits_as_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(services, "MAX_RETRIES", 2)
        waits: list[float] = []

        async def pause(seconds: float) -> None:
            waits.append(seconds)

        said = [Reply(429, {"Retry-After": "7"}, b""), OSError("gone"), Reply(200, {}, b"ok")]
        transport = Web(lambda *_: said.pop(0))
        service = Service(ServiceConfig(url="https://a.example"), transport, pause=pause)
        assert asyncio.run(service.get({})).body == b"ok"
        assert waits[0] == 7
        assert len(waits) == 2

    def test_it_gives_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(services, "MAX_RETRIES", 2)

        async def pause(seconds: float) -> None: ...

        transport = Web(lambda *_: Reply(503, {}, b""))
        config = ServiceConfig(url="https://a.example")
        with pytest.raises(
            ServiceFailed, match=r"a.example gave no answer in 3 attempts: HTTP 503"
        ):
            asyncio.run(Service(config, transport, pause=pause).get({}))
        patient = Web(lambda *_: Reply(429, {"Retry-After": "100000"}, b""))
        with pytest.raises(ServiceFailed, match="in 1 attempts"):
            asyncio.run(Service(config, patient, pause=pause).get({}))

    def test_the_key_is_sent_and_never_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOME_KEY", "s3cret\n")
        config = ServiceConfig(url="https://a.example", api_key_env="SOME_KEY")
        transport = Web(lambda *_: OSError("refused s3cret"))
        with pytest.raises(ServiceFailed) as raised:
            asyncio.run(Service(config, transport).get({}))
        assert transport.asked[0].headers["Authorization"] == "Bearer s3cret"
        assert "s3cret" not in str(raised.value)

    @pytest.mark.parametrize(
        "url",
        ["ftp://a", "a.example", "https://", "https://u:p@a", "https://a/?key=1", "https://[a"],
    )
    def test_a_bad_url(self, url: str) -> None:
        with pytest.raises(UserError, match=r"web.search.url: is no URL of a service"):
            check_service(ServiceConfig(url=url), "web.search")

    def test_a_key_that_is_not_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SOME_KEY", raising=False)
        with pytest.raises(UserError, match="SOME_KEY is not set"):
            check_service(ServiceConfig(url="https://a", api_key_env="SOME_KEY"), "x")


def test_embeddings() -> None:
    config = EmbeddingsConfig(url="https://a.example/v1/embeddings", model="m")

    def vectors(bodies: list[Any]) -> Embeddings:
        class Endpoint:
            async def fetch(self, request: HttpRequest) -> Reply:
                bodies.append(json.loads(request.body or b""))
                texts = bodies[-1]["input"]
                rows = [{"index": n, "embedding": [len(t), 0]} for n, t in enumerate(texts)]
                return Reply(200, {}, json.dumps({"data": rows[::-1]}).encode())

        return Embeddings(config, Service(config, Endpoint()))

    bodies: list[Any] = []
    embed = vectors(bodies)
    assert asyncio.run(embed(["a", "bb", "a"])) == [[1, 0], [2, 0], [1, 0]]
    assert asyncio.run(embed(["bb"])) == [[2, 0]]
    assert bodies == [{"model": "m", "input": ["a", "bb"]}]
    for body in ('{"data": []}', "x", '{"data": [{"index": 0, "embedding": "x"}]}', "[" * 99_999):
        broken = Embeddings(config, Service(config, Web(lambda *_, body=body: body)))
        with pytest.raises(ServiceFailed):
            asyncio.run(broken(["a"]))


def test_an_episode() -> None:
    entry = load(COPY, ["web_search_no_snippet"])[0]
    model = ScriptedModel("[search_engine_query(keywords='a')]", "{'answer': 'x'}")
    context = EpisodeContext(RoleModel(model, Sampling()))
    episode = asyncio.run(rollout(entry, context, EpisodeSettings(own(), DOCS), CONFIG, Web(web)))
    assert model.chats[0][0]["content"].endswith(f"\n\n{own().texts.agentic}")
    assert model.chats[1][-1]["role"] == "tool"
    assert "body" not in model.chats[1][-1]["content"]
    assert episode.state["ended"] == ""
    assert episode.state["turns"] == [["[search_engine_query(keywords='a')]", "{'answer': 'x'}"]]
    assert web_search.MAX_RESULTS == 50
