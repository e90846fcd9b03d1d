"""Verdicts of the official evaluators, as `write.py` of this folder recorded them.

Each line of a file holds an entry's id, an answer that the script made, and upstream's verdict.
"""

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import check
from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.data.loader import MINI
from ace_ray.benchmarks.acebench.data.loader import load as load_acebench
from ace_ray.benchmarks.bfcl import categories
from ace_ray.benchmarks.bfcl.check.conversations import check_agentic, check_multi_turn
from ace_ray.benchmarks.bfcl.check.single import check_single
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load, prerequisites
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.decode import executable_calls
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.functions import split_functions
from ace_ray.benchmarks.bfcl.prompts import Prompts, official_prompts
from ace_ray.benchmarks.bfcl.tools.sources import tool_sources
from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.messages import add_system
from ace_ray.benchmarks.stabletoolbench.answer_trees import link_nodes, tool_node
from ace_ray.benchmarks.stabletoolbench.callable_names import FINISH
from ace_ray.benchmarks.stabletoolbench.judge.asking import read_fac, read_index
from ace_ray.benchmarks.stabletoolbench.judge.measures import judge_sopr
from ace_ray.benchmarks.stabletoolbench.judge.prompts import own_prompts
from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.options import CATEGORIES
from ace_ray.benchmarks.tau2.upstream_package import UpstreamPackage as Tau2Package
from ace_ray.benchmarks.tau2.verdicts import STOPS
from ace_ray.errors import UserError
from ace_ray.types import Entry, Episode, Sampling, ToolCall, Verdict
from tests.scripted_model import ScriptedModel

FOLDER = Path(__file__).parent


def sha(value: Any) -> str:
    """Hash a text, or a JSON value with the order of its keys, as `bfcl_child` does."""
    text = value if isinstance(value, str) else json.dumps(value)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


UNJUDGED = {"crash": "official_crash", "refused": "official_unsafe"}
"""Our error type where upstream's evaluator gives no verdict."""


@cache
def rows(name: str) -> dict[str, list[Any]]:
    """Return the lines of a file by category."""
    groups = defaultdict(list)
    for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        groups[row.get("category") or row.get("reader") or row["entry"][1]].append(row)
    return groups


def check_verdict(row: Any, verdict: Verdict) -> None:
    """Compare with upstream's verdict: valid, error type, and an agent's process accuracy."""
    expected = row["verdict"]
    if isinstance(expected, dict):
        expected = [False, UNJUDGED[next(iter(expected))]]
    process = [round(verdict.metrics["process_accuracy"], 3)] if len(expected) == 3 else []
    assert [verdict.valid, verdict.error_type, *process] == expected, row


@pytest.mark.parametrize("category", sorted(rows("acebench")))
def test_acebench_answers_get_upstreams_verdict(category: str) -> None:
    entries = {entry.key: entry for entry in load_acebench(MINI, categories=[category])}
    for row in rows("acebench")[category]:
        entry, output = entries[tuple(row["entry"])], row["output"]
        agent = category.startswith("agent_")
        verdicts = check_agent(entry, *output) if agent else check(entry, output)
        check_verdict(row, verdicts["official"])


def entries_of(copy: UpstreamPackage, category: str) -> dict[str, Entry]:
    return {entry.id: entry for entry in load(copy, [category])}


def answer_of(row: Any, answer: Any) -> Answer:
    if not row.get("native"):
        return Answer(answer)
    if isinstance(answer, str):
        return Answer(answer, ())
    return Answer("", tuple(ToolCall(*pair) for call in answer for pair in call.items()))


@pytest.mark.parametrize("category", categories.SINGLE_TURN)
def test_bfcl_answers_get_upstreams_verdict(bfcl_copy: UpstreamPackage, category: str) -> None:
    entries, forms = entries_of(bfcl_copy, category), {str(form): form for form in categories.FORMS}
    for row in rows("bfcl")[category]:
        entry = entries[row["id"]]
        form = forms[row["form"]] if "form" in row else categories.DEFAULT
        functions, answer = entry.data["function"], answer_of(row, row["answer"])
        verdicts = check_single(category, functions, entry.gold, answer, form)
        check_verdict(row, verdicts["official"])


def test_bfcl_texts_are_executed_as_upstream_does() -> None:
    for row in rows("bfcl")["executable"]:
        result = executable_calls(answer_of(row, row["answer"]))
        assert [result] == ([None] if isinstance(row["verdict"], dict) else row["verdict"]), row


def test_bfcl_answers_in_words_get_upstreams_verdict(bfcl_copy: UpstreamPackage) -> None:
    entries = entries_of(bfcl_copy, "memory_kv") | entries_of(bfcl_copy, "web_search_base")
    golds = {
        key.replace("memory_kv", "memory").replace("_base", ""): entry.gold["ground_truth"]
        for key, entry in entries.items()
    }
    for row in rows("bfcl")["agentic"]:
        answers = [answer_of(row, answer) for answer in row["answer"][0]]
        check_verdict(row, check_agentic(answers, golds[row["id"]])["official"])


@pytest.mark.parametrize("category", categories.MULTI_TURN)
def test_bfcl_conversations_get_upstreams_verdict(bfcl_copy, category) -> None:
    docs, sources = function_docs(bfcl_copy), tool_sources(bfcl_copy)
    entries = entries_of(bfcl_copy, category)
    for row in rows("bfcl_multi_turn")[category]:
        answers = [[Answer(json.dumps(step)) for step in turn] for turn in row["turns"]]

        def step(answer: Answer) -> list[str] | None:
            calls: list[str] | None = json.loads(answer.text or "null")
            return calls if calls and calls != [""] else None

        entry = entries[row["id"]]
        verdicts = check_multi_turn(entry, answers, "", sources, docs, executable=step)
        check_verdict(row, verdicts["official"])


def shown_of(prompts: Prompts, docs: Mapping[str, Any], entry: Entry) -> Iterator[tuple[str, Any]]:
    """Yield what a model is shown of an entry, by what it is."""
    category, data = entry.category, entry.data
    question = data["question"][0]
    if category in categories.MULTI_TURN:
        held_out = data.get("missed_function", {})
        functions, later = split_functions(docs, data["involved_classes"], held_out)
        yield "messages", prompts.messages(question, functions)
        tools = prompts.tools(functions)
        yield "tools", tools
        for turn, more in later.items():
            yield f"prompt-mode-turn {turn}", prompts.more_functions(more)
            yield f"native-turn {turn}", prompts.more_functions(None)
            tools = tools + prompts.tools(more, hints=0)
            yield f"tools-in-turn {turn}", tools
    elif category in (*categories.SINGLE_TURN, categories.FORMAT_SENSITIVITY):
        language = categories.language_of(category)
        hints = 2 if category == categories.FORMAT_SENSITIVITY else 1
        functions, form = data["function"], categories.form_of(entry.id)
        yield "messages", prompts.messages(question, functions, form, language, hints)
        if category != categories.FORMAT_SENSITIVITY:
            yield "tools", prompts.tools(functions, language)
    else:
        messages = add_system(prompts.texts.agentic, question)
        functions, _ = split_functions(docs, data["involved_classes"], {})
        yield "tools", prompts.tools(functions)
        if category in categories.MEMORY:
            yield "messages", memory_messages(prompts, docs, category, data["scenario"], messages)
        else:
            yield "messages", prompts.messages(messages, functions)


def memory_messages(
    prompts: Prompts, docs: Mapping[str, Any], category: str, scenario: str, messages: Any
) -> Any:
    text = prompts.memory(scenario, category.removeprefix("memory_"), "(nothing)")
    functions = docs[category.replace("memory", "MemoryAPI")]
    return prompts.messages(add_system(text, messages), functions)


@pytest.mark.parametrize("category", sorted(rows("bfcl_prompts")))
def test_bfcl_prompts_and_tools_are_upstreams(bfcl_copy: UpstreamPackage, category: str) -> None:
    """A hash of all messages and tools of a category, sorted; the order of keys counts."""
    prompts, docs = official_prompts(bfcl_copy), function_docs(bfcl_copy)
    items = [
        [entry.id, kind, sha(value)]
        for entry in load(bfcl_copy, [category])
        for kind, value in shown_of(prompts, docs, entry)
    ]
    memories = prerequisites(bfcl_copy) if category in categories.MEMORY else {}
    for scenario, conversations in memories.items():
        for row in conversations:
            row_id = row["id"].replace("memory", category)
            value = memory_messages(prompts, docs, category, scenario, row["question"][0])
            items.append([row_id, "messages", sha(value)])
    (row,) = rows("bfcl_prompts")[category]
    assert [len(items), sha(sorted(items))] == row["verdict"]


@pytest.fixture(scope="module")
def tau2() -> Tau2:
    try:
        Tau2Package.locate("installed")
    except UserError as error:
        pytest.skip(str(error))
    return Tau2.for_gold_check("installed")


@pytest.mark.parametrize("category", sorted(rows("tau2")))
def test_tau2_conversations_get_upstreams_reward(tau2: Tau2, category: str) -> None:
    from tau2_cases import Conversation, recorded

    entries = {entry.id: entry for entry in tau2.dataset() if entry.category == category}
    for row in rows("tau2")[category]:
        talk = Conversation(entries[row["id"]], row["turns"], row["ended"], row["fault"])
        trajectory = recorded(tau2, talk)
        state = {"trajectory": trajectory, "ended": talk.ending, "stopped": talk.ending in STOPS}
        verdict = tau2.verdicts(talk.entry, Episode(state=state))["official"]
        if isinstance(row["verdict"], dict):
            assert not verdict.valid, row
            continue
        reward, breakdown = row["verdict"]
        parts = {name: verdict.metrics[name.lower()] for name in breakdown}
        assert (verdict.valid, parts) == (reward == 1, breakdown), row


@pytest.mark.parametrize("category", sorted(rows("tau2_prompts")))
def test_tau2_prompts_and_tools_are_upstreams(tau2: Tau2, category: str) -> None:
    """A hash of policy, greeting and tools, and of the system messages of all tasks."""
    tools = {"assistant": tau2._agent_tools(category)}
    if of_user := tau2._user_tools(CATEGORIES[category]):
        tools["user"] = of_user
    entries = [entry for entry in tau2.dataset() if entry.category == category]
    messages = {task.id: [tau2._agent_system(task), tau2._user_system(task)] for task in entries}
    texts = tau2._policies[category], tau2._texts.greeting
    hashes = [sha(texts), sha(tools), sha(sorted(messages.items()))]
    (row,) = rows("tau2_prompts")[category]
    assert [len(messages), *hashes] == row["verdict"]


def test_a_judges_vote_is_read_as_upstream_reads_it() -> None:
    final = json.dumps({"return_type": "give_answer", "final_answer": "It is 5."})
    answer = {"final_answer": final, "answer_details": link_nodes([tool_node(FINISH, final)])}
    read = 0
    for row in rows("stabletoolbench")["vote"]:
        judge = RoleModel(ScriptedModel(*row["replies"]), Sampling())
        if not isinstance(row["verdict"], dict):
            (vote,) = asyncio.run(judge_sopr(judge, "?", answer, 1, own_prompts()))
            assert vote["status"] == row["verdict"], row
            read += 1
    assert read


def test_completeness_and_preference_are_read_as_upstream_reads_them() -> None:
    for row in rows("stabletoolbench")["fac"]:
        assert (read_fac(row["replies"][0]) == "Solved") == bool(row["verdict"]), row
    for row in rows("stabletoolbench")["index"]:
        if not isinstance(row["verdict"], dict):
            assert read_index(row["replies"][0]) == row["verdict"], row
