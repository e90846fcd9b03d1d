"""Run on a copy of ``bfcl-eval``: what its own functions show a model, as lines of hashes.

Run by `bfcl_prompts` and in no other way; it imports upstream's code, and nothing of ace_ray.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import json
import sys
import types
from copy import deepcopy
from pathlib import Path


class Anything:
    """Stands for whatever is asked of a package that is not there."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return Anything()

    def __getattr__(self, name):
        return Anything()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def __or__(self, _):
        return self


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes modules for the packages that upstream imports and this script does not need; what is
    installed here may be another version than it wants."""

    PACKAGES = ("filelock", "overrides", "tenacity", "tree_sitter")

    def find_spec(self, name, path=None, target=None):
        if not name.startswith(self.PACKAGES):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__dict__["__getattr__"] = lambda name: Anything
        return module

    def exec_module(self, module):
        pass


def say(category, row, what, value):
    text = value if isinstance(value, str) else json.dumps(value)
    print(json.dumps([category, row, what, hashlib.sha256(text.encode()).hexdigest()[:24]]))


class Memory:
    def __init__(self, content):
        self.content = content

    def _dump_core_memory_to_context(self):
        return self.content


def main(folder, content):
    sys.path.insert(0, str(Path(folder).parent))
    sys.meta_path.insert(0, StandIns())
    from bfcl_eval import utils
    from bfcl_eval.constants import category_mapping as categories
    from bfcl_eval.constants import default_prompts as texts
    from bfcl_eval.constants.enums import ModelStyle
    from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI
    from bfcl_eval.model_handler import utils as prompts

    def tools_of(functions):
        return prompts.convert_to_tool(functions, GORILLA_TO_OPENAPI, ModelStyle.OPENAI_COMPLETIONS)

    for category in categories.ALL_CATEGORIES:
        for entry in utils.load_dataset_entry(category):
            row, functions, question = entry["id"], entry["function"], entry["question"]
            if category != "format_sensitivity" and "prereq" not in row:
                say(category, row, "tools", tools_of(functions))
            if category in categories.MEMORY_CATEGORY:
                question = prompts.add_memory_instruction_system_prompt(
                    question, row.rsplit("_", 1)[0], entry["scenario"], Memory(content)
                )
            shown = prompts.system_prompt_pre_processing_chat_model(question[0], functions, row)
            say(category, row, "messages", shown)
            functions = deepcopy(functions)
            for turn, more in entry.get("missed_function", {}).items():
                template = texts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING
                text = template.format(functions=more)
                say(category, row, f"prompt-mode-turn {turn}", text)
                text = texts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
                say(category, row, f"native-turn {turn}", text)
                functions.extend(more)
                say(category, row, f"tools-in-turn {turn}", tools_of(functions))


main(*sys.argv[1:])
