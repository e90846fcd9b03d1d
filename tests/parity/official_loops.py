"""Child process: the official agent loops with scripted models, over JSON lines.

``python official_loops.py CLONE``, started by `official.answers_of` under limits, in an empty
folder. In: ``{"language", "category", "row", "agent", "user"}``, the last two the texts that the
models answer with, in order. Out: ``{"result", "process", "prompts", "user_prompts"}``;
``{"crash": class}`` where a loop raises; ``{"refused": why}`` where it was about to run more than
its own tools on literals.
"""

from __future__ import annotations

import ast
import builtins
import json
import sys
import types
import warnings
from typing import Any
from unittest.mock import MagicMock

from official_child import EVAL, Refusal, guarded_in, stub

_HEAVY = ("vllm", "google", "google.generativeai", "openai", "wcwidth", "tqdm")
_DECODERS = (
    "multi_turn.common_agent", "multi_turn.execution_role", "multi_step.execution_role_step",
)  # fmt: skip
_SANDBOXES = ("multi_turn.multi_turn_utils", "multi_step.multi_step_utils")


class _Script:
    """A model that says what it is told to, and keeps what it was asked."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = iter(texts)
        self.seen: list[Any] = []

    def inference(self, system: str, user: str) -> str:
        self.seen.append([system, user])
        return next(self.texts)

    def create(self, messages: list[dict[str, str]], **options: Any) -> Any:
        """As the user's client."""
        self.seen.append([dict(message) for message in messages])
        message = types.SimpleNamespace(content=next(self.texts))
        return types.SimpleNamespace(choices=[types.SimpleNamespace(message=message)])


def _one_tool_call(module: Any) -> Any:
    """The sandbox's ``eval``: a call of an app's method with literals, else a refusal."""

    def run(text: str) -> Any:
        tree = ast.parse(text, mode="eval").body
        values = [keyword.value for keyword in tree.keywords] if isinstance(tree, ast.Call) else []
        named = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        known = {**vars(builtins), **vars(module)}
        if len(named) == 1 and named[0].id not in known:
            raise NameError(f"name {named[0].id!r} is not defined")
        if len(calls) != 1 or len(named) != 1 or not named[0].id.endswith("_instance"):
            raise Refusal(f"{len(calls)} calls and {len(named)} names in a tool call")
        for value in values:
            guarded_in({"__builtins__": {}}, {})(ast.unparse(value))
        return EVAL(text, vars(module))

    return run


def main(clone: str) -> None:
    sys.path.insert(0, clone)
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    answer_file, sys.stdout = sys.stdout, sys.stderr
    unused = ("LLM", "SamplingParams", "OpenAI", "tqdm", "wcswidth", "get_model")
    for name in (*_HEAVY, "model_inference.model_infer"):
        # A mock stands for a progress bar, a client, an engine.
        stub(name, **dict.fromkeys(unused, MagicMock()))
    loops: Any = __import__("model_inference.common_inference", fromlist=["CommonInference"])
    for name in _DECODERS:
        module = sys.modules[f"model_inference.{name}"]
        local = {"self": None, "value": ast.parse("0")}
        module.__dict__["eval"] = guarded_in(dict(vars(module)), local)
    for name in _SANDBOXES:
        sandbox = sys.modules[f"model_inference.{name}"]
        sandbox.__dict__["eval"] = _one_tool_call(sandbox)
    for scene in (loops.Scene, loops.Mulit_Step_Scene):
        scene.write_message_history = lambda *arguments: None
    for number, line in enumerate(sys.stdin):
        print(json.dumps(_played(loops, json.loads(line), number)), file=answer_file)


def _played(loops: Any, asked: dict[str, Any], number: int) -> dict[str, Any]:
    agent, user = _Script(asked["agent"]), _Script(asked["user"])
    handler = object.__new__(loops.CommonInference)  # its constructor loads weights
    handler.model, handler.language, handler.max_message_index = agent, asked["language"], 40
    handler.user_model, handler.model_name = "u", "m"

    def open_user(self: Any, model_name: str, involved_class: Any, language: str) -> None:
        completions = types.SimpleNamespace(completions=user)
        self.client = types.SimpleNamespace(chat=completions)
        self.model_name, self.involved_class, self.language = model_name, involved_class, language
        self.temperature = self.top_p = self.max_tokens = 1
        self.messages = []

    loops.APIUSER.__init__ = open_user
    turns = asked["category"] == "agent_multi_turn"
    play = handler.multi_turn_inference if turns else handler.multi_step_inference
    row = asked["row"]
    try:
        # The number keeps the environments of one episode apart from those of the others.
        result, process = play(
            row["question"], row["initial_config"], row["function"], row["involved_classes"],
            f"t{number}", row.get("time", ""),
        )  # fmt: skip
    except Refusal as refusal:
        return {"refused": str(refusal)}
    except Exception as error:  # noqa: BLE001  whatever it is, upstream's run ends there
        return {"crash": type(error).__name__}
    prompts = {"prompts": agent.seen, "user_prompts": user.seen}
    return {"result": result, "process": process, **prompts}


if __name__ == "__main__":
    main(sys.argv[1])
