"""Result folders of ``bfcl generate`` as episodes: their shapes, and what is refused."""

import ast
import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl import categories as groups
from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.gold import gold_calls
from ace_ray.benchmarks.bfcl.score.outputs import entries_of, read_outputs
from ace_ray.benchmarks.external_outputs import Output
from ace_ray.errors import UserError
from ace_ray.parsing.literals import Call, render
from ace_ray.types import Entry
from tests.benchmarks.bfcl.synthetic_bfcl import COPY
from tests.benchmarks.test_external_outputs import write

FAILED = "Error during inference: the prompt has too many tokens"
NOT_DECODED = "ast_decoder:decoder_failed"
FOLDERS = {
    **{name: group for group in ("non_live", "live", "multi_turn", "agentic")
       for name in groups.GROUPS[group]},
    **{name: f"agentic/memory/{name.removeprefix('memory_')}" for name in groups.MEMORY},
}  # fmt: skip
Shape = Callable[[Sequence[Call]], Any]
"""Writes the calls of one answer as a model's handler stores them."""
Judge = Callable[..., list[str]]


def write_results(folder: Path, *answers: tuple[Entry, Any], flat: bool = False) -> Path:
    """Write a model's folder in upstream's layout: grouped, or as older versions did."""
    rows: dict[str, list[Any]] = {}
    for entry, result in answers:
        line = {"id": entry.id, "result": result, "latency": 0.5, "inference_log": [["x"]]}
        rows.setdefault(entry.category, []).append(line)
    for category, lines in rows.items():
        category_folder = folder if flat else folder / FOLDERS.get(category, category)
        write(category_folder / f"BFCL_v4_{category}_result.json", lines)
    return folder


def outputs(path: Path) -> list[Output]:
    return list(read_outputs(path, entries_of(COPY)))


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Return a function that writes results into a new folder and returns their error types."""
    benchmark, numbers = BFCL.from_options({"data": "mini"}), itertools.count()

    def judged(*answers: tuple[Entry, Any], model: str = "m", rules: str = "official") -> list[str]:
        parsed = outputs(write_results(tmp_path / str(next(numbers)) / model, *answers))
        json.dumps([output.episode.state for output in parsed])
        return [benchmark.check(item.entry, item.episode)[rules].error_type for item in parsed]

    return judged


def entries(category: str) -> list[Entry]:
    return load(COPY, [category])


FIRST, SECOND, THIRD, *_ = entries("simple_python")
REFUSAL, CONVERSATION, MEMORY = (
    entries(category)[-1] for category in ("irrelevance", "multi_turn_base", "memory_kv")
)
RIGHT = MEMORY.gold["ground_truth"][0]


def calls_of(entry: Entry) -> list[Call]:
    return gold_calls(entry.gold, entry.data["function"])


def listed(calls: Sequence[Call]) -> list[Any]:
    return [{call.name.replace(".", "_"): json.dumps(dict(call.args))} for call in calls]


def as_objects(calls: Sequence[Call]) -> list[Any]:
    return [{call.name: dict(call.args)} for call in calls]


def tags(calls: Sequence[Call]) -> str:
    blocks = [{"name": call.name, "arguments": dict(call.args)} for call in calls]
    return "\n".join(f"<tool_call>\n{json.dumps(block)}\n</tool_call>" for block in blocks)


def turns_of(entry: Entry, shape: Shape) -> list[Any]:
    """Make the right result of a conversation from its key, whose arguments all have names."""
    turns: list[Any] = []
    for calls in entry.gold:
        parsed: list[Any] = [ast.parse(call, mode="eval").body for call in calls]
        turn_calls = [
            Call(node.func.id, {key.arg: ast.literal_eval(key.value) for key in node.keywords})
            for node in parsed
        ]
        turns.append([*([shape(turn_calls)] if turn_calls else []), "Done."])
    return turns


def spoken(answer: str) -> list[Any]:
    """Make the result of a conversation with one turn, a call and an answer."""
    return [["[look(a=1)]", f"{{'answer': '{answer}', 'context': 'as you said'}}"]]


@pytest.mark.parametrize("shape", [render, listed, as_objects])
def test_gold_answers_are_right_and_mangled_ones_wrong(judge: Judge, shape: Shape) -> None:
    for entry in (*entries("parallel"), *entries("live_multiple")):
        calls = calls_of(entry)
        assert judge((entry, shape(calls))) == [""]
        assert judge((entry, shape([*calls, calls[0]]))) != [""]
    for entry in entries("multi_turn_base")[:2]:
        turns = turns_of(entry, shape)
        assert judge((entry, turns)) == [""]
        assert judge((entry, turns[:-1])) != [""]


def test_calls_in_lists_are_native_answers(judge: Judge, tmp_path: Path) -> None:
    (stored,) = listed(calls_of(FIRST))
    answers = [(FIRST, [stored]), (SECOND, "[not_a_call(a=1)]")]
    assert judge(*answers) == ["", NOT_DECODED]
    right, words = outputs(write_results(tmp_path / "m", *answers))
    content = {"content": "", "calls": [list(pair) for pair in stored.items()]}
    assert right.episode.state == {"turns": [[content]], "ended": ""}
    assert words.episode.state["turns"] == [[{"content": answers[1][1], "calls": []}]]
    assert [right.episode.messages[0]["tool_calls"][0]["function"]["name"]] == list(stored)
    call_objects = [{"name": call.name, "arguments": dict(call.args)} for call in calls_of(FIRST)]
    assert judge((FIRST, call_objects)) == [""]


def test_tagged_calls_are_read_of_models_with_function_calling(judge: Judge) -> None:
    tagged = tags(calls_of(FIRST))
    answers = [
        (FIRST, f"Let me see.\n{tagged}\n<tool_call>\n{{\n</tool_call>"),
        (SECOND, f"{tagged}\n<tool_call>\n[]\n</tool_call>"),
        (THIRD, "<tool_call>\n" * 100_000),
    ]
    assert judge(*answers, model="Some_Qwen-FC") == ["", NOT_DECODED, NOT_DECODED]
    assert judge(answers[0], model="Some_Qwen") == [NOT_DECODED], "a prompted model"


@pytest.mark.parametrize(
    ("result", "kind", "strict"),
    [
        (["Let me do this.", {"f": '{"a": 1}'}], NOT_DECODED, "unreadable_call"),
        ([{"f": None}], NOT_DECODED, "unreadable_call"),
        (None, NOT_DECODED, "no_answer"),
        ([], "simple_function_checker:wrong_count", ""),
    ],
    ids=["words and a call", "no arguments", "null", "empty list"],
)
def test_answers_of_odd_shapes_do_not_decode(judge, result, kind, strict) -> None:
    answers = [(FIRST, result), (SECOND, listed(calls_of(SECOND))), (REFUSAL, result)]
    assert judge(*answers, model="m-FC") == [kind, "", ""]
    refusal = judge(*answers, model="m-FC", rules="strict")[2]
    assert refusal.removeprefix("irrelevance_error:") == strict


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        pytest.param(["I cannot.", "Ask me more."], "", id="words"),
        pytest.param(["Here is it: ", "[f(a=1)]"], "unreadable_call", id="a call in words"),
        pytest.param([""], "no_answer", id="nothing"),
    ],
)
@pytest.mark.parametrize("model", ["gemini-2.5-flash-FC", "nova-pro-v1.0", "a-prompted-model"])
def test_list_of_words_is_a_text(judge: Judge, model: str, parts: list[str], fault: str) -> None:
    refusals = [(entries(name)[0], parts) for name in ("irrelevance", "live_irrelevance")]
    assert judge(*refusals, model=model) == ["", ""]
    strict = judge(*refusals, model=model, rules="strict")
    assert [kind.removeprefix("irrelevance_error:") for kind in strict] == [fault, fault]


def test_list_of_words_is_a_message_of_an_episode(judge: Judge) -> None:
    """Upstream looks for an agentic answer in the first part only."""
    right = f"It is {RIGHT}."
    for parts, kind in (([right, "Ask."], ""), (["Ask.", right], "agentic:answer_not_found")):
        for rules in ("official", "strict"):
            assert judge((MEMORY, [[parts]]), model="gemini-FC", rules=rules) == [kind]


@pytest.mark.parametrize(
    ("model", "write_calls"),
    [
        ("microsoft_phi-4", lambda calls: f"```python\n{render(calls)}\n```"),
        ("gemini-2.5-flash", lambda calls: f"```tool_code\n{render(calls)}\n```"),
        ("meta-llama_Llama-3.3-70B-Instruct-FC", render),
        ("ibm-granite_granite-4.0-350m", tags),
        ("command-a-03-2025-FC", lambda calls: [
            {"tool_name": call.name.replace(".", "_"), "parameters": dict(call.args)}
            for call in calls
        ]),
    ],
)  # fmt: skip
def test_name_of_a_model_selects_how_its_calls_are_read(judge, model, write_calls) -> None:
    right, wrong = write_calls(calls_of(FIRST)), write_calls([Call("f", {"a": 1})])
    verdicts = judge((FIRST, right), (SECOND, wrong), model=model)
    assert verdicts == ["", "simple_function_checker:wrong_func_name"]


def test_texts_of_models_that_answer_with_lists_have_no_calls(judge: Judge) -> None:
    irrelevance = entries("irrelevance")[0]
    for model, kind in (("nova-pro-v1.0", ""), ("m", "irrelevance_error:decoder_success")):
        assert judge((irrelevance, "[f(a=1)]"), model=model) == [kind]


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("MadeAgents_Hammer2.1-7b", '```\n[{"name": "f", "arguments": {"a": 1}}]\n```'),
        ("Salesforce_xLAM-2-8b-fc-r", '[{"name": "f", "arguments": {"a": 1}}]'),
        ("ibm-granite_granite-20b-functioncalling", '<function_call> {"name": "f", "arguments": {'),
        ("THUDM_glm-4-9b-chat", 'f\n{"a": 1}'),
        ("tiiuae_Falcon3-7B-Instruct-FC", '<tool_call>\n[{"name": "f", "arguments": {}}]'),
        ("meta-llama_Llama-3.1-8B-Instruct-FC", '{"name": "f", "parameters": {"a": 1}}'),
        ("openbmb_MiniCPM3-4B-FC", "<|thought_end|>\n<|tool_call_start|>\n```python\nf(a=1)\n```"),
    ],
)
def test_calls_that_only_upstreams_handler_reads_are_refused(tmp_path, model, text) -> None:
    refused(write_results(tmp_path / model, (FIRST, text)), "only bfcl-eval's handler", model)
    assert outputs(write_results(tmp_path / "words" / model, (FIRST, "I cannot.")))


def test_conversations_end_as_their_results_say(judge: Judge, tmp_path: Path) -> None:
    right = [["[close_day()]", "Done."]] * len(CONVERSATION.gold)
    endless = [*right[:-1], ["[list_orders()]"] * 21]
    for result, ending in ((right, ""), (endless, "steps"), ([], "steps"), (FAILED, "inference")):
        (output,) = outputs(write_results(tmp_path / f"m{ending}", (CONVERSATION, result)))
        assert output.episode.state["ended"] == ending
        if isinstance(result, list):
            assert output.episode.state["turns"] == result
            assert output.episode.model_calls == sum(map(len, result))
    for turn, kind in (
        ([3], "empty_turn_model_response"),
        ("words", "inference_error"),
        (["x"] * 1001, "force_terminated"),
    ):
        turns = [[[{"close_day": "{}"}], "Done."]] * (len(right) - 1)
        error_types = judge((CONVERSATION, [*turns, turn]), model="m-FC")
        assert error_types == [f"multi_turn:{kind}"]
    for result, kind in (
        (spoken(RIGHT), ""),
        ([["I do not know."]], "agentic:answer_not_found"),
        ([["[look(a=1)]"]], "agentic:no_last_message"),
        ([], "agentic:inference_error"),
    ):
        assert judge((MEMORY, result)) == [kind]


def test_all_layouts_are_read(tmp_path: Path) -> None:
    """Read grouped, flat and old folders, one file, and the folder of all results."""
    chosen = [entries(name)[0] for name in ("simple_python", "simple_java", "memory_rec_sum")]
    answers = list(zip(chosen, ("x", "x", [["x"]]), strict=True))
    keys = [entry.key for entry in chosen]
    grouped = write_results(tmp_path / "result" / "m", *answers)
    memory_folder = grouped / "agentic/memory/rec_sum"
    write(memory_folder / "BFCL_v4_memory_rec_sum_prereq_result.json", [{"id": "x", "result": 1}])
    before = {"id": "memory_rec_sum_prereq_0-customer-0", "result": []}
    question_row = {"id": chosen[2].id, "result": [["x"]]}
    write(memory_folder / "BFCL_v4_memory_rec_sum_result.json", [before, question_row])
    flat = write_results(tmp_path / "flat", *answers, flat=True)
    for name in ("simple", "java", "exec_simple"):
        row = {"id": f"{name}_0", "result": "x"}
        write(tmp_path / "old" / f"BFCL_v3_{name}_result.json", [row])
    for location, expected_keys in (
        (grouped, keys),
        (flat, keys),
        (grouped / "non_live", keys[:2]),
        (flat / "BFCL_v4_simple_java_result.json", keys[1:2]),
        (tmp_path / "old", keys[:2]),
    ):
        assert [output.entry.key for output in outputs(location)] == expected_keys


@pytest.mark.parametrize("key", ["text", "id", "idx"])
def test_files_of_2024_name_entries_by_position(tmp_path: Path, key: str) -> None:
    names = {"simple": "simple_python", "parallel_function": "parallel", "relevance": "irrelevance"}
    for old in (*names, "executable_simple", "rest"):
        row = {"result": "x", **({"id": f"{old}_0"} if key == "text" else {key: 0})}
        write(tmp_path / f"gorilla_openfunctions_v1_test_{old}_result.json", [row])
    read = [output.entry.id for output in outputs(tmp_path)]
    assert read == [f"{category}_0" for category in names.values()]


def test_dropped_ids_group_files_and_empty_lists_are_counted(tmp_path: Path) -> None:
    first, *_ = entries("live_relevance")
    copy_entries = entries_of(COPY)
    dropped = ["live_relevance_16-16-0", "live_relevance_40-27-0"]
    rows = [{"id": entry_id, "result": "[f(a=1)]"} for entry_id in (first.id, *dropped)]
    path = write(tmp_path / "m" / "BFCL_v3_live_relevance_result.json", rows)
    memory = {"id": "memory_0-customer-0", "result": ["x"]}
    write(path.with_name("BFCL_v4_memory_result.json"), [memory])
    empty = {"id": REFUSAL.id, "result": []}
    write(path.with_name("BFCL_v4_irrelevance_result.json"), [empty])
    read = [output.entry.id for output in read_outputs(path.parent, copy_entries)]
    assert read == [REFUSAL.id, first.id]
    assert {remark[:12]: count for remark, count in copy_entries.remarks.items()} == {
        "outputs of l": 2,
        "files named ": 1,
        "answers [] i": 1,
    }
    lines = [{"id": row["id"], "output": row["result"]} for row in rows]
    assert len(outputs(write(tmp_path / "lines.jsonl", lines))) == 1
    write(path, [*rows, {"id": "live_relevance_18-18-0", "result": ""}])
    refused(path, "unknown id of en/live_relevance: 'live_relevance_18-18-0'", ":4")


def test_json_lines_are_read_and_wrong_ones_refused(tmp_path: Path) -> None:
    entry, *_ = entries("parallel")
    text = render(calls_of(entry))
    rows: list[dict[str, Any]] = [
        {"id": entry.id, "output": text},
        {"id": entry.id, "output": "no", "sample": "b", "category": "parallel"},
        {"id": MEMORY.id, "output": spoken(RIGHT)},
    ]
    parsed = outputs(write(tmp_path / "texts.jsonl", rows))
    keys = [(entry.id, 0), (entry.id, "b"), (MEMORY.id, 0)]
    assert [(output.entry.id, output.sample) for output in parsed] == keys
    assert parsed[0].episode.output == parsed[0].episode.messages[-1]["content"] == text
    assert (parsed[0].episode.state, parsed[2].episode.state["turns"]) == (None, rows[2]["output"])
    for name, of in (("parallel_9999", " of en/parallel"), ("parallels", "")):
        path = write(tmp_path / "bad.jsonl", [rows[0], {"id": name, "output": ""}])
        refused(path, f"unknown id{of}: '{name}'", ":2")


def refused(path: Path, message: str, location: str = "") -> None:
    with pytest.raises(UserError) as caught:
        outputs(path)
    assert message in str(caught.value)
    assert location in str(caught.value)


def test_wrong_rows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m" / "BFCL_v4_simple_python_result.json"
    good = {"id": FIRST.id, "result": "x"}
    for row, message in (({"id": FIRST.id}, '"result" is missing'), (good, "was given before")):
        refused(write(path, [good, row]), message, f"{path}:2")
    refused(write(path, []).parent, "contains no outputs", str(path.parent))


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "old" / "BFCL_v3_rest_result.json", [])
    write(tmp_path / "odd" / "BFCL_v4_simple_pyton_result.json", [])
    for model in ("a", "b"):
        write_results(tmp_path / "all" / model, (FIRST, "x"))
        write_results(tmp_path / "twice", (FIRST, "x"), flat=model == "a")
    os.mkfifo(tmp_path / "BFCL_v4_multiple_result.json")
    for name, message in (
        ("empty", "contains no BFCL_v4_<category>_result.json"),
        ("nowhere", "no such file or folder"),
        ("old", "contains no scored category"),
        ("odd", "the nearest known category is 'simple_python'"),
        ("all", "contains the results of 2 models: a, b"),
        ("twice", "is a second file of simple_python"),
        ("BFCL_v4_multiple_result.json", "no such file or folder"),
    ):
        refused(tmp_path / name, message)
