"""Verdicts on one answer, under both rule sets."""

import json

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


PARALLEL = "parallel_function_checker_no_order"


def test_calls_of_several_functions_or_in_parallel():
    functions = [CITY, function("g", ["x"], x="integer")]
    for category, gold, text, official, strict in (
        ("multiple", [[1]], "[a.f(city='x')]", NAME, NAME),
        ("parallel", [[1], [2]], "[g(x=2), g(x=1)]", "", ""),
        ("parallel", [[1], [2]], "[g(x=2), g(x=2)]", *[f"{PARALLEL}:cannot_find_match"] * 2),
        # Upstream is greedy; strict finds the best assignment.
        ("parallel", [[1, 2], [1]], "[g(x=1), g(x=2)]", f"{PARALLEL}:cannot_find_match", ""),
    ):
        expected = [{"g": {"x": options}} for options in gold]
        assert kinds(text, functions, expected, category) == (official, strict), text


def test_strict_binds_positional_arguments():
    for text, official, strict in (
        ("[a.f('NYC', 5, 'C')]", MISSING, ""),
        ("[a.f('NYC', city='NYC', unit='C')]", "", UNEXPECTED),
        ("[a.f(city='B', city='NYC', unit='C')]", "", UNEXPECTED),
        ("[a.f(1, 2, 3, 4, city='NYC', unit='C')]", "", UNEXPECTED),
        ("[a.f(x.y, city='NYC', unit='C')]", "", FAILED),
        ("[a.f(9**9**9, city='NYC', unit='C')]", "", "official_unsafe"),
    ):
        assert kinds(text) == (official, strict), text


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


def test_java_values_are_converted_and_bound():
    document = function("f", ["n", "l"], n="long", l="ArrayList of String", s="String")
    gold = [{"f": {"n": [5], "l": [["a", "b"]], "s": ["x", ""]}}]
    for answer, official, strict in (
        (f'[f(n=5L, l={LISTED}, s="X")]', "", ""),
        (f"[f(n=5, l={LISTED})]", "type_error:simple", "type_error:simple"),
        (f"[f(n={'9' * 5000}L, l={LISTED})]", "official_crash", "official_crash"),
        (native(("f", '{"n": 5, "l": "x"}')), "type_error:java", "type_error:java"),
        (f"[f(5L, {LISTED})]", MISSING, ""),
        # Behind a named argument a value stands for the parameter in its place.
        (f"[f(n=5L, {LISTED})]", MISSING, ""),
        (f"[f(l={LISTED}, 5L)]", MISSING, UNEXPECTED),
        (f'[f(n=5L, l={LISTED}, "y")]', "", "value_error:string"),
    ):
        assert kinds(answer, [document], gold, "simple_java") == (official, strict), answer


CALLED, NO_ANSWER, UNREADABLE = (
    f"irrelevance_error:{fault}" for fault in ("decoder_success", "no_answer", "unreadable_call")
)
NO_CALL = "relevance_error:decoder_failed"


def test_relevance_is_judged_by_whether_there_is_a_call():
    for answer, irrelevance, strict, relevance in (
        (Answer(None, ()), "", "", NO_CALL),
        ("[f(a=1)]", CALLED, CALLED, ""),
        (" \n", "", NO_ANSWER, NO_CALL),
        ("Error during inference: too long", "", NO_ANSWER, NO_CALL),
        ("[f(a=len('x') + 1)]", "official_unsafe", "official_unsafe", "official_unsafe"),
        (native(), "", NO_ANSWER, NO_CALL),
        (native(("f", "{}")), CALLED, CALLED, ""),
    ):
        for category in ("irrelevance", "live_irrelevance"):
            assert kinds(answer, (), None, category) == (irrelevance, strict), answer
        assert kinds(answer, (), None, "live_relevance") == (relevance, relevance), answer


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
