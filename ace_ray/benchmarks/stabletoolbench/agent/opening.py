"""How an episode opens: the task, the tools and the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks import context
from ace_ray.benchmarks.stabletoolbench.agent import react
from ace_ray.benchmarks.stabletoolbench.agent.settings import Settings
from ace_ray.benchmarks.stabletoolbench.agent.texts import GO_ON
from ace_ray.benchmarks.stabletoolbench.apis.values import arguments_of
from ace_ray.benchmarks.stabletoolbench.tools import Api, schemas, tool_lines


def opening(query: str, apis: Sequence[Api], settings: Settings) -> list[dict[str, Any]]:
    """The messages that open an attempt: one of the system, one of the user."""
    texts = settings.texts
    task = texts.task + tool_lines(apis)
    system = texts.system.replace("{task_description}", task)
    if settings.form == "react":
        tools = schemas(apis, settings.rules, texts)
        system = react.system_text(system, tools, texts, settings.rules)
    user = texts.user.replace("{input_description}", query)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def template_probe(apis: Sequence[Api], settings: Settings) -> list[dict[str, Any]]:
    """A short chat with a message of every kind that a candidate may be shown, as it is sent."""
    name = apis[0].name if apis else "x"
    call = {"id": context.call_id(0), "type": "function"}
    function = {"name": name, "arguments": "{}"}
    seen = {"role": "tool", "name": name, "content": "{}", "tool_call_id": call["id"]}
    stored = [
        *opening("x", apis, settings),
        {"role": "assistant", "content": "x", "tool_calls": [call | {"function": function}]},
        seen,
        {"role": "assistant", "content": "x"},
    ]
    if settings.width or settings.rules == "fixed":
        stored.append({"role": "user", "content": GO_ON})
    return as_sent(stored, settings)


def as_sent(messages: Sequence[Mapping[str, Any]], settings: Settings) -> list[dict[str, Any]]:
    """The stored messages as the candidate is sent them."""
    if settings.form == "react":
        found = react.chat(messages, settings.observation_role)
    else:
        found = context.as_sent(messages, arguments_of)
    return _joined(found) if settings.rules == "fixed" else found


def _joined(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Consecutive messages of the user as one: some templates insist that speakers take turns."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if found and message["role"] == "user" == found[-1]["role"]:
            text = f"{found[-1]['content']}\n\n{message['content']}"
            found[-1] = {"role": "user", "content": text}
        else:
            found.append(message)
    return found


def offered(apis: Sequence[Api], settings: Settings) -> list[dict[str, Any]] | None:
    """The tools that go with the messages; None in the ReAct form, where they are in them."""
    if settings.form == "react":
        return None
    return schemas(apis, settings.rules, settings.texts)
