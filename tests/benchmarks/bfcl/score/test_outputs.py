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
from ace_ray.benchmarks.bfcl.score.outputs import DROPPED_IDS, entries_of, read_outputs
from ace_ray.benchmarks.outputs import Output
from ace_ray.errors import UserError
from ace_ray.parsing.literals import Call, render
from ace_ray.types import RULE_SETS, Entry, Episode
from tests.benchmarks.bfcl.synthetic_bfcl import COPY

CHILD = Path(__file__).resolve().parents[3] / "parity" / "bfcl_results_child.py"
FAILED = "Error during inference: the prompt has too many tokens"
NOT_DECODED = "ast_decoder:decoder_failed"
GROUPS = {
    **dict.fromkeys(groups.NON_LIVE, "non_live"),
    **dict.fromkeys(groups.LIVE, "live"),
    **dict.fromkeys(groups.MULTI_TURN, "multi_turn"),
    **dict.fromkeys(groups.WEB_SEARCH, "agentic"),
    **{name: f"agentic/memory/{name.removeprefix('memory_')}" for name in groups.MEMORY},
    groups.FORMAT_SENSITIVITY: groups.FORMAT_SENSITIVITY,
}
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
        place = folder if flat else folder / GROUPS[category]
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
    """Make results for an entry, the right one first; prompted models have more kinds."""
    if entry.category in groups.AGENTIC:
        right = f"{{'answer': '{entry.gold['ground_truth'][0]}', 'context': 'as you said'}}"
        call = shape([Call("look", {"a": 1})])
        few, more = [[[call, right]], FAILED], [[["I do not know."]], [], [[call]]]
    elif entry.category in groups.MULTI_TURN:
        gold = [[parsed(call) for call in turn] for turn in entry.gold]
        turns: Any = [[*([shape(turn)] if turn else []), "Done."] for turn in gold]
        few = [turns, turns[:-1], [["Done."] for _ in turns], FAILED]
        more = [[*turns[:-1], [shape([Call("pwd", {})])] * 21], []]
    elif entry.category in groups.RELEVANCE:
        few, more = [shape([Call("f", {"x": 1})]), "I cannot.", FAILED], [""]
    elif entry.category in ("simple_java", "simple_javascript"):
        few, more = ["no call", FAILED], [f"[{next(iter(entry.gold[0]))}()]"]
    else:
        calls = gold_calls(entry.gold, entry.data["function"])
        few, more = (
            [shape(calls), shape([*calls, calls[0]]), f"Sure: {render(calls)}", FAILED],
            [""],
        )
    return few + more if shape is render else few


def plays(entry: Entry) -> bool:
    """Tell whether an entry's key can be a result, and upstream's Python has what it needs."""
    if entry.category not in groups.MULTI_TURN:
        return True
    calls: list[Any] = [ast.parse(call).body[0] for turn in entry.gold for call in turn]
    named = not any(call.value.args for call in calls)
    return named and "MathAPI" not in entry.data["involved_classes"]


def test_texts_are_judged_as_the_answers_of_a_run(mini: BFCL, tmp_path: Path) -> None:
    for category in groups.SINGLE_TURN:
        for entry in entries(category):
            for number, result in enumerate(results_of(entry, render)):
                folder = tmp_path / f"{entry.id}-{number}"
                (output,) = outputs(write_results(folder, [(entry, result)]))
                assert (output.entry.key, output.sample) == (entry.key, 0)
                assert output.episode.output == output.episode.messages[-1]["content"] == result
                assert output.episode.state is None
                answered = mini.check(entry, Episode(output=result))
                assert mini.check(entry, output.episode) == answered


@pytest.mark.parametrize("shape", [render, listed, as_objects])
def test_gold_answers_are_right_and_mangled_ones_wrong(
    mini: BFCL, tmp_path: Path, shape: Shape
) -> None:
    for category in ("simple_python", "parallel", "live_multiple", "multi_turn_base"):
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


def test_texts_that_only_the_models_own_handler_reads_are_refused(tmp_path: Path) -> None:
    first, *_ = entries("simple_python")
    given = [(first, '{"name": "f", "parameters": {"a": 1}}')]
    refused(write_results(tmp_path / "Some_Llama-FC", given), "only bfcl-eval's handler")
    assert outputs(write_results(tmp_path / "Some_Llama", given))
    assert outputs(write_results(tmp_path / "words" / "Some_Llama-FC", [(first, "I cannot.")]))


def test_model_whose_server_read_no_calls_is_scored(mini: BFCL, tmp_path: Path) -> None:
    asked = [entries(category)[0] for category in ("simple_python", "irrelevance")]
    for number, text in enumerate(("None fits.", '{"name": "f", "parameters": {}}', "[f(a=1)]")):
        folder = write_results(tmp_path / str(number) / "gpt-x-FC", [(one, text) for one in asked])
        assert official(mini, outputs(folder)) == [NOT_DECODED, ""]


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


def test_no_dropped_id_is_an_id_of_the_data(bfcl_copy: UpstreamPackage) -> None:
    known = {entry.id for entry in load(bfcl_copy, ["live_relevance", "live_multiple"])}
    assert not known & DROPPED_IDS


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
    (memory, *_), found = entries("memory_kv"), []
    for number, result in enumerate(results_of(memory, render)):
        (output,) = outputs(write_results(tmp_path / f"a{number}", [(memory, result)]))
        found += [kind.removeprefix("agentic:") for kind in official(mini, [output])]
    failed = "inference_error"
    assert found == ["", failed, "answer_not_found", failed, "no_last_message"]


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
    for folder in (grouped, tmp_path / "result", flat):
        assert [output.entry.key for output in outputs(folder)] == keys
    assert [one.entry.key for one in outputs(grouped / "non_live")] == keys[:2]
    (one,) = outputs(flat / "BFCL_v4_simple_java_result.json")
    assert one.entry.key == keys[1]
    old = tmp_path / "old"
    for name in ("simple", "java", "exec_simple"):
        write(old / f"BFCL_v3_{name}_result.json", [{"id": f"{name}_0", "result": "x"}])
    assert [output.entry.key for output in outputs(old)] == keys[:2]


def test_json_lines(mini: BFCL, tmp_path: Path) -> None:
    first, *_ = entries("parallel")
    conversation, *_ = entries("web_search_base")
    calls = gold_calls(first.gold, first.data["function"])
    rows = [
        {"id": first.id, "output": render(calls)},
        {"id": first.id, "output": "no", "sample": "b", "category": "parallel"},
        {"id": conversation.id, "output": results_of(conversation, render)[0]},
    ]
    found = outputs(write(tmp_path / "texts.jsonl", rows))
    keys = [(first.id, 0), (first.id, "b"), (conversation.id, 0)]
    assert [(one.entry.id, one.sample) for one in found] == keys
    assert official(mini, found) == ["", NOT_DECODED, ""]
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


@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        ([3], "empty_turn_model_response"),
        ("words", "inference_error"),
        (["x"] * 1001, "force_terminated"),
    ],
)
def test_odd_turn_of_a_conversation(mini: BFCL, tmp_path: Path, turn: Any, kind: str) -> None:
    *_, entry = entries("multi_turn_base")
    right = [[[{"close_day": "{}"}], "Done."]] * (len(entry.gold) - 1)
    (output,) = outputs(write_results(tmp_path / "m-FC", [(entry, [*right, turn])]))
    assert official(mini, [output]) == [f"multi_turn:{kind}"]


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
        ({"id": 3, "result": "x"}, '"id" is 3, not a text'),
        ({"id": entry.id}, '"result" is missing'),
        ({"id": "simple_python_999", "result": "x"}, "unknown id of en/simple_python"),
        (good, "with sample 0 was given before"),
        ([], "holds a list"),
    ]:
        refused(write(path, [good, row]), message, f"{path}:2")
    path.write_text(json.dumps(good) + "\n" + "[" * 100_000)
    refused(path, "nested too deeply", f"{path}:2")
    write(path, [])
    refused(path.parent, "holds no outputs", str(path.parent))


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    entry, *_ = entries("simple_python")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "holds no BFCL_v4_<category>_result.json")
    refused(tmp_path / "nowhere", "no such file or folder")
    write(tmp_path / "old" / "BFCL_v3_rest_result.json", [])
    refused(tmp_path / "old", "holds no category that is scored")
    write(tmp_path / "odd" / "BFCL_v4_simple_pyton_result.json", [])
    refused(tmp_path / "odd", "the nearest known one is 'simple_python'")
    write_results(tmp_path / "all" / "a", [(entry, "x")])
    write_results(tmp_path / "all" / "b", [(entry, "x")])
    refused(tmp_path / "all", "holds the results of 2 models: a, b")
    write_results(tmp_path / "all" / "a", [(entry, "x")], flat=True)
    refused(tmp_path / "all" / "a", "is a second file of simple_python")
    os.mkfifo(tmp_path / "BFCL_v4_multiple_result.json")
    refused(tmp_path / "BFCL_v4_multiple_result.json", "no such file or folder")


PER_CATEGORY, KINDS = 4, 6


@pytest.fixture(scope="module")
def upstreams_python() -> Path:
    python = os.environ.get("BFCL_PYTHON")
    if not python:
        pytest.skip("BFCL_PYTHON names no Python with upstream's tree-sitter (docs/parity.md)")
    return Path(python)


@pytest.mark.parametrize(
    ("model", "shape"),
    [("prompted", render), ("with-calls-FC", listed), ("with-tags-Qwen-FC", tags)],
)
def test_parity_with_upstreams_evaluator(
    model: str, shape: Shape, bfcl_copy: UpstreamPackage, upstreams_python: Path, tmp_path: Path
) -> None:
    """Compare results of all kinds for some real entries of each category."""
    benchmark = BFCL.from_options({"data": bfcl_copy.name})
    benchmark.ready(named=True)
    folders: dict[int, list[tuple[Entry, Any]]] = {}
    for category in groups.CATEGORIES:
        if category == groups.FORMAT_SENSITIVITY and model != "prompted":
            continue
        chosen = [entry for entry in load(bfcl_copy, [category]) if plays(entry)]
        for place, entry in enumerate(chosen[:PER_CATEGORY]):
            kinds = results_of(entry, shape)
            for number in range(KINDS):
                result = kinds[(number + place) % len(kinds)]
                folders.setdefault(number, []).append((entry, result))
    judged = valid = 0
    for number, answers in folders.items():
        write_results(tmp_path / str(number) / model, answers)
        theirs = _evaluated(upstreams_python, bfcl_copy.root.parent, tmp_path / str(number))[model]
        ours = {
            output.entry.id: benchmark.check(output.entry, output.episode)["official"]
            for output in outputs(tmp_path / str(number) / model, bfcl_copy)
        }
        assert {one: not kind for one, kind in theirs.items()} == {
            one: verdict.valid for one, verdict in ours.items()
        }
        if model != "with-tags-Qwen-FC":  # no call in a text is there an empty list of calls
            assert theirs == {one: verdict.error_type for one, verdict in ours.items()}
        judged += len(ours)
        valid += sum(verdict.valid for verdict in ours.values())
    assert judged == sum(map(len, folders.values())) > 200
    assert 0.15 * judged < valid < 0.6 * judged


def _evaluated(python: Path, parent: Path, folder: Path) -> Any:
    made = folder.parent / f"{folder.name}-evaluated"
    made.mkdir()
    done = subprocess.run(
        [str(python), str(CHILD), str(parent), str(folder)],
        capture_output=True,
        text=True,
        cwd=made,
        env={"PATH": os.environ["PATH"], "BFCL_PROJECT_ROOT": str(made), "PYTHONUTF8": "1"},
        timeout=1_800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
