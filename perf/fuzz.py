"""Hostile texts through every reader of foreign text and every checker.

    python perf/fuzz.py --texts 1000000 [--seed 0] [--workers 2] [--bfcl FOLDER|installed]

The texts are gold answers that were mutated, pieces of syntax at random, and pieces repeated up to
20,000 times. Each goes through all readers, and through the check of one entry after the other. A
worker is a process with 3 GiB of address space and 60 CPU seconds for a text; its end is a finding.
Prints per reader: calls, exceptions that are not its documented way to say no, the slowest call in
CPU seconds, and the most by which one call raised the peak of memory; then the peak of each worker.
Exit code 1 when anything raised.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

LIMIT_BYTES = 3 << 30
LIMIT_S = 60

WORDS = """
True False None null true NaN Infinity not and or if else lambda for in is await async case var new
f( f(a= [f(a=1)] {'a': {"a": [[ ]] (( )) ''' b' r' f' \\u \\x \\N{ 0x 1e 1e9 1e999 -1 +1 1_0 1j .5
999999999999 00 0b1 ** // << >> := -> == != <= ... a.b.c a[0] => ${ /* */ {{ %s function( List.of(
```json ``` ```python <tool_call> </tool_call> <functions> </functions> <TOOLCALL> </function>
<function name="f"> <parameter> <think> </think> <|im_end|> <![CDATA[ &amp; &x; 5.
<function=f> <parameter=a> </parameter> [TOOL_CALLS] [TOOL_CALLS]f{ [ARGS] <|python_tag|>
"""

PIECES = (
    *"()[]{}<>,:;=.'\"`\\|#@!?*+-/%&~^_ \n\t\r\0",
    *WORDS.split(),
    "\nThought: ",
    "\nAction: ",
    "\nAction Input: ",
    '{"answer_status": "Solved", "reason": "',
    '{"return_type": "give_answer", "final_answer": "',
    '{"error": "", "response": "',
    '{"name": "f", "arguments": {"a": 1}}',
    '{"name": "f"}',
    '<function=f>{"a": 1}</function>',
    "5*10**(-12)",
    "2**99999//3**31000",
    "(1<<99999)*",
    "There is incorrect value (",
    ") for the parameters (",
    "Missing necessary parameters (",
    ") for the api (",
    "the limitations of the function",
    "cannot solve this problem",
    "缺少必要参数",
    "由于函数功能限制",
    "é",
    "ß",
    "\u202e",
    "\ud800",
    "\U0001f600",
    "\u2028",
    "“",
    "’",
)


class Texts:
    """An endless stream, the same for the same seed."""

    def __init__(self, seed: int, golds: list[str]) -> None:
        self._random, self._golds = random.Random(seed), golds

    def __iter__(self) -> Iterator[str]:
        kinds = (self._mutated, self._mutated, self._pieces, self._repeated, self._wrapped)
        while True:
            yield self._random.choice(kinds)()

    def _pieces(self) -> str:
        count = int(self._random.expovariate(1 / 20)) + 1
        return "".join(self._random.choice(PIECES) for _ in range(count))

    def _repeated(self) -> str:
        few = "".join(self._random.choice(PIECES) for _ in range(self._random.randrange(1, 4)))
        times = int(10 ** self._random.uniform(0, 4.3 if self._random.random() < 0.02 else 2.5))
        return self._random.choice(("", "[f(a=", "f(", "{")) + few * times + self._pieces()[:20]

    def _wrapped(self) -> str:
        left, right = self._random.choice((("(", ")"), ("[", "]"), ("{'a':", "}"), ("f(a=", ")")))
        depth = int(10 ** self._random.uniform(0, 2.7))
        return left * depth + self._mutated() + right * self._random.choice((depth, depth - 1))

    def _mutated(self) -> str:
        text = self._random.choice(self._golds)
        for _ in range(self._random.randrange(1, 5)):
            at = self._random.randrange(len(text) + 1)
            to = min(len(text), at + int(self._random.expovariate(1 / 6)))
            piece = self._random.choice((*PIECES[:40], self._random.choice(PIECES)))
            text = self._random.choice(
                (
                    text[:at] + piece + text[at:],
                    text[:at] + text[to:],
                    text[:at] + piece + text[to:],
                    text[:at] + text[at:to] * 2 + text[to:],
                    text[:at],
                    text[to:] + text[:at],
                )
            )
        return text


def readers(bfcl: str) -> tuple[dict[str, Callable[[str, int], Any]], list[str]]:
    """Name -> (text, number) -> anything; and the gold answers."""
    from ace_ray import calls
    from ace_ray.benchmarks.acebench import native
    from ace_ray.benchmarks.acebench.episode.calls import agent_calls
    from ace_ray.benchmarks.acebench.gold import render_gold
    from ace_ray.benchmarks.acebench.readers import check_read
    from ace_ray.benchmarks.bfcl.answers import Answer
    from ace_ray.benchmarks.bfcl.decode import executable, read
    from ace_ray.benchmarks.bfcl.forms import Form
    from ace_ray.benchmarks.bfcl.gold import gold_episodes
    from ace_ray.benchmarks.registry import make_benchmark
    from ace_ray.benchmarks.stabletoolbench.apis import simulator as api_reading
    from ace_ray.benchmarks.stabletoolbench.apis import values
    from ace_ray.benchmarks.stabletoolbench.episode.reading import read_finish, read_react
    from ace_ray.benchmarks.stabletoolbench.judge import reading
    from ace_ray.benchmarks.stabletoolbench.prompts import OWN
    from ace_ray.calls.known import known_calls
    from ace_ray.calls.plain import plain_calls
    from ace_ray.models.reasoning import split_think
    from ace_ray.records import Episode, ToolCall

    ace = make_benchmark("acebench", {"data": "mini"})
    tools = make_benchmark("bfcl", {"data": bfcl})
    ace_entries = [e for e in ace.entries() if not e.category.startswith("agent")]
    single = [e for e in tools.entries() if not e.category.startswith(("multi_turn", "memory"))]
    several = [e for e in tools.entries() if e.category.startswith("multi_turn")]
    golds = [render_gold(entry) for entry in ace_entries]
    pairs = (gold_episodes(entry, {}) for entry in [e for e in single if e.gold][:2000])
    golds += [pair[0].output for pair in pairs if pair]

    def checked(text: str, number: int) -> None:
        entry = ace_entries[number % len(ace_entries)]
        for verdict in ace.verdicts(entry, Episode(output=text)).values():
            assert len(verdict.error) < 10_000, "an error that is as long as the answer"
        check_read(entry, text, ("hermes", "openai", "fenced"))

    def judged(text: str, number: int) -> None:
        tools.check(single[number % len(single)], Episode(output=text))

    def conversed(text: str, number: int) -> None:
        # A replay of a conversation takes milliseconds.
        if number % 50 == 0 and several:
            entry = several[number // 50 % len(several)]
            turns = [[text, "Done."] for _ in entry.gold]
            tools.check(entry, Episode(state={"turns": turns, "ended": ""}))

    others: tuple[Any, ...] = ((Form(), "java"), (Form(), "javascript"))
    forms = [Form(), Form("json"), Form("verbose_xml"), Form("concise_xml"), Form(tagged=True)]

    def decoded(text: str, number: int) -> None:
        for form, language in ((forms[number % len(forms)], "python"), *others):
            with suppress(calls.NotCalls):
                read(text, form, language)
        executable(Answer(text))
        executable(Answer("", (ToolCall("f", text), ToolCall(text, "{}"))))

    parameters = {"properties": {"a": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "number"}]}}}
    offered = [{"function": {"name": "f", "parameters": {**parameters, "$defs": {"A": {}}}}}]

    def refused(call: Callable[[str], Any], *errors: type[Exception]) -> Callable[[str, int], Any]:
        def tried(text: str, number: int) -> None:
            with suppress(*errors):  # the documented ways to say no
                call(text)

        return tried

    def judge_replies(text: str, number: int) -> None:
        for one in (
            reading.read_status,
            reading.read_complete,
            reading.read_fac,
            reading.read_index,
        ):
            one(text)

    def agent(text: str, number: int) -> None:
        for loop in ("multi_turn", "multi_step"):
            for protocol in ("official", "fixed"):
                agent_calls(text, loop=loop, protocol=protocol)

    def chains(text: str, number: int) -> None:
        for call in read_react(text)[1]:
            read_finish(call.arguments, OWN)
        read_finish(text, OWN)

    def api_answers(text: str, number: int) -> None:
        api_reading.read_answer(text)
        api_reading.read_answer(text, loose=True)
        values.first_object(text)
        with suppress(values.Unusable):
            values.arguments_of(text)
        values.canonical_of_upstream(text)

    return {
        "calls": refused(calls.parse_calls, calls.NotCalls),
        "known formats": lambda text, number: (known_calls(text), known_calls(text, offered)),
        "plain_calls": lambda text, number: plain_calls(text),
        "json_calls": refused(lambda t: native.calls_of(native.load_json(t)), ValueError),
        "acebench agent": agent,
        "acebench check": checked,
        "bfcl decode": decoded,
        "bfcl check": judged,
        "bfcl multi-turn": conversed,
        "react and Finish": chains,
        "API answers": api_answers,
        "judge": judge_replies,
        "reasoning": lambda text, number: (split_think(text), split_think(text, opened=True)),
    }, golds


@dataclass
class Found:
    calls: int = 0
    raised: int = 0
    slowest: float = 0.0
    length: int = 0
    """Of the slowest text."""
    grown_mib: float = 0.0
    shown: list[str] = field(default_factory=list)


def work(seed: int, texts: int, bfcl: str) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    faulthandler.register(signal.SIGPROF, chain=True)
    through, golds = readers(bfcl)
    found = {name: Found() for name in through}
    before = peak = _peak_mib()
    for number, text in zip(range(texts), Texts(seed, golds), strict=False):
        for name, call in through.items():
            one = found[name]
            signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
            began = time.process_time()
            try:
                call(text, number)
            except Exception:  # noqa: BLE001 - that is what is looked for
                one.raised += 1
                if len(one.shown) < 3:
                    one.shown.append(f"{text[:200]!r}\n{traceback.format_exc(limit=-3)}")
            spent = time.process_time() - began
            one.calls += 1
            if spent > one.slowest:
                one.slowest, one.length = spent, len(text)
            if (now := _peak_mib()) > peak:
                one.grown_mib, peak = max(one.grown_mib, now - peak), now
    signal.setitimer(signal.ITIMER_PROF, 0)
    return {
        "found": {name: vars(one) for name, one in found.items()},
        "before_mib": before,
        "peak_mib": peak,
    }


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--bfcl", default="mini", help="BFCL's data: mini, installed, a folder")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(work(args.seed, args.texts, args.bfcl)))
        return 0
    each = -(-args.texts // args.workers)
    command = [sys.executable, __file__, "--child", "--texts", str(each), "--bfcl", args.bfcl]
    children = [
        subprocess.Popen([*command, "--seed", str(args.seed + n)], stdout=subprocess.PIPE)
        for n in range(args.workers)
    ]
    results, dead = [], 0
    for child in children:
        out, _ = child.communicate()
        if child.returncode:
            dead += 1
            print(
                f"a worker ended with {child.returncode}: a text took over {LIMIT_S} s, or memory"
            )
        else:
            results.append(json.loads(out.splitlines()[-1]))
    raised = 0
    for name in results[0]["found"] if results else ():
        ones = [result["found"][name] for result in results]
        slow = max(ones, key=lambda one: one["slowest"])
        raised += (bad := sum(one["raised"] for one in ones))
        print(
            f"{name:18} {sum(one['calls'] for one in ones):9,} texts, {bad} raised, slowest "
            f"{slow['slowest']:.3f} s ({slow['length']:,} characters), "
            f"{max(one['grown_mib'] for one in ones):.0f} MiB"
        )
        for one in ones:
            print(*one["shown"], sep="\n", end="")
    for result in results:
        print(f"peak memory {result['peak_mib']:.0f} MiB, {result['before_mib']:.0f} at the start")
    return int(bool(raised or dead))


if __name__ == "__main__":
    sys.exit(main())
