"""Who answers a call, in which order, and what is counted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.apis.answers import (
    BAD_ARGUMENTS,
    Answered,
    observation,
    status_code,
)
from ace_ray.benchmarks.stabletoolbench.apis.cache import AnswerCache, CacheClient, Service
from ace_ray.benchmarks.stabletoolbench.apis.json_files import import_answers
from ace_ray.benchmarks.stabletoolbench.apis.real import RealApis
from ace_ray.benchmarks.stabletoolbench.apis.simulator import Simulator, SystemText
from ace_ray.benchmarks.stabletoolbench.apis.sources import ApiCaller
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.errors import EngineDead, PromptRefused, PromptTooLong, RequestFailed
from tests.benchmarks.stabletoolbench.an_api import API, role_of
from tests.scripted_model import ScriptedModel

GOOD = '{"error": "", "response": {"x": 1.5, "u": "\\ud800", "n": null}}'
SYSTEM = SystemText("s", "own")
VALUE = {"x": 1.5, "u": "\ud800", "n": None}


class FakeReal(RealApis):
    def __init__(self, failure: str = "") -> None:
        self.failure, self.calls = failure, 0

    async def answer(self, api: Api, arguments: Any) -> Answered:
        self.calls += 1
        error = "Timeout error..." if self.failure else ""
        return Answered(error, "real", "real", origin="real", failure=self.failure)


def simulator(model: ScriptedModel) -> Simulator:
    return Simulator(role_of(model), "own", SYSTEM)


def local(cache: AnswerCache) -> Service:
    async def call(method: str, *values: Any) -> Any:
        return cache.call(method, *values)

    return call


def cached(cache: AnswerCache) -> CacheClient:
    return CacheClient(local(cache), writes=True, simulator_id="sim")


def test_a_second_run_makes_no_model_call_and_gives_equal_answers(tmp_path: Path) -> None:
    calls: list[dict[str, Any]] = [{"a": 1}, {"a": "1"}, {"b": [1, {"c": None}], "a": 2}, {}]

    async def run(model: ScriptedModel) -> list[Answered]:
        cache = AnswerCache(str(tmp_path), "readwrite")
        caller = ApiCaller(cache=cached(cache), simulator=simulator(model))
        found = [await caller.call(API, arguments) for arguments in calls]
        cache.close()
        return found

    first, second = ScriptedModel(GOOD), ScriptedModel(AssertionError("asked again"))
    before = asyncio.run(run(first))
    after = asyncio.run(run(second))
    assert (len(first.asked), len(second.asked)) == (4, 0)
    assert [a.response for a in after] == [a.response for a in before] == [VALUE] * 4
    assert [observation(a) for a in after] == [observation(a) for a in before]
    assert {a.source for a in before} == {"simulator"}
    assert {(a.source, a.origin) for a in after} == {("cache", "simulator")}


def test_two_workers_go_on_with_the_same_answer(tmp_path: Path) -> None:
    cache = AnswerCache(str(tmp_path), "readwrite")
    workers = [
        ApiCaller(cache=cached(cache), simulator=simulator(ScriptedModel(f'{{"response": {n}}}')))
        for n in range(2)
    ]

    async def both() -> list[Answered]:
        return list(await asyncio.gather(*(worker.call(API, {}) for worker in workers)))

    one, two = asyncio.run(both())
    assert one.response == two.response
    assert {one.source, two.source} == {"simulator", "cache"}
    cache.close()


@pytest.mark.parametrize("error", [RequestFailed("x"), EngineDead("x")])
def test_a_simulator_that_is_down_fails_the_row(tmp_path: Path, error: Exception) -> None:
    cache = AnswerCache(str(tmp_path), "readwrite")
    caller = ApiCaller(cache=cached(cache), simulator=simulator(ScriptedModel(error, GOOD)))
    with pytest.raises(type(error)):
        asyncio.run(caller.call(API, {}))
    assert asyncio.run(caller.call(API, {})).failure == ""
    cache.close()


def test_the_order_is_cache_real_simulator(tmp_path: Path) -> None:
    cache = AnswerCache(str(tmp_path), "readwrite")
    model, real, dead = ScriptedModel(GOOD), FakeReal(), FakeReal("real")
    first = ApiCaller(cache=cached(cache), real=real, simulator=simulator(model))
    assert asyncio.run(first.call(API, {"a": 1})).source == "real"
    second = asyncio.run(first.call(API, {"a": 1}))
    assert (second.source, second.origin, real.calls) == ("cache", "real", 1)
    third = ApiCaller(cache=cached(cache), real=dead, simulator=simulator(model))
    assert asyncio.run(third.call(API, {"a": 2})).source == "simulator"
    assert (dead.calls, len(model.asked)) == (1, 1)
    cache.close()


def test_a_real_apis_refusal_stands_where_nobody_else_is_asked() -> None:
    answered = asyncio.run(ApiCaller(real=FakeReal("real")).call(API, {}))
    assert (answered.error, answered.source, answered.failure) == (
        "Timeout error...",
        "real",
        "real",
    )


@pytest.mark.parametrize("said", ["{", "nothing", " ", '{"a": ' + "[" * 99, "x" * 99_999])
def test_arguments_that_are_none_are_told_to_the_agent(said: str) -> None:
    answered = asyncio.run(ApiCaller(real=FakeReal()).call(API, said))
    assert (answered.error, answered.source) == (BAD_ARGUMENTS, "none")
    assert answered.failure == "arguments"


@pytest.mark.parametrize("said", ["[1]", "null", '"a text"', '{"a": NaN, "b": 1e400}'])
def test_arguments_of_every_json_kind_are_answered_and_recorded(tmp_path: Path, said: str) -> None:
    model = ScriptedModel(GOOD)
    for source in ("simulator", "cache"):
        cache = AnswerCache(str(tmp_path), "readwrite")
        client = CacheClient(local(cache), writes=True, simulator_id="s")
        caller = ApiCaller(cache=client, simulator=simulator(model))
        assert asyncio.run(caller.call(API, said)).source == source
        cache.close()
    assert len(model.asked) == 1
    mirror = Simulator(role_of(model), "mirror", SystemText("s", "own"))
    failure = asyncio.run(ApiCaller(simulator=mirror).call(API, said)).failure
    assert failure == ("" if said.startswith("{") else "arguments")


def test_examples_reach_the_simulator(tmp_path: Path) -> None:
    path = tmp_path / "json/News_Media/clique_for_News_Media/player_details.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"{'a': 1}": {"error": "", "response": "shown"}}))
    import_answers(tmp_path / "json", tmp_path)
    model = ScriptedModel(GOOD)
    cache = AnswerCache(str(tmp_path), "read")
    client = CacheClient(local(cache), writes=False)
    asyncio.run(ApiCaller(cache=client, simulator=simulator(model)).call(API, {"a": 2}))
    assert "shown" in model.chats[0][1]["content"]
    mirror = Simulator(role_of(model), "mirror", SystemText("s", "own"))
    asyncio.run(ApiCaller(cache=client, simulator=mirror).call(API, {"a": 2}))
    assert "shown" not in model.chats[1][1]["content"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("", 0),
        ("Timeout error...", 5),
        ("Message error...", 11),
        ("request invalid, data error. status_code=500", 12),
        ("timeout error...", 0),
        ("the id is unknown", 0),
    ],
)
def test_status_codes(error: str, code: int) -> None:
    assert status_code(Answered(error, "", "cache")) == code


@pytest.mark.parametrize("error", [PromptTooLong("x"), PromptRefused("x")])
def test_a_prompt_that_is_not_taken_is_asked_again(tmp_path: Path, error: Exception) -> None:
    cache = AnswerCache(str(tmp_path), "readwrite")
    asked = simulator(ScriptedModel(error, GOOD))
    client = CacheClient(local(cache), writes=True, simulator_id=asked.simulator_id)
    caller = ApiCaller(cache=client, simulator=asked)
    assert asyncio.run(caller.call(API, {})).failure == "prompt"
    assert asyncio.run(caller.call(API, {})).response == VALUE
    cache.close()


def test_a_simulators_failure_is_replayed_to_it_alone(tmp_path: Path) -> None:
    cache = AnswerCache(str(tmp_path), "readwrite")
    door = local(cache)

    def call(model: ScriptedModel, name: str) -> Answered:
        asked = Simulator(role_of(model, model=name), "own", SYSTEM)
        client = CacheClient(door, writes=True, simulator_id=asked.simulator_id)
        return asyncio.run(ApiCaller(cache=client, simulator=asked).call(API, {}))

    first = call(ScriptedModel("no"), "a")
    again = call(silent := ScriptedModel(GOOD), "a")
    assert (first.failure, first.source) == ("simulator", "simulator")
    assert (again.failure, again.source, again.origin) == ("simulator", "cache", "simulator")
    assert (observation(first), silent.asked) == (observation(again), [])
    assert call(ScriptedModel(GOOD), "b").response == VALUE
    cache.close()
