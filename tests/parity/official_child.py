"""Child process: the official evaluator over JSON lines from stdin, one answer line for each.

``python official_child.py CLONE``, started by `official.verdicts` under limits, in an empty
folder. In: ``{"language", "category", "row", "gold", "outputs"}``. Out: one item per output,
``[valid, error_type]``, for agents also the process accuracy; ``{"crash": class}`` where the
evaluator raises; ``{"refused": node}`` where it was about to evaluate more than literals.
"""

import ast
import builtins
import json
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_GUARDED = (
    ast.Call, ast.Name, ast.Attribute, ast.Pow, ast.LShift, ast.NamedExpr, *_COMPREHENSIONS,
)  # fmt: skip
MAX_BITS = 100_000
EVAL: Callable[..., Any] = vars(builtins)["eval"]


class Refusal(BaseException):
    """Passes the evaluator's own ``except Exception``."""


class _Guards(ast.NodeTransformer):
    """Puts a guard where Python would call, look into or compute more than literals do: it gets
    what Python has evaluated up to there, and refuses."""

    def visit(self, node: ast.AST) -> Any:
        node = self.generic_visit(node)
        if isinstance(node, ast.Call):
            return self._guard(node, [node.func, *node.args], node.keywords)
        if isinstance(node, ast.Attribute):
            return self._guard(node, [node.value, ast.Constant(node.attr)])
        if isinstance(node, ast.NamedExpr):
            return self._guard(node, [node.value])
        if isinstance(node, _COMPREHENSIONS):
            return self._guard(node, [node.generators[0].iter])
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
            kind = ast.Constant(type(node.op).__name__)
            return self._guard(node, [kind, node.left, node.right])
        return node

    def _guard(self, node: ast.AST, values: list[Any], keywords: Any = ()) -> ast.Call:
        name = ast.Constant(type(node).__name__)
        called = ast.Call(ast.Name("__guard__", ast.Load()), [name, *values], list(keywords))
        return ast.fix_missing_locations(ast.copy_location(called, node))


def guard(kind: str, *values: Any, **more: Any) -> Any:
    """Raises what Python raises before it runs anything there, else refuses."""
    if kind == "Call" and not callable(values[0]):
        raise TypeError("not callable")
    if kind == "BinOp":
        return bounded(*values)
    if kind == "Attribute":
        getattr(*values)
    if kind.endswith(("Comp", "Exp")) and len(values) == 1:
        iter(values[0])
    raise Refusal(kind)


def bounded(kind: str, base: Any, right: Any) -> Any:
    """A power or a left shift; refuses an integer that is too long."""
    if isinstance(base, int) and isinstance(right, int):
        power = max(base.bit_length() - 1, 0) * max(right, 0)
        bits = power if kind == "Pow" else (base.bit_length() + right if base else 0)
        if bits > MAX_BITS:
            raise Refusal(kind)
    return base**right if kind == "Pow" else base << right


def guarded_in(namespace: dict[str, Any], local: dict[str, Any]) -> Callable[[str], Any]:
    """The evaluator's ``eval`` in a module whose names are ``namespace``: names are looked up and
    operators run as Python does it, powers and shifts within bounds. Calls, attributes and
    comprehensions are refused."""

    def run(text: str) -> Any:
        tree = ast.parse(text, mode="eval")
        if not any(isinstance(node, _GUARDED) for node in ast.walk(tree)):
            return EVAL(text, {"__builtins__": {}})
        compile(text, "", "eval")  # raises for what has no meaning outside of a function
        code = compile(_Guards().visit(tree), "", "eval")
        return EVAL(code, {**namespace, "__guard__": guard}, dict(local))

    return run


def stub(name: str, **attributes: Any) -> None:
    """Put a module in place of one that upstream imports and does not need here."""
    sys.modules[name] = module = types.ModuleType(name)
    vars(module).update(attributes)


def main(clone: str) -> None:
    """Judge until stdin ends. The stack is as deep here as in upstream's own run, whose recursion
    limit decides over deep operations: module, runner, evaluation of a category."""
    sys.path.insert(0, clone)
    sys.dont_write_bytecode = True
    answer_file, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")
    # For its reports, which are not written.
    stub("pandas")
    stub("openpyxl", Workbook=None)
    stub("openpyxl.styles", Alignment=None)
    evaluator: Any = __import__("eval_main")
    normal, turns = evaluator.normal_single_turn_eval, evaluator.normal_multi_turn_eval
    decoder: Any = sys.modules["model_inference.utils"]
    decoder.eval = guarded_in(dict(vars(decoder)), {"value": ast.parse("0")})
    saved: list[Any] = []
    evaluator.save_score_as_json = lambda name, data, folder: saved.append(data)
    evaluator.convert_result_to_excel = lambda *arguments: None
    evaluator.OUTPUT_PATH = "."
    for language in ("en", "zh"):
        os.makedirs(f"score_all/score_{language}/m")
    for line in sys.stdin:
        request = json.loads(line)
        category, evaluator.language = request["category"], request["language"]
        prompts, golds = [request["row"]], [request["gold"]]
        answers: list[Any] = []
        for output in request["outputs"]:
            saved.clear()
            result = [{"id": request["row"]["id"], **output}]
            try:
                if "agent" in category:
                    outcome = evaluator.agent_eval(result, prompts, golds, category, "m")
                else:
                    judge = turns if "normal_multi_turn" in category else normal
                    judge = evaluator.special_eval if "special" in category else judge
                    outcome = judge(result, prompts, golds, category, "m", {})
            except Refusal as refusal:
                answers.append({"refused": str(refusal)})
            except Exception as error:  # noqa: BLE001  whatever it is, upstream's run ends there
                answers.append({"crash": type(error).__name__})
            else:
                answers.append(_answer(outcome, saved[0]))
        print(json.dumps(answers), file=answer_file)


def _answer(outcome: Any, saved: list[dict[str, Any]]) -> list[Any]:
    agent = isinstance(outcome, tuple)
    valid = (outcome[0] if agent else outcome) == 1
    # An accepted alternative leaves the fault of the one before it in the list.
    kind = "" if valid else saved[1]["error_type"]
    return [valid, kind, outcome[1]] if agent else [valid, kind]


if __name__ == "__main__":
    main(sys.argv[1])
