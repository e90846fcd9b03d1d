"""List unmarked tests that take 3 s or more.

Reads the output of ``pytest -m "not (ray or engine or nightly)" --durations=0`` from the named
files, or from stdin. Exits with 1 when it lists a test.
"""

from __future__ import annotations

import fileinput
import re
import sys
from collections import defaultdict

MOST_S = 3.0
LINE = re.compile(r"^([\d.]+)s (?:setup|call|teardown) +(\S.*)$")


def slow(lines: list[str]) -> list[tuple[str, float]]:
    """Sum set-up, call and teardown of each test. Return the slow tests, slowest first."""
    seconds = defaultdict[str, float](float)
    for line in lines:
        if found := LINE.match(line.strip()):
            seconds[found[2]] += float(found[1])
    return sorted(
        ((test, took) for test, took in seconds.items() if took >= MOST_S), key=lambda one: -one[1]
    )


if __name__ == "__main__":
    with fileinput.input() as lines:
        found = slow(list(lines))
    for test, took in found:
        print(f"{took:6.1f} s  {test}")
    sys.exit(bool(found))
