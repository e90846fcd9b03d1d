"""A task as upstream's files hold it (``data_model/tasks.py``), checked key by key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from textwrap import indent
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ace_ray.benchmarks.dataset import shaped
from ace_ray.errors import UserError

Side = Literal["user", "assistant"]
Basis = Literal["DB", "ENV_ASSERTION", "ACTION", "COMMUNICATE"]
"""Upstream also knows "NL_ASSERTION", judged by a model. No task of the known version has it."""


class Part(BaseModel):
    """An object of upstream's files; further keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Instructions(Part):
    domain: str
    reason_for_call: str
    known_info: str | None = None
    unknown_info: str | None = None
    task_instructions: str

    def text(self) -> str:
        parts = {
            "Reason for call": self.reason_for_call,
            "Known info": self.known_info,
            "Unknown info": self.unknown_info,
            "Task instructions": self.task_instructions,
        }
        lines = [
            f"{name}:\n{indent(text, chr(9))}" for name, text in parts.items() if text is not None
        ]
        return "\n".join([f"Domain: {self.domain}", *lines])


class UserScenario(Part):
    persona: str | None = None
    instructions: Instructions | str

    def text(self) -> str:
        """As the user simulator is told it."""
        told = self.instructions
        lines = [] if self.persona is None else ["Persona:", indent(self.persona, "\t")]
        told = told if isinstance(told, str) else told.text()
        return "\n".join([*lines, "Instructions:", indent(told, "\t")])


class Action(Part):
    action_id: str
    requestor: Side = "assistant"
    name: str
    arguments: dict[str, Any]
    info: str | None = None
    compare_args: list[str] | None = None


class EnvCall(Part):
    env_type: Side
    func_name: str
    arguments: dict[str, Any]


class EnvAssertion(EnvCall):
    assert_value: bool = True
    message: str | None = None


class Criteria(Part):
    actions: list[Action] | None = None
    env_assertions: list[EnvAssertion] | None = None
    communicate_info: list[str] | None = None
    reward_basis: list[Basis] = Field(["DB", "COMMUNICATE"], min_length=1)


class InitializationData(Part):
    agent_data: dict[str, Any] | None = None
    user_data: dict[str, Any] | None = None


class ToolCall(Part):
    id: str = ""
    name: str
    arguments: dict[str, Any]
    requestor: Side = "assistant"


class Message(Part):
    role: Literal["user", "assistant", "tool", "system"]
    content: str | None = None
    tool_calls: list[ToolCall] | None = None
    id: str = ""
    requestor: Side = "assistant"
    error: bool = False

    def stored(self) -> dict[str, Any]:
        """Return the message as the trajectory of an episode has it."""
        kept: dict[str, Any] = {"role": self.role, "content": self.content or ""}
        if self.role == "tool":
            kept |= {"id": self.id, "requestor": self.requestor, "error": self.error}
        if self.tool_calls:
            kept["tool_calls"] = [
                {
                    "id": call.id,
                    "name": call.name,
                    "arguments": json.dumps(call.arguments),
                    # As in an episode of a run: said only where it is not the speaker.
                    **({"requestor": call.requestor} if call.requestor != self.role else {}),
                }
                for call in self.tool_calls
            ]
        return kept


class MessageOfHistory(Message):
    role: Literal["user", "assistant", "tool"]


class InitialState(Part):
    initialization_data: InitializationData | None = None
    initialization_actions: list[EnvCall] | None = None
    message_history: list[MessageOfHistory] | None = None


class Task(Part):
    id: str
    user_scenario: UserScenario
    ticket: str | None = None
    initial_state: InitialState | None = None
    evaluation_criteria: Criteria | None = None


def task_of(tree: Any, where: str) -> Task:
    """The task that ``tree`` is. Raises `UserError` naming the key that is wrong."""
    named = tree.get("id") if isinstance(tree, Mapping) else None
    place = f"{where}, task {named!r:.60}" if isinstance(named, str) else where
    found = shaped(Task, tree, place, "use an unmodified copy of the data")
    if "evaluation_criteria" not in found.model_fields_set:
        raise UserError(
            "evaluation_criteria: field required",
            where=place,
            fix="use an unmodified copy of the data; where nothing is to be judged, write null",
        )
    return found
