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
        ("[a.f(unit='c', city='NEW_york-n.y', days=5)]", ""),
        ("[a.f(city='NYC')]", "simple_function_checker:missing_optional"),
        ("[a.f(city='NYC', unit='C', x=1)]", "simple_function_checker:unexpected_param"),
        ("[a_f(city='NYC', unit='C')]", "simple_function_checker:wrong_func_name"),
        ("[a.f(city='NYC'), a.f()]", "simple_function_checker:wrong_count"),
        ("New York", "ast_decoder:decoder_failed"),
        ("[a.f(city='x' + str(1))]", "official_unsafe"),
        ("[a.f(city=0x" + "f" * 4000 + ", unit='C')]", "official_crash"),
    ],
)
def test_one_call(text, kind):
    assert kinds(text) == (kind, kind)


def kind_of_value(kind, options, value):
    return kinds(f"[f(p={value})]", [function("f", ["p"], p=kind)], [{"f": {"p": options}}])


@pytest.mark.parametrize(
    ("kind", "options", "value", "fault"),
    [
        ("float", [5.0], "5", ""),
        ("float", [5.0], "1" + "0" * 400, "official_crash"),
        ("boolean", [True], "True", ""),
        ("boolean", [True], "1", "type_error:simple"),
        ("any", ["x"], "'X'", ""),
        ("any", [5], "5", ""),
        ("any", [5], "6", "value_error:others"),
    ],
)
def test_simple_values(kind, options, value, fault):
    assert kind_of_value(kind, options, value) == (fault, fault)


@pytest.mark.parametrize(
    ("kind", "options", "value", "fault"),
    [
        ("tuple of integer", [[1, 2]], "(1, 2)", ""),
        ("array of integer", [[1, 2]], "(1, 2)", "type_error:simple"),
        ("array of integer", [[1, 2]], "[2, 1]", "value_error:list/tuple"),
        ("array of integer", [[1, 2], ""], "[]", ""),
        ("array of integer", [[1, 2]], "[1, 'x']", "type_error:nested"),
        ("array of float", [[1.0], ""], "[1]", ""),
        ("array of string", [["A b"]], "['a-B']", ""),
        ("array", [[1]], "[1]", "official_crash"),
    ],
)
def test_lists(kind, options, value, fault):
    assert kind_of_value(kind, options, value) == (fault, fault)


TWO_OBJECTS = [[{"k": [1]}, {"k": [2]}]]


@pytest.mark.parametrize(
    ("kind", "options", "value", "fault"),
    [
        ("dict", [{"k": ["v"], "o": [1, ""]}], "{'k': 'V'}", ""),
        ("dict", [{"k": ["v"]}], "{'k': 'w'}", "value_error:dict_value"),
        ("dict", [{"k": ["v"]}], "{'k': 'v', 'x': 1}", "value_error:dict_key"),
        ("dict", [{"k": ["v"]}], "{}", "value_error:dict_key"),
        ("dict", [""], "{}", "dict_checker:unclear"),
        ("array of dict", TWO_OBJECTS, "[{'k': 1}, {'k': 2}]", ""),
        ("array of dict", TWO_OBJECTS, "[{'k': 2}, {'k': 1}]", "value_error:dict_value"),
        ("array of dict", TWO_OBJECTS, "[]", "value_error:list_dict_count"),
    ],
)
def test_objects(kind, options, value, fault):
    assert kind_of_value(kind, options, value) == (fault, fault)


@pytest.mark.parametrize(
    ("category", "text", "kind"),
    [
        ("multiple", "[g(x=1)]", ""),
        ("multiple", "[g(x=1), g(x=1)]", "multiple_function_checker:wrong_count"),
        ("live_multiple", "[a.f(city='x')]", "simple_function_checker:wrong_func_name"),
        ("parallel", "[g(x=2), g(x=1)]", ""),
        ("parallel", "[g(x=1)]", "parallel_function_checker_no_order:wrong_count"),
        (
            "live_parallel_multiple",
            "[g(x=2), g(x=2)]",
            "parallel_function_checker_no_order:cannot_find_match",
        ),
    ],
)
def test_calls_of_several_functions_or_in_parallel(category, text, kind):
    functions = [CITY, function("g", ["x"], x="integer")]
    gold = [{"g": {"x": [1]}}, {"g": {"x": [2]}}][: 2 if "parallel" in category else 1]
    assert kinds(text, functions, gold, category) == (kind, kind)


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
        ("[a.f('Boston', 5, 'C')]", "simple_function_checker:missing_required",
         "value_error:string"),
        ("[a.f('NYC', city='NYC', unit='C')]", "", "simple_function_checker:unexpected_param"),
        ("[a.f(city='B', city='NYC', unit='C')]", "", "simple_function_checker:unexpected_param"),
        ("[a.f(1, 2, 3, 4, city='NYC', unit='C')]", "",
         "simple_function_checker:unexpected_param"),
        ("[a.f(x.y, city='NYC', unit='C')]", "", "ast_decoder:decoder_failed"),
        ("[a.f(9**9**9, city='NYC', unit='C')]", "", "official_unsafe"),
        ("[b(x.y, *z)]", "simple_function_checker:wrong_func_name",
         "simple_function_checker:wrong_func_name"),
    ],
)  # fmt: skip
def test_strict_binds_positional_arguments(text, official, strict):
    assert kinds(text) == (official, strict)


FLIGHT = function(
    "flight_book", ["from"], **{"from": "string", "to": "string", "class": "string", "in": "dict"}
)
OPTIONAL = {"class": ["", "eco"], "in": ["", {"is": [1]}]}
BOOKED = [{"flight_book": {"from": ["Seattle"], "to": ["Boston, from=x"], **OPTIONAL}}]
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
        ("[flight_book(from='Seattle', to=lambda in=1: 2)]", FAILED),
        ("[flight_book(fromꔀ='Seattle', from=1)]", FAILED),
    ],
)
def test_strict_reads_arguments_named_by_keywords(text, strict):
    found = kinds(text, [FLIGHT], BOOKED)
    assert found == (FAILED, strict)
    assert kinds(f"<TOOLCALL>{text}</TOOLCALL>", [FLIGHT], BOOKED, form=Form(tagged=True)) == found


def test_keywords_as_names_in_nested_calls_and_other_forms():
    gold = [{"f": {"a": ["g(h(from=1))"]}}]
    functions = [function("f", ["a"], a="any")]
    assert kinds("[f(a=g(h(from=1)))]", functions, gold) == (FAILED, "")
    # Other forms, Java, and native calls have no such words.
    assert kinds("[f(from=1)]", functions, gold, form=Form("concise_xml")) == (FAILED,) * 2
    assert kinds("[f(from=]", functions, gold, "simple_java") == (FAILED,) * 2
    assert kinds(Answer("[f(from=1)]", ()), functions, gold) == (FAILED,) * 2


def test_native_calls():
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


def test_java():
    document = function("f", ["n", "l"], n="long", l="ArrayList of String", s="String")
    gold = [{"f": {"n": [5], "l": [["a", "b"]], "s": ["x", ""]}}]
    listed = 'new ArrayList<>(Arrays.asList("a", "b"))'

    def found(answer):
        return kinds(answer, [document], gold, "simple_java")

    assert found(f'[f(n=5L, l={listed}, s="X")]') == ("", "")
    assert found(f"[f(n=5, l={listed})]") == ("type_error:simple",) * 2
    assert found(f"[f(n={'9' * 5000}L, l={listed})]") == ("official_crash",) * 2
    for arguments, kind in (
        ('{"n": 5}', "simple_function_checker:missing_required"),
        ('{"n": 5, "l": "x"}', "type_error:java"),
    ):
        assert found(Answer("", (ToolCall("f", arguments),))) == (kind, kind)
    # Behind a named argument a value stands for the parameter in its place, as the language has it.
    for text, strict in (
        (f"[f(5L, {listed})]", ""),
        (f"[f(n=5L, {listed})]", ""),
        (f"[f(l={listed}, 5L)]", "simple_function_checker:unexpected_param"),
        (f'[f(n=5L, l={listed}, "y")]', "value_error:string"),
    ):
        assert found(text)[1] == strict


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[f(o={a: 1})]", ""),
        ("[f(o={a: 2})]", "value_error:dict_value"),
        ("[x = 5]", "ast_decoder:decoder_wrong_output_format"),
    ],
)
def test_javascript(text, kind):
    gold = [{"f": {"o": [{"a": [1]}]}}]
    assert kinds(text, [function("f", ["o"], o="dict")], gold, "simple_javascript")[0] == kind


def test_format_sensitivity_is_judged_as_its_original_category():
    text = '[{"function": "a.f", "parameters": {"city": "NYC", "unit": "C"}}]'
    assert kinds(text, category="live_simple_3-3-0", form=Form("json")) == ("", "")
    assert kinds("no", form=Form("json")) == ("simple_function_checker:wrong_count",) * 2
    with pytest.raises(ValueError, match="original"):
        kinds(text, category="format_sensitivity")


@pytest.mark.parametrize(
    ("answer", "irrelevance", "strict", "relevance"),
    [
        ("I cannot do that.", "", "", "relevance_error:decoder_failed"),
        (Answer(None, ()), "", "", "relevance_error:decoder_failed"),
        ("[f(a=1)]", *["irrelevance_error:decoder_success"] * 2, ""),
        (" \n", "", "irrelevance_error:no_answer", "relevance_error:decoder_failed"),
        ("Error during inference: too long", "", "irrelevance_error:no_answer",
         "relevance_error:decoder_failed"),
        ("[f(a=len('x') + 1)]", "official_unsafe", "official_unsafe", "official_unsafe"),
        (Answer("", ()), "", "irrelevance_error:no_answer", "relevance_error:decoder_failed"),
        (Answer("", (ToolCall("f", "{}"),)), *["irrelevance_error:decoder_success"] * 2, ""),
    ],
)  # fmt: skip
def test_relevance(answer, irrelevance, strict, relevance):
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


def test_relevance_of_calls_with_keywords_as_names():
    for text in ("[book(from='Seattle', to='x')]", "book(class='eco')"):
        assert kinds(text, (), None, "irrelevance") == ("", "irrelevance_error:decoder_success")
        assert kinds(text, (), None, "live_relevance") == ("relevance_error:decoder_failed", "")
    unsafe = "[book(from='Seattle', to=len('x') + 1)]"
    assert kinds(unsafe, (), None, "irrelevance") == ("", "official_unsafe")


def test_strict_counts_calls_before_it_reads_their_values():
    count = "simple_function_checker:wrong_count"
    assert kinds("[a.f(x.y, city='NYC', unit='C'), a.f('NYC')]") == (count, count)
