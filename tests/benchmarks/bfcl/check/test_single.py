import pytest

from ace_ray.benchmarks.bfcl.categories import Form
from ace_ray.benchmarks.bfcl.check.single import check_single
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


def kinds(answer, functions=(CITY,), gold=GOLD, category="simple_python", **more):
    if isinstance(answer, str):
        answer = Answer(answer)
    found = check_single(category, functions, gold, answer, **more)
    for verdict in found.values():
        assert verdict.valid is not bool(verdict.error_type)
        assert len(verdict.error) < 600
    return found["official"].error_type, found["strict"].error_type


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[a.f(city='new york ny', days=5, unit='C')]", ""),
        ("[a.f(unit='c', city='N-Y_C.')]", ""),
        ("[a.f(city='Boston', unit='C')]", "value_error:string"),
        ("[a.f(city='NYC', days=6, unit='C')]", "value_error:others"),
        ("[a.f(city='NYC', days=5.0, unit='C')]", "type_error:simple"),
        ("[a.f(city='NYC', days='5', unit='C')]", "type_error:simple"),
        ("[a.f(city='NYC')]", "simple_function_checker:missing_optional"),
        ("[a.f(unit='C')]", "simple_function_checker:missing_required"),
        ("[a.f(city='NYC', unit='C', x=1)]", "simple_function_checker:unexpected_param"),
        ("[a_f(city='NYC', unit='C')]", "simple_function_checker:wrong_func_name"),
        ("[a.f(city='NYC'), a.f()]", "simple_function_checker:wrong_count"),
        ("[]", "simple_function_checker:wrong_count"),
        ("New York", "ast_decoder:decoder_failed"),
        ("[a.f(city='x' + str(1))]", "official_unsafe"),
        ("[a.f(city=0x" + "f" * 4000 + ", unit='C')]", "official_crash"),
    ],
)
def test_one_call(text, kind):
    assert kinds(text) == (kind, kind)


@pytest.mark.parametrize(
    ("kind", "options", "value", "fault"),
    [
        ("float", [5.0], "5", ""),
        ("float", [5.0], "1" + "0" * 400, "official_crash"),
        ("boolean", [True], "True", ""),
        ("boolean", [True], "true", "type_error:simple"),
        ("boolean", [True], "1", "type_error:simple"),
        ("any", ["x"], "'X'", ""),
        ("any", [5], "5", ""),
        ("string", [None], "None", ""),
        ("tuple of integer", [[1, 2]], "(1, 2)", ""),
        ("array of integer", [[1, 2]], "(1, 2)", "type_error:simple"),
        ("array of integer", [[1, 2]], "[2, 1]", "value_error:list/tuple"),
        ("array of integer", [[1, 2], ""], "[]", ""),
        ("array of integer", [[1, 2]], "[1, 'x']", "type_error:nested"),
        ("array of float", [[1.0]], "[1]", "type_error:nested"),
        ("array of float", [[1.0], ""], "[1]", ""),
        ("array of string", [["A b"]], "['a-B']", ""),
        ("array", [[1]], "[1]", "official_crash"),
        ("object", [{}], "{}", "official_crash"),
        ("dict", [{"k": ["v"], "o": [1, ""]}], "{'k': 'V'}", ""),
        ("dict", [{"k": ["v"]}], "{'k': 'w'}", "value_error:dict_value"),
        ("dict", [{"k": ["v"]}], "{'k': 'v', 'x': 1}", "value_error:dict_key"),
        ("dict", [{"k": ["v"]}], "{}", "value_error:dict_key"),
        ("dict", [""], "{}", "dict_checker:unclear"),
        ("array of dict", [[{"k": [1]}, {"k": [2]}]], "[{'k': 1}, {'k': 2}]", ""),
        ("array of dict", [[{"k": [1]}, {"k": [2]}]], "[{'k': 2}, {'k': 1}]",
         "value_error:dict_value"),
        ("array of dict", [[{"k": [1]}]], "[]", "value_error:list_dict_count"),
        ("array of dict", [[{"k": [1]}], ""], "[5]", "official_crash"),
    ],
)  # fmt: skip
def test_types_and_values(kind, options, value, fault):
    gold = [{"f": {"p": options}}]
    found = kinds(f"[f(p={value})]", [function("f", ["p"], p=kind)], gold)
    assert found == (fault, fault)


def test_several_functions():
    functions = [CITY, function("g", x="integer")]
    gold = [{"g": {"x": [1]}}]
    assert kinds("[g(x=1)]", functions, gold, "multiple") == ("", "")
    two = kinds("[g(x=1), g(x=1)]", functions, gold, "multiple")
    assert two == ("multiple_function_checker:wrong_count",) * 2
    other = kinds("[a.f(city='x')]", functions, gold, "live_multiple")
    assert other == ("simple_function_checker:wrong_func_name",) * 2


def test_parallel_calls_in_any_order():
    functions = [function("g", ["x"], x="integer")]
    gold = [{"g": {"x": [1]}}, {"g": {"x": [2]}}]
    assert kinds("[g(x=2), g(x=1)]", functions, gold, "parallel") == ("", "")
    missing = kinds("[g(x=2), g(x=2)]", functions, gold, "live_parallel_multiple")
    assert missing == ("parallel_function_checker_no_order:cannot_find_match",) * 2
    count = kinds("[g(x=1)]", functions, gold, "parallel")
    assert count == ("parallel_function_checker_no_order:wrong_count",) * 2


def test_strict_assigns_parallel_calls_where_upstream_is_greedy():
    functions = [function("g", ["x"], x="integer")]
    gold = [{"g": {"x": [1, 2]}}, {"g": {"x": [1]}}]
    official, strict = kinds("[g(x=1), g(x=2)]", functions, gold, "parallel")
    assert official == "parallel_function_checker_no_order:cannot_find_match"
    assert strict == ""


@pytest.mark.parametrize(
    ("text", "official", "strict"),
    [
        ("[a.f('NYC', 5, 'C')]", "simple_function_checker:missing_required", ""),
        ("[a.f('NYC', unit='C')]", "simple_function_checker:missing_required", ""),
        ("[a.f('Boston', 5, 'C')]", "simple_function_checker:missing_required",
         "value_error:string"),
        ("[a.f('NYC', city='NYC', unit='C')]", "", "simple_function_checker:unexpected_param"),
        ("[a.f(city='B', city='NYC', unit='C')]", "", "simple_function_checker:unexpected_param"),
        ("[a.f(city='NYC', unit='C', unit='C')]", "", "simple_function_checker:unexpected_param"),
        ("[b(city='B', city='NYC')]", "simple_function_checker:wrong_func_name",
         "simple_function_checker:wrong_func_name"),
        ("[a.f(1, 2, 3, 4, city='NYC', unit='C')]", "",
         "simple_function_checker:unexpected_param"),
        ("[a.f(x.y, city='NYC', unit='C')]", "", "ast_decoder:decoder_failed"),
        ("[a.f(*x, city='NYC', unit='C')]", "", "ast_decoder:decoder_failed"),
        ("[a.f(9**9**9, city='NYC', unit='C')]", "", "official_unsafe"),
        ("[b('NYC', 5, 'C')]", "simple_function_checker:wrong_func_name",
         "simple_function_checker:wrong_func_name"),
    ],
)  # fmt: skip
def test_strict_binds_positional_arguments(text, official, strict):
    assert kinds(text) == (official, strict)


FLIGHT = function(
    "flight_book", ["from"], **{"from": "string", "to": "string", "class": "string", "in": "dict"}
)
BOOKED = [
    {
        "flight_book": {
            "from": ["Seattle"],
            "to": ["Boston, from=x"],
            "class": ["", "eco"],
            "in": ["", {"is": [1]}],
        }
    }
]
FAILED = "ast_decoder:decoder_failed"


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        ("[flight_book(from='Seattle', to='Boston, from=x')]", ""),
        ('flight_book(from = "seattle",\n to="Boston, from=x", class="eco")', ""),
        ("[flight_book(from='Seattle', # from=x\n to=\"Boston\")]", "value_error:string"),
        ("[flight_book(from='Seattle', to='''Boston, from=x''', in={'is': 1})]", ""),
        ("[flight_book(from='Seattle', lambda=1)]", "simple_function_checker:unexpected_param"),
        ("[flight_book(from=9**9**9, to='x')]", "official_unsafe"),
        (
            "[flight_book(from='x', from='Seattle', to='Boston, from=x')]",
            "simple_function_checker:unexpected_param",
        ),
        ("[flight_book(from='Seattle', to=lambda in=1: 2)]", FAILED),
        ("[flight_book(fromꔀ='Seattle', from=1)]", FAILED),
        ("Flights from=Seattle (class=eco)", FAILED),
    ],
)
def test_strict_reads_arguments_named_by_words_of_python(text, strict):
    found = kinds(text, [FLIGHT], BOOKED)
    assert found == (FAILED, strict)
    assert kinds(f"<TOOLCALL>{text}</TOOLCALL>", [FLIGHT], BOOKED, form=Form(tagged=True)) == found


def test_names_by_words_of_python_elsewhere():
    gold = [{"f": {"a": ["g(h(from=1))"]}}]
    functions = [function("f", ["a"], a="any")]
    assert kinds("[f(a=g(h(from=1)))]", functions, gold) == (FAILED, "")
    # Other forms, Java, and native calls have no such words.
    assert kinds("[f(from=1)]", functions, gold, form=Form("concise_xml")) == (FAILED,) * 2
    assert kinds("[f(from=]", functions, gold, "simple_java") == (FAILED,) * 2
    assert kinds(Answer("[f(from=1)]", ()), functions, gold) == (FAILED,) * 2


def test_native_calls_and_texts_beside_none():
    good = ToolCall("a_f", '{"city": "NYC", "days": 5, "unit": "C"}')
    assert kinds(Answer("", (good,))) == ("", "")
    dotted = kinds(Answer("", (ToolCall("a.f", good.arguments),)))
    assert dotted == ("simple_function_checker:wrong_func_name",) * 2
    assert kinds(Answer("", (ToolCall("a_f", "{"),))) == ("ast_decoder:decoder_failed",) * 2
    malformed = kinds(Answer("", (ToolCall("a_f", "[1]"),)))
    assert malformed == ("ast_decoder:decoder_wrong_output_format",) * 2
    text = kinds(Answer("[a.f(city='NYC', unit='C')]", ()))
    assert text == ("ast_decoder:decoder_failed",) * 2
    assert kinds(Answer("", ())) == ("simple_function_checker:wrong_count",) * 2


def test_java_and_javascript():
    java = function("f", ["n", "l"], n="long", l="ArrayList of String", s="String")
    gold = [{"f": {"n": [5], "l": [["a", "b"]], "s": ["x", ""]}}]
    right = '[f(n=5L, l=new ArrayList<>(Arrays.asList("a", "b")), s="X")]'
    assert kinds(right, [java], gold, "simple_java") == ("", "")
    assert kinds(right.replace("5L", "5"), [java], gold, "simple_java")[0] == "type_error:simple"
    huge = kinds(right.replace("5L", "9" * 5000 + "L"), [java], gold, "simple_java")
    assert huge == ("official_crash",) * 2
    native = kinds(Answer("", (ToolCall("f", '{"n": 5}'),)), [java], gold, "simple_java")
    assert native == ("simple_function_checker:missing_required",) * 2
    other = ToolCall("f", '{"n": 5, "l": "x"}')
    assert kinds(Answer("", (other,)), [java], gold, "simple_java") == ("type_error:java",) * 2
    positional = '[f(5L, new ArrayList<>(Arrays.asList("a", "b")))]'
    assert kinds(positional, [java], gold, "simple_java") == (
        "simple_function_checker:missing_required",
        "",
    )
    # Behind a named argument a value stands for the parameter in its place, as the language has it.
    for text, strict in (
        ('[f(n=5L, new ArrayList<>(Arrays.asList("a", "b")))]', ""),
        ('[f(l=new ArrayList<>(Arrays.asList("a", "b")), 5L)]',
         "simple_function_checker:unexpected_param"),
        ('[f(n=5L, l=new ArrayList<>(Arrays.asList("a", "b")), "x")]', ""),
        ('[f(n=5L, l=new ArrayList<>(Arrays.asList("a", "b")), "y")]', "value_error:string"),
    ):  # fmt: skip
        assert kinds(text, [java], gold, "simple_java")[1] == strict
    script = function("f", ["o"], o="dict")
    gold = [{"f": {"o": [{"a": [1]}]}}]
    assert kinds("[f(o={a: 1})]", [script], gold, "simple_javascript") == ("", "")
    assert kinds("[f(o={a: 2})]", [script], gold, "simple_javascript")[0] == (
        "value_error:dict_value"
    )
    assert kinds("[x = 5]", [script], gold, "simple_javascript")[0] == (
        "ast_decoder:decoder_wrong_output_format"
    )


def test_forms_and_the_category_of_their_original():
    text = '[{"function": "a.f", "parameters": {"city": "NYC", "unit": "C"}}]'
    assert kinds(text, category="live_simple_3-3-0", form=Form("json")) == ("", "")
    assert kinds("no", form=Form("json")) == ("simple_function_checker:wrong_count",) * 2
    with pytest.raises(ValueError, match="original"):
        kinds(text, category="format_sensitivity")


@pytest.mark.parametrize(
    ("answer", "irrelevance", "strict", "relevance"),
    [
        ("I cannot do that.", "", "", "relevance_error:decoder_failed"),
        ("[]", "", "", "relevance_error:decoder_failed"),
        ("[f(a=1)]", *["irrelevance_error:decoder_success"] * 2, ""),
        ("hello(world)", *["irrelevance_error:decoder_success"] * 2, ""),
        ("", "", "irrelevance_error:no_answer", "relevance_error:decoder_failed"),
        (" \n", "", "irrelevance_error:no_answer", "relevance_error:decoder_failed"),
        ("Error during inference: too long", "", "irrelevance_error:no_answer",
         "relevance_error:decoder_failed"),
        ("[f(a=len('x') + 1)]", "official_unsafe", "official_unsafe", "official_unsafe"),
        ("It departs from=Seattle.", "", "", "relevance_error:decoder_failed"),
        (Answer("f() was not offered.", ()), "", "", "relevance_error:decoder_failed"),
        (Answer("", ()), "", "irrelevance_error:no_answer", "relevance_error:decoder_failed"),
        (Answer("", (ToolCall("f", "{}"),)), *["irrelevance_error:decoder_success"] * 2, ""),
    ],
)  # fmt: skip
def test_whether_there_is_a_call(answer, irrelevance, strict, relevance):
    for category in ("irrelevance", "live_irrelevance"):
        assert kinds(answer, (), None, category) == (irrelevance, strict)
    assert kinds(answer, (), None, "live_relevance") == (relevance, relevance)


@pytest.mark.parametrize(
    "answer",
    [
        "[f(a=1, b=]",
        Answer("f(a=1)", ()),
        Answer("", (ToolCall("f", "{"),)),
        Answer("", (ToolCall("f", "[]"),)),
        Answer("words", (ToolCall("f", "{}"),), unreadable=True),
    ],
)
def test_attempted_call_is_no_refusal_under_strict(answer):
    for category in ("irrelevance", "live_irrelevance"):
        assert kinds(answer, (), None, category) == ("", "irrelevance_error:unreadable_call")
    assert kinds(answer, (), None, "live_relevance") == ("relevance_error:decoder_failed",) * 2


def test_empty_list_that_was_stored_is_a_refusal_under_strict():
    assert kinds(Answer(None, ()), (), None, "irrelevance") == ("", "")
    assert kinds(Answer(None, ()), (), None, "live_relevance")[1] == (
        "relevance_error:decoder_failed"
    )


def test_whether_there_is_a_call_with_a_word_of_python():
    for text in ("[book(from='Seattle', to='x')]", "book(class='eco')"):
        assert kinds(text, (), None, "irrelevance") == ("", "irrelevance_error:decoder_success")
        assert kinds(text, (), None, "live_relevance") == ("relevance_error:decoder_failed", "")
    unsafe = "[book(from='Seattle', to=len('x') + 1)]"
    assert kinds(unsafe, (), None, "irrelevance") == ("", "official_unsafe")


def test_strict_names_the_same_fault_where_it_is_the_same():
    count = "simple_function_checker:wrong_count"
    assert kinds("[a.f(x.y, city='NYC', unit='C'), a.f('NYC')]") == (count, count)
    assert kinds("[a.f(1, 2, 3, 4), a.f()]") == (count, count)
    name = "simple_function_checker:wrong_func_name"
    assert kinds("[b(x.y, *z)]") == (name, name)
    assert kinds("[b(9**9**9)]") == (name, name)
