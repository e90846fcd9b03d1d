"""Child process: the official evaluator over JSON lines from stdin, one answer line for each.

``python official_child.py CLONE``, started by `official.verdicts` under limits, in an empty
folder. In: ``{"language", "category", "row", "gold", "outputs"}``. Out: one item per output,
``[valid, error_type]``, for agents also the process accuracy; ``{"crash": class}`` where the
evaluator raises; ``{"refused": node}`` where it was about to evaluate more than literals.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

_REFUSED = (
    ast.Call, ast.Name, ast.Attribute, ast.Pow, ast.LShift, ast.RShift, ast.NamedExpr, ast.Await,
    ast.Yield, ast.YieldFrom, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip


class Refusal(BaseException):
    """Passes the evaluator's own ``except Exception``."""


def guarded(text: str) -> Any:
    """The evaluator's ``eval``, for operations on literals alone."""
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, _REFUSED):
            raise Refusal(type(node).__name__)
    return EVAL(text, {"__builtins__": {}})


EVAL: Callable[..., Any] = vars(__import__("builtins"))["eval"]


def main(clone: str) -> None:
    """Judge until stdin ends. The stack is as deep here as in upstream's own run, whose recursion
    limit decides over deep operations: module, runner, evaluation of a category."""
    sys.path.insert(0, clone)
    sys.dont_write_bytecode = True
    answer_file, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")
    for name, attribute in (
        ("pandas", ""),
        ("openpyxl", "Workbook"),
        ("openpyxl.styles", "Alignment"),
    ):
        sys.modules[name] = module = types.ModuleType(name)  # its reports, which are not written
        setattr(module, attribute, None)
    evaluator: Any = __import__("eval_main")
    decoder: Any = sys.modules["model_inference.utils"]
    decoder.eval = guarded
    saved: list[Any] = []
    evaluator.save_score_as_json = lambda name, data, folder: saved.append(data)
    evaluator.convert_result_to_excel = lambda *arguments: None
    evaluator.OUTPUT_PATH = "."
    for language in ("en", "zh"):
        os.makedirs(f"score_all/score_{language}/m")
    for line in sys.stdin:
        asked = json.loads(line)
        category, evaluator.language = asked["category"], asked["language"]
        prompts, golds = [asked["row"]], [asked["gold"]]
        answers: list[Any] = []
        for output in asked["outputs"]:
            saved.clear()
            result = [{"id": asked["row"]["id"], **output}]
            try:
                if "special" in category:
                    found = evaluator.special_eval(result, prompts, golds, category, "m", {})
                elif "agent" in category:
                    found = evaluator.agent_eval(result, prompts, golds, category, "m")
                elif "normal_multi_turn" in category:
                    found = evaluator.normal_multi_turn_eval(
                        result, prompts, golds, category, "m", {}
                    )
                else:
                    found = evaluator.normal_single_turn_eval(
                        result, prompts, golds, category, "m", {}
                    )
            except Refusal as refusal:
                answers.append({"refused": str(refusal)})
            except Exception as error:  # noqa: BLE001  whatever it is, upstream's run ends there
                answers.append({"crash": type(error).__name__})
            else:
                answers.append(_answer(found, saved[0]))
        print(json.dumps(answers), file=answer_file)


def _answer(found: Any, saved: list[dict[str, Any]]) -> list[Any]:
    agent = isinstance(found, tuple)
    valid = (found[0] if agent else found) == 1
    # An accepted alternative leaves the fault of the one before it in the list.
    kind = "" if valid else saved[1]["error_type"]
    return [valid, kind, found[1]] if agent else [valid, kind]


if __name__ == "__main__":
    main(sys.argv[1])
