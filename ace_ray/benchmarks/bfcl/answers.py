"""Answers of a model, in either mode: text, or text beside calls that a tool parser read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ace_ray.types import Completion, ToolCall


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. ``calls`` is None in prompt mode, where the calls are in the text; in native mode
    it holds what the tool parser read, and ``text`` is what stood beside."""

    text: str | None
    """None: a stored answer without calls that does not say whether there were words."""
    calls: tuple[ToolCall, ...] | None = None
    unreadable: bool = False
    """True for a stored answer in a shape on which upstream's decoder raises."""

    @classmethod
    def of(cls, completion: Completion) -> Answer:
        if completion.tools is None:
            return cls(completion.text)
        return cls(completion.tools.content, completion.tools.calls)

    @classmethod
    def stored(cls, value: Any) -> Answer:
        """From what `as_json` gave."""
        if not isinstance(value, Mapping):
            return cls(str(value))
        calls = tuple(ToolCall(name, arguments) for name, arguments in value["calls"])
        return cls(value["content"], calls, value.get("unreadable") is True)

    def as_json(self) -> Any:
        if self.calls is None:
            return self.text
        calls = [[call.name, call.arguments] for call in self.calls]
        stored: dict[str, Any] = {"content": self.text, "calls": calls}
        return stored | {"unreadable": True} if self.unreadable else stored
