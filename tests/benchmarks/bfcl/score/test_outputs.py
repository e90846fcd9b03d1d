"""Result folders of ``bfcl generate`` as episodes: their shapes, what is refused, and parity."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl import categories as groups
from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.gold import gold_calls
from ace_ray.benchmarks.bfcl.score.outputs import entries_of, read_outputs
from ace_ray.benchmarks.outputs import Output
from ace_ray.errors import UserError
from ace_ray.parsing.literals import Call, render
from ace_ray.types import RULE_SETS, Entry
from tests.benchmarks.bfcl.synthetic_bfcl import COPY

CHILD = Path(__file__).resolve().parents[3] / "parity" / "bfcl_results_child.py"
FAILED = "Error during inference: the prompt has too many tokens"
NOT_DECODED = "ast_decoder:decoder_failed"
MEMORY = {name: f"agentic/memory/{name.removeprefix('memory_')}" for name in groups.MEMORY}
FOLDERS = {
    name: group
    for group in ("non_live", "live", "multi_turn", "web_search")
    for name in groups.GROUPS[group]
} | MEMORY
Shape = Callable[[Sequence[Call]], Any]
"""Writes the calls of one answer as a model's handler stores them."""


@pytest.fixture(scope="module")
def mini() -> BFCL:
    return BFCL.from_options({"data": "mini"})


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_results(
    folder: Path, answers: Sequence[tuple[Entry, Any]], *, flat: bool = False
) -> Path:
    """Write a model's folder in upstream's layout: grouped, or as older versions did."""
    rows: dict[str, list[Any]] = {}
    for entry, result in answers:
        line = {"id": entry.id, "result": result, "latency": 0.5, "inference_log": [["x"]]}
        rows.setdefault(entry.category, []).append(line)
    for category, lines in rows.items():
        place = folder if flat else folder / FOLDERS.get(category, category)
        write(place / f"BFCL_v4_{category}_result.json", lines)
    return folder


def outputs(path: Path, copy: UpstreamPackage = COPY) -> list[Output]:
    return list(read_outputs(path, entries_of(copy)))


def entries(category: str, copy: UpstreamPackage = COPY) -> list[Entry]:
    return load(copy, [category])


def verdicts(benchmark: BFCL, output: Output) -> dict[str, str]:
    found = benchmark.check(output.entry, output.episode)
    json.dumps(output.episode.state)
    return {rules: found[rules].error_type for rules in RULE_SETS}


def official(benchmark: BFCL, outputs: Sequence[Output]) -> list[str]:
    return [verdicts(benchmark, output)["official"] for output in outputs]


def listed(calls: Sequence[Call]) -> list[Any]:
    return [{call.name.replace(".", "_"): json.dumps(dict(call.args))} for call in calls]


def as_objects(calls: Sequence[Call]) -> list[Any]:
    return [{call.name: dict(call.args)} for call in calls]


def tags(calls: Sequence[Call]) -> str:
    blocks = [{"name": call.name, "arguments": dict(call.args)} for call in calls]
    return "\n".join(f"<tool_call>\n{json.dumps(block)}\n</tool_call>" for block in blocks)


def parsed(text: str) -> Call:
    call: Any = ast.parse(text, mode="eval").body
    return Call(call.func.id, {one.arg: ast.literal_eval(one.value) for one in call.keywords})


def results_of(entry: Entry, shape: Shape) -> list[Any]:
    """Make a right result for an entry, a wrong one, and a failed inference."""
    if entry.category in groups.AGENTIC:
        right = f"{{'answer': '{entry.gold['ground_truth'][0]}', 'context': 'as you said'}}"
        return [[[shape([Call("look", {"a": 1})]), right]], [["I do not know."]], FAILED]
    if entry.category in groups.MULTI_TURN:
        gold = [[parsed(call) for call in turn] for turn in entry.gold]
        turns = [[*([shape(turn)] if turn else []), "Done."] for turn in gold]
        return [turns, turns[:-1], FAILED]
    if entry.category in groups.RELEVANCE:
        return [shape([Call("f", {"x": 1})]), "I cannot.", FAILED]
    if entry.category in ("simple_java", "simple_javascript"):
        return ["no call", FAILED]
    calls = gold_calls(entry.gold, entry.data["function"])
    return [shape(calls), shape([*calls, calls[0]]), FAILED]


def plays(entry: Entry) -> bool:
    """Tell whether an entry's key can be a result, and upstream's Python has what it needs."""
    if entry.category not in groups.MULTI_TURN:
        return True
    calls: list[Any] = [ast.parse(call).body[0] for turn in entry.gold for call in turn]
    named = not any(call.value.args for call in calls)
    return named and "MathAPI" not in entry.data["involved_classes"]


@pytest.mark.parametrize("shape", [render, listed, as_objects])
def test_gold_answers_are_right_and_mangled_ones_wrong(
    mini: BFCL, tmp_path: Path, shape: Shape
) -> None:
    for category in ("parallel", "multi_turn_base"):
        found = [entry for entry in entries(category) if plays(entry)]
        assert found
        for number in (0, 1):
            folder = tmp_path / f"{category}-{number}"
            write_results(folder, [(entry, results_of(entry, shape)[number]) for entry in found])
            kinds = official(mini, outputs(folder))
            assert all((kind == "") == (number == 0) for kind in kinds), (category, kinds)


def test_calls_in_lists_are_native_answers(mini: BFCL, tmp_path: Path) -> None:
    first, second, *_ = entries("simple_python")
    (call,) = gold_calls(first.gold, first.data["function"])
    (stored,) = listed([call])
    given = [(first, [stored]), (second, "[not_a_call(a=1)]")]
    right, words = outputs(write_results(tmp_path / "m", given))
    content = {"content": "", "calls": [list(pair) for pair in stored.items()]}
    assert right.episode.state == {"turns": [[content]], "ended": ""}
    assert words.episode.state["turns"] == [[Answer("[not_a_call(a=1)]", ()).as_json()]]
    assert verdicts(mini, right)["strict"] == ""
    assert verdicts(mini, words)["official"] == NOT_DECODED
    assert [right.episode.messages[0]["tool_calls"][0]["function"]["name"]] == list(stored)
    others = [{"name": call.name, "arguments": dict(call.args)}]
    assert official(mini, outputs(write_results(tmp_path / "o", [(first, others)]))) == [""]


def test_tagged_calls_are_read_of_models_with_function_calling(mini: BFCL, tmp_path: Path) -> None:
    first, second, third, *_ = entries("simple_python")
    (call,) = gold_calls(first.gold, first.data["function"])
    given = [
        (first, f"Let me see.\n{tags([call])}\n<tool_call>\n{{\n</tool_call>"),
        (second, f"{tags([call])}\n<tool_call>\n[]\n</tool_call>"),
        (third, "<tool_call>\n" * 100_000),
    ]
    found = outputs(write_results(tmp_path / "Some_Qwen-FC", given))
    assert official(mini, found) == ["", NOT_DECODED, NOT_DECODED]
    prompted = outputs(write_results(tmp_path / "Some_Qwen", given[:1]))
    assert official(mini, prompted) == [NOT_DECODED], "tags are no calls of a prompted model"


def test_texts_with_calls_of_models_with_function_calling(mini: BFCL, tmp_path: Path) -> None:
    asked = [entries(category)[0] for category in ("simple_python", "irrelevance")]
    call = '{"name": "f", "parameters": {}}'

    def results(model: str, text: str) -> Path:
        return write_results(tmp_path / str(len(text)) / model, [(one, text) for one in asked])

    for text in ("None fits.", call, "[f(a=1)]"):
        assert official(mini, outputs(results("gpt-x-FC", text))) == [NOT_DECODED, ""]
    refused(results("Some_Llama-FC", call), "only bfcl-eval's handler")
    for model, text in (("Some_Llama", call), ("Some_Llama-FC", "I cannot.")):
        assert len(outputs(results(model, text))) == 2


def test_dropped_ids_and_files_named_by_a_group_are_passed_over(tmp_path: Path) -> None:
    first, *_ = entries("live_relevance")
    found = entries_of(COPY)
    dropped = ["live_relevance_16-16-0", "live_relevance_40-27-0"]
    rows = [{"id": entry_id, "result": "[f(a=1)]"} for entry_id in (first.id, *dropped)]
    path = write(tmp_path / "m" / "BFCL_v3_live_relevance_result.json", rows)
    memory = {"id": "memory_0-customer-0", "result": ["x"]}
    write(path.with_name("BFCL_v4_memory_result.json"), [memory])
    assert [output.entry.id for output in read_outputs(path.parent, found)] == [first.id]
    assert sorted(found.remarks.values()) == [1, 2]
    lines = [{"id": one["id"], "output": one["result"]} for one in rows]
    assert len(outputs(write(tmp_path / "lines.jsonl", lines))) == 1
    write(path, [*rows, {"id": "live_relevance_18-18-0", "result": ""}])
    refused(path, "unknown id of en/live_relevance: 'live_relevance_18-18-0'", ":4")


def test_conversations(mini: BFCL, tmp_path: Path) -> None:
    *_, entry = entries("multi_turn_base")
    right = [["[close_day()]", "Done."]] * len(entry.gold)
    endless = [*right[:-1], ["[list_orders()]"] * 21]
    for ended, result in {"": right, "steps": endless, "inference": FAILED}.items():
        (output,) = outputs(write_results(tmp_path / f"m{ended}", [(entry, result)]))
        assert output.episode.state["ended"] == ended
        if isinstance(result, list):
            assert output.episode.state["turns"] == result
            assert output.episode.model_calls == sum(map(len, result))
    assert verdicts(mini, output) == dict.fromkeys(RULE_SETS, "multi_turn:inference_error")
    for turn, kind in (
        ([3], "empty_turn_model_response"),
        ("words", "inference_error"),
        (["x"] * 1001, "force_terminated"),
    ):
        turns = [[[{"close_day": "{}"}], "Done."]] * (len(entry.gold) - 1)
        folder = write_results(tmp_path / kind / "m-FC", [(entry, [*turns, turn])])
        assert official(mini, outputs(folder)) == [f"multi_turn:{kind}"]
    memory, *_ = entries("memory_kv")
    for number, (result, kind) in enumerate(
        (
            (results_of(memory, render)[0], ""),
            ([["I do not know."]], "agentic:answer_not_found"),
            ([["[look(a=1)]"]], "agentic:no_last_message"),
            ([], "agentic:inference_error"),
        )
    ):
        folder = write_results(tmp_path / f"a{number}", [(memory, result)])
        assert official(mini, outputs(folder)) == [kind]


def test_layouts(tmp_path: Path) -> None:
    """Grouped, flat, of version 3, one file, and the folder of all results."""
    found = {name: entries(name)[0] for name in ("simple_python", "simple_java", "memory_rec_sum")}
    given = [(entry, "x" if "simple" in name else [["x"]]) for name, entry in found.items()]
    keys = [entry.key for entry in found.values()]
    grouped = write_results(tmp_path / "result" / "m", given)
    kept = grouped / "agentic/memory/rec_sum"
    write(kept / "BFCL_v4_memory_rec_sum_prereq_result.json", [{"id": "x", "result": 1}])
    write(grouped / "memory_snapshot" / "memory_rec_sum" / "student_final.json", [])
    before = {"id": "memory_rec_sum_prereq_0-customer-0", "result": []}
    asked = {"id": keys[2][2], "result": [["x"]]}
    write(kept / "BFCL_v4_memory_rec_sum_result.json", [before, asked])
    flat = write_results(tmp_path / "flat", given, flat=True)
    old = tmp_path / "old"
    for name in ("simple", "java", "exec_simple"):
        write(old / f"BFCL_v3_{name}_result.json", [{"id": f"{name}_0", "result": "x"}])
    for place, wanted in (
        (grouped, keys),
        (tmp_path / "result", keys),
        (flat, keys),
        (grouped / "non_live", keys[:2]),
        (flat / "BFCL_v4_simple_java_result.json", keys[1:2]),
        (old, keys[:2]),
    ):
        assert [output.entry.key for output in outputs(place)] == wanted


def test_json_lines(mini: BFCL, tmp_path: Path) -> None:
    first, *_ = entries("parallel")
    conversation, *_ = entries("web_search_base")
    calls = gold_calls(first.gold, first.data["function"])
    text = render(calls)
    rows = [
        {"id": first.id, "output": text},
        {"id": first.id, "output": "no", "sample": "b", "category": "parallel"},
        {"id": conversation.id, "output": results_of(conversation, render)[0]},
    ]
    found = outputs(write(tmp_path / "texts.jsonl", rows))
    keys = [(first.id, 0), (first.id, "b"), (conversation.id, 0)]
    assert [(one.entry.id, one.sample) for one in found] == keys
    assert official(mini, found) == ["", NOT_DECODED, ""]
    assert found[0].episode.output == found[0].episode.messages[-1]["content"] == text
    assert found[0].episode.state is None
    native = write(tmp_path / "c.jsonl", [{"id": first.id, "output": listed(calls)}])
    assert official(mini, outputs(native)) == [""]
    for row, message in [
        ({"id": "parallel_9999", "output": ""}, "unknown id of en/parallel"),
        ({"id": "parallels", "output": ""}, "unknown id: 'parallels'"),
        ({"id": first.id}, '"output" is missing'),
        ({"id": first.id, "output": "", "category": "paralel"}, "is 'parallel'"),
    ]:
        refused(write(tmp_path / "bad.jsonl", [rows[0] | {"sample": 9}, row]), message, ":2")


@pytest.mark.parametrize(
    ("result", "kind", "strict"),
    [
        (["Let me do this.", {"f": '{"a": 1}'}], NOT_DECODED, "irrelevance_error:unreadable_call"),
        ([{"f": None}], NOT_DECODED, "irrelevance_error:unreadable_call"),
        (None, NOT_DECODED, "irrelevance_error:no_answer"),
        ([], "simple_function_checker:wrong_count", ""),
    ],
)
def test_answers_of_odd_shapes(
    mini: BFCL, tmp_path: Path, result: Any, kind: str, strict: str
) -> None:
    first, second, *_ = entries("simple_python")
    refusal, *_ = entries("irrelevance")
    calls = listed(gold_calls(second.gold, second.data["function"]))
    given = [(first, result), (second, calls), (refusal, result)]
    odd, right, refused_ = outputs(write_results(tmp_path / "m-FC", given))
    assert official(mini, [odd, right]) == [kind, ""]
    assert verdicts(mini, refused_) == {"official": "", "strict": strict}


def refused(path: Path, message: str, where: str = "") -> None:
    with pytest.raises(UserError) as caught:
        outputs(path)
    assert message in str(caught.value)
    assert where in str(caught.value)


def test_wrong_rows_are_refused(tmp_path: Path) -> None:
    entry, *_ = entries("simple_python")
    path = tmp_path / "m" / "BFCL_v4_simple_python_result.json"
    good = {"id": entry.id, "result": "x"}
    for row, message in [
        ({"result": "x"}, '"id" is missing'),
        ({"id": entry.id}, '"result" is missing'),
        ({"id": "simple_python_999", "result": "x"}, "unknown id of en/simple_python"),
        (good, "with sample 0 was given before"),
    ]:
        refused(write(path, [good, row]), message, f"{path}:2")
    path.write_text(json.dumps(good) + "\n" + "[" * 100_000)
    refused(path, "nested too deeply", f"{path}:2")
    refused(write(path, []).parent, "holds no outputs", str(path.parent))


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    entry, *_ = entries("simple_python")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "old" / "BFCL_v3_rest_result.json", [])
    write(tmp_path / "odd" / "BFCL_v4_simple_pyton_result.json", [])
    for model in ("a", "b"):
        write_results(tmp_path / "all" / model, [(entry, "x")])
    os.mkfifo(tmp_path / "BFCL_v4_multiple_result.json")
    for place, message in (
        ("empty", "holds no BFCL_v4_<category>_result.json"),
        ("nowhere", "no such file or folder"),
        ("old", "holds no category that is scored"),
        ("odd", "the nearest known one is 'simple_python'"),
        ("all", "holds the results of 2 models: a, b"),
        ("BFCL_v4_multiple_result.json", "no such file or folder"),
    ):
        refused(tmp_path / place, message)
    write_results(tmp_path / "all" / "a", [(entry, "x")], flat=True)
    refused(tmp_path / "all" / "a", "is a second file of simple_python")


@pytest.mark.skipif("BFCL_PYTHON" not in os.environ, reason="names no Python (docs/parity.md)")
@pytest.mark.parametrize(
    ("model", "shape"),
    [("prompted", render), ("with-calls-FC", listed), ("with-tags-Qwen-FC", tags)],
)
def test_parity_with_upstreams_evaluator(
    model: str, shape: Shape, bfcl_copy: UpstreamPackage, tmp_path: Path
) -> None:
    """Compare three results of each of some real entries of each category, in three folders."""
    benchmark = BFCL.from_options({"data": bfcl_copy.name})
    benchmark.ready(named=True)
    chosen = [
        entry
        for category in groups.CATEGORIES
        if category != groups.FORMAT_SENSITIVITY or shape is render
        for entry in [one for one in load(bfcl_copy, [category]) if plays(one)][:4]
    ]
    for number in range(3):
        folder, made = tmp_path / f"results{number}", tmp_path / f"evaluated{number}"
        made.mkdir()
        kinds = [results_of(entry, shape) for entry in chosen]
        given = [results[(number + at) % len(results)] for at, results in enumerate(kinds)]
        write_results(folder / model, list(zip(chosen, given, strict=True)))
        done = subprocess.run(
            [os.environ["BFCL_PYTHON"], CHILD, str(bfcl_copy.root.parent), str(folder)],
            capture_output=True,
            text=True,
            cwd=made,
            env={"PATH": os.environ["PATH"], "BFCL_PROJECT_ROOT": str(made), "PYTHONUTF8": "1"},
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        theirs = json.loads(done.stdout)[model]
        found = outputs(folder / model, bfcl_copy)
        for output, kind in zip(found, official(benchmark, found), strict=True):
            upstreams = theirs.pop(output.entry.id)
            # No call in a text is an empty list of calls for upstream's reader of tags.
            assert kind == upstreams or (shape is tags and kind and upstreams), output.entry.id
        assert not theirs
