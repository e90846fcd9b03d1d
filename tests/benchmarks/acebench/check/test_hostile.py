"""Outputs that run code in the official evaluator or in its agent loops: here they are data."""

from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.agent_calls import agent_calls
from ace_ray.benchmarks.acebench.benchmark import ACEBench, check
from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.native import answer_text
from ace_ray.types import Entry, ToolCall
from tests.limits import cpu_limit

SECRET = "do-not-tell-9c1f"


def test_outputs_of_models_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Upstream's evaluator would compute the first values with eval.
    evaluated = [
        "1+__import__('os').system('touch made')",
        "''+__import__('os').environ.get('HOSTILE_SECRET','')",
        "0+(_ for _ in ()).throw(KeyboardInterrupt)",
        "9**9**9",
        "'a'*10**9",
        "'%*d'%(999999999,1)",
    ]
    harmless = [
        "__import__('os').system('touch made')",
        "lambda: open('made','w')",
        "{'open': {'file': 'made', 'mode': 'w'}}",
        "'{0.__class__.__init__.__globals__} %(HOSTILE_SECRET)s'",
        "'\\x00\\x01\ud800'",
        "1, __class__=1, self=2, **{'message_id': 3}",
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOSTILE_SECRET", SECRET)
    schema = {"properties": {"message_id": {"type": "integer"}}, "required": []}
    data: dict[str, Any] = {
        "question": "?",
        "function": [{"name": "delete_message", "parameters": schema}],
    }
    gold = {"delete_message": {"message_id": 1}}
    benchmark = ACEBench.from_options({"languages": ["en"], "categories": ["agent"]})
    rows = [row for row in benchmark.entries() if "MessageApi" in row.data["involved_classes"]]
    agents = {row.category: row for row in rows}
    for value in evaluated + harmless:
        output = f"[delete_message(message_id={value})]"
        results: list[Any] = []
        with cpu_limit(value):
            for category in ("normal_multi_turn_user_adjust", "normal_atom_number"):
                verdicts = check(Entry("acebench", category, "en", "x", data, gold), output)
                assert not verdicts["strict"].valid, value
            assert value in harmless or verdicts["official"].error_type == "official_unsafe", value
            for loop in ("multi_turn", "multi_step"):
                for protocol in ("official", "fixed"):
                    environment = benchmark.scenario(agents[f"agent_{loop}"])
                    calls = agent_calls(output, loop=loop, protocol=protocol)
                    results += [environment.call(call.name, call.arguments) for call in calls or ()]
            check_agent(agents["agent_multi_step"], output, [output])
            for native in (ToolCall("delete_message", value), ToolCall(value, "{}")):
                results.append(answer_text(output, [native], data["function"]))
        assert SECRET not in repr(results)
    assert not list(tmp_path.iterdir())
