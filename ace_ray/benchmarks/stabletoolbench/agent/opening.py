"""How an episode opens: the task, the tools and the query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench.agent import react
from ace_ray.benchmarks.stabletoolbench.agent.settings import Settings
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


def offered(apis: Sequence[Api], settings: Settings) -> list[dict[str, Any]] | None:
    """The tools that go with the messages; None in the ReAct form, where they are in them."""
    if settings.form == "react":
        return None
    return schemas(apis, settings.rules, settings.texts)
