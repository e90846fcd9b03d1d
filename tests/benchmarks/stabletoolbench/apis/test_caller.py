"""Who answers a call, in which order, and what is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.apis import cache as cache_module
from ace_ray.benchmarks.stabletoolbench.apis.answers import (
    BAD_ARGUMENTS,
    Answered,
    observation,
    status_code,
)
from ace_ray.benchmarks.stabletoolbench.apis.cache import CacheClient, CacheFolder, local
from ace_ray.benchmarks.stabletoolbench.apis.caller import ApiCaller, check_backends
from ace_ray.benchmarks.stabletoolbench.apis.simulator import Simulator, SystemText
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.errors import EngineDead, PromptRefused, PromptTooLong, RequestFailed, UserError
from ace_ray.records import Completion
from tests.benchmarks.stabletoolbench.an_api import API, Scripted, an_api

GOOD = '{"error": "", "response": {"x": 1.5, "u": "\\ud800", "n": null}}'
SYSTEM = SystemText("s", "own")
VALUE = {"x": 1.5, "u": "\ud800", "n": None}


class FakeReal:
    def __init__(self, failure: str = "") -> None:
        self.failure, self.calls = failure, 0

    async def answer(self, api: Api, arguments: Mapping[str, Any]) -> Answered:
        self.calls += 1
        error = "Timeout error..." if self.failure else ""
        return Answered(error, "real", "real", origin="real", failure=self.failure)


def simulator(model: Scripted) -> Simulator:
    return Simulator(model.role_model(), "own", SYSTEM)


def cached(folder: CacheFolder) -> CacheClient:
    return CacheClient(local(folder), writes=True)


def test_a_second_run_makes_no_model_call_and_gives_equal_answers(tmp_path: Path) -> None:
    calls: list[dict[str, Any]] = [{"a": 1}, {"a": "1"}, {"b": [1, {"c": None}], "a": 2}, {}]

    async def run(model: Scripted) -> list[Answered]:
        folder = CacheFolder(str(tmp_path), "readwrite")
        caller = ApiCaller(cache=cached(folder), simulator=simulator(model))
        found = [await caller.call(API, arguments) for arguments in calls]
        folder.close()
        return found

    first, second = Scripted(GOOD), Scripted(AssertionError("asked again"))
    before = asyncio.run(run(first))
    after = asyncio.run(run(second))
    assert (len(first.asked), len(second.asked)) == (4, 0)
    assert [a.response for a in after] == [a.response for a in before] == [VALUE] * 4
    assert [observation(a) for a in after] == [observation(a) for a in before]
    assert {a.source for a in before} == {"simulator"}
    assert {(a.source, a.origin) for a in after} == {("cache", "simulator")}


def test_answers_of_another_simulator_are_used_where_asked_for_only(tmp_path: Path) -> None:
    folder = CacheFolder(str(tmp_path), "readwrite")
    door = local(folder)
    one, other = (
        simulator(Scripted(GOOD)),
        Simulator(Scripted().role_model(model="b"), "own", SYSTEM),
    )
    assert one.simulator_id == simulator(Scripted()).simulator_id != other.simulator_id
    mine = CacheClient(door, writes=True, simulator_id=one.simulator_id)
    asyncio.run(ApiCaller(cache=mine, simulator=one).call(API, {}))
    strange = CacheClient(door, writes=True, simulator_id=other.simulator_id)
    assert asyncio.run(ApiCaller(cache=strange).call(API, {})).failure == "no_backend"
    for simulator_id, origin in [
        (one.simulator_id, "simulator"),
        (other.simulator_id, "other simulator"),
    ]:
        cache = CacheClient(door, writes=True, simulator_id=simulator_id, any_simulator=True)
        caller = ApiCaller(cache=cache)
        assert asyncio.run(caller.call(API, {})).origin == origin
    theirs = Simulator(Scripted('{"response": 2}').role_model(model="b"), "own", SYSTEM)
    own = asyncio.run(ApiCaller(cache=strange, simulator=theirs).call(API, {}))
    assert (own.source, own.response) == ("simulator", 2)
    folder.close()
    again = local(CacheFolder(str(tmp_path), "read"))
    for simulator_id, response in [(one.simulator_id, VALUE), (other.simulator_id, 2)]:
        cache = CacheClient(again, writes=False, simulator_id=simulator_id)
        assert asyncio.run(ApiCaller(cache=cache).call(API, {})).response == response


def test_two_identical_calls_at_once_are_one_generation(tmp_path: Path) -> None:
    replies = iter(range(99))
    model = Scripted(lambda chat, sampling: json.dumps({"response": next(replies)}))
    folder = CacheFolder(str(tmp_path), "readwrite")
    caller = ApiCaller(cache=cached(folder), simulator=simulator(model))

    async def both() -> list[Answered]:
        said: list[Any] = [{"a": 1, "b": 2}, '{"b": 2, "a": 1}', {"a": 3}]
        return list(await asyncio.gather(*(caller.call(API, arguments) for arguments in said)))

    one, two, other = asyncio.run(both())
    assert one == two
    assert one.response != other.response
    assert len(model.asked) == 2
    assert not caller._flying
    folder.close()


def test_two_workers_go_on_with_the_same_answer(tmp_path: Path) -> None:
    folder = CacheFolder(str(tmp_path), "readwrite")
    workers = [
        ApiCaller(cache=cached(folder), simulator=simulator(Scripted(f'{{"response": {n}}}')))
        for n in range(2)
    ]

    async def both() -> list[Answered]:
        return list(await asyncio.gather(*(worker.call(API, {}) for worker in workers)))

    one, two = asyncio.run(both())
    assert one.response == two.response
    assert {one.source, two.source} == {"simulator", "cache"}
    folder.close()


def test_failures_are_not_kept(tmp_path: Path) -> None:
    folder = CacheFolder(str(tmp_path), "readwrite")
    model = Scripted("no", "no", "no", GOOD)
    caller = ApiCaller(cache=cached(folder), simulator=simulator(model))
    assert asyncio.run(caller.call(API, {})).failure == "simulator"
    assert folder.stats()["recorded"] == 0
    assert asyncio.run(caller.call(API, {})).response == VALUE
    folder.close()


@pytest.mark.parametrize("error", [RequestFailed("x"), EngineDead("x")])
def test_a_simulator_that_is_down_fails_the_row(tmp_path: Path, error: Exception) -> None:
    folder = CacheFolder(str(tmp_path), "readwrite")
    caller = ApiCaller(cache=cached(folder), simulator=simulator(Scripted(error, GOOD)))

    async def both() -> list[Any]:
        calls = (caller.call(API, {}) for _ in range(2))
        return list(await asyncio.gather(*calls, return_exceptions=True))

    assert [type(found) for found in asyncio.run(both())] == [type(error)] * 2
    assert asyncio.run(caller.call(API, {})).failure == ""
    folder.close()


def test_a_caller_that_gives_up_does_not_take_the_answer_from_others() -> None:
    started, go = asyncio.Event(), asyncio.Event()

    class Slow:
        calls = ended = 0

        async def answer(self, api: Api, arguments: Mapping[str, Any]) -> Answered:
            Slow.calls += 1
            started.set()
            try:
                await go.wait()
            finally:
                Slow.ended += 1
            return Answered("", "late", "real")

    async def play() -> None:
        caller = ApiCaller(real=Slow())
        one = asyncio.create_task(caller.call(API, {}))
        two = asyncio.create_task(caller.call(API, {}))
        await started.wait()
        one.cancel()
        await asyncio.sleep(0)
        go.set()
        assert (await two).response == "late"
        go.clear()
        started.clear()
        alone = asyncio.create_task(caller.call(API, {}))
        await started.wait()
        alone.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (Slow.calls, Slow.ended) == (2, 2)
        assert not caller._flying
        go.set()
        assert (await caller.call(API, {})).response == "late"

    asyncio.run(play())


def test_the_order_is_cache_real_simulator(tmp_path: Path) -> None:
    folder = CacheFolder(str(tmp_path), "readwrite")
    model, real, dead = Scripted(GOOD), FakeReal(), FakeReal("real")
    first = ApiCaller(cache=cached(folder), real=real, simulator=simulator(model))
    assert asyncio.run(first.call(API, {"a": 1})).source == "real"
    second = asyncio.run(first.call(API, {"a": 1}))
    assert (second.source, second.origin, real.calls) == ("cache", "real", 1)
    third = ApiCaller(cache=cached(folder), real=dead, simulator=simulator(model))
    assert asyncio.run(third.call(API, {"a": 2})).source == "simulator"
    assert (dead.calls, len(model.asked)) == (1, 1)
    folder.close()


def test_a_real_apis_refusal_stands_where_nobody_else_is_asked() -> None:
    answered = asyncio.run(ApiCaller(real=FakeReal("real")).call(API, {}))
    assert (answered.error, answered.source, answered.failure) == (
        "Timeout error...",
        "real",
        "real",
    )


def test_stub_and_nobody() -> None:
    assert asyncio.run(ApiCaller(stub_seed=1).call(API, {})).source == "stub"
    nobody = asyncio.run(ApiCaller().call(API, {}))
    assert (nobody.source, nobody.failure) == ("none", "no_backend")
    assert nobody.error


def test_a_record_that_cannot_be_read_is_told_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "News_Media/clique_for_News_Media/player_details.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"{}": {"err')
    model = Scripted(GOOD)
    folder = CacheFolder(str(tmp_path), "readwrite")
    caller = ApiCaller(cache=cached(folder), simulator=simulator(model), stub_seed=1)
    answered = asyncio.run(caller.call(API, {}))
    assert (answered.source, answered.failure) == ("none", "cache")
    assert str(tmp_path) not in observation(answered)
    assert not model.asked
    folder.close()


def test_an_answer_that_cannot_be_recorded_is_used_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    folder = CacheFolder(str(tmp_path), "readwrite")
    caller = ApiCaller(cache=cached(folder), simulator=simulator(Scripted(GOOD)))
    monkeypatch.setattr(cache_module, "write_cache_file", full)
    answered = asyncio.run(caller.call(API, {}))
    assert (answered.response, answered.source, answered.failure) == (VALUE, "simulator", "")
    assert "No space left on device" in answered.unrecorded
    monkeypatch.undo()
    assert not asyncio.run(caller.call(API, {})).unrecorded
    assert asyncio.run(caller.call(API, {})).source == "cache"
    folder.close()


@pytest.mark.parametrize("said", ["{", "nothing", " ", '{"a": ' + "[" * 99, "x" * 99_999])
def test_arguments_that_are_none_are_told_to_the_agent(said: str) -> None:
    answered = asyncio.run(ApiCaller(stub_seed=1).call(API, said))
    assert (answered.error, answered.source) == (BAD_ARGUMENTS, "none")
    assert answered.failure == "arguments"


def test_an_empty_text_means_no_arguments() -> None:
    caller = ApiCaller(stub_seed=1)
    assert asyncio.run(caller.call(API, "")) == asyncio.run(caller.call(API, {}))


@pytest.mark.parametrize("said", ["[1]", "null", '"a text"', '{"a": NaN, "b": 1e400}'])
def test_arguments_of_every_json_kind_are_answered_and_recorded(tmp_path: Path, said: str) -> None:
    model = Scripted(GOOD)
    for source in ("simulator", "cache"):
        folder = CacheFolder(str(tmp_path), "readwrite")
        client = CacheClient(local(folder), writes=True, simulator_id="s")
        caller = ApiCaller(cache=client, simulator=simulator(model))
        assert asyncio.run(caller.call(API, said)).source == source
        folder.close()
    assert len(model.asked) == 1
    stubbed = asyncio.run(ApiCaller(stub_seed=1).call(an_api(template={"a": "float"}), said))
    json.dumps(stubbed.response, allow_nan=False)
    mirror = Simulator(model.role_model(), "mirror", SystemText("s", "own"))
    failure = asyncio.run(ApiCaller(simulator=mirror).call(API, said)).failure
    assert failure == ("" if said.startswith("{") else "arguments")


def test_examples_reach_the_simulator(tmp_path: Path) -> None:
    path = tmp_path / "News_Media/clique_for_News_Media/player_details.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"{'a': 1}": {"error": "", "response": "shown"}}))
    model = Scripted(GOOD)
    folder = CacheFolder(str(tmp_path), "read")
    client = CacheClient(local(folder), writes=False)
    asyncio.run(ApiCaller(cache=client, simulator=simulator(model)).call(API, {"a": 2}))
    assert "shown" in model.asked[0][0][1]["content"]
    mirror = Simulator(model.role_model(), "mirror", SystemText("s", "own"))
    asyncio.run(ApiCaller(cache=client, simulator=mirror).call(API, {"a": 2}))
    assert "shown" not in model.asked[1][0][1]["content"]


def test_two_apis_are_two_calls() -> None:
    caller = ApiCaller(stub_seed=1)
    other = an_api(std_tool="other")
    assert asyncio.run(caller.call(API, {})) != asyncio.run(caller.call(other, {}))


@pytest.mark.parametrize(
    ("error", "official", "fixed"),
    [
        ("", 0, 0),
        ("Timeout error...", 5, 5),
        ("API not working error...", 6, 6),
        ("Unauthorized error...", 7, 7),
        ("Unsubscribed error...", 8, 8),
        ("Too many requests error...", 9, 9),
        ("Rate limit per minute error...", 10, 10),
        ("Message error...", 11, 11),
        ("request invalid, data error. status_code=500", 12, 12),
        ("timeout error...", 0, 11),
        ("the id is unknown", 0, 11),
    ],
)
def test_status_codes(error: str, official: int, fixed: int) -> None:
    answered = Answered(error, "", "cache")
    assert (status_code(answered, "official"), status_code(answered, "fixed")) == (official, fixed)


@pytest.mark.parametrize("backends", [["cache"], ["cache", "real", "simulator"], ["stub"]])
def test_backends_in_order(backends: list[str]) -> None:
    assert check_backends(backends, "backends") == tuple(backends)


@pytest.mark.parametrize(
    "backends",
    [[], ["cashe"], ["simulator", "cache"], ["cache", "cache"], ["simulator", "stub"], ["{}" * 99]],
)
def test_backends_that_make_no_sense(backends: list[str]) -> None:
    with pytest.raises(UserError, match=r"^options\.backends: ") as refused:
        check_backends(backends, "options.backends")
    assert len(str(refused.value)) < 300


def test_a_call_after_one_that_was_given_up_is_asked_anew() -> None:
    first = asyncio.Event()

    class Slow(Scripted):
        async def chat(self, *args: Any, **more: Any) -> Completion:
            if not first.is_set():
                first.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0)  # ends a while after it was told to
            return await super().chat(*args, **more)

    async def late() -> Answered:
        caller = ApiCaller(simulator=simulator(Slow(GOOD)))
        given_up = asyncio.ensure_future(caller.call(API, {}))
        await first.wait()
        given_up.cancel()
        await asyncio.sleep(0)
        found = await caller.call(API, {})
        assert not caller._flying
        return found

    assert asyncio.run(late()).response == VALUE


@pytest.mark.parametrize("error", [PromptTooLong("x"), PromptRefused("x")])
def test_a_prompt_that_is_not_taken_is_asked_again(tmp_path: Path, error: Exception) -> None:
    folder = CacheFolder(str(tmp_path), "readwrite")
    asked = simulator(Scripted(error, GOOD))
    cache = CacheClient(local(folder), writes=True, simulator_id=asked.simulator_id)
    caller = ApiCaller(cache=cache, simulator=asked)
    assert asyncio.run(caller.call(API, {})).failure == "prompt"
    assert asyncio.run(caller.call(API, {})).response == VALUE
    folder.close()


def test_a_simulators_failure_is_replayed_to_it_alone(tmp_path: Path) -> None:
    folder = CacheFolder(str(tmp_path), "readwrite")
    door = local(folder)

    def call(model: Scripted, name: str) -> Answered:
        asked = Simulator(model.role_model(model=name), "own", SYSTEM)
        cache = CacheClient(door, writes=True, simulator_id=asked.simulator_id, any_simulator=True)
        return asyncio.run(ApiCaller(cache=cache, simulator=asked).call(API, {}))

    first = call(Scripted("no"), "a")
    again = call(silent := Scripted(GOOD), "a")
    assert (first.failure, first.source) == ("simulator", "simulator")
    assert (again.failure, again.source, again.origin) == ("simulator", "cache", "simulator")
    assert (observation(first), silent.asked) == (observation(again), [])
    assert call(Scripted(GOOD), "b").response == VALUE
    folder.close()
