"""The user's own cases: the file, the rules, the prompts and the numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.calls.rules import difference, judge, read_native, read_text
from ace_ray.benchmarks.diagnosis import second_reader
from ace_ray.benchmarks.gold_check import check_gold
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.errors import UserError
from ace_ray.types import Episode, Verdict
from tests.benchmarks.scored_row import scored_row

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "calls.jsonl"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "t": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
OTHER_TOOL = {"type": "function", "function": {"name": "g"}}
CASE: dict[str, Any] = {
    "id": "a",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [TOOL, OTHER_TOOL],
    "expected": [{"name": "f", "arguments": {"n": 1}}],
}


@pytest.fixture
def benchmark(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that makes the benchmark of `CASE` with changes."""

    def make(mode: str = "prompt", system: str = "system", **changes: Any) -> Any:
        path = tmp_path / "cases.jsonl"
        path.write_text(json.dumps({**CASE, **changes}) + "\n")
        return make_benchmark("calls", {"data": str(path), "mode": mode, "system": system})

    return make


def call_of(name: str, arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def text_of(*calls: tuple[str, Any]) -> str:
    return json.dumps([call_of(*call) for call in calls])


@pytest.mark.parametrize(
    ("expected", "value", "fits"),
    [
        (1, 1.0, True),
        (1, True, False),
        (1, "1", False),
        ("Paris", "paris", False),
        ([1, 2], [2, 1], False),
        ({"a": 1, "b": None}, {"b": None, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": {"$one_of": ["x", 2]}}, {"a": 2.0}, True),
        ({"a": {"$one_of": ["x", 2]}}, {}, False),
        ({"a": {"$optional": ["x"]}}, {}, True),
        ({"a": {"$optional": ["x"]}}, {"a": "y"}, False),
        ({"a": [{"b": {"$one_of": [1, 2]}}]}, {"a": [{"b": 2}]}, True),
        ({"a": {"$gt": 5}}, {"a": {"$gt": 5}}, True),
    ],
)
def test_values_are_equal_as_json(expected: Any, value: Any, fits: bool) -> None:
    assert (difference(expected, value) == "") is fits


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(text_of(("f", {"n": 1}), ("g", {})), ["f", "g"], id="list"),
        pytest.param('{"name": "f", "arguments": {}}', ["f"], id="object"),
        pytest.param(f"```json\n{text_of(('f', {}))}\n```", ["f"], id="fence"),
        pytest.param(f"Here it is: {text_of(('f', {}))}", [], id="words"),
        pytest.param('[{"name": "f", "parameters": {}}]', [], id="alias"),
        pytest.param('[{"name": "f", "arguments": "{}"}]', [], id="text"),
        pytest.param('[{"name": "f", "arguments": {"n": NaN}}]', [], id="nan"),
        pytest.param('[{"name": "f", "arguments": {"n": 1e999}}]', [], id="infinity"),
        pytest.param("[" * 100_000, [], id="deep"),
        pytest.param("9" * 100_000, [], id="digits"),
        pytest.param("[]", [], id="no call"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_only_the_asked_format_is_read(text: str, names: list[str]) -> None:
    assert [call["name"] for call in read_text(text)] == names


TRIGGERED = {"trigger_precision": 1, "trigger_recall": 1, "trigger_f1": 1}
EXPECTED = [
    {"name": "f", "arguments": {"n": {"$one_of": [1, 2]}}},
    {"name": "f", "arguments": {"n": 1}},
]


@pytest.mark.parametrize(
    ("calls", "ordered", "error_type"),
    [
        ([("f", {"n": 1}), ("f", {"n": 2})], False, ""),
        ([("f", {"n": 2}), ("f", {"n": 1})], True, ""),
        ([("f", {"n": 1}), ("f", {"n": 2})], True, "wrong_arguments"),
        ([("f", {"n": 2}), ("f", {"n": 2})], False, "wrong_arguments"),
        ([("f", {"n": 1})], False, "wrong_name"),
        ([("f", {"n": 1}), ("g", {})], False, "wrong_name"),
        ([], False, "no_call"),
    ],
    ids=["another order", "listed", "not listed", "twice", "one is missing", "name", "none"],
)
def test_each_expected_call_needs_a_call(calls: Any, ordered: bool, error_type: str) -> None:
    verdict = judge(EXPECTED, [call_of(*call) for call in calls], {"f": SCHEMA}, ordered)
    assert (verdict.valid, verdict.error_type) == (not error_type, error_type)


def test_an_error_names_the_first_difference() -> None:
    verdict = judge(EXPECTED[1:], [call_of("f", {"n": 3})], {"f": SCHEMA}, False)
    assert verdict.error == "f: arguments.n is 3, not 1"


@pytest.mark.parametrize(
    ("expected", "calls", "metrics"),
    [
        ([], [], {"no_call": 1}),
        (
            [],
            [call_of("f", {})],
            {"no_call": 0, "schema_valid": 1, "trigger_precision": 0, "trigger_f1": 0},
        ),
        (EXPECTED[1:], [], {"right_name": 0, "trigger_recall": 0, "trigger_f1": 0}),
        (
            EXPECTED[1:],
            [call_of("f", {"n": "x"})],
            {**TRIGGERED, "schema_valid": 0, "right_name": 1, "right_arguments": 0},
        ),
        (
            EXPECTED[1:],
            [call_of("unknown", {})],
            {**TRIGGERED, "schema_valid": 0, "right_name": 0},
        ),
    ],
    ids=["quiet", "undue", "no call", "schema", "unknown tool"],
)
def test_a_row_has_the_parts_of_the_numbers(expected: Any, calls: Any, metrics: Any) -> None:
    assert judge(expected, calls, {"f": SCHEMA}, False).metrics == metrics


def test_hostile_arguments_do_not_fit_and_do_not_raise() -> None:
    nested: Any = {"type": "object", "additionalProperties": {"$ref": "#"}}
    deep = '{"a":' * 190 + "{}" + "}" * 190
    digits = '{"n": 1' + "0" * 4_000 + "}"
    for text in (deep, digits, "{", "[]", "\ud800"):
        calls = read_native([{"function": {"name": "f", "arguments": text}}])
        multiple = {"properties": {"n": {"multipleOf": 0.1}}}
        for schema in (nested, multiple):
            assert judge(EXPECTED[1:], calls, {"f": schema}, False).valid is False


def test_native_calls_are_read_from_the_last_message(benchmark: Any) -> None:
    native = benchmark(mode="native")
    (entry,) = native.dataset()
    assert native.opening(entry) == (CASE["messages"], CASE["tools"])

    def verdict(message: dict[str, Any]) -> Verdict:
        episode = Episode(messages=[*CASE["messages"], {"role": "assistant", **message}])
        return native.verdicts(entry, episode)["exact"]

    call = {"function": {"name": "f", "arguments": '{"n": 1}'}}
    assert verdict({"content": "", "tool_calls": [call]}).valid
    broken = {"function": {"name": "f", "arguments": '{"n": 1'}}
    assert verdict({"content": "", "tool_calls": [broken]}).error_type == "wrong_arguments"
    assert verdict({"content": text_of(("f", {"n": 1}))}).error_type == "no_call", "text"


def test_a_prompt_shows_functions_and_earlier_calls_as_text(benchmark: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"n": 1}'}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
    ]
    prompted = benchmark(messages=messages)
    (entry,) = prompted.dataset()
    (system, *_, answer, result), tools = prompted.opening(entry)
    assert tools is None
    assert json.dumps(TOOL["function"]) in system["content"]
    apis, turns = prompted.composition(entry)
    assert ([api.function for api in apis], turns) == (CASE["tools"], 1)
    assert system["content"].endswith("\n\nBe kind.")
    assert json.loads(answer["content"]) == [{"name": "f", "arguments": {"n": 1}}]
    assert result == {"role": "user", "content": "Result of a call: 42"}
    roles = [m["role"] for m in benchmark(system="user", messages=messages).opening(entry)[0]]
    assert roles == ["user", "assistant", "user"]


def test_gold_answers_are_right_and_wrong_copies_are_not(capsys: Any) -> None:
    assert check_gold(make_benchmark("calls", {"data": str(EXAMPLE)}))
    assert "8 gold answers and 8 wrong copies: 0 unexpected" in capsys.readouterr().out


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def made(arguments: str) -> dict[str, Any]:
    call = {"function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def expects(arguments: Any, name: str = "f") -> dict[str, Any]:
    return {"expected": [{"name": name, "arguments": arguments}]}


def tools(parameters: Any) -> dict[str, Any]:
    function = {"name": "f", "parameters": parameters}
    return {"tools": [{"type": "function", "function": function}], "expected": []}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"expcted": []}, "('expcted' was unexpected)"),
        ({"order": "strict"}, "order: 'strict' is not one of ['any', 'listed']"),
        ({"messages": [user("a"), {"role": "assistant", "content": "b"}]}, "messages.1.role: "),
        ({"messages": [{"role": "robot", "content": "b"}]}, "messages.0.role: 'robot' is not"),
        ({"messages": [{"role": "user", "content": [1]}]}, "messages.0.content: [1] is not of"),
        ({"messages": [made("{"), user("a")]}, "messages.0.tool_calls.0.function.arguments: "),
        ({"tools": [{"name": "f"}]}, "tools.0: 'type' is a required property"),
        ({"tools": [TOOL, TOOL]}, "tools: two have the same name"),
        (
            tools({"properties": {"n": {"type": "float"}}}),
            "tools.0.function.parameters: properties.n.type: 'float' is not valid",
        ),
        (expects({}, "ff"), "expected.0.name: 'ff' is not in tools; did you mean 'f'?"),
        (expects({"n": "two"}), "expected.0.arguments: n: 'two' is not of type 'integer'"),
        (expects({"n": {"$one_of": [1, "x"]}}), "expected.0.arguments: n: 'x' is not of type"),
        (expects({"n": {"$one_of": []}}), "expected.0.arguments: a list of accepted values is"),
        (
            {**tools({"properties": {"n": {"$ref": "#/$defs/x"}}}), **expects({"n": 1})},
            "tools.function.parameters of f: there is no '/$defs/x'",
        ),
        (
            {**tools({"properties": {"n": {"$ref": "https://x.test/s"}}}), **expects({"n": 1})},
            "tools.function.parameters of f: there is no 'https://x.test/s'",
        ),
    ],
)
def test_a_mistake_names_line_and_field(benchmark: Any, changes: Any, problem: str) -> None:
    with pytest.raises(UserError) as error:
        benchmark(**changes).dataset()
    assert "cases.jsonl:1: " in str(error.value)
    assert problem in str(error.value)


def test_unread_calls_are_diagnosed(benchmark: Any) -> None:
    prompted = benchmark()
    (entry,) = prompted.dataset()
    alias = '{"name": "f", "parameters": {"n": 1}}'
    assert second_reader(prompted, entry, Episode(output=alias)) == "llama3_json"
    assert second_reader(prompted, entry, Episode(output=text_of(("f", {"n": 2})))) is None


def test_numbers_are_shares_of_the_rows_they_concern(benchmark: Any) -> None:
    schemas = {"f": SCHEMA}
    due: list[Any] = EXPECTED[1:]
    none_due: list[Any] = []
    right, wrong = [call_of("f", {"n": 1})], [call_of("f", {"n": "x"})]
    cases = [(due, right), (due, wrong), (due, []), (none_due, right), (none_due, [])]
    verdicts = [judge(e, c, schemas, False) for e, c in cases]
    rows = [scored_row("c", str(n), {"exact": verdict}) for n, verdict in enumerate(verdicts)]
    summary = benchmark().summarize(rows, 0.0)
    assert {name: (cell["accuracy"], cell["n"]) for name, cell in summary["calls"].items()} == {
        "right_name": (2 / 3, 3),
        "right_arguments": (1 / 2, 2),
        "schema_valid": (2 / 3, 3),
        "trigger_precision": (2 / 3, 3),
        "trigger_recall": (2 / 3, 3),
        "trigger_f1": (pytest.approx(2 / 3), 4),
        "no_call": (1 / 2, 2),
    }
    low, high = summary["calls"]["trigger_f1"]["interval"]
    assert low < 2 / 3 < high
    scores = benchmark().scores(summary, "exact")
    assert [score.name for score in scores[:3]] == ["Accuracy", "Right name", "Right arguments"]
    assert benchmark().scores(benchmark().statistics([], 0.0), "exact")[1].estimate is None
