"""A plugin of vLLM whose parsers replace a small model's answers by calls.

The engine still generates each answer, and its text goes through the parsers. In native mode the
tool parser makes the calls. In prompt mode the reasoning parser writes them as text. A conversation
makes the calls of its script, one an answer, and then says that it is done. The reasoning parser
also writes the reply of StableToolBench's judge. Users keep the model's text.
"""

import json
from typing import Any

from vllm.entrypoints.generate.base.protocol import (
    ExtractedToolCallInformation,
    FunctionCall,
    ToolCall,
)
from vllm.reasoning import ReasoningParser, ReasoningParserManager
from vllm.tool_parsers import ToolParser, ToolParserManager

Call = tuple[str, dict[str, Any]]

SCRIPTS: tuple[tuple[Call, ...], ...] = (
    (("turn_on_wifi", {}), ("login_device", {})),
    (("list_orders", {}), ("total", {})),
    (("core_memory_list_keys", {}), ("archival_memory_list_keys", {})),
    (("get_users", {}), ("create_task", {"user_id": "user_1", "title": "Meeting"})),
    (
        ("random_recipe_for_pantry_co", {}),
        ("Finish", {"return_type": "give_answer", "final_answer": "leek soup"}),
    ),
    (("free_slots", {"day": "Monday"}), ("book", {"day": "Monday", "time": "09:00", "name": "A"})),
)
"""Calls of each benchmark's conversations: ACEBench, BFCL (bakery, memory), tau2, StableToolBench,
and `examples/appointments.py`."""


def python_call(name: str, arguments: dict[str, Any]) -> str:
    return f"[{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]"


def react_call(name: str, arguments: dict[str, Any]) -> str:
    return f"Thought: next\nAction: {name}\nAction Input: {json.dumps(arguments)}"


def block_call(name: str, arguments: dict[str, Any]) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


FORMS = {
    "[ApiName(key1=": python_call,
    "[first_function(name=value": python_call,
    "Write every round in exactly this form": react_call,
    '"name": "name_of_the_tool"': block_call,
}
"""Text of a prompt -> the form in which it asks for calls."""


DONE = "It is done."
JUDGED = '{"reason": "The answer names a dish.", "answer_status": "Solved"}'


@ToolParserManager.register_module("scripted")
class ScriptedToolParser(ToolParser):  # type: ignore[misc]
    def extract_tool_calls(self, model_output: str, request: Any) -> ExtractedToolCallInformation:
        offered = {tool.function.name for tool in request.tools or ()}
        names = {
            call["function"]["name"]
            for message in request.messages
            for call in message.get("tool_calls") or ()
        }
        script = next((s for s in SCRIPTS if {name for name, _ in s} <= offered), ())
        following = next((call for call in script if call[0] not in names), None)
        if following is None:
            content = DONE if script else model_output
            return ExtractedToolCallInformation(tools_called=False, tool_calls=[], content=content)
        name, arguments = following
        call = ToolCall(function=FunctionCall(name=name, arguments=json.dumps(arguments)))
        return ExtractedToolCallInformation(tools_called=True, tool_calls=[call], content=None)


@ReasoningParserManager.register_module("scripted")
class ScriptedReasoningParser(ReasoningParser):  # type: ignore[misc]
    def is_reasoning_end(self, input_ids: Any) -> bool:
        return True

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        return input_ids

    def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str]:
        texts = [str(message.get("content") or "") for message in request.messages]
        prompt = "\n".join(texts)
        form = next((form for mark, form in FORMS.items() if mark in prompt), None)
        script = next((s for s in SCRIPTS if all(name in prompt for name, _ in s)), ())
        if request.tools:
            return None, model_output
        if form is None or not script:
            return None, JUDGED if '"answer_status"' in prompt else model_output
        calls = [form(name, arguments) for name, arguments in script]
        return None, next((call for call in calls if call not in prompt), DONE)

    def extract_reasoning_streaming(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("requests are not streamed")
