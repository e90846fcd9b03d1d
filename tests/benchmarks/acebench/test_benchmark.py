"""ACEBench behind the protocol: comparability, options, tasks, unread calls, gold answers."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench import gold as answers
from ace_ray.benchmarks.acebench import options as groups
from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.data.loader import MINI, load
from ace_ray.benchmarks.acebench.native import UNREADABLE, tool_names
from ace_ray.benchmarks.acebench.outputs import NO_OUTPUT
from ace_ray.benchmarks.dataset import imports_folder
from ace_ray.benchmarks.diagnosis import second_reader
from ace_ray.errors import UserError
from ace_ray.parsing.literals import parse_calls
from ace_ray.types import Completion, Entry, Episode, ToolAnswer

DATA, PROMPTS = "the data is not official", "the prompts are not official"


def compares(**options: Any) -> str:
    return str(ACEBench.from_options(options).summarize([], 0.0)["comparable"])


def test_differences_to_the_leaderboard_are_named() -> None:
    native = "native tool calling is comparable only with native tool calling"
    differences: list[tuple[dict[str, Any], list[str]]] = [
        ({}, [DATA, PROMPTS]),
        ({"variant": "minimal"}, [DATA, "the variant of the prompt is minimal", PROMPTS]),
        ({"max_messages": 39}, [DATA, PROMPTS, "agent episodes have at most 39 messages"]),
        ({"mode": "native"}, [DATA, native]),
    ]
    for options, reasons in differences:
        note = compares(data=str(MINI), languages=["en"], **options)
        assert note == "not comparable with the leaderboard: " + "; ".join(reasons)
    assert "the mini set is ace_ray's own" in compares(languages=["en"])


def test_a_user_model_is_asked_as_upstream_asks_it() -> None:
    sampling = ACEBench.from_options({"data": "mini"}).role_sampling("user")
    assert (sampling.temperature, sampling.max_tokens) == (0.0, 1000)


@pytest.mark.nightly
def test_official_data_and_prompts_compare(shared_data: Path) -> None:
    for languages in (["zh"], ["zh", "en"]):
        benchmark = ACEBench.from_options({"data": str(shared_data), "languages": languages})
        note = benchmark.summarize([], 0.0)["comparable"]
        assert note.startswith("official data, prompts and protocol: the official rule set")
        assert benchmark.resolved()["prompts"] == "official"
        assert ACEBench.from_options(benchmark.resolved()).identity() == benchmark.identity()


def test_options_are_resolved_or_refused(tmp_path, monkeypatch, cache) -> None:
    assert ACEBench.from_options({"languages": ["zh", "zh"]}).resolved() == {
        **{"data": "mini", "languages": ["zh"], "categories": ["all"], "prompts": "own"},
        **{"variant": "standard", "prompt_file": None, "mode": "prompt"},
        **{"max_messages": 40, "user": "same"},
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
    for key, value in (("prompts", "official"), ("variant", "minimal")):
        with pytest.raises(UserError, match=f"acebench.{key}: .* has no effect with mode: native"):
            ACEBench.from_options({"mode": "native", key: value})


FENCED = '```json\n{"name": "f", "arguments": {}}\n```'


def unread(category: str, episode: Episode, mode: str = "prompt") -> str | None:
    benchmark = ACEBench.from_options({"languages": ["en"], "mode": mode})
    return second_reader(benchmark, entry(category), episode)


def entry(category: str) -> Entry:
    return load(MINI, languages=["en"], categories=[category])[0]


def test_right_calls_in_another_format_are_found_and_stay_wrong() -> None:
    gold_entry = entry("normal_single_turn_parallel_function")
    tools = {published: tool for tool, published in tool_names(gold_entry.data["function"]).items()}
    for mode in ("native", "prompt"):
        text = ""
        for call in parse_calls(answers.render_gold(gold_entry)):
            call_object = {"name": tools[call.name], "arguments": call.args}
            text += f"<tool_call>{json.dumps(call_object)}</tool_call>\n"
        episode = Episode()
        episode.record(Completion(text, tools=ToolAnswer(text) if mode == "native" else None))
        assert unread(gold_entry.category, episode, mode) == "hermes"
        verdicts = ACEBench.from_options({"mode": mode}).verdicts(gold_entry, episode)
        assert not any(verdict.valid for verdict in verdicts.values())


def test_outputs_with_calls_that_were_read_are_not_read_again() -> None:
    reader = unread("special_irrelevant", Episode(output=FENCED))
    assert reader == "fenced_json"
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
    reader = unread("agent_multi_turn", Episode(state={"steps": steps}))
    assert reader == "fenced_json"
    for state in (None, {}, {"steps": None}, {"steps": [1, {"speaker": "agent"}]}):
        assert unread("agent_multi_turn", Episode(state=state)) is None


def gold_entry(gold: object, category: str = "normal_atom_bool") -> Entry:
    functions: list[Any] = [{"name": name, "parameters": {}} for name in ("f", "g_2")]
    return Entry("acebench", category, "en", f"{category}_0", {"function": functions}, gold)


@pytest.mark.parametrize(
    ("gold", "text", "mangled"),
    [
        ({"f": {"a": "it's"}}, """[f(a="it's")]""", """[f(a="it's altered")]"""),
        ({"f": {"a": [True, 1]}}, "[f(a=[True, 1])]", "[f(a=[False, 1])]"),
        ({"f": {"a": {}}}, "[f(a={})]", "[f(a='altered')]"),
        ({"f_1": {"a": 1}, "f_2": {"a": 2.5}}, "[f(a=1), f(a=2.5)]", "[f(a=2), f(a=2.5)]"),
        # The mangled copy differs from all alternatives.
        ([{"f": {"a": 1}}, {"f": {"a": 2}}], "[f(a=1)]", "[f_altered(a=1)]"),
    ],
    ids=["text", "list", "empty object", "function twice", "alternatives"],
)
def test_gold_answers_are_written_and_mangled(gold: Any, text: str, mangled: str) -> None:
    assert answers.render_gold(gold_entry(gold)) == text
    assert answers.render_mangled(gold_entry(gold)) == mangled


def test_the_mini_set_proves_itself(capsys: pytest.CaptureFixture[str]) -> None:
    entries = load(MINI)
    counts = Counter((entry.language, entry.category) for entry in entries)
    assert counts == {(language, c): 4 for language in groups.LANGUAGES for c in groups.CATEGORIES}
    assert len({entry.key for entry in entries}) == 136
    assert ACEBench.check_data("mini")
    printed = capsys.readouterr().out.splitlines()
    assert tuple(line.split(":")[0] for line in printed[:17]) == groups.CATEGORIES
    assert "136 gold answers and 136 wrong copies: 0 unexpected verdicts" in printed
    assert (
        "en agent_multi_turn: of 4 ideal paths replayed in the sandbox 4 end in a state that the "
        "official rules accept, 4 in the gold state"
    ) in printed
