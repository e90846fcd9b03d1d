from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.registry import benchmark_class
from ace_ray.config.roles import Role, parse_role
from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.models.families import FamilyFacts, ModelFiles
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.planning.plan import Plan, make_plan
from ace_ray.types import Entry
from tests.pipeline.planning.toy_benchmark import MODEL, Toy

QWEN3 = FamilyFacts(
    ("<|im_start|>{{ enable_thinking }}<think></think><tool_call> message.reasoning_content",)
)
PLAIN = FamilyFacts(("{{ messages }}",))


class Calls(Toy):
    """Offers a tool, in episodes."""

    replay_reasoning = "tool_steps"

    def tools(self, entry: Entry) -> list[dict[str, Any]] | None:
        return [{"type": "function", "function": {"name": "find"}}]

    def interactive(self, entry: Entry) -> bool:
        return True


def planned(toy: Toy, facts: FamilyFacts | None, **model: Any) -> Plan:
    tree = {"model": {"source": "org/tiny", **model}, "benchmarks": ["toy"]}
    return make_plan(
        RunConfig.model_validate(tree), MODEL, [toy], ModelFiles(facts=facts or FamilyFacts())
    )


def planned_again(plan: Plan, toy: Toy, facts: FamilyFacts) -> Plan:
    """Plan the run of a stored manifest."""
    config = RunConfig.model_validate(make_manifest(plan, {})["config"])
    return make_plan(config, MODEL, [toy], ModelFiles(facts=facts))


def test_family_that_thinks_gets_its_reasoning_parser() -> None:
    plan, plain = planned(Toy(), QWEN3), planned(Toy(), PLAIN)
    assert plan.identity["reasoning_parser"] == plan.choice.reasoning_parser == "qwen3"
    assert plan.parser_line == "chosen by model family: reasoning parser qwen3"
    assert plain.identity["reasoning_parser"] == "auto"
    assert plain.parser_line == ""
    assert plan.run_id != plain.run_id == planned(Toy(), None).run_id
    assert plan.run_id == planned(Toy(), PLAIN, reasoning_parser="qwen3").run_id
    assert not {"format", "start_date", "replay_reasoning"} & plain.identity.keys()


def test_tool_parser_is_that_of_the_family() -> None:
    assert planned(Calls(), QWEN3, tool_parser="auto").choice.tool_parser == "hermes"
    assert planned(Toy(), QWEN3, tool_parser="auto").choice.tool_parser is None
    two = FamilyFacts(("[TOOL_CALLS]<|python_tag|>",))
    cases = ((two, "several formats: mistral, llama3_json"), (PLAIN, "no known format"))
    for facts, words in cases:
        with pytest.raises(UserError, match=f"^model.tool_parser: .*{words}"):
            planned(Calls(), facts, tool_parser="auto")
    with pytest.raises(UserError, match=r"needs a parser .*or write auto"):
        planned(Calls(), QWEN3)


class TwoModes(Calls):
    without_native = "benchmarks.toy.mode: prompt"


def test_mode_without_a_tool_parser_is_named() -> None:
    for parser in (None, "auto"):
        with pytest.raises(UserError, match=r"or write benchmarks\.toy\.mode: prompt$"):
            planned(TwoModes(), PLAIN, tool_parser=parser)
    for name in ("acebench", "bfcl", "stabletoolbench", "tau2"):
        benchmark = benchmark_class(name)
        mode = benchmark.without_native.removeprefix(f"benchmarks.{name}.mode: ")
        assert benchmark.Options.model_validate({"mode": mode}).model_dump()["mode"] == mode


class UserCalls(Toy):
    """Offers tools to its user, not to the candidate."""

    def __init__(self, user: Role = "same", *, turns: bool = True) -> None:
        super().__init__()
        self.user, self.turns = user, turns

    def roles(self) -> dict[str, Role]:
        return {"user": self.user, "judge": "same"}

    def role_tools(self, role: str) -> list[dict[str, Any]] | None:
        return [{"type": "function", "function": {"name": "find"}}] if role == "user" else None

    def role_chat(self, role: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": "I play"}]

    def interactive(self, entry: Entry) -> bool:
        return self.turns


def test_candidate_in_a_role_with_tools_needs_a_tool_parser() -> None:
    with pytest.raises(UserError, match=r"^model.tool_parser: .*needs a parser"):
        planned(UserCalls(), QWEN3)
    plan = planned(UserCalls(), QWEN3, tool_parser="auto")
    assert plan.choice.tool_parser == "hermes"
    assert plan.native
    # Another model plays it, or no entry of this run needs it.
    endpoint_role = parse_role(
        {"endpoint": {"url": "http://h/v1", "model": "m", "api_key_env": None}}, ""
    )
    for toy in (UserCalls(endpoint_role), UserCalls(turns=False)):
        plan = planned(toy, QWEN3, tool_parser="auto")
        assert plan.choice.tool_parser is None
        assert not plan.native


def test_reasoning_is_replayed_if_benchmark_and_template_do_so() -> None:
    again = planned(Calls(), QWEN3, tool_parser="hermes")
    assert again.replay == {"toy": "tool_steps"}
    assert again.identity["replay_reasoning"] == {"toy": "tool_steps"}
    never = planned(Calls(), QWEN3, tool_parser="hermes", replay_reasoning="none")
    assert never.replay == {}
    assert not {*never.rows.ids.tolist()} & {*again.rows.ids.tolist()}
    blind = FamilyFacts((QWEN3.templates[0].replace("reasoning_content", ""),))
    assert planned(Calls(), blind, tool_parser="hermes").replay == {}
    # A single call has nothing to replay.
    single = [planned(Toy(), QWEN3, replay_reasoning=policy).run_id for policy in ("all", "none")]
    assert single[0] == single[1]


def test_files_that_a_config_names_are_in_the_identity(tmp_path: Path) -> None:
    template, plugin = tmp_path / "t.jinja", tmp_path / "p.py"
    template.write_text("<|im_start|>{{ enable_thinking }}</think>")
    plugin.write_text("x = 1")
    plan = planned(Toy(), PLAIN, chat_template=str(template), plugins=[str(plugin)])
    assert len(plan.identity["chat_template_sha256"]) == len(plan.identity["plugins"][0]) == 64
    assert plan.choice.chat_template == template.read_text()
    assert plan.choice.reasoning_parser == "qwen3"
    assert planned_again(plan, Toy(), PLAIN).run_id == plan.run_id
    with pytest.raises(UserError, match=r"gone.jinja: cannot be read"):
        planned(Toy(), PLAIN, chat_template=str(tmp_path / "gone.jinja"))


DATED = FamilyFacts(("{{ strftime_now('%d %b %Y') }}{{ messages }}",), (), "llama")


def test_date_in_a_template_is_the_same_every_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_SYSTEM_START_DATE", raising=False)
    plan = planned(Toy(), DATED)
    assert plan.identity["start_date"] == plan.choice.start_date == "2025-08-05"
    assert planned(Toy(), DATED, start_date="2026-01-01").run_id != plan.run_id
    assert planned(Toy(), PLAIN).choice.start_date is None
    with pytest.raises(UserError, match=r"model\.start_date: the model's chats contain no date"):
        planned(Toy(), PLAIN, start_date="2026-01-01")
    with pytest.raises(UserError, match=r"model\.start_date: '2026-02-30' is not a date"):
        planned(Toy(), DATED, start_date="2026-02-30")
    monkeypatch.setenv("VLLM_SYSTEM_START_DATE", "today")
    with pytest.raises(UserError, match="VLLM_SYSTEM_START_DATE: 'today' is not a date"):
        planned(Toy(), DATED)
    monkeypatch.setenv("VLLM_SYSTEM_START_DATE", "2026-02-03")
    gpt_oss = FamilyFacts((), (), "gpt_oss")
    dated = planned(Calls(), gpt_oss)
    parsers = dated.choice.reasoning_parser, dated.choice.tool_parser
    assert (*parsers, dated.choice.start_date) == ("openai_gptoss", "openai", "2026-02-03")
    monkeypatch.delenv("VLLM_SYSTEM_START_DATE")
    assert planned_again(dated, Calls(), gpt_oss).run_id == dated.run_id
