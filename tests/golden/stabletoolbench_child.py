"""Child process: how StableToolBench's own code reads a judge's replies, one answer line for each.

``python stabletoolbench_child.py CLONE``, started by `write`. In: ``[reader, replies]``. Out:
upstream's reading, or ``{"crash": class}`` where it raises.
"""

import ast
import json
import sys
import types
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any


def main(clone: str) -> None:
    folder = Path(clone, "toolbench", "tooleval")
    attempts = dict.fromkeys(("stop_after_attempt", "wait_exponential", "wait_random_exponential"))
    plain = {name: lambda *a, **k: None for name in attempts}
    modules: dict[str, dict[str, Any]] = {
        "tenacity": {"retry": lambda *a, **k: lambda function: function, **plain},
        "openai": {"OpenAI": None},
        "requests": {},
        # Packages whose __init__ imports more than is needed here.
        "evaluators": {"__path__": [str(folder / "evaluators")]},
        "evaluators.registered_cls": {"__path__": [str(folder / "evaluators" / "registered_cls")]},
    }
    for name, attributes in modules.items():
        sys.modules[name] = module = types.ModuleType(name)
        vars(module).update(attributes)
    evaluator = import_module("evaluators.registered_cls.rtl").ReinforceToolLearningEvaluator
    judge = object.__new__(evaluator)  # its constructor reads keys of an API
    judge.eval_config = {"completions_kwargs": {"functions": []}}
    judge.functions = defaultdict(lambda: {"parameters": {"required": [], "properties": {}}})
    judge.parsed_function_templates = defaultdict(str)
    tree = ast.parse((folder / "fac_eval.py").read_text("utf-8"))
    fac = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == "get_response"]
    scope: dict[str, Any] = {}
    exec(compile(ast.Module([*fac], []), "fac_eval", "exec"), scope)  # noqa: S102 - the user's copy

    def read(reader: str, replies: list[str]) -> Any:
        queue = iter(replies)

        def request(**_: Any) -> Any:
            call = types.SimpleNamespace(function=types.SimpleNamespace(arguments=next(queue)))
            message = types.SimpleNamespace(tool_calls=[call])
            return types.SimpleNamespace(choices=[types.SimpleNamespace(message=message)])

        judge.opr = types.SimpleNamespace(request=request)
        answers: list[Any] = [
            {"final_answer": text, "answer_details": []} for text in ("one", "two")
        ]
        if reader == "fac":
            return scope["get_response"](*replies)
        if reader == "vote":
            return judge.check_is_solved({"query": "?"}, answers[0], return_reason=False)[0].value
        return judge.select_better_answer({"query": "?"}, None, [0, 1], answers, None)

    for line in sys.stdin:
        try:
            print(json.dumps(read(*json.loads(line))))
        except Exception as error:  # noqa: BLE001  whatever it is, upstream asks again or ends there
            print(json.dumps({"crash": type(error).__name__}))


if __name__ == "__main__":
    main(*sys.argv[1:])
