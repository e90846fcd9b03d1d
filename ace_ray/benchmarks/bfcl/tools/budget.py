"""What the calls of one attempt may cost together."""

from __future__ import annotations

from ace_ray.benchmarks.bfcl.tools.size import TooLarge

MAX_CALLS = 5_000
MAX_TEXT_CHARS = 2_000_000
MAX_RESULT_CHARS = 20_000_000
MAX_WALKED = 1_000_000
MAX_CPU_S = 6.0
BROKEN_CPU_S = 2.0
"""Bounds on all calls of an attempt, nested ones among them, on their texts and the results that
become arguments, on their results, and on what they look through: the paths that they list, and all
items that calls have added to the state. A model's 21 steps of 4,096 tokens a turn stay far below.
The processor time is a last bound under the others, which count what is the same everywhere; a call
that breaks a limit of its process costs `BROKEN_CPU_S` of it.
"""


class Budget:
    """Counts down; once any part is used up, every further call is refused."""

    def __init__(self) -> None:
        self.calls, self.text, self.results = MAX_CALLS, MAX_TEXT_CHARS, MAX_RESULT_CHARS
        self.walked = MAX_WALKED
        self.cpu_s = MAX_CPU_S

    def check(self) -> None:
        """Raise `TooLarge` where a part is used up."""
        # The clock may not see short calls: three broken ones are too many without any other.
        if min(self.calls, self.text, self.results, self.walked) < 0 or self.cpu_s <= 0:
            raise TooLarge("the calls of this conversation have used up their budget")

    def walk(self, paths: int) -> None:
        """Take what a listing costs, before it is made. Raises `TooLarge`."""
        self.walked -= paths
        self.check()
