"""Outputs that run code in the official evaluator or in its agent loops, hang them, exhaust them or
end their run: here they are data."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ace_ray.benchmarks.acebench.agent_calls import agent_calls
from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.check import check
from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.native import answer_text
from ace_ray.types import Entry, ToolCall
from tests.limits import cpu_limit

SECRET = "do-not-tell-9c1f"
EVALUATED = [
    "1+__import__('os').system('touch made')",
    "0+open('made','w').write('x')",
    "''+__import__('os').environ.get('HOSTILE_SECRET','')",
    "0+(_ for _ in ()).throw(KeyboardInterrupt)",
    "0+sum(1 for _ in range(10**12))",
    "9**9**9",
    "'a'*10**9",
    "'%*d'%(999999999,1)",
]
"""Values that upstream's evaluator would compute with ``eval``."""
VALUES = [
    "__import__('os').system('touch made')",
    "lambda: open('made','w')",
    "{'open': {'file': 'made', 'mode': 'w'}}",
    "'{0.__class__.__init__.__globals__} %(HOSTILE_SECRET)s'",
    "'\x00\x01\ud800'",
    "[{'a': 1}, 1, 'x']",
    "-" * 100_000 + "1",
    "9" * 60_000,
]
MESSAGES = [
    "[__class__(a=1), __init__(), __import__(name='this'), state(), call(name='x')]",
    "[delete_message.__globals__(a=1), os.system(command='touch made')]",
    "[delete_message(__class__=1, self=2, **{'message_id': 3})]",
    "finish conversation [delete_message(message_id=0+open('made', 'w').write('x'))]",
]
GOLDS = {
    "normal_atom_number": {"X": {"a": 1}},
    "normal_multi_turn_user_adjust": {"X": {"a": 1}},
    "special_incomplete": {"X": ["a"]},
    "special_error_param": {"a": ["1"]},
    "special_irrelevant": "...",
}


def verdicts(category: str, output: str) -> dict[str, str]:
    schema = {"properties": {"a": {"type": "integer"}}, "required": []}
    data = {"question": "?", "function": [{"name": "X", "parameters": schema}]}
    found = check(Entry("acebench", category, "en", "x", data, GOLDS[category]), output)
    return {rules: verdict.error_type for rules, verdict in found.items()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOSTILE_SECRET", SECRET)
    return tmp_path


def test_checkers_run_nothing(folder: Path) -> None:
    for value in EVALUATED:
        with cpu_limit(value):
            found = verdicts("normal_atom_number", f"[X(a={value})]")
        assert found == {"official": "official_unsafe", "strict": "output_format"}, value
    for output in [*(f"[X(a={value})]" for value in VALUES), *MESSAGES]:
        for category in GOLDS:
            with cpu_limit(output[:60]):
                assert verdicts(category, output)["strict"], output[:60]
    assert not list(folder.iterdir())


def test_agents_and_native_calls_run_nothing(folder: Path) -> None:
    benchmark = ACEBench.from_options({"languages": ["en"], "categories": ["agent"]})
    entries = {entry.category: entry for entry in benchmark.entries()}
    functions = entries["agent_multi_step"].data["function"]

    def read(text: str) -> str:
        seen = []
        for loop in ("multi_turn", "multi_step"):
            for protocol in ("official", "fixed"):
                environment = benchmark.scenario(entries[f"agent_{loop}"])
                calls = agent_calls(text, loop=loop, protocol=protocol)  # type: ignore[arg-type]
                seen += [environment.call(call.name, call.arguments) for call in calls or ()]
        check_agent(entries["agent_multi_step"], text, [text])
        for call in (ToolCall("X", text), ToolCall(text, "{}")):
            seen.append(answer_text(text, [call], functions))
        return repr(seen)

    read("[delete_message(message_id=1 + 1)]")
    modules = set(sys.modules)
    calls = [f"[delete_message(message_id={value})]" for value in EVALUATED + VALUES]
    for output in calls + MESSAGES:
        with cpu_limit(output[:60]):
            assert SECRET not in read(output)
    assert set(sys.modules) == modules
    assert not list(folder.iterdir())
