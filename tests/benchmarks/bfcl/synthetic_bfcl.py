"""A made-up package ``bfcl_eval``, and episodes without Ray.

The package has the rows of the mini set in upstream's layout, and short texts as prompts."""

import asyncio
import json
import shutil
import time
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.categories import CHATABLE, COMPOSITE, REST, SQL, UNUSED
from ace_ray.benchmarks.bfcl.data import upstream_package
from ace_ray.benchmarks.bfcl.data.loader import function_docs
from ace_ray.benchmarks.bfcl.data.upstream_package import (
    MINI,
    TOOL_FOLDER,
    TOOL_MODULES,
    VERSION,
    UpstreamPackage,
    answer_file,
    question_file,
)
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Entry, Episode, Sampling
from tests.scripted_model import ScriptedModel

COPY = UpstreamPackage.locate("mini")
DOCS = function_docs(COPY)
"""Functions of the mini set."""

PROMPTS = """
OUTPUT_FORMAT_MAPPING = {
    "python": "[f(a=1...)]", "json": '[{"f"...}]', "verbose_xml": "<v/>", "concise_xml": "<c/>",
}
PARAM_TYPE_MAPPING = {"python": "", "json": "", "verbose_xml": "xml types", "concise_xml": "types"}
PROMPT_STYLE_TEMPLATES = {
    "classic": {
        "persona": "P.", "task": "T {braces}.",
        "tool_call_no_tag": "no tag: {output_format} {param_types}.",
        "tool_call_with_tag": "tag: {output_format} {param_types}.",
        "multiturn_behavior": "M.", "available_tools": "{format}:\\n{functions}\\n",
    },
    "experimental": {
        "persona": "p.", "task": "t.",
        "tool_call_no_tag": "n: {output_format} {param_types}.",
        "tool_call_with_tag": "w: {output_format} {param_types}.",
        "multiturn_behavior": "m.", "available_tools": "e {format}:\\n{functions}\\n",
    },
}
_PLAIN = "{persona}{task}|{tool_call_format}|{multiturn_behavior}|{available_tools}"
_MARKED = "# {persona}{task}|{tool_call_format}|{multiturn_behavior}|{available_tools}"
PROMPT_TEMPLATE_MAPPING = {"plaintext": _PLAIN, "markdown": _MARKED}
DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC = "More."
DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING = (
    "{functions}\\n" + DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
)
ADDITIONAL_SYSTEM_PROMPT_FOR_AGENTIC_RESPONSE_FORMAT = "Answer {'answer': x}."
MEMORY_AGENT_SETTINGS = {
    "student": "s", "customer": "c", "finance": "f", "healthcare": "h", "notetaker": "n",
}
MEMORY_BACKEND_INSTRUCTION_CORE_ARCHIVAL = "{scenario_setting} core {memory_content}"
MEMORY_BACKEND_INSTRUCTION_UNIFIED = "{scenario_setting} whole {memory_content}"
"""
HINTS = """
def _get_language_specific_hint(test_category):
    if is_java(test_category):
        return " java!"
    elif is_js(test_category):
        return " js!"
    else:
        return " python!"


def _func_doc_language_specific_pre_processing(function, test_category):
    for item in function:
        item["description"] += hint(test_category)
        if is_java(test_category):
            value["description"] += " any java"
            value["description"] += f" java {value['type']}"
            value["description"] += f" of {value['items']['type']}"
        elif is_js(test_category):
            value["description"] += " any js"
            value["description"] += f" js {value['type']}"
            value["description"] += f" of {value['items']['type']}"
            value["description"] += f" like {json.dumps(value['properties'])}"
"""
NATIVE = """
def _cast_to_openai_type(properties, mapping):
    for key in properties:
        properties[key]["description"] += " float!"
"""


def unused_row(category: str, file: str) -> dict[str, Any]:
    """Return a row in the form of upstream's unused files, which differs between categories."""
    key: dict[str, Any] = {"idx": 0} if category == REST else {"id": f"{category}_0"}
    message = {"role": "user", "content": "Add 1 and 2."}
    if category == CHATABLE:
        return {"question": message["content"], "function": ""}
    if category == COMPOSITE:
        state = {"initial_config": {"stray": 1}, "involved_classes": ["TicketAPI"]}
        row = {**key, "question": [[message]], **state}
        return row if file == question_file(category) else {**key, "ground_truth": [["f()"]]}
    if file == question_file(category):
        types = {"a": "integer", "b": "tuple", "c": "dict"}
        properties = {
            name: {"type": kind, "items": {"type": "float"}} for name, kind in types.items()
        }
        parameters = {"type": "dict", "properties": properties, "required": ["a"]}
        doc = {"name": "add", "description": "", "parameters": parameters}
        question = [message] if category == SQL else [[message]]
        return {"id": f"{category}_0", "question": question, "function": [doc]}
    if category == SQL:
        return {**key, "ground_truth": [{"add": {"a": [1]}}]}
    call = "add(5*2, b=(1.5, 2.5), c={'k': 'v'})"
    return {**key, "ground_truth": call if category == REST else [call]}


def write_copy(folder: Path, version: str | None = VERSION) -> Path:
    """Write ``bfcl_eval`` into ``folder``, and its metadata if a version is given."""
    root = folder / "bfcl_eval"
    shutil.copytree(MINI / "data", root / "data")
    docs = root / "data" / "multi_turn_func_doc"
    (docs / "bakery.json").rename(docs / upstream_package.DOC_FILES["TicketAPI"])
    spare = (docs / upstream_package.DOC_FILES["WebSearchAPI"]).read_bytes()
    for name in upstream_package.DOC_FILES.values():
        if not (docs / name).exists():
            (docs / name).write_bytes(spare)
    for path in (root / "data").glob("BFCL_v4_multi_turn_*.json"):
        path.write_text(path.read_text().replace("Bakery", "TicketAPI"))
    for category in UNUSED:
        for file in filter(None, (question_file(category), answer_file(category))):
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(json.dumps(unused_row(category, file)))
    for scenario in upstream_package.SCENARIOS:
        path = root / upstream_package.prerequisite_file(scenario)
        if not path.exists():
            path.write_text(json.dumps({"id": f"memory_prereq_0-{scenario}-0", "question": [[]]}))
    sources = {
        upstream_package.PROMPT_SOURCE: PROMPTS,
        upstream_package.HINT_SOURCE: HINTS,
        upstream_package.NATIVE_SOURCE: NATIVE,
        **dict.fromkeys(upstream_package.TOOL_SOURCES, "class Tool:\n    pass\n"),
        **{f"{TOOL_FOLDER}/{name}.py": f"class {cls}: ...\n" for cls, name in TOOL_MODULES.items()},
    }
    for name, text in sources.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    # An import of the package raises.
    (root / "__init__.py").write_text("raise AssertionError('bfcl_eval was imported')\n")
    if version is not None:
        info = folder / f"bfcl_eval-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: bfcl-eval\nVersion: {version}\n\nVersion: 0\n"
        )
    return folder


def edit_line(path: Path, number: int, change) -> None:
    """Change the JSON object in a line, counted from 1; a change to None takes the line away."""
    lines = path.read_text().splitlines()
    changed = change(json.loads(lines[number - 1]))
    lines[number - 1 : number] = [] if changed is None else [json.dumps(changed)]
    path.write_text("\n".join(lines) + "\n")


def bfcl(*categories: str, **options: Any) -> BFCL:
    chosen = {"categories": list(categories)} if categories else {}
    return BFCL.from_options({**chosen, **options})


def entry_of(benchmark: BFCL, category: str) -> Entry:
    return next(entry for entry in benchmark.entries() if entry.category == category)


def staged(
    benchmark: BFCL, entry: Entry, model: ScriptedModel, seconds: float = 60, **more: Any
) -> EpisodeContext:
    async def open_sandbox() -> LocalSession:
        return LocalSession(benchmark.scenario(entry))

    if seconds < 60:  # the process of tools starts before the deadline counts
        benchmark.scenario(entry)
    deadline = time.monotonic() + seconds
    return EpisodeContext(
        RoleModel(model, Sampling()), open_sandbox=open_sandbox, deadline=deadline, **more
    )


def played(benchmark: BFCL, entry: Entry, model: ScriptedModel, **more: Any) -> Episode:
    return asyncio.run(benchmark.run(entry, staged(benchmark, entry, model, **more)))
