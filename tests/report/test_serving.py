"""Faults of a served model: each is found and named by the policy of a provider; equals pass."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ace_ray
from ace_ray.config.schema import EndpointConfig, yaml_file
from ace_ray.models import pacing
from ace_ray.models.endpoint import EndpointModel
from ace_ray.parsing.formats import parse_known_formats
from ace_ray.reports.explain import explain
from ace_ray.reports.gate import CHANGES, LIMITS, Policy, limit_check
from ace_ray.reports.serving import SERVING, ServedRow, change, estimate, mark_repeated
from ace_ray.storage.rows import episode_columns
from ace_ray.types import Episode, Sampling
from tests.report.builders import Row, loaded, row, write_run
from tests.scripted_endpoint import call, completion, scripted_endpoint

POLICY = str(Path(__file__).parents[2] / "configs/policies/provider.yaml")
ENTRIES = range(200)
KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": KEY}}]
Reply = tuple[int, str] | dict[str, Any]


def right(number: int) -> dict[str, Any]:
    """Return the answer of the model: a call, or for each fifth entry a text."""
    if number % 5 == 0:
        return completion(f"Hello, {number}.", reasoning_content="No tool.")
    calls = [call("look_up", {"key": str(number)})]
    return completion(None, tool_calls=calls, reasoning_content="A tool.")


def other_template(number: int, request: int) -> Reply:
    answer = right(number)
    answer["usage"]["prompt_tokens"] += 9
    return answer


def parser_off(number: int, request: int) -> Reply:
    text = json.dumps({"name": "look_up", "arguments": {"key": str(number)}})
    return right(number) if number % 5 == 0 else completion(f"<tool_call>\n{text}\n</tool_call>")


def arguments_as_text(number: int, request: int) -> Reply:
    twice = json.dumps(json.dumps({"key": str(number)}))
    return (
        right(number) if number % 5 == 0 else completion(None, tool_calls=[call("look_up", twice)])
    )


def truncated(number: int, request: int) -> Reply:
    """Cut each fourth answer, which is longer than 64 tokens."""
    if number % 4:
        return right(number)
    answer = completion(f"I think about {number}")
    answer["choices"][0]["finish_reason"] = "length"
    return answer


def reasoning_only(number: int, request: int) -> Reply:
    return right(number) if number % 20 else completion(None, reasoning_content=f"Hm, {number}.")


def errors(number: int, request: int) -> Reply:
    return (503, "overloaded") if request % 50 == 7 else right(number)


def other_model(number: int, request: int) -> dict[str, Any]:
    """Look up a wrong key for each fourth entry."""
    wrong = completion(None, tool_calls=[call("look_up", {"key": f"{number}?"})])
    return wrong if number % 4 == 1 and number % 5 else right(number)


def served_run(folder: Path, answer_of: Callable[[int, int], Reply], **settings: Any) -> Path:
    """Write a run with the answers of a server to all `ENTRIES`, through ace_ray's client."""

    async def ask(url: str) -> list[Row]:
        config = {"url": url, "model": "m", "api_key_env": None, "max_concurrency": 8}
        model = EndpointModel(EndpointConfig.model_validate(config))
        try:
            return list(await asyncio.gather(*(ask_one(model, number) for number in ENTRIES)))
        finally:
            await model.close()

    async def ask_one(model: EndpointModel, number: int) -> Row:
        question = {"role": "user", "content": f"Look up {number}."}
        answer = await model.chat([question], Sampling(), TOOLS)
        episode = Episode(messages=[question], tools=TOOLS)
        episode.record(answer)
        calls = answer.tools.calls if answer.tools else ()
        expected = [json.dumps({"key": str(number)})] if number % 5 else []
        stored = row(
            "en", "normal_atom_bool", number, official=[c.arguments for c in calls] == expected
        )
        unread = None if calls else parse_known_formats(answer.text)
        return stored | episode_columns(episode) | {"second_reading": unread and unread.reader}

    with scripted_endpoint() as server:
        server.answer = lambda body: answer_of(
            int(body["messages"][0]["content"].removeprefix("Look up ").removesuffix(".")),
            len(server.requests),
        )
        rows = asyncio.run(ask(server.url))
    return write_run(folder, rows, run_id=folder.name, **settings)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "BACKOFF_S", 0.001)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "own"
    return served_run(folder, lambda number, request: right(number))


FAULTS = {
    "equal": (lambda number, request: right(number), {}),
    "other template": (other_template, {"prompt_tokens_differ": "another chat template"}),
    "parser off": (parser_off, {"trigger_f1": "holds calls (160 x hermes)", "accuracy": ""}),
    "arguments as text": (arguments_as_text, {"schema_valid": "that are text", "accuracy": ""}),
    "truncated": (truncated, {"cut_off": "a lower token limit", "accuracy": ""}),
    "reasoning only": (reasoning_only, {"reasoning_only": "keeps the answer in the reasoning"}),
    "errors": (errors, {"answered": "requests fail"}),
    "other model": (other_model, {"accuracy": "another model, precision or sampling"}),
}


@pytest.mark.parametrize(("answer_of", "signs"), FAULTS.values(), ids=FAULTS)
def test_each_fault_of_a_server_is_found_and_named(
    answer_of: Any, signs: dict[str, str], reference: Path, tmp_path: Path
) -> None:
    run = served_run(tmp_path / "theirs", answer_of, backend="endpoint")
    decision = ace_ray.gate(POLICY, str(run), against=str(reference))
    missed = [check for check in decision.checks if check.answer == "NO-GO"]
    named = {next(m for m in (*SERVING, "accuracy") if m in c.name): c.reason for c in missed}
    assert named.keys() == signs.keys(), decision.checks
    assert all(sign in named[metric] for metric, sign in signs.items()), named
    assert repr(decision).startswith("<Decision ")


def test_every_malformed_call_of_a_server_is_counted(reference: Path, tmp_path: Path) -> None:
    def answer_of(number: int, request: int) -> Reply:
        broken = call("look_up", json.dumps({"key": str(number)})[:-2])
        return completion(None, tool_calls=[broken]) if number in (1, 34, 67) else right(number)

    run = served_run(tmp_path / "theirs", answer_of)
    line = ace_ray.compare([str(reference), str(run)]).kept[0]
    assert (line["right"], line["lost"], line["malformed_call"]) == (200, 3, 3)


USAGE = {
    "equal counts": ({"prompt_tokens": 7, "completion_tokens": 3}, "tokens", ""),
    "unknown counts": ({}, "tokens", ""),
    "other counts": (
        {"prompt_tokens": 9, "completion_tokens": 3},
        "prompt",
        "other chat template or variables: 7 -> 9 prompt tokens",
    ),
}


@pytest.mark.parametrize(("usage", "cause", "detail"), USAGE.values(), ids=USAGE)
def test_the_template_behind_an_endpoint_is_unknown(
    usage: dict[str, int], cause: str, detail: str, reference: Path, tmp_path: Path
) -> None:
    def answer_of(number: int, request: int) -> Reply:
        return {**other_model(number, request), "usage": usage}

    run = served_run(tmp_path / "theirs", answer_of, backend="endpoint")
    differences = explain(*loaded(reference, run)).differences
    assert {(d.cause, d.detail) for d in differences} == {(cause, detail)}
    assert len(differences) == 40


def simulate(draw: np.random.Generator, due: np.ndarray) -> dict[Any, ServedRow]:
    """Return rows of a server. ``due``: probability of a call in each row."""
    calls, faults, cut, failed = draw.random((4, len(due)))
    return mark_repeated(
        {
            (number,): ServedRow(
                task=str(number),
                requests=1 + int(failed[number] < 2e-5),
                answered=1,
                calls=bool(calls[number] < due[number]),
                fault=("" if faults[number] > 0.001 else "x")
                if calls[number] < due[number]
                else None,
                cut_off=bool(cut[number] < 0.003),
                prompt_tokens=100 + number,
                content=str(number // 2 if number < 20 else number),
            )
            for number in range(len(due))
        }
    )


def test_an_equal_server_is_go_in_200_of_200_seeds() -> None:
    policy = Policy.model_validate(yaml_file(POLICY))
    answers = []
    for seed in range(200):
        draw = np.random.default_rng(seed)
        # 15 % of the entries are called by chance, which gives an F1 of about 0.93.
        due = np.where(draw.random(1000) < 0.15, draw.random(1000), draw.random(1000) < 0.8)
        runs = [simulate(draw, due), simulate(draw, due)]
        for metric in policy.metrics:
            for kind in LIMITS if metric.metric in SERVING else ():
                if (limit := getattr(metric, kind)) is not None:
                    value, n = (change if kind in CHANGES else estimate)(metric.metric, runs)
                    answers.append(limit_check(f"{metric.metric}", value, limit, 0.05, n, kind))
    assert len(answers) == 200 * len(SERVING)
    assert {check.answer for check in answers} == {"GO"}, {c for c in answers if c.answer != "GO"}
