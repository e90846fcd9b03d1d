"""Child process: upstream's BFCL code over JSON lines from stdin, one answer line for each.

``python bfcl_child.py PACKAGE_PARENT WHAT``, started by `official.answers_of` in an empty folder
that ``BFCL_PROJECT_ROOT`` names; it imports nothing of ace_ray. WHAT is a function below:
``single`` needs a Python with upstream's tree-sitter.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import io
import json
import sys
import warnings
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from official_child import Refusal, guarded_in, stub

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


class _Models(dict[str, Any]):
    """Any model, named by whether it is offered functions with underscores."""

    def __missing__(self, name: str) -> Any:
        underscores = name == "native" or (name.endswith("-FC") and not name.endswith("-Qwen-FC"))
        return SimpleNamespace(underscore_to_dot=underscores)


def prepare(parent: str) -> None:
    """Make upstream importable, with stand-ins for what it imports and does not need here."""
    sys.path.append(parent)  # behind what PYTHON has: the folder may be a whole site-packages
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    stub("dotenv", load_dotenv=lambda *a, **k: None)
    stub("tqdm", tqdm=lambda items, **k: items)
    stub("bfcl_eval.constants.model_config", MODEL_CONFIG_MAPPING=_Models())
    stub("bfcl_eval.model_handler.base_handler", BaseHandler=object)
    stub("bfcl_eval.eval_checker.eval_runner_helper", __all__=[])


def without_parsers() -> None:
    """Put stand-ins in place of the parsers, which may be another version here."""
    for name in _PARSERS:
        stub(name, FileLock=nullcontext, __getattr__=lambda name: Anything)


class _Prompted:
    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder

    def decode_ast(self, result: Any, language: Any, has_tool_call_tag: bool) -> Any:
        return self.decoder.default_decode_ast_prompting(result, language, has_tool_call_tag)

    def decode_execute(self, result: Any, has_tool_call_tag: bool) -> Any:
        return self.decoder.default_decode_execute_prompting(result, has_tool_call_tag)


class _Native(_Prompted):
    def decode_ast(self, result: Any, language: Any, has_tool_call_tag: bool) -> Any:
        return [{name: json.loads(call[name])} for call in result for name in [next(iter(call))]]

    def decode_execute(self, result: Any, has_tool_call_tag: bool) -> Any:
        return self.decoder.convert_to_function_call(result)


def single() -> Any:
    """Judge an answer: ``[valid, error_type]``; ``{"crash": class}`` where the evaluator raises;
    ``{"refused": node}`` where it was about to evaluate more than literals."""
    runner = import_module("bfcl_eval.eval_checker.eval_runner")
    decoder: Any = import_module("bfcl_eval.model_handler.utils")
    enums = import_module("bfcl_eval.constants.enums")
    decoder.eval = guarded_in(dict(vars(decoder)), {"value": ast.parse("0")})

    def judge(request: Any) -> Any:
        model, judged = "native" if request["native"] else "prompted", request["category"]
        handler = _Native(decoder) if request["native"] else _Prompted(decoder)
        output, gold = request["output"], copy.deepcopy(request["gold"])
        prompt = {"function": request["function"], "question": []}
        begin = (handler, request["id"], output)
        if judged == "executable":
            return _executable(handler, output)
        if judged == "agentic":
            entry = (gold, prompt, model, judged)
            return _answer(runner._evaluate_single_agentic_entry(*begin, *entry))
        if "relevance" in judged:
            return _answer(runner._evaluate_single_relevance_entry(*begin, prompt, model, judged))
        language, form = enums.Language(request["language"]), enums.ReturnFormat(request["form"])
        by_form = (gold, prompt, model, judged, language, form, request["tagged"])
        return _answer(runner._evaluate_single_ast_entry(*begin, *by_form))

    def answer(request: Any) -> Any:
        try:
            with redirect_stdout(io.StringIO()):
                return judge(request)
        except Refusal as refusal:
            return {"refused": str(refusal)}
        except Exception as error:  # noqa: BLE001  whatever it is, upstream's run ends there
            return {"crash": f"{type(error).__name__}: {str(error)[:100]}"}

    return answer


def _executable(handler: Any, output: Any) -> Any:
    """What an episode executes: ``[texts]``, ``[None]`` where it takes the answer for no calls."""
    try:
        texts = handler.decode_execute(output, False)
    except Exception:  # noqa: BLE001  as upstream's loop
        return [None]
    return [None if len(texts) == 0 or (len(texts) == 1 and len(texts[0]) == 0) else texts]


def _answer(result: dict[str, Any]) -> list[Any]:
    if result["valid"]:
        return [True, ""]
    error, kind = result.get("error"), result.get("error_type")
    return [False, error["error_type"] if kind is None and isinstance(error, dict) else kind]


def conversations() -> Any:
    """Judge cases of a multi-turn entry: ``[valid, error_type]`` each."""
    without_parsers()
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
    without_parsers()
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
    answer = {f.__name__: f for f in (single, conversations, prompts)}[task]()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
