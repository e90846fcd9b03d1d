"""Both rule sets on small entries of our own: verdicts of the official rules, then the strict."""

import itertools
import random
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import check
from ace_ray.benchmarks.acebench.check.strict import assign
from ace_ray.types import Entry

INTEGERS = {"type": "object", "properties": {"n": {"type": "integer"}}}
TYPES = {"city": "string", "days": "integer", "price": "number", "ratio": "float"}
TYPES |= {"open": "boolean", "options": "object", "odd": "uuid", "rows": "objectArray"}
PROPERTIES: dict[str, Any] = {
    **{name: {"type": kind} for name, kind in TYPES.items()},
    "box": INTEGERS,
    "stops": {"type": "array", "items": INTEGERS},
    "tags": {"type": "array", "items": {"type": "string"}},
    "pair": {"type": "tuple", "items": {"type": "string"}},
    "counts": {"type": "array", "items": {"type": "integer"}},
}
OK, FORMAT, CRASH, UNSAFE = "", "wrong_output_format", "official_crash", "official_unsafe"
VALUE = "value_error"
NOT_A_LIST = "output_format"
ROME = {"plan": {"city": "Rome"}}


def function(name: str, *required: str) -> dict[str, Any]:
    return {"name": name, "parameters": {"properties": PROPERTIES, "required": list(required)}}


def verdicts(
    output: str | None, gold: Any, *functions: Any, category: str = "normal_atom_bool"
) -> tuple[str, str]:
    """Return the error types of the official and the strict rules, "" if valid."""
    question = "user: 1, 2 or 3 days, with breakfast?"
    data = {"question": question, "function": list(functions) or [function("plan")]}
    rule_verdicts = check(Entry("acebench", category, "zh", "x", data, gold), output)
    assert all(verdict.valid == (verdict.error_type == "") for verdict in rule_verdicts.values())
    return rule_verdicts["official"].error_type, rule_verdicts["strict"].error_type


def test_outputs_are_decoded() -> None:
    outputs = {
        '\n [ plan(\n  city = "Rome",\n) ] \n': (OK, OK),
        "Sure: [plan(1, city='Oslo', city='Rome')] or [plan()]": (OK, NOT_A_LIST),
        "# [1]\n[plan(city='Rome')]": (FORMAT, NOT_A_LIST),
        "[plan(city='[Oslo')]": (FORMAT, "param_value"),
        "[plan('Rome')]": ("wrong_param", NOT_A_LIST),
        None: (FORMAT, NOT_A_LIST),
        "[Plan(city='Rome')]": ("function_mismatch", "function_name"),
        "[plan(city='Rome', days=1)]": ("addition_args", "param_num"),
    }
    without_whitespace = {
        "[ plan ( city = 'Ro\tme' ) ]\n": OK,
        "Sure: [plan(city='Rome')]": FORMAT,
        "[plan(options={'a': ['x y']})]": "addition_args",
    }
    operations = {
        "1 + 2": OK,
        "1 + [1, 2][0]": UNSAFE,
        "1 / 0, city=x + 1": FORMAT,
        "q2 - 1": FORMAT,
        "max(1, 2) + days": UNSAFE,
    }
    for output, expected in outputs.items():
        assert verdicts(output, ROME) == expected, output
    for output, error_type in without_whitespace.items():
        gold, category = {"plan": {"city": "Ro me"}}, "normal_multi_turn_user_switch"
        assert verdicts(output, gold, category=category)[0] == error_type, output
    for value, error_type in operations.items():
        plan = {"plan": {"days": 3, "city": "Rome"}}
        assert verdicts(f"[plan(days={value})]", plan) == (error_type, NOT_A_LIST), value


HEX = f"0x{'f' * 4000}"
NESTED = {"a": 5, "b": {"c": True}}


@pytest.mark.parametrize(
    ("param", "gold", "value", "official", "strict"),
    [
        pytest.param("city", "New York", "'new-york'", OK, OK, id="text in another spelling"),
        pytest.param("city", "York", "'in york, uk'", OK, "param_value", id="longer text"),
        pytest.param("days", 5, "5.0", OK, OK, id="float for an integer"),
        pytest.param("ratio", 2.5, HEX, CRASH, "param_value", id="long hexadecimal"),
        pytest.param("open", True, "'false'", OK, "param_type", id="text for a boolean"),
        pytest.param("open", True, "true", OK, OK, id="boolean of JSON"),
        pytest.param("open", True, "TRUE", "type_error", NOT_A_LIST, id="boolean in capitals"),
        pytest.param("city", "true", "true", "type_error", "param_type", id="boolean for a text"),
        pytest.param(
            "options", {"a": None, "b": [False]}, "{'a': null, 'b': [false]}", VALUE, OK, id="null"
        ),
        pytest.param("tags", ["Ab", "c d"], "['ab', 'cd']", OK, OK, id="texts"),
        pytest.param("pair", ["Ab"], "('Ab',)", OK, "param_type", id="tuple"),
        pytest.param(
            "counts", [1, 2], "[1.5, 2]", "value_error:list/tuple", "param_type", id="floats"
        ),
        pytest.param("rows", [{"a": 1}], "[{'a': 1}]", CRASH, OK, id="objects"),
        pytest.param("box", {"lat": 1.0, "n": 2}, "{'n': 2.0, 'lat': 1}", VALUE, OK, id="object"),
        pytest.param(
            "options", NESTED, "{'b': {'c': 'true'}, 'a': '15 kg'}", OK, "param_type", id="nested"
        ),
    ],
)
def test_types_and_values(param: str, gold: Any, value: str, official: str, strict: str) -> None:
    error_types = verdicts(f"[plan({param}={value})]", {"plan": {param: gold}})
    assert error_types == (official, strict)


def test_properties_may_be_called_arguments() -> None:
    older = {"name": "plan", "arguments": {"properties": PROPERTIES}}
    assert verdicts("[plan(days=5.5)]", {"plan": {"days": 5}}, older)[1] == "param_type"


def test_parallel_calls_need_a_call_each_in_any_order() -> None:
    def strict(output: str, gold: Any) -> str:
        return verdicts(output, gold, function("plan"), function("trip"))[1]

    gold: dict[str, Any] = {"plan_1": {"days": 1}, "plan_2": {"days": 2}, "trip": {"days": 3}}
    assert strict("[trip(days=3), plan(days=2), plan(days=1)]", gold) == OK
    assert strict("[trip(days=3), plan(days=1), plan(days=1)]", gold) == "param_value"
    assert strict("[trip(days=3), plan(days=1), plan()]", gold) == "param_num"
    assert strict("[trip(days=3), trip(days=2), plan(days=1)]", gold) == "function_name"
    # The closest assignment names the error.
    gold = {"plan_1": {"days": 1}, "plan_2": {"days": 2, "city": "Rome"}}
    assert strict("[plan(days=9), plan(days=2, city='Oslo')]", gold) == "param_value"
    source = random.Random(5)
    for size in [1, 2, 3, 4, 5] * 40:
        costs = [[source.randrange(6) for _ in range(size)] for _ in range(size)]
        columns = assign(costs)
        assert sorted(columns) == list(range(size))
        orders = itertools.permutations(range(size))
        best = min(sum(costs[row][column] for row, column in enumerate(o)) for o in orders)
        assert sum(costs[row][column] for row, column in enumerate(columns)) == best


BOOK = "Missing necessary parameters (day, room) for the api (book)"
REFUSAL = "Due to the limitations of the function, I cannot solve this problem."
MISSED, MORE, FALSE = "detection_failed", "correction_failed", "false_positive"
NAMES, NOTHING = "error_correction", "error_detection"


def missing(params: str, name: str) -> str:
    return f"Missing necessary parameters ({params}) for the API ({name})"


def wrong(value: str, param: str) -> str:
    location = "in the conversation history."
    return f"There is incorrect value ({value}) for the parameters ({param}) {location}"


MISSING, WRONG = "special_incomplete", "special_error_param"
IRRELEVANT = "special_irrelevant"
ONE, SORT = {"book": ["day", "room"]}, {"Get_Cities": ["sort"]}
BOTH = {"day": ["x1"], "room": ["q7"]}


@pytest.mark.parametrize(
    ("category", "gold", "output", "official", "strict"),
    [
        pytest.param(MISSING, ONE, f"Sorry. {BOOK}. Which day? (Any.)", OK, OK, id="text-around"),
        pytest.param(
            MISSING, ONE, "MISSING necessary parameters (day,room)", NOTHING, OK, id="case"
        ),
        pytest.param(MISSING, ONE, BOOK.replace("g n", "g\n  n"), NOTHING, OK, id="line-break"),
        pytest.param(MISSING, ONE, BOOK.replace("day", "trip.day.from"), OK, OK, id="path"),
        pytest.param(MISSING, SORT, missing("sort", "F"), NAMES, OK, id="document"),
        pytest.param(MISSING, SORT, missing("sort by", "Get_Cities"), OK, MORE, id="figure-35"),
        pytest.param(MISSING, ONE, BOOK.replace("day", "day, trip.x"), OK, MORE, id="another-path"),
        pytest.param(MISSING, ONE, BOOK.replace("day, ", ""), NAMES, MORE, id="too-few"),
        pytest.param(MISSING, ONE, BOOK.replace("(", ": "), OK, MORE, id="no-list"),
        pytest.param(MISSING, ONE, "Which day, and which room?", NOTHING, MISSED, id="no-phrase"),
        pytest.param(MISSING, ONE, f"{BOOK} book()", OK, MISSED, id="call"),
        pytest.param(MISSING, ONE, f"{BOOK} {{'book': {{'day': 1}}}}", OK, MISSED, id="figure-34"),
        pytest.param(MISSING, ONE, None, CRASH, MISSED, id="no-output"),
        pytest.param(
            WRONG,
            {"t": ["f$1"]},
            "There is incorrect value (f$1) for the (t).",
            OK,
            OK,
            id="figure-12",
        ),
        pytest.param(WRONG, {"at": ["4.A,-1 (b)"]}, wrong("4.A,-1 (b)", "at"), OK, OK, id="comma"),
        pytest.param(WRONG, {"size": ["-250"]}, wrong("-250 square ft", "size"), OK, OK, id="unit"),
        pytest.param(WRONG, {"t": ["-5"]}, wrong("-5 °C", "t"), OK, OK, id="sign-of-unit"),
        pytest.param(WRONG, {"t": ["5"]}, "incorrect value (5) for (t)", NOTHING, OK, id="words"),
        pytest.param(WRONG, {"size": ["250"]}, wrong("2500 feet", "size"), OK, MORE, id="number"),
        pytest.param(WRONG, BOTH, wrong("q7", "room") + wrong("'x1'", "`day`"), OK, OK, id="two"),
        pytest.param(WRONG, BOTH, wrong("x1, q7", "day"), OK, MORE, id="one-parameter"),
        pytest.param(WRONG, BOTH, wrong("x1, q7, z", "day, room"), OK, MORE, id="third-value"),
        pytest.param(IRRELEVANT, REFUSAL, f'Sorry: ["{REFUSAL}"]', OK, OK, id="refusal"),
        pytest.param(IRRELEVANT, REFUSAL, "I cannot solve this problem.", NOTHING, OK, id="short"),
        pytest.param(IRRELEVANT, REFUSAL, f"{REFUSAL} [book(day=1)]", OK, FALSE, id="and-call"),
    ],
)
def test_special_rows_have_the_phrase_exactly_the_parts_and_no_call(
    category: str, gold: Any, output: str | None, official: str, strict: str
) -> None:
    functions = {"name": "book"}, {"name": "pay"}
    assert verdicts(output, gold, *functions, category=category) == (official, strict)


TOUR = (
    "user: Book a tour of the old port in Bergen for 2 people, with a guide. Should I add "
    "insurance? Use my contact, and the seat I'll give you. No lunch, at most 1,500 m, 3 million."
    "\nsystem: Lunch at 9?"
)


@pytest.mark.parametrize(
    ("gold", "call", "strict"),
    [
        pytest.param({"city": "Bergen", "days": 9}, "city='Bergen'", OK, id="nobody asked"),
        pytest.param({"city": "Bergen", "days": 2}, "city='Bergen'", "param_num", id="asked"),
        pytest.param({"city": "Bergen", "open": True}, "city='Bergen'", OK, id="other flag"),
        pytest.param({"city": "Bergen", "guide": True}, "city='Bergen'", "param_num", id="flag"),
        pytest.param({"insurance": True}, "city='Bergen'", OK, id="a question"),
        pytest.param({"contact": "yara#7"}, "city='Bergen'", OK, id="part of the profile"),
        pytest.param({"contact": "yara#77"}, "city='Bergen'", "param_num", id="profile"),
        pytest.param({"seat": "window"}, "city='Bergen'", OK, id="a value to come"),
        pytest.param({"open": False}, "open=True", OK, id="option that nobody declined"),
        pytest.param({"lunch": False}, "lunch=True", "param_value", id="declined"),
        pytest.param({"guide": True}, "guide=False", "param_value", id="asked option"),
        pytest.param({"days": 1500}, "days=40", "param_value", id="number with a comma"),
        pytest.param({"days": 30}, "days=40", OK, id="number"),
        pytest.param({"days": 3_000_000}, "days=40", "param_value", id="millions"),
        pytest.param({"city": "Bergen"}, "city='Bergen, Norway'", OK, id="country"),
        pytest.param({"tags": ["old port"]}, "tags=['the old port']", OK, id="more words"),
        pytest.param({"tags": [""]}, "tags=['port']", "param_value", id="no words"),
        pytest.param({"tags": ["port"]}, "tags=['new port']", "param_value", id="other words"),
        pytest.param({"size": "L"}, "size='l'", "param_value", id="enumeration"),
        pytest.param({"day": "2024-01-02T09:00"}, "day='2024-01-02T09:00Z'", OK, id="time zone"),
        pytest.param({"day": "2024-01-02"}, "day='2024-01-02T23:59:59Z'", OK, id="end of a day"),
        pytest.param({"day": "9:00-17:00"}, "day='9:00'", "param_value", id="part of a time"),
        pytest.param({"code": "1.5"}, "code='15'", "param_value", id="point in a number"),
        pytest.param({"stops": {"n": 2}}, "stops=[{'n': 2}]", OK, id="gold against the schema"),
    ],
)
def test_strict_accepts_other_wordings_of_what_the_user_said(
    gold: Any, call: str, strict: str
) -> None:
    properties = {**PROPERTIES, "guide": {"type": "boolean"}, "size": {"enum": ["S", "L"]}}
    tool = {"name": "plan", "parameters": {"properties": properties, "required": ["city"]}}
    data = {"question": TOUR, "function": [tool], "profile": "contact: yara#77; seat: window"}
    gold, call = {"city": "Bergen", **gold}, call if "city" in call else f"city='Bergen', {call}"
    entry = Entry("acebench", "normal_atom_bool", "en", "x", data, {"plan": gold})
    assert check(entry, f"[plan({call})]")["strict"].error_type == strict


@pytest.mark.parametrize(
    ("category", "gold", "output", "strict"),
    [
        pytest.param(MISSING, {"book": ["day"]}, missing("day, bed.kind", "book"), OK, id="needed"),
        pytest.param(MISSING, {"book": ["day"]}, missing("day, meal", "book"), MORE, id="option"),
        pytest.param(MISSING, {"book": ["day"]}, missing("day, food", "book"), OK, id="spoken of"),
        pytest.param(WRONG, {"day": ["x1"]}, wrong("x1, ten", "day, beds"), OK, id="refused"),
        pytest.param(WRONG, {"day": ["x1"]}, wrong("x1, 2", "day, beds"), MORE, id="right value"),
        pytest.param(WRONG, {"day": ["x1"]}, wrong("x1, q", "day, kind"), OK, id="enumeration"),
    ],
)
def test_special_rows_may_name_further_faults(
    category: str, gold: Any, output: str, strict: str
) -> None:
    kind = {"type": "string", "enum": ["king", "twin"]}
    bed = {"type": "object", "properties": {"kind": kind}, "required": ["kind"]}
    properties = {"day": {}, "beds": {"type": "integer"}, "kind": kind, "bed": bed, "meal": {}}
    properties["food"] = {"type": "object", "properties": {"breakfastKind": kind}}
    tool = {"name": "book", "parameters": {"properties": properties, "required": ["day", "bed"]}}
    assert verdicts(output, gold, tool, category=category)[1] == strict
