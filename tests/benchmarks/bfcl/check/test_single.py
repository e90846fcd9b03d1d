"""Verdicts on one answer, under both rule sets."""

import json

import pytest

from ace_ray.benchmarks.bfcl.categories import Form
from ace_ray.benchmarks.bfcl.check.single import attempts_call, check_single
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.types import ToolCall


def function(name, required=(), /, **types):
    properties = {}
    for param, kind in types.items():
        kind, _, items = kind.partition(" of ")
        properties[param] = {"type": kind} | ({"items": {"type": items}} if items else {})
    parameters = {"type": "dict", "properties": properties, "required": list(required)}
    return {"name": name, "description": "", "parameters": parameters}


CITY = function("a.f", ["city"], city="string", days="integer", unit="string")
GOLD = [{"a.f": {"city": ["New York, NY", "NYC"], "days": [5, ""], "unit": ["C"]}}]
FAILED = "ast_decoder:decoder_failed"
NAME, MISSING, UNEXPECTED = (
    f"simple_function_checker:{fault}"
    for fault in ("wrong_func_name", "missing_required", "unexpected_param")
)


def kinds(answer, functions=(CITY,), gold=GOLD, category="simple_python", **more):
    if isinstance(answer, str):
        answer = Answer(answer)
    verdicts = check_single(category, functions, gold, answer, **more)
    for verdict in verdicts.values():
        assert verdict.valid is not bool(verdict.error_type)
        assert len(verdict.error) < 600
    return verdicts["official"].error_type, verdicts["strict"].error_type


def native(*calls):
    return Answer("", tuple(ToolCall(*call) for call in calls))


NO_MATCH = "parallel_function_checker_no_order:cannot_find_match"


@pytest.mark.parametrize(
    ("category", "gold", "text", "official", "strict"),
    [
        ("multiple", [[1]], "[a.f(city='x')]", NAME, NAME),
        ("parallel", [[1], [2]], "[g(x=2), g(x=1)]", "", ""),
        ("parallel", [[1], [2]], "[g(x=2), g(x=2)]", NO_MATCH, NO_MATCH),
        # Upstream is greedy; strict finds the best assignment.
        ("parallel", [[1, 2], [1]], "[g(x=1), g(x=2)]", NO_MATCH, ""),
    ],
    ids=["other function", "other order", "call twice", "greedy assignment"],
)
def test_calls_of_several_functions_or_in_parallel(category, gold, text, official, strict):
    functions = [CITY, function("g", ["x"], x="integer")]
    expected = [{"g": {"x": options}} for options in gold]
    assert kinds(text, functions, expected, category) == (official, strict)


@pytest.mark.parametrize(
    ("text", "official", "strict"),
    [
        pytest.param("[a.f('NYC', 5, 'C')]", MISSING, "", id="no names"),
        pytest.param("[a.f('NYC', city='NYC', unit='C')]", "", UNEXPECTED, id="place and name"),
        pytest.param("[a.f(city='B', city='NYC', unit='C')]", "", UNEXPECTED, id="name twice"),
        pytest.param("[a.f(1, 2, 3, 4, city='NYC', unit='C')]", "", UNEXPECTED, id="too many"),
        pytest.param("[a.f(x.y, city='NYC', unit='C')]", "", FAILED, id="dotted name"),
        pytest.param("[a.f(9**9**9, city='NYC', unit='C')]", "", "official_unsafe", id="power"),
    ],
)
def test_strict_binds_positional_arguments(text, official, strict):
    assert kinds(text) == (official, strict)


def test_strict_reads_arguments_named_by_keywords():
    types = {"from": "string", "to": "string", "class": "string", "in": "dict"}
    functions = [function("book", ["from"], **types)]
    optional = {"class": ["", "eco"], "in": ["", {"is": [1]}]}
    gold = [{"book": {"from": ["Seattle"], "to": ["Boston, from=x"], **optional}}]
    for text, strict in (
        ("[book(from='Seattle', to='Boston, from=x')]", ""),
        ('book(from = "seattle",\n to="Boston, from=x", class="eco")', ""),
        ("[book(from='Seattle', # from=x\n to=\"Boston\")]", "value_error:string"),
        ("[book(from='Seattle', to='''Boston, from=x''', in={'is': 1})]", ""),
        ("[book(from='Seattle', lambda=1)]", UNEXPECTED),
        ("[book(from=9**9**9, to='x')]", "official_unsafe"),
        ("[book(from='Seattle', to=lambda in=1: 2)]", FAILED),
        ("[book(fromꔀ='Seattle', from=1)]", FAILED),
    ):
        error_types = kinds(text, functions, gold)
        assert error_types == (FAILED, strict), text
        tagged = f"<TOOLCALL>{text}</TOOLCALL>"
        assert kinds(tagged, functions, gold, form=Form(tagged=True)) == error_types, text
        # Other forms, Java, and native calls have no such words.
        assert kinds(text, functions, gold, form=Form("concise_xml")) == (FAILED,) * 2, text
        assert kinds(Answer(text, ()), functions, gold) == (FAILED,) * 2, text


LISTED = 'new ArrayList<>(Arrays.asList("a", "b"))'


@pytest.mark.parametrize(
    ("answer", "official", "strict"),
    [
        pytest.param(f'[f(n=5L, l={LISTED}, s="X")]', "", "", id="key"),
        pytest.param(f"[f(n=5, l={LISTED})]", *["type_error:simple"] * 2, id="int for long"),
        pytest.param(f"[f(n={'9' * 5000}L, l={LISTED})]", *["official_crash"] * 2, id="digits"),
        pytest.param(native(("f", '{"n": 5, "l": "x"}')), *["type_error:java"] * 2, id="native"),
        pytest.param(f"[f(5L, {LISTED})]", MISSING, "", id="no names"),
        # Behind a named argument a value stands for the parameter in its place.
        pytest.param(f"[f(n=5L, {LISTED})]", MISSING, "", id="second without a name"),
        pytest.param(f"[f(l={LISTED}, 5L)]", MISSING, UNEXPECTED, id="first without a name"),
        pytest.param(f'[f(n=5L, l={LISTED}, "y")]', "", "value_error:string", id="wrong last"),
    ],
)
def test_java_values_are_converted_and_bound(answer, official, strict):
    document = function("f", ["n", "l"], n="long", l="ArrayList of String", s="String")
    gold = [{"f": {"n": [5], "l": [["a", "b"]], "s": ["x", ""]}}]
    assert kinds(answer, [document], gold, "simple_java") == (official, strict)


CALLED, NO_ANSWER, UNREADABLE = (
    f"irrelevance_error:{fault}" for fault in ("decoder_success", "no_answer", "unreadable_call")
)
NO_CALL = "relevance_error:decoder_failed"


@pytest.mark.parametrize(
    ("answer", "irrelevance", "strict", "relevance"),
    [
        pytest.param(Answer(None, ()), "", "", NO_CALL, id="no content"),
        pytest.param("[f(a=1)]", CALLED, CALLED, "", id="call"),
        pytest.param(" \n", "", "", NO_CALL, id="blank"),
        pytest.param("Error during inference: long", "", NO_ANSWER, NO_CALL, id="inference error"),
        pytest.param("[f(a=len('x') + 1)]", *["official_unsafe"] * 3, id="code"),
        pytest.param(native(), "", NO_ANSWER, NO_CALL, id="no native call"),
        pytest.param(native(("f", "{}")), CALLED, CALLED, "", id="native call"),
    ],
)
def test_relevance_is_judged_by_whether_there_is_a_call(answer, irrelevance, strict, relevance):
    for category in ("irrelevance", "live_irrelevance"):
        assert kinds(answer, (), None, category) == (irrelevance, strict)
    assert kinds(answer, (), None, "live_relevance") == (relevance, relevance)


def test_attempted_call_is_no_refusal_under_strict():
    for answer, strict in (
        ("[f(a=1, b=]", UNREADABLE),
        (Answer("f(a=1)", ()), UNREADABLE),
        (native(("f", "[]")), UNREADABLE),
        (Answer("words", (ToolCall("f", "{}"),), unreadable=True), UNREADABLE),
        ("[book(from='Seattle', to='x')]", CALLED),
        ("[book(from='Seattle', to=len('x') + 1)]", "official_unsafe"),
    ):
        for category in ("irrelevance", "live_irrelevance"):
            assert kinds(answer, (), None, category) == ("", strict), answer
        assert kinds(answer, (), None, "live_relevance")[0] == NO_CALL, answer


CALL = {"name": "get_weather", "arguments": {"city": "Paris"}}
DOCUMENT = {"name": "get_weather", "parameters": {"type": "dict", "properties": {}}}


def test_markup_and_json_of_calls_are_attempts_anywhere():
    for text in (
        '<tool_call>\n<tool_call name="f" arguments={"a": 1}/>\n</tool_call>',
        "[TOOL_CALLS]get_weather{",
        "<|tool_call_start|>\n```python\nget_weather(city='Paris')\n```\n<|tool_call_end|>",
        "<|channel|>commentary to=functions.get_weather <|message|>{",
        json.dumps(json.dumps({"tool_calls": [CALL]}))[:-6],
        '<|im_start|>\n{"arguments": {"city": "Paris"}, "name": "get_weather"}',
    ):
        assert attempts_call(text), text
        assert attempts_call(f"I will look it up.\n{text}"), text


def test_calls_at_the_beginning_are_attempts():
    for text, attempted in (
        ("get_weather(city='Par", True),
        ("[{'get_weather': {'city': 'Paris'}}]", True),
        ('get_weather\n{"city": "Paris"}', True),
        ("```python\n[get\\_weather(city='Paris')]\n```\nThis asks for the weather.", True),
        ("Here is the call:\n\n[get_weather(city='Paris')]", True),
        ("get_weather(city='Paris')\n\nThis asks for the weather.", True),
        ("get_weather(city='Paris') would give the weather, not the time.", False),
    ):
        assert attempts_call(text) == attempted, text


def test_words_that_mention_calls_are_a_refusal():
    for text in (
        "No function fits. If there were one, a call could be\n`get_time(city='Paris')`",
        "I would put it between <tool_call> tags, but there is nothing to call.",
        f"What I was offered is {json.dumps(DOCUMENT)}, which does not help.",
        "```python\ndef area(a, b):\n    return a * b\n```",
        "out_of_domain(user_query='Who wrote it?');",
    ):
        assert kinds(Answer(text, ()), (), None, "irrelevance") == ("", ""), text
