"""Upstream BFCL's own verdicts on multi-turn conversations, for `bfcl_multi_turn`.

Runs in a process of its own with nothing but the folder of the package: its checker is imported,
the entry logic is taken out of ``eval_runner.py``, which imports every vendor's client. Reads
one entry a line, {"entry", "gold", "cases": [turns, ...]}, and writes a list with one {"valid",
"error_type", "texts"} a case.
"""

from __future__ import annotations

import ast
import copy
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

INSTANCE = re.compile(r"\b\w+_instance\.")


def main() -> None:
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder.parent))
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker as checker
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils as utils
    from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import long_context, posting_api

    evaluate = entry_logic(folder / "eval_checker" / "eval_runner.py", checker, utils)
    executed: list[list[str]] = []
    run = utils.execute_multi_turn_func_call

    def recording(**named: Any) -> Any:
        found = run(**named)
        executed.append([INSTANCE.sub("", text) for text in found[0]])
        return found

    checker.execute_multi_turn_func_call = recording
    kept = {
        name: copy.deepcopy(value)
        for name, value in vars(long_context).items()
        if isinstance(value, (dict, list)) and not name.startswith("_")
    }
    handler = types.SimpleNamespace(decode_execute=decode_execute)
    for line in sys.stdin:
        asked = json.loads(line)
        answers = []
        for turns in asked["cases"]:
            executed.clear()
            entry = copy.deepcopy(asked["entry"])
            try:
                found = evaluate(handler, entry["id"], turns, asked["gold"], entry, "m", "category")
                kind = "" if found["valid"] else found["error"]["error_type"]
            except Exception as error:  # noqa: BLE001 - upstream's whole run would end here
                found, kind = {"valid": False}, f"crash:{type(error).__name__}"
            answers.append({"valid": found["valid"], "error_type": kind, "texts": list(executed)})
            # As if every case had a process of its own.
            for name in [name for name in vars(utils) if name.endswith("_instance")]:
                del vars(utils)[name]
            posting_api.TwitterAPI.post_tweet.__defaults__ = ([], [])
            for name, value in kept.items():
                restore(getattr(long_context, name), value)
        print(json.dumps(answers), flush=True)


def restore(target: Any, value: Any) -> None:
    """Put ``value`` back into the same object, which the classes have imported."""
    if target == value:
        return
    target.clear()
    if isinstance(target, dict):
        target.update(copy.deepcopy(value))
    else:
        target.extend(copy.deepcopy(value))


def decode_execute(item: Any, has_tool_call_tag: bool) -> list[str]:
    if item is None:
        raise ValueError("no calls")
    return list(item)


def entry_logic(path: Path, checker: Any, utils: Any) -> Any:
    """Upstream's ``_evaluate_single_multi_turn_entry``, alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = "_evaluate_single_multi_turn_entry"
    wanted = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    for argument in wanted[0].args.args:
        argument.annotation = None
    scope: dict[str, Any] = {
        "is_empty_execute_response": utils.is_empty_execute_response,
        "multi_turn_checker": checker.multi_turn_checker,
    }
    exec(compile(ast.Module([*wanted], []), str(path), "exec"), scope)  # noqa: S102 - the user's copy
    return scope[name]


if __name__ == "__main__":
    main()
