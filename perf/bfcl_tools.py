"""What hostile arguments cost every tool of BFCL's multi-turn and memory classes.

    python perf/bfcl_tools.py --data installed [--calls-s 2] [--show 12]

Every documented method of every class gets each of the hostile values at every place of its
arguments, the others being plain, in the limited process as runs and checks have it. Printed are
the slowest calls (CPU time, in the system's ticks), the process's peak memory, how many calls broke
its limits, and how many plain calls a second pass through it and, without it, through an
environment in this process. Exit code 1 where a call broke a limit: the bounds on arguments should
come first.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.bfcl.data.loader import function_docs
from ace_ray.benchmarks.bfcl.data.upstream_package import TOOL_MODULES, UpstreamPackage
from ace_ray.benchmarks.bfcl.tools.environment import InitialState, open_environment
from ace_ray.benchmarks.bfcl.tools.limited import LimitedEnvironment
from ace_ray.benchmarks.bfcl.tools.sources import tool_sources
from ace_ray.sandbox.attempts import end_processes, processes
from ace_ray.sandbox.limited import LimitBroken

DIGITS = "9" * 4_299
HOSTILE = (
    *("1e308", "1e999", "-1e999", "5e-324", "1e308j", "1e999-0", "float", "True", "None", "..."),
    *(DIGITS, f"-{DIGITS}", "0x" + "f" * 90_000, "10000000000", "-10000000000", "2147483648"),
    *("'nan'", "'inf'", "'-inf'", "'1e9999'", "'1e-9999'", "'1e300000000'", "'1E-3 0 0 0 0 0 0 0'"),
    *("'1+1e-9999j'", "'1+1e-300000000j'", "'1e-2000000000+1j'", "'1e1_000_000_000'"),
    *("'１e９９９９９９９９９'", f"'{DIGITS}/{DIGITS}'", "'1/3'", "'" + "9" * 990 + "e9999'"),
    *("'" + "9" * 90_000 + "'", "'a' 'b'", "'" + "a" * 90_000 + "'", "'" + "a_ " * 30_000 + "'"),
    *("'" + "(" * 50_000 + "'", "'" + "\\n" * 40_000 + "'", "'" + "../" * 30_000 + "'"),
    *("'" + "[a-z]+" * 15_000 + "'", "'{0}{0.__class__}%s%999999999d'", "'\\ud800'", "'\\0'"),
    *("'2024-01-01'", "'9999-99-99'", "'0-" + "9" * 5_000 + "'"),
    *("[]", "{}", "[" * 90 + "]" * 90, "{'a':" * 90 + "1" + "}" * 90, "[" + "1," * 19_000 + "]"),
    *("[" + "1," * 45_000 + "]", "['a'," * 80 + "]" * 80, "[" + f"{DIGITS}," * 20 + "]"),
    *("[" + "1e308," * 10_000 + "]", "{" + ",".join(f"'k{n}': {n}" for n in range(7_000)) + "}"),
    *("['" + "a" * 80_000 + "']", "[1e308j]", "{'a': [1, {'b': '" + "c" * 50_000 + "'}]}", "b'x'"),
)
TOGETHER = (
    *(DIGITS, "2", "0.5", "1e-320", "1000", "-1000", "10000", "True"),
    *("'1+1e-9999j'", "'1e9999'", "'1e-9999'", f"'{'9' * 990}e9999'"),
)
"""Of what computes with numbers, all of these at all places."""
TOGETHER = (
    *(DIGITS, "2", "0.5", "1e-320", "1000", "-1000", "10000", "True"),
    *("'1+1e-9999j'", "'1e9999'", "'1e-9999'", f"'{'9' * 990}e9999'"),
)
"""Where all arguments are numbers, each of these at each place together."""
PLAIN = {
    "string": "'a'",
    "integer": "1",
    "float": "1.5",
    "number": "1.5",
    "boolean": "True",
    "array": "[1, 2]",
    "dict": "{'a': 1}",
}


def calls(doc: Mapping[str, Any]) -> Iterator[str]:
    """Every hostile value at every place, and at all places at once."""
    name, properties = doc["name"], doc["parameters"]["properties"]
    plain = {key: PLAIN.get(one["type"], "'a'") for key, one in properties.items()}
    yield _text(name, plain)
    for value in HOSTILE:
        for key in plain:
            if len(value) < 90_100:
                yield _text(name, plain | {key: value})
        if len(value) * len(plain) < 99_000:
            yield _text(name, dict.fromkeys(plain, value))
    if {one["type"] for one in properties.values()} <= {"integer", "float", "number"}:
        for values in itertools.product(TOGETHER, repeat=len(plain)):
            yield _text(name, dict(zip(plain, values, strict=True)))


def _text(name: str, arguments: Mapping[str, str]) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"


def cpu_s() -> float:
    """That the limited processes have used."""
    ticks = 0
    for pid in processes():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_mib() -> float:
    lines = [
        line
        for pid in processes()
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    return max((int(line.split()[1]) / 1024 for line in lines), default=0.0)


def rate(call: Any, seconds: float) -> float:
    ends, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < ends:
        call("step", {"texts": ["add(a=1, b=2)"]})
        count += 1
    return count / seconds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="installed")
    parser.add_argument("--calls-s", type=float, default=2.0, help="seconds for plain calls")
    parser.add_argument("--show", type=int, default=12, help="slowest calls to print")
    options = parser.parse_args(arguments)
    copy = UpstreamPackage.locate(options.data)
    sources, docs = tool_sources(copy), function_docs(copy)
    spent: list[tuple[float, str]] = []
    found: Counter[str] = Counter()
    broken, peak = f"Error during execution: {LimitBroken()}", 0.0
    for name in TOOL_MODULES:
        names = tuple(doc["name"] for doc in docs[name])
        for doc in docs[name]:
            for text in calls(doc):
                # A fresh one each: a budget that is used up would refuse the rest.
                environment = LimitedEnvironment(sources, InitialState({name: names}, {name: {}}))
                start = cpu_s()
                said = str(environment.call("step", {"texts": [text]}).value[0])
                spent.append((cpu_s() - start, f"{name}.{text[:70]}"))
                found["calls"] += 1
                found["errors"] += "error" in said[:30].lower()
                found["broken"] += said == broken
            peak = max(peak, peak_mib())
    print(f"{found['calls']:,} calls, {found['errors']:,} end in an error")
    print(f"{found['broken']} broke a limit; peak memory of the process {peak:.0f} MiB")
    for seconds, text in sorted(spent, reverse=True)[: options.show]:
        print(f"{seconds * 1000:8.1f} ms  {text}")
    initial_state = InitialState({"MathAPI": ("add",)})
    through = rate(LimitedEnvironment(sources, initial_state).call, options.calls_s)

    # Fresh environments: one has processor time for a conversation only.
    def fresh(name: str, arguments: Mapping[str, Any]) -> Any:
        return open_environment(sources, initial_state).call(name, arguments)

    print(
        f"{through:,.0f} calls a second in the process, {rate(fresh, options.calls_s):,.0f} in this"
    )
    end_processes()
    return int(found["broken"] > 0)


if __name__ == "__main__":
    sys.exit(main())
