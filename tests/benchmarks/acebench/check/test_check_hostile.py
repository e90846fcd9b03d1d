"""Outputs that run code in the official evaluator, hang it or exhaust it: here they are data."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

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

SCRIPT = """
import json, sys, time
from ace_ray.benchmarks.acebench.check import check
from ace_ray.records import Entry

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


def judged(outputs: list[str], folder: Path) -> Found:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (120, 120))

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(outputs),
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=240,
        check=False,
        preexec_fn=limit,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found: Found = json.loads(done.stdout)
    return found


def test_nothing_runs_and_nothing_hangs(tmp_path: Path) -> None:
    values = [text.format(file="made") for text in CALLS] + LONG
    outputs = [*(f"[X(a={value})]" for value in values), *values, *SPECIAL]
    found = judged(outputs, tmp_path)
    assert len(found) == 5 * len(outputs)
    assert not list(tmp_path.iterdir())
    slow = [row for row in found if row[2] > 1.0]
    assert not slow
    harmless = ("[X(a=9999", "[X(a=0xff")  # numbers, which have no value check
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
