"""ACEBench behind the protocol: comparability, resolved options, tasks, unread calls."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.categories import AGENT, agent_task
from ace_ray.benchmarks.acebench.data.loader import MINI, load
from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.benchmarks.acebench.native import UNREADABLE, tool_names
from ace_ray.benchmarks.acebench.outputs import NO_OUTPUT
from ace_ray.benchmarks.dataset import imports_folder
from ace_ray.benchmarks.diagnosis import second_reading
from ace_ray.benchmarks.results import SecondReading
from ace_ray.errors import UserError
from ace_ray.parsing.literals import parse_calls
from ace_ray.types import Completion, Entry, Episode, ToolAnswer

DATA, PROMPTS = "the data is not the official one", "the prompts are not the official ones"


def compares(**options: Any) -> str:
    return str(ACEBench.from_options(options).summarize([], 0.0)["comparable"])


def test_differences_to_the_leaderboard_are_named() -> None:
    native = "native tool calling compares with native tool calling only"
    differences: list[tuple[dict[str, Any], list[str]]] = [
        ({}, [DATA, PROMPTS]),
        ({"categories": ["atom"]}, ["not all categories", PROMPTS]),
        ({"variant": "minimal"}, [DATA, "the variant of the prompt is minimal", PROMPTS]),
        ({"max_messages": 39}, [DATA, PROMPTS, "agent episodes have at most 39 messages"]),
        ({"mode": "native"}, [DATA, native]),
    ]
    for options, reasons in differences:
        said = compares(data=str(MINI), languages=["en"], **options)
        assert said == "not comparable with the leaderboard: " + "; ".join(reasons)
    assert "the mini set is ace_ray's own" in compares(languages=["en"])


@pytest.mark.nightly
@pytest.mark.parametrize("languages", [["en"], ["zh"], ["zh", "en"]])
def test_official_data_and_prompts_compare(
    shared_data: Path, tmp_path: Path, languages: list[str]
) -> None:
    options = {"data": str(shared_data), "languages": languages}
    said = compares(**options)
    assert said.startswith("official data, prompts and protocol: the official rule set compares")
    benchmark = ACEBench.from_options(options)
    assert benchmark.resolved()["prompts"] == "official"
    assert ACEBench.from_options(benchmark.resolved()).identity() == benchmark.identity()
    for part in (*(f"data_{language}" for language in languages), "upstream"):
        shutil.copytree(shared_data / part, tmp_path / part)
    prompts = tmp_path / "upstream" / "prompts.json"
    texts = json.loads(prompts.read_text())
    prompts.write_text(json.dumps({**texts, "USER_PROMPT_EN": texts["USER_PROMPT_EN"] + " "}))
    assert compares(data=str(tmp_path), languages=languages).endswith(f": {PROMPTS}")


def test_resolved_options_leave_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    assert ACEBench.from_options({"languages": ["zh", "zh"]}).resolved() == {
        "data": "mini",
        "languages": ["zh"],
        "categories": ["all"],
        "prompts": "own",
        "variant": "standard",
        "mode": "prompt",
        "max_messages": 40,
        "user": "same",
    }
    shutil.copytree(MINI, tmp_path / "rows")
    monkeypatch.chdir(tmp_path)
    assert ACEBench.from_options({"data": "rows"}).resolved()["data"] == str(tmp_path / "rows")
    version = imports_folder("acebench") / "0123456789ab"
    shutil.copytree(MINI, version)
    (version / "manifest.json").write_text("{}")
    resolved = ACEBench.from_options({"data": "imported"}).resolved()
    assert resolved["data"] == "imported:0123456789ab"
    assert ACEBench.from_options(resolved).resolved() == resolved


def test_native_mode_refuses_prompts_and_variants() -> None:
    for key, value in (("prompts", "official"), ("variant", "minimal")):
        with pytest.raises(UserError, match=f"acebench.{key}: .* has no effect with mode: native"):
            ACEBench.from_options({"mode": "native", key: value})


def test_agent_entries_of_one_question_are_one_task(shared_data: Path) -> None:
    for category, tasks in zip(AGENT, (16, 7), strict=True):
        by_task: dict[str, set[str]] = {}
        for entry in load(shared_data, languages=["en"], categories=[category]):
            task = agent_task(category, entry.id)
            by_task.setdefault(task, set()).add(str(entry.data["question"]))
        assert len(by_task) == len({min(questions) for questions in by_task.values()}) == tasks
        assert all(len(questions) == 1 for questions in by_task.values())


def test_tasks_are_named_by_their_first_entry() -> None:
    for number, task in (("3", "0"), ("4", "4"), ("99", "99"), ("", ""), ("²", "²")):
        found = agent_task("agent_multi_turn", f"agent_multi_turn_{number}")
        assert found == f"agent_multi_turn_{task}"


FENCED = '```json\n{"name": "f", "arguments": {}}\n```'


def unread(category: str, episode: Episode, mode: str = "prompt") -> SecondReading | None:
    benchmark = ACEBench.from_options({"languages": ["en"], "mode": mode})
    return second_reading(benchmark, entry(category), episode)


def entry(category: str) -> Entry:
    return load(MINI, languages=["en"], categories=[category])[0]


def test_right_calls_in_another_format_are_found_and_stay_wrong() -> None:
    one = entry("normal_single_turn_parallel_function")
    shown = {published: tool for tool, published in tool_names(one.data["function"]).items()}
    for mode in ("native", "prompt"):
        calls = [
            {"name": shown[call.name] if mode == "native" else call.name, "arguments": call.args}
            for call in parse_calls(render_gold(one))
        ]
        text = "\n".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls)
        episode = Episode()
        episode.record(Completion(text, tools=ToolAnswer(text) if mode == "native" else None))
        assert unread(one.category, episode, mode) == SecondReading("hermes", "answer", 1)
        verdicts = ACEBench.from_options({"mode": mode}).verdicts(one, episode)
        assert not any(verdict.valid for verdict in verdicts.values())


def test_outputs_with_calls_that_were_read_are_not_read_again() -> None:
    found = unread("special_irrelevant", Episode(output=FENCED))
    assert found == SecondReading("fenced_json", "answer", 1)
    for output in ("[f(a=1)]", f"[f(a=open('x') + 1)] {FENCED}", UNREADABLE, "No."):
        assert unread("normal_atom_bool", Episode(output=output)) is None, output
    assert unread("normal_atom_bool", Episode(output=FENCED, state=NO_OUTPUT)) is None


def test_messages_of_an_agent_are_counted() -> None:
    steps = [
        {"speaker": "agent", "text": FENCED},
        {"speaker": "execution", "text": "no", "errors": ["not_a_call"]},
        {"speaker": "agent", "text": FENCED},
        {"speaker": "user", "text": FENCED},
        {"speaker": "agent", "text": FENCED},
        {"speaker": "execution", "text": "[]", "calls": [{"name": "f", "arguments": {}}]},
    ]
    found = unread("agent_multi_turn", Episode(state={"steps": steps}))
    assert found == SecondReading("fenced_json", "answer", 2)
    for state in (None, {}, {"steps": None}, {"steps": [1, {"speaker": "agent"}]}):
        assert unread("agent_multi_turn", Episode(state=state)) is None
