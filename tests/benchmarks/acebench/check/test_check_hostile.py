"""Outputs that run code in the official evaluator or in its agent loops, hang them, exhaust them or
end their run: here they are data."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = [
    "1+__import__('os').system('touch {file}')",
    "0+open('{file}','w').write('x')",
    "''+__import__('os').environ.get('HOME','')",
    "''+str(__import__('sys').modules['__main__'].__dict__.update(check=None))",
    "0+exit()",
    "0+__import__('sys').exit(3)",
    "0+(_ for _ in ()).throw(KeyboardInterrupt)",
    "0+__import__('os')._exit(7)",
    "__import__('os').system('touch {file}')",
    "open(file='{file}', mode='w')",
    "lambda: open('{file}','w')",
    "x[open('{file}','w')]",
    "f'{{open(1)}}'",
    "9**9**9",
    "10**(10**8)+1",
    "0+sum(1 for _ in range(10**12))",
    "0+sum([1for(_)in(range(10**12))])",
    "0+(__import__('time').sleep(1e9)or 0)",
    "'a'*1000000000",
    "'a'*10**9",
    "1<<(10**10)",
    "1<<10000000000",
    "'%0999999999d'%1",
    "'%*d'%(999999999,1)",
    "[0]*1000000000",
    "[[[0]*9999]*9999]*9999",
    "('a'*9999+'b')*9999",
]
LONG = [
    "(" * 5_000 + "1" + ")" * 5_000,
    "-" * 100_000 + "1",
    "1+" * 20_000 + "1",
    "[" * 300 + "]" * 300,
    "a" + ".a" * 50_000,
    "[" * 200_000,
    "1+1," * 15_000,
    "[" + "'a'*9999," * 7_000 + "]",
    "{" + "(1,):1," * 9_000 + "}",
    "9" * 60_000,
    "0x" + "f" * 60_000,
    "0x" + "f" * 30_000 + "*0x" + "f" * 30_000,
    "x[" * 150 + "1" + "]" * 150,
    "x" + "[0]" * 2_000,
    "\\" * 60_000,
    "'" * 60_000,
    "[" + "1," * 65_000 + "]",
    "[" + "[]," * 43_000 + "]",
    "1+1," * 32_000,
    "[" + "f()," * 32_000 + "]",
    "[" + "1," * 65_000 + " 1 1]",
    "f'" + "{a}" * 10_900 + "'",
    "f'" + "{a}" * 43_000 + "'",
    "'" + "x" * 4_000_000 + "'",
    "'''" + "x\n" * 2_000_000,
    "'" + "x" * 4_000_000 + "'" + "+'b'" * 300,
    "1+('x'*99999)[0]" * 100,
    "''+" + "f'{1:999}'+" * 250 + "''",
    "''+" + "f'{(\"x\"*9000)!a:999}'+" * 250 + "''",
    "[1]+[" + "*[1]*9000," * 9_000 + "]",
]
SPECIAL = [
    "There is incorrect value (" * 5_000,
    "There is incorrect value (x) for the parameters (" * 3_000,
    "Missing necessary parameters (" + "a, " * 50_000,
    "Missing necessary parameters (a) for the api (" * 3_000,
    "cannot solve this problem " + "a" * 200_000,
    "cannot solve this problem " + "a(" * 100_000,
    "cannot solve this problem " + "a.a" * 50_000 + "(b=",
    "cannot solve this problem" + " " * 200_000,
    "cannot solve this problem " + "name':" * 50_000,
]
ENDS_THE_RUN = [
    "[X(a='\x01\x08\x0b\x0c\x0e\x1f')]",
    "[X(a='\x00')]",
    "[X(a='\ud800')]",
    "\ud800 There is incorrect value",
    "[X(a=" + "9" * 3_000 + "*" + "9" * 3_000 + ")]",
    "[X(a=10**5000)]",
    "[X(a=[{'a': 1}, 1, 'x'])]",
]
AGENT = [
    "[delete_message(message_id=0+__import__('os').system('touch {file}'))]",
    "[delete_message(message_id=''+__import__('os').environ['HOSTILE_SECRET'])]",
    "[delete_message(message_id=open(file='{file}', mode='w'))]",
    "[delete_message(message_id=importlib.import_module(name='this'))]",
    "[delete_message(message_id=copy.copy(x=1))]",
    "[delete_message(message_id=__import__(name='os').system(command='touch {file}'))]",
    "[delete_message(message_id=exec(source='open(\\'{file}\\', \\'w\\')'))]",
    "[delete_message(message_id={{'print': {{'end': 'x'}}}})]",
    "[delete_message(message_id={{'open': {{'file': '{file}', 'mode': 'w'}}}})]",
    "[delete_message(message_id={{'a': 1}})]",
    "[delete_message(message_id='{{0.__class__.__init__.__globals__}} %(HOSTILE_SECRET)s')]",
    "[__class__(a=1), __init__(), __import__(name='this'), _apps(), state(), call(name='x')]",
    "[delete_message.__globals__(a=1), os.system(command='touch {file}')]",
    "[delete_message(__class__=1, self=2, **{{'message_id': 3}})]",
    "finish conversation [delete_message(message_id=0+open('{file}', 'w').write('x'))]",
]
JSON_FORMS = [
    '{"name": "X", "arguments": "{{\\"a\\": 1}}"}',
    '{"name": "__import__(\'os\').system", "arguments": {"command": "touch {file}"}}',
    '<tool_call>{"name": "X", "arguments": {"a": "$HOSTILE_SECRET"}}</tool_call>',
    "<tool_call>" * 30_000,
    "<tool_call>" + "[" * 100_000,
    "```json\n" + '{"a":' * 50_000 + "\n```",
    "```" * 60_000,
    "```python\n" * 20_000,
    '{"name": "X", "arguments": {"a": ' + "9" * 5_000 + "}}",
    '{"name": "X", "arguments": {"a": 1e999999999}}',
    '{"name": "X", "arguments": {"a": "' + "x" * 4_000_000 + '"}}',
    '"' * 200_000,
    '{"name": "X", "arguments": "' + "\\\\" * 100_000,
]

SCRIPT = """
import json, sys, time
from ace_ray.benchmarks.acebench.check import check
from ace_ray.types import Entry

schema = {"properties": {"a": {"type": "integer"}}, "required": []}
data = {"question": "?", "function": [{"name": "X", "parameters": schema}]}
golds = {
    "normal_atom_number": {"X": {"a": 1}},
    "normal_multi_turn_user_adjust": {"X": {"a": 1}},
    "special_incomplete": {"X": ["a"]},
    "special_error_param": {"a": ["1"]},
    "special_irrelevant": "...",
}
found = []
for output in json.load(sys.stdin):
    for category, gold in golds.items():
        started = time.process_time()
        verdicts = check(Entry("acebench", category, "en", "x", data, gold), output)
        spent = time.process_time() - started
        found.append([output[:60], category, spent, *(v.error_type for v in verdicts.values())])
print(json.dumps(found))
"""
Found = list[tuple[str, str, float, str, str]]


READ_SCRIPT = """
import json, resource, sys, time
from ace_ray.benchmarks.acebench.agent_calls import agent_calls
from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.native import answer_text
from ace_ray.types import ToolCall

options = {"languages": ["en"], "categories": ["agent"]}
benchmark = ACEBench.from_options(options)
entries = {entry.category: entry for entry in benchmark.entries()}
functions = next(iter(entries.values())).data["function"]

def in_an_environment(text, loop, protocol):
    environment = benchmark.scenario(entries[f"agent_{loop}"])
    calls = agent_calls(text, loop=loop, protocol=protocol)
    made = [environment.call(c.name, c.arguments) for c in calls or () if not c.problem]
    return repr(calls)[:10_000], repr(made)[:10_000]

def in_the_score(text):
    return check_agent(entries["agent_multi_step"], text, [text])

def native(text):
    calls = [ToolCall(text, text), ToolCall("X", text), ToolCall(text, "{}")]
    return [answer_text(text, [call], functions) for call in calls] + [
        answer_text(text, [], functions)]

ways = {
    f"{loop} {protocol}": lambda text, loop=loop, protocol=protocol: in_an_environment(
        text, loop, protocol)
    for loop, protocol in (
        ("multi_turn", "official"), ("multi_step", "official"), ("multi_turn", "fixed"))
}
ways |= {"agent score": in_the_score, "native": native}
for way in ways.values():  # what is imported late is imported now
    way("[delete_message(message_id=1 + 1)]")
modules = set(sys.modules)
secret = sys.argv[1]
found = []
for output in json.load(sys.stdin):
    for name, way in ways.items():
        started = time.process_time()
        made = way(output)
        spent = time.process_time() - started
        found.append([output[:60], name, spent, "secret" if secret in str(made) else "", ""])
found += [[name, "import", 0, "import", ""] for name in set(sys.modules) - modules]
print(json.dumps(found))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""
SECRET = "do-not-tell-9c1f"
MEMORY_BYTES = 1 << 30


def judged(outputs: list[str], folder: Path, script: str = SCRIPT) -> Found:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (180, 180))

    done = subprocess.run(
        [sys.executable, "-c", script, SECRET],
        input=json.dumps(outputs),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "HOSTILE_SECRET": SECRET, "HOME": f"/{SECRET}"},
        timeout=400,
        check=False,
        preexec_fn=limit,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert SECRET not in done.stdout + done.stderr
    found: Found = json.loads(done.stdout)
    return found


EVERY = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.nightly)])
"""One text in so many; 1: all of them."""


@pytest.mark.nightly
@EVERY
def test_nothing_runs_and_nothing_hangs(every: int, tmp_path: Path) -> None:
    values = [text.format(file="made") for text in CALLS] + LONG
    outputs = [*(f"[X(a={value})]" for value in values), *values, *SPECIAL, *ENDS_THE_RUN]
    outputs += [text.format(file="made") for text in AGENT]
    outputs = outputs[::every]
    found = judged(outputs, tmp_path)
    assert len(found) == 5 * len(outputs)
    assert not list(tmp_path.iterdir())
    slow = [row for row in found if row[2] > 1.0]
    assert not slow
    harmless = ("[X(a=9999", "[X(a=0xff", "[X(a=10**5000")  # numbers, which have no value check
    accepted = [row[:2] for row in found if "normal" in row[1] and not row[4]]
    assert accepted == []
    wrongly = [
        row[:2]
        for row in found
        if "normal" in row[1] and not row[3] and not row[0].startswith(harmless)
    ]
    assert wrongly == []


def test_what_the_evaluator_would_run_is_named_unsafe(tmp_path: Path) -> None:
    unsafe = [text.format(file="made") for text in CALLS if "+" in text or "*" in text]
    found = judged([f"[X(a={value})]" for value in unsafe], tmp_path)
    single = [row for row in found if row[1] == "normal_atom_number"]
    assert {row[3] for row in single} == {"official_unsafe"}
    assert {row[4] for row in single} == {"output_format"}


@pytest.mark.nightly
@EVERY
def test_nothing_runs_where_agents_and_native_calls_are_read(every: int, tmp_path: Path) -> None:
    values = [text.format(file="made") for text in CALLS] + LONG
    agent = [text.format(file="made") for text in AGENT]
    json_forms = [text.replace("{file}", "made") for text in JSON_FORMS]
    outputs = [*(f"[delete_message(message_id={value})]" for value in values), *agent]
    outputs += [*ENDS_THE_RUN, *json_forms]
    outputs = outputs[::every]
    found = judged(outputs, tmp_path, READ_SCRIPT)
    assert len(found) == 5 * len(outputs)
    assert not list(tmp_path.iterdir())
    assert [row for row in found if row[2] > 1.0] == []
    assert [row for row in found if row[3]] == []
