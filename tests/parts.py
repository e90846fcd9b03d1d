"""Run the tests in parts, one after another, and print the seconds and counts of each part.

``python tests/parts.py`` runs every part (`make test-all`). ``python tests/parts.py PART...`` runs
the named parts. Exits with 1 when a part failed.
"""

import argparse
import re
import subprocess
import sys
import time
from collections import Counter

TWO = ["-n", "2"]
# Tests of a file share runs, so one process gets the whole file.
TWO_BY_FILE = [*TWO, "--dist", "loadfile"]
PATIENT = ["--timeout", "3600"]

TESTS = {
    # The tests of `make test`.
    "fast": [*TWO, "-m", "not nightly"],
    "slow": [*TWO, *PATIENT, "-m", "nightly and not (ray or engine)"],
    # Whole runs wait more than they compute, so two of them fit on two cores.
    "long runs": [*TWO_BY_FILE, *PATIENT, "-m", "ray and nightly and not cluster"],
    # One after another: clusters use fixed ports, and an engine uses all cores.
    "clusters": [*PATIENT, "-m", "cluster"],
    "engines": [*PATIENT, "-m", "engine and nightly"],
}
"""Arguments of pytest, by part. Each test belongs to exactly one part."""

COMMANDS = {name: [sys.executable, "-m", "pytest", *arguments] for name, arguments in TESTS.items()}
COMMANDS["docs"] = ["make", "docs"]

ALL = tuple(COMMANDS)
LAST_LINE = re.compile(r"^=+ (.*\d+ (?:passed|failed|error|skipped).*) in [\d.]+s.*=+$")
NO_TESTS = 5
"""Exit code of pytest when it selects no test."""


def run(part: str) -> tuple[bool, Counter[str], float]:
    """Run one part and print its output. Return success, counts and seconds."""
    print(f"\n{part}: {' '.join(COMMANDS[part])}", flush=True)
    began, counts = time.monotonic(), Counter[str]()
    command = COMMANDS[part]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        last = b""
        while piece := process.stdout.read(4096):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            last = (last + piece)[-4096:]
    for line in last.decode(errors="replace").splitlines():
        if match := LAST_LINE.match(line):
            counts = Counter({w: int(n) for n, w in re.findall(r"(\d+) (\w+)", match[1])})
    return process.returncode in (0, NO_TESTS), counts, time.monotonic() - began


def format_counts(counts: Counter[str]) -> str:
    words = [f"{n:,} {word}" for word, n in counts.items() if word != "deselected"]
    return ", ".join(words) or "no tests"


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the tests in parts.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(ALL))
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in ALL]:
        parser.error(f"no part is called {unknown[0]!r}: {', '.join(ALL)}")
    parts = tuple(options.parts) or ALL
    lines, total, seconds, good = [], Counter[str](), 0.0, True
    for part in parts:
        passed, counts, took = run(part)
        state = format_counts(counts) if part in TESTS else ("built" if passed else "failed")
        lines.append(f"  {part:<10} {took:6.0f} s   {state}" + ("" if passed else "   FAILED"))
        total, seconds, good = total + counts, seconds + took, good and passed
    print("\n" + "\n".join(lines))
    verdict = "all tests passed" if good else "SOME TESTS FAILED"
    print(f"{verdict}: {format_counts(total)} in {seconds:.0f} s")
    sys.exit(not good)


if __name__ == "__main__":
    main()
