"""Child process: upstream's BFCL code over JSON lines from stdin, one answer line for each.

``python bfcl_child.py PACKAGE_PARENT WHAT``, started by `official.answers_of` in an empty folder
that ``BFCL_PROJECT_ROOT`` names; it imports nothing of ace_ray. WHAT is a function below.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
import warnings
from collections import defaultdict
from contextlib import nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from official_child import stub

_PARSERS = (
    *("tenacity", "filelock", "tree_sitter", "tree_sitter_java", "tree_sitter_javascript"),
    "overrides",
)


class Anything:
    """Stands for whatever upstream takes from a package that is not needed here."""

    def __init__(self, *_: Any, **__: Any) -> None:
        return

    def __call__(self, *_: Any, **__: Any) -> Anything:
        return self

    def __getattr__(self, name: str) -> Anything:
        return self


def prepare(parent: str) -> None:
    """Make upstream importable, with stand-ins for what it imports and does not need here."""
    sys.path.append(parent)  # behind what PYTHON has: the folder may be a whole site-packages
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    for name in _PARSERS:  # which may be another version here
        stub(name, FileLock=nullcontext, __getattr__=lambda name: Anything)
    stub("dotenv", load_dotenv=lambda *a, **k: None)
    stub("tqdm", tqdm=lambda items, **k: items)
    models: Any = defaultdict(lambda: SimpleNamespace(underscore_to_dot=False))
    stub("bfcl_eval.constants.model_config", MODEL_CONFIG_MAPPING=models)
    stub("bfcl_eval.model_handler.base_handler", BaseHandler=object)
    stub("bfcl_eval.eval_checker.eval_runner_helper", __all__=[])


def conversations() -> Any:
    """Judge cases of a multi-turn entry: ``[valid, error_type]`` each."""
    runner = import_module("bfcl_eval.eval_checker.eval_runner")
    folder = "bfcl_eval.eval_checker.multi_turn_eval"
    utils = import_module(f"{folder}.multi_turn_utils")
    context = import_module(f"{folder}.func_source_code.long_context")
    posting = import_module(f"{folder}.func_source_code.posting_api")

    def decode_execute(item: Any, has_tool_call_tag: bool) -> list[str]:
        if item is None:
            raise ValueError("no calls")
        return list(item)

    variables = {name: value for name, value in vars(context).items() if not name.startswith("_")}
    defaults = {
        n: copy.deepcopy(value) for n, value in variables.items() if type(value) in (dict, list)
    }
    handler = SimpleNamespace(decode_execute=decode_execute)

    def judge(entry: Any, gold: Any, turns: Any) -> Any:
        try:
            result = runner._evaluate_single_multi_turn_entry(
                handler, entry["id"], turns, gold, copy.deepcopy(entry), "m", "category"
            )
            kind = "" if result["valid"] else result["error"]["error_type"]
        except Exception as error:  # noqa: BLE001 - upstream's whole run would end here
            result, kind = {"valid": False}, f"crash:{type(error).__name__}"
        # As if every case had a process of its own.
        for name in [name for name in vars(utils) if name.endswith("_instance")]:
            del vars(utils)[name]
        posting.TwitterAPI.post_tweet.__defaults__ = ([], [])
        for name, value in defaults.items():
            target = getattr(context, name)  # the classes have imported this object
            target.clear()
            (target.update if isinstance(target, dict) else target.extend)(copy.deepcopy(value))
        return [result["valid"], kind]

    return lambda request: [
        judge(request["entry"], request["gold"], turns) for turns in request["cases"]
    ]


def prompts() -> Any:
    """Answer a category with ``[entry id, what, hash]`` of all that a model is shown."""
    utils = import_module("bfcl_eval.utils")
    categories = import_module("bfcl_eval.constants.category_mapping")
    texts = import_module("bfcl_eval.constants.default_prompts")
    style = import_module("bfcl_eval.constants.enums").ModelStyle.OPENAI_COMPLETIONS
    types = import_module("bfcl_eval.constants.type_mappings").GORILLA_TO_OPENAPI
    handling = import_module("bfcl_eval.model_handler.utils")

    def tools_of(functions: Any) -> Any:
        return handling.convert_to_tool(functions, types, style)

    def prompt_parts(category: str, memory: str) -> Any:
        for entry in utils.load_dataset_entry(category):
            row, functions, question = entry["id"], entry["function"], entry["question"]
            if category != "format_sensitivity" and "prereq" not in row:
                yield row, "tools", tools_of(functions)
            if category in categories.MEMORY_CATEGORY:
                holder = SimpleNamespace(_dump_core_memory_to_context=lambda: memory)
                question = handling.add_memory_instruction_system_prompt(
                    question, row.rsplit("_", 1)[0], entry["scenario"], holder
                )
            first = handling.system_prompt_pre_processing_chat_model(question[0], functions, row)
            yield row, "messages", first
            functions = copy.deepcopy(functions)
            for turn, more in entry.get("missed_function", {}).items():
                template = texts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING
                yield row, f"prompt-mode-turn {turn}", template.format(functions=more)
                native = texts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
                yield row, f"native-turn {turn}", native
                functions.extend(more)
                yield row, f"tools-in-turn {turn}", tools_of(functions)

    return lambda request: [[row, kind, sha(value)] for row, kind, value in prompt_parts(*request)]


def sha(value: Any) -> str:
    """Hash a text, or a JSON value with the order of its keys."""
    text = value if isinstance(value, str) else json.dumps(value)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def main(parent: str, task: str) -> None:
    prepare(parent)
    answer = {f.__name__: f for f in (conversations, prompts)}[task]()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
