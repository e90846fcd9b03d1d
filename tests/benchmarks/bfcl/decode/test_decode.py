"""Java, JavaScript, JSON, XML and native calls as they are written; golden files have Python."""

import importlib
import json

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.categories import Form, Language
from ace_ray.benchmarks.bfcl.decode import decode, executable_calls, read, read_answer, source_trees
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.errors import UserError
from ace_ray.parsing.syntax import NotCalls
from ace_ray.types import ToolCall

JSON = Form("json")
VERBOSE, CONCISE = Form("verbose_xml"), Form("concise_xml")


LISTED = "new ArrayList<>(Arrays.asList(1,  2))"


@pytest.mark.parametrize(
    ("language", "text", "call"),
    [
        ("java", '[a.B(x="s", w=5L, v=true)]', {"a.B": {"x": "s", "w": "5L", "v": "true"}}),
        ("java", "[f(y=new int[] {1, 2}, w=1)]", {"f": {"y": "new int[]{1,2}", "w": "1"}}),
        ("java", f"[f(z={LISTED}, w=1)]", {"f": {"z": LISTED, "w": "1"}}),
        # Offsets count bytes, and upstream takes them for characters.
        ("java", '[f(x="é", yy="ab")]', {"f": {"x": 'é"', "y=": 'b"'}}),
        ("javascript", "[f(x='s', z={a: 1})]", {"f": {"x": "s", "z": "{a: 1}"}}),
        ("javascript", "[f(w=() => 5, v=[1, 2])]", {"f": {"w": "() => 5", "v": "[1, 2]"}}),
    ],
    ids=["literals", "array", "list", "two bytes", "object", "function"],
)
def test_java_and_javascript_values_are_source(language: Language, text, call):
    assert decode(text, language=language) == [call]


@pytest.mark.parametrize("language", ["java", "javascript"])
def test_source_without_a_call_and_source_that_does_not_parse(language):
    assert read("[x = 5;]", language=language) is None
    for text in ("[f(x=5]]", "[f(x=1, x=2)]", "[f(x='\ud800')]"):
        with pytest.raises(NotCalls):
            decode(text, language=language)
    for text, why in (("+1[^" * 2_000, "2048 words"), (f"[f(x='{'1' * 9_000}')]", "than 8192")):
        with pytest.raises(NotCalls, match=why):
            decode(text, language=language)


def test_two_arguments_of_java_without_names_do_not_decode():
    with pytest.raises(NotCalls):
        decode("[b.f(a, c)]", language="java")


def test_json_calls_are_read_anywhere_in_a_text():
    item = {"function": "f", "parameters": {"a": [1, None]}}
    for text in (json.dumps([item]), json.dumps(item), f"So: {json.dumps([item])} is [it]"):
        assert decode(text, JSON) == [{"f": {"a": [1, None]}}]
    assert decode('[{"function": "f", "parameters": {}}, 5]', JSON) == [{"f": {}}]
    for text in ('[{"name": "f"}]', '[{"function": [], "parameters": {}}]', '[{"function": "f"}]'):
        with pytest.raises(NotCalls):
            decode(text, JSON)
    (call,) = read('[{"function": "f", "parameters": [1]}]', JSON) or []
    assert call.args == [1]


def test_xml_calls_are_read():
    concise = (
        'x<functions><function name="f"><param name="a" type="integer"> 5 </param>'
        '<param name="b">t</param><param name="c" type="array">[1, &quot;x&quot;]</param>'
        '<param name="d" type="boolean">True</param></function></functions>y'
    )
    assert decode(concise, CONCISE) == [{"f": {"a": 5, "b": "t", "c": [1, "x"], "d": True}}]
    verbose = (
        '<functions><function name="f"><params><param name="a" value="2.5" type="float"/>'
        '<param name="b" value="{1: 2}" type="dict"/></params></function></functions>'
    )
    assert decode(verbose, VERBOSE) == [{"f": {"a": 2.5, "b": {1: 2}}}]
    typed = '<function name="f"><param name="a" type="{}">{}</param></function>'
    for text in (
        "<functions><function/></functions>",
        f"<functions>{typed.format('integer', 'x')}</functions>",
        f"<functions>{typed.format('dict', 'f()')}</functions>",
        '<functions><!DOCTYPE l [<!ENTITY a "aa">]>&a;</functions>',
    ):
        with pytest.raises(NotCalls):
            decode(text, CONCISE)


def test_native_calls_are_read_and_executed():
    calls = (ToolCall("f", '{"a": true, "b": {"c": {}}}'), ToolCall("g", "{}"))
    read_calls = read_answer(Answer("", calls), Form(), "python") or []
    assert [call.name for call in read_calls] == ["f", "g"]
    assert read_calls[0].args == {"a": True, "b": {"c": {}}}
    assert executable_calls(Answer("", calls)) == ["f(a=True,b={'c': {}})", "g()"]
    for arguments in ("", "[1]", "{'a': 1}", "null"):
        assert executable_calls(Answer("", (*calls, ToolCall("f", arguments)))) is None
    assert executable_calls(Answer("f(a=1)", ())) is None


@pytest.fixture
def no_grammar_yet():
    importlib.reload(source_trees)
    yield
    importlib.reload(source_trees)


@pytest.mark.parametrize("package", ["tree-sitter", "tree-sitter-java"])
def test_another_version_of_a_grammar_is_refused(monkeypatch, no_grammar_yet, package):
    versions = {"tree-sitter": "0.24.0", "tree-sitter-java": "0.21.0", package: "0.99.0"}
    monkeypatch.setattr("importlib.metadata.version", versions.__getitem__)
    with pytest.raises(UserError, match=f"^.*{package} 0.99.0 is installed") as refused:
        decode("[f(a=1)]", language="java")
    assert "tree-sitter-java==0.21.0" in refused.value.fix
    # A run finds it before anything is generated.
    with pytest.raises(UserError, match="is installed"):
        BFCL.from_options({"categories": ["simple_java"]}).entries()
    assert BFCL.from_options({"categories": ["simple_python"]}).entries()
