"""The order of the backends of a call, and the counts of their answers."""

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
)
from ace_ray.benchmarks.stabletoolbench.apis.cache import AnswerCache, CacheClient
from ace_ray.benchmarks.stabletoolbench.apis.json_files import import_answers
from ace_ray.benchmarks.stabletoolbench.apis.real import RealApis
from ace_ray.benchmarks.stabletoolbench.apis.simulator import Form, Simulator, SystemText
from ace_ray.benchmarks.stabletoolbench.apis.sources import ApiCaller
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.errors import EngineDead, PromptRefused, PromptTooLong, RequestFailed
from tests.benchmarks.stabletoolbench.builders import API, role_of
from tests.scripted_model import ScriptedModel

GOOD = '{"error": "", "response": {"x": 1.5, "u": "\\ud800", "n": null}}'
VALUE = {"x": 1.5, "u": "\ud800", "n": None}


class FakeReal(RealApis):
    def __init__(self, failure: str = "") -> None:
        self.failure, self.calls = failure, 0

    async def answer(self, api: Api, arguments: Any) -> Answered:
        self.calls += 1
        error = "Timeout error..." if self.failure else ""
        return Answered(error, "real", "real", origin="real", failure=self.failure)


def simulator(model: ScriptedModel, form: Form = "own", /, **identity: Any) -> Simulator:
    return Simulator(role_of(model, **identity), form, SystemText("s", "own"))


def caller(folder: Path, asked: Simulator, real: RealApis | None = None) -> ApiCaller:
    """Return the caller of a run with a cache in this folder."""
    cache = AnswerCache(str(folder), "readwrite")

    async def call(method: str, *values: Any) -> Any:
        return cache.call(method, *values)

    client = CacheClient(call, writes=True, simulator_id=asked.simulator_id)
    return ApiCaller(cache=client, real=real, simulator=asked)


def call(apis: ApiCaller, arguments: Any) -> Answered:
    return asyncio.run(apis.call(API, arguments))


@pytest.mark.parametrize(
    "said", [{"b": [1, {"c": None}], "a": 2}, "[1]", "null", '"a text"', '{"a": NaN, "b": 1e400}']
)
def test_a_second_run_makes_no_model_call_and_gives_equal_answers(
    tmp_path: Path, said: Any
) -> None:
    model = ScriptedModel(GOOD)
    first = call(caller(tmp_path, simulator(model)), said)
    again = call(caller(tmp_path, simulator(model)), said)
    assert len(model.asked) == 1
    assert first.response == again.response == VALUE
    assert observation(first) == observation(again)
    assert (first.source, again.source, again.origin) == ("simulator", "cache", "simulator")
    # MirrorAPI takes objects only.
    mirror = ApiCaller(simulator=simulator(model, "mirror"))
    is_object = not isinstance(said, str) or said.startswith("{")
    assert call(mirror, said).failure == ("" if is_object else "arguments")


def test_the_order_is_cache_real_simulator(tmp_path: Path) -> None:
    model, real, dead = ScriptedModel(GOOD), FakeReal(), FakeReal("real")
    first = caller(tmp_path, simulator(model), real)
    assert call(first, {"a": 1}).source == "real"
    second = call(first, {"a": 1})
    assert (second.source, second.origin, real.calls) == ("cache", "real", 1)
    assert call(caller(tmp_path, simulator(model), dead), {"a": 2}).source == "simulator"
    assert (dead.calls, len(model.asked)) == (1, 1)
    alone = call(ApiCaller(real=FakeReal("real")), {})
    assert (alone.error, alone.source, alone.failure) == ("Timeout error...", "real", "real")


def test_arguments_that_are_not_json_are_told_to_the_agent() -> None:
    for said in ("{", "nothing", '{"a": ' + "[" * 99, "x" * 99_999):
        answered = call(ApiCaller(real=FakeReal()), said)
        assert (answered.error, answered.source) == (BAD_ARGUMENTS, "none")
        assert answered.failure == "arguments"


def test_imported_examples_reach_the_simulator(tmp_path: Path) -> None:
    path = tmp_path / "json/News_Media/clique_for_News_Media/player_details.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"{'a': 1}": {"error": "", "response": "shown"}}))
    import_answers(tmp_path / "json", tmp_path)
    model = ScriptedModel(GOOD)
    call(caller(tmp_path, simulator(model)), {"a": 2})
    assert "shown" in model.chats[0][1]["content"]
    call(caller(tmp_path, simulator(model, "mirror")), {"a": 2})
    assert "shown" not in model.chats[1][1]["content"]


def test_a_model_that_is_down_or_refuses_a_prompt_is_not_recorded(tmp_path: Path) -> None:
    for error in (RequestFailed("x"), EngineDead("x")):
        down = caller(tmp_path, simulator(ScriptedModel(error)))
        with pytest.raises(type(error)):
            call(down, {})
    for error in (PromptTooLong("x"), PromptRefused("x")):
        assert call(caller(tmp_path, simulator(ScriptedModel(error))), {}).failure == "prompt"
    assert call(caller(tmp_path, simulator(ScriptedModel(GOOD))), {}).response == VALUE


def test_a_simulators_failure_is_replayed_to_it_alone(tmp_path: Path) -> None:
    silent = ScriptedModel(GOOD)
    first = call(caller(tmp_path, simulator(ScriptedModel("no"), model="a")), {})
    again = call(caller(tmp_path, simulator(silent, model="a")), {})
    assert (first.failure, first.source) == ("simulator", "simulator")
    assert (again.failure, again.source, again.origin) == ("simulator", "cache", "simulator")
    assert (observation(first), silent.asked) == (observation(again), [])
    assert call(caller(tmp_path, simulator(ScriptedModel(GOOD), model="b")), {}).response == VALUE
