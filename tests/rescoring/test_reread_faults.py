"""`ace-ray reread` finds every planted fault of a parser, and nothing between equal versions."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ace_ray.rescoring.reparse import ReparseResult, reparse_run
from ace_ray.types import Entry
from tests.report.read_runs import FAMILIES, Calls, InProcess, gold_of, read_run, toy_model

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("vllm")]

PLUGIN = """
import json
number = lambda value: type(value) in (int, float)
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager

class Broken(ToolParserManager.get_tool_parser("{family}")):
    def extract_tool_calls(self, model_output, request):
        found = super().extract_tool_calls(model_output, request=request)
        calls = list(found.tool_calls or [])
        for call in calls:
            arguments = json.loads(call.function.arguments)
            {change}
            if arguments != json.loads(call.function.arguments):
                call.function.arguments = json.dumps(arguments)
        {drop}
        if len(calls) != len(found.tool_calls or []):
            found.tool_calls = calls
            found.tools_called = bool(calls)
        return found

class BrokenReasoning(ReasoningParserManager.get_reasoning_parser("deepseek_r1")):
    def extract_reasoning(self, model_output, request):
        return {reasoning}

ToolParserManager.register_module("{name}", True, Broken)
ReasoningParserManager.register_module("{name}", True, BrokenReasoning)
"""
# Statements that change the ``arguments`` of each call.
CHANGES = {
    "last_character": "arguments |= {k: v[:-1] for k, v in arguments.items() if type(v) is str}",
    "numbers_as_text": "arguments |= {k: str(v) for k, v in arguments.items() if number(v)}",
    "last_argument": "arguments and arguments.popitem()",
}
# Statements that change the list ``calls``.
DROPS = {
    "second_call": "calls = calls[:1]",
    "empty_arguments": 'calls = [c for c in calls if c.function.arguments != "{}"]',
    "all_calls": "calls = []",
}
REASONING = {
    "thinking_as_answer": "(None, model_output)",
    "answer_as_thinking": "(model_output, None)",
}
# Fault -> categories that it changes.
SINGLE, ANY = {"simple_python", "multiple"}, {"simple_python", "multiple", "parallel"}
FOUND = {
    "last_character": ANY,
    "numbers_as_text": ANY,
    "last_argument": ANY,
    "second_call": {"parallel"},
    "empty_arguments": {"simple_python"},
    "all_calls": ANY,
    "thinking_as_answer": {*ANY, "irrelevance"},
    "answer_as_thinking": {*ANY, "irrelevance"},
}
PLANTED = [
    *((family, fault) for family in FAMILIES for fault in ("last_character", "second_call")),
    *(("hermes", fault) for fault in FOUND if fault not in ("last_character", "second_call")),
    ("granite", "numbers_as_text"),
    ("olmo3", "last_argument"),
]


def with_empty_arguments(entry: Entry) -> Calls:
    """Return the right calls, and a call without arguments for one entry."""
    calls = gold_of(entry)
    return [(calls[0][0], {})] if entry.id == "simple_python_0" else calls


def plant(folder: Path, family: str, fault: str) -> Path:
    (file := folder / f"{family}_{fault}.py").write_text(
        PLUGIN.format(
            family=family,
            name=file.stem,
            change=CHANGES.get(fault, "pass"),
            drop=DROPS.get(fault, "pass"),
            reasoning=REASONING.get(fault, "super().extract_reasoning(model_output, request)"),
        )
    )
    return file


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ace_ray.rescoring.reparse.AnswerParser", InProcess)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that writes a run of a family once, as its parser reads it."""
    folder = tmp_path_factory.mktemp("stored")
    toy_model(folder / "model")
    runs: dict[tuple[str, str], Path] = {}

    def run_of(family: str, data: str = "mini") -> tuple[Path, Path]:
        if (family, data) not in runs:
            written = read_run(
                folder / f"{family}-{data}",
                folder / "model",
                family,
                categories=[*sorted(ANY), "irrelevance"],
                calls_of=with_empty_arguments,
                data=data,
                thinks=True,
            )
            again(written, folder / "model", out := folder / f"read-{family}-{data}")
            runs[family, data] = out
        return runs[family, data], folder / "model"

    return run_of


def again(run: Path, model: Path, output: Path, **options: Any) -> ReparseResult:
    return reparse_run(str(run), tokenizer=str(model), output=str(output), **options)


@pytest.mark.parametrize(("family", "fault"), PLANTED)
def test_a_planted_fault_is_found_in_its_categories(family, fault, stored, tmp_path) -> None:
    run, model = stored(family)
    plugin = plant(tmp_path, family, fault)
    parser = {"reasoning_parser" if fault in REASONING else "tool_parser": plugin.stem}
    report = again(run, model, tmp_path / "out", plugins=[str(plugin)], **parser)
    assert {category for _, category in report.moved} == FOUND[fault]
    print(family, fault, {c: dict(n) for (_, c), n in report.moved.items()}, report.examples)


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_versions_read_equally(family: str, stored: Any, tmp_path: Path) -> None:
    """Six families read 6,240 rows of bfcl-eval."""
    pytest.importorskip("bfcl_eval")
    run, model = stored(family, "installed")
    report = again(run, model, tmp_path / "out")
    assert report.rows == report.answers == 1040
    assert sum(report.moved.values(), Counter()) == Counter()
