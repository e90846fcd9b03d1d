"""Child process: upstream's BFCL evaluator over JSON lines from stdin, one answer line for each.

``python bfcl_checks_child.py PACKAGE_PARENT``, started by `bfcl_checks`, in an empty folder, with
``BFCL_PROJECT_ROOT`` set to one. In: ``{"id", "category", "language", "form", "tagged", "native",
"function", "gold", "outputs"}``. Out: one item per output, ``[valid, error_type]``;
``{"crash": class}`` where the evaluator raises; ``{"refused": node}`` where it was about to
evaluate more than literals. With a further argument ``names``: one line, the names that its
``eval`` knows.
"""

from __future__ import annotations

import ast
import copy
import io
import json
import sys
import types
import warnings
from contextlib import redirect_stdout
from typing import Any

from official_child import Refusal, guarded_in

_KNOWN: set[str] = set()


class _Models(dict[str, Any]):
    """Any model, named by whether it is offered functions with underscores."""

    def __missing__(self, name: str) -> Any:
        return types.SimpleNamespace(underscore_to_dot=name == "native")


def _stub(name: str, **attributes: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module


def main(parent: str, *names: str) -> None:
    sys.path.append(parent)  # behind what PYTHON has: the folder may be a whole site-packages
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    _stub("dotenv", load_dotenv=lambda *a, **k: None)
    _stub("tqdm", tqdm=lambda items, **k: items)
    _stub("bfcl_eval.constants.model_config", MODEL_CONFIG_MAPPING=_Models())
    _stub("bfcl_eval.eval_checker.eval_runner_helper", __all__=[])
    _stub("bfcl_eval.model_handler.base_handler", BaseHandler=object)
    runner: Any = __import__("bfcl_eval.eval_checker.eval_runner", fromlist=["x"])
    decoder: Any = __import__("bfcl_eval.model_handler.utils", fromlist=["x"])
    enums: Any = __import__("bfcl_eval.constants.enums", fromlist=["x"])
    _KNOWN.update(vars(decoder), vars(__import__("builtins")), ["value"])
    decoder.eval = guarded_in(dict(vars(decoder)), {"value": ast.parse("0")})
    if names:
        print(json.dumps(sorted(_KNOWN)))
        return

    class Prompted:
        def decode_ast(self, result: Any, language: Any, has_tool_call_tag: bool) -> Any:
            return decoder.default_decode_ast_prompting(result, language, has_tool_call_tag)

        def decode_execute(self, result: Any, has_tool_call_tag: bool) -> Any:
            return decoder.default_decode_execute_prompting(result, has_tool_call_tag)

    class Native:
        def decode_ast(self, result: Any, language: Any, has_tool_call_tag: bool) -> Any:
            decoded = []
            for invoked_function in result:
                name = next(iter(invoked_function.keys()))
                decoded.append({name: json.loads(invoked_function[name])})
            return decoded

        def decode_execute(self, result: Any, has_tool_call_tag: bool) -> Any:
            return decoder.convert_to_function_call(result)

    for line in sys.stdin:
        asked = json.loads(line)
        model = "native" if asked["native"] else "prompted"
        handler = Native() if asked["native"] else Prompted()
        category = asked["category"]
        answers: list[Any] = []
        for output in asked["outputs"]:
            prompt = {"function": asked["function"], "question": []}
            try:
                with redirect_stdout(io.StringIO()):
                    if category == "executable":
                        found = _executable(handler, output)
                    elif category == "agentic":
                        found = runner._evaluate_single_agentic_entry(
                            handler, asked["id"], output, asked["gold"], prompt, model, category
                        )
                    elif "relevance" in category:
                        found = runner._evaluate_single_relevance_entry(
                            handler, asked["id"], output, prompt, model, category
                        )
                    else:
                        found = runner._evaluate_single_ast_entry(
                            handler,
                            asked["id"],
                            output,
                            copy.deepcopy(asked["gold"]),
                            prompt,
                            model,
                            category,
                            enums.Language(asked["language"]),
                            enums.ReturnFormat(asked["form"]),
                            asked["tagged"],
                        )
            except Refusal as refusal:
                answers.append({"refused": str(refusal)})
            except Exception as error:  # noqa: BLE001  whatever it is, upstream's run ends there
                answers.append({"crash": f"{type(error).__name__}: {str(error)[:100]}"})
            else:
                answers.append(found if category == "executable" else _answer(found))
        print(json.dumps(answers), flush=True)


def _executable(handler: Any, output: Any) -> Any:
    """What an episode executes: ``[texts]``, ``[None]`` where it takes the answer for no calls."""
    try:
        texts = handler.decode_execute(output, False)
    except Exception:  # noqa: BLE001  as upstream's loop
        return [None]
    empty = len(texts) == 0 or (len(texts) == 1 and len(texts[0]) == 0)
    return [None if empty else texts]


def _answer(found: dict[str, Any]) -> list[Any]:
    if found["valid"]:
        return [True, ""]
    error = found.get("error")
    kind = found.get("error_type")
    if kind is None and isinstance(error, dict):
        kind = error["error_type"]
    return [False, kind]


if __name__ == "__main__":
    main(*sys.argv[1:])
