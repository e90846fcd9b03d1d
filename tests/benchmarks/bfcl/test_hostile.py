# ruff: noqa: E501
"""No answer makes a checker raise, hang or grow. Each family runs in a process with a generous
limit on time and on memory; the plain work takes a fraction of a second."""

import subprocess
import sys

import pytest

CHILD = r"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
from ace_ray.benchmarks.bfcl.answers import Answer
from ace_ray.benchmarks.bfcl.check.agentic import check_agentic
from ace_ray.benchmarks.bfcl.check.single import check_single
from ace_ray.benchmarks.bfcl.decode import executable
from ace_ray.benchmarks.bfcl.forms import Form
from ace_ray.types import ToolCall

KINDS = {
    "simple_python": ["string", "integer", "float", "array", "dict", "any", "tuple", "boolean"],
    "simple_java": ["String", "long", "float", "Array", "ArrayList", "HashMap", "any", "double"],
    "simple_javascript": ["String", "integer", "float", "array", "dict", "any", "Bigint"],
}
FORMS = [Form("json"), Form("verbose_xml"), Form("concise_xml"), Form(tagged=True)]

def judge(text, category="simple_python", form=Form()):
    kinds = KINDS[category]
    item = "String" if category != "simple_python" else "string"
    properties = {f"p{n}": {"type": kind, "items": {"type": item}} for n, kind in enumerate(kinds)}
    functions = [{"name": "f", "parameters": {"properties": properties, "required": []}}]
    gold = [{"f": {name: ["x", [1], {"a": [1]}, ""] for name in properties}}]
    answer = text if isinstance(text, Answer) else Answer(text)
    for verdict in check_single(category, functions, gold, answer, form).values():
        assert verdict.valid or 0 < len(verdict.error) < 600, verdict

def everywhere(text):
    judge(text)
    for form in FORMS:
        judge(text, form=form)
        judge("<TOOLCALL>" + text + "</TOOLCALL>", form=form)
        judge("<functions>" + text + "</functions>", form=form)
    for category in ("simple_java", "simple_javascript"):
        judge(text, category)
    for category in ("irrelevance", "live_relevance"):
        check_single(category, (), None, Answer(text))
    judge(Answer("", (ToolCall("f", text),)))
    judge(Answer(text, ()))
    executable(Answer(text))
    executable(Answer("", (ToolCall(text, text),)))
    check_agentic([Answer(text)], ["x", "new york"])

def values(category, texts):
    for text in texts:
        for place in range(len(KINDS[category])):
            judge(f"[f(p{place}={text})]", category)
"""

FAMILIES = {
    "long": """
for unit in ("a", "`", "[", "f(a=1),", "\\ud800"):
    everywhere(unit * (10_000_000 // len(unit)))
""",
    "brackets": """
for pair in ("()", "[]", "{}", "<>"):
    everywhere(pair[0] * 100_000)
    everywhere(pair[0] * 100_000 + pair[1] * 100_000)
    judge("[f(p0=" + pair[0] * 1_000 + pair[1] * 1_000 + ")]", "simple_java")
    judge("[f(p0=" + pair[0] * 1_000 + pair[1] * 1_000 + ")]", "simple_javascript")
    judge("[f(p3=" + pair[0] * 150 + pair[1] * 150 + ")]")
""",
    "many calls": """
everywhere("[" + "f(p1=1)," * 1_000_000 + "]")
everywhere("[" + "f(p1=1)," * 16_000 + "]")
judge("f(" + "p1=1," * 400 + ")", "simple_java")
judge("f(" + "p1=1," * 400 + ")", "simple_javascript")
judge("[" + '{"function": "f", "parameters": {}},' * 50_000 + "]", form=FORMS[0])
judge("<functions>" + '<function name="f"/>' * 6_000 + "</functions>", form=FORMS[1])
judge(Answer("", tuple([ToolCall("f", "{}")] * 1_000_000)))
""",
    "digits": """
for digits in ("9" * 4_300, "9" * 4_301, "9" * 100_000, "0x" + "f" * 100_000, "1e" + "9" * 5_000):
    everywhere(digits)
    everywhere('[f(p1=' + digits + ', p2=' + digits + ')]')
    everywhere('[{"function": "f", "parameters": {"p1": ' + digits + "}}]")
    everywhere('<function name="f"><param name="p1" type="integer">' + digits + "</param></function>")
    for category in ("simple_java", "simple_javascript"):
        values(category, [digits[:2_000], digits[:2_000] + "L", "[" + digits[:2_000] + "]"])
""",
    "operations": """
for text in ("9**9**9", "1<<10**9", "'a'*10**9", "[0]*10**9", "1" + "+1" * 30_000, "'%999999999d' % 1",
             "x" + ".x" * 30_000, "x" + "[0]" * 30_000, "-" * 30_000 + "1", "g(" * 150 + ")" * 150,
             "not " * 20_000 + "1", "lambda:" * 5_000 + "1", "'a'*1000*1000*1000 + x", "f'{1:999999}' + ''"):
    values("simple_python", [text])
    judge("[f(" + text + ")]")
    executable(Answer("[f(p0=" + text + ")]"))
""",
    "keyword names": """
for text in ("from=" * 25_000, "f(" + "from=1," * 18_000 + ")", "from" + " " * 130_000 + "=", "'" * 131_000,
             "f(x='" + "from=" * 800_000 + "', from=1)", "from " * 26_000 + "=", "f(from=" * 150 + "1" + ")" * 150,
             "f('" + "\\\\" * 4_000_000 + "', from=1)", "'" + "''" * 60_000 + "from=1", "#" * 130_000 + "from=1",
             "f(a=" + '"' + "'" * 4_000_000 + '"' + ", from=1)", "'" * 3 + "''x" * 1_300_000 + "from=1",
             "is" * 60_000 + "=1", ("from" + " " * 1_000) * 4_000 + "="):
    everywhere("[" + text + "]")
""",
    "xml": """
bomb = '<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY a{n} "{"&a" + str(n - 1 if n > 1 else "") + ";"}">' * 1 for n in range(1, 20)) + "]>"
for text in (bomb + "<functions>&a9;</functions>", "<functions>" + bomb + "&a;</functions>",
             "<functions>" + "<a>" * 30_000 + "</functions>",
             "<functions>" + "<a>" * 15_000 + "</a>" * 15_000 + "</functions>",
             "<functions>" * 10_000, "<functions>&lol;</functions>", "</functions><functions>",
             "<functions a" + "='" * 30_000 + "></functions>",
             "<functions><function name='f'><param name='p4' type='dict'>" + "{1:" * 150 + "1" + "}" * 150
             + "</param></function></functions>",
             "<functions>" + "<function name='f'>" + "<param name='p0'>x</param>" * 4_000
             + "</function></functions>", "<functions><![CDATA[" + "]" * 50_000 + "]]></functions>"):
    for form in FORMS:
        judge(text, form=form)
for text in ("<functions>" * 900_000, "<TOOLCALL>" * 900_000, "[{" * 2_000_000, "[" + " " * 5_000_000,
             "[{" + "} " * 2_000_000, "[{}" + ", {" * 1_000_000):
    for form in FORMS:
        judge(text, form=form)
""",
    "java": """
from ace_ray.benchmarks.bfcl.check.source_values import java_value
for unit in ("new ", "new  ArrayList<", "new ArrayList<>(Arrays.asList(", "new ArrayList<>() {{", "add(",
             "new int[]{", "new HashMap<", "new HashMap<>() {", "put(", 'put("', 'put("a",', '",', '", ', ">",
             "> () ", " ", "}", "}}", "{", "new HashMap<>() {{ put(", "\\n", "new a", 'put("a", \\n'):
    for start in ("", "new ArrayList<>(Arrays.asList(", "new ArrayList<>() {{ add(", "new int[]{",
                  "new HashMap<>() {{ put(", "new HashMap<"):
        for end in ("", ")", "}", "}}", ">()"):
            for kind in ("Array", "ArrayList", "HashMap"):
                java_value(start + unit * (60_000 // len(unit)) + end, kind, None)
values("simple_java", ['new ArrayList<>(Arrays.asList(' + "1, " * 650 + "1))", "new int[]{" + "1," * 1_000 + "1}"])
""",
    "javascript": """
from ace_ray.benchmarks.bfcl.check.source_values import javascript_value
for unit in ("[", "]", "[]", "[],", "], [", "],\\n[", "] ", ",", ":", "a:", "a: b,", "a:, ", "{", "}", " ",
             "new Array(", "new Array([", "'", ": ,", "\\n", ", ", "],", "[ "):
    for start in ("", "[", "[[", "{", "new Array([", "{a:"):
        for end in ("", "]]", "}", ")"):
            for kind in ("array", "dict", "String", "float"):
                javascript_value(start + unit * (60_000 // len(unit)) + end, kind, None)
for unit in ("'", '"', "`${", "{{(", "[)", "new A<", "a<b>(", "f(a=b=>", "/", "<a>", "1+", "a?b:", "@a(",
             "a=1,", "+1[^", "|-f(", "%-f(", "(>-1", "=^_", "True(**", "->"):
    for length in (2_048, 8_192):
        text = unit * (length // len(unit))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        judge(text, "simple_java")
        judge(text, "simple_javascript")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 400 << 10, (unit, length, f"{grown >> 10} MiB; behind an error it grows with the square")
""",
    "agentic": """
for text in ("x" * 10_000_000, "new " * 2_000_000, "(" * 100_000, "f(a=1)," * 100_000, "'" * 100_000):
    check_agentic([Answer(text)] * 3, ["new york", "a" * 1_000, "((", "", "\\\\"])
""",
}


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_answers(family):
    done = subprocess.run(
        [sys.executable, "-c", CHILD + FAMILIES[family]],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
