"""Random hostile texts through every reader of foreign text and every checker: none raises.

The texts are gold answers that were mutated, pieces of syntax at random, and pieces repeated up to
20,000 times.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from itertools import islice

import pytest

from tests.limits import cpu_limit
from tests.text_readers import READERS, checks_and_golds

TEXTS, SEED = 5_000, 0
GROWTH_MIB = 1_024
"""Maximum growth of the peak memory of the process."""

WORDS = """
True False None null true NaN Infinity not and or if else lambda for in is await new var async
f( f(a= [f(a=1)] {'a': {"a": [[ ]] (( )) ''' b' r' f' \\u \\x \\N{ 0x 1e 1e999 -1 1_0 1j 00
999999999999 ** // << >> := -> == != <= ... a.b.c a[0] => ${ /* */ {{ %s function( List.of(
```json ``` <tool_call> </tool_call> <functions> </functions> <TOOLCALL> </function>
<function name="f"> <parameter> <think> </think> <|im_end|> <![CDATA[ &amp; &x; 5.
<function=f> <parameter=a> </parameter> [TOOL_CALLS] [TOOL_CALLS]f{ [ARGS] <|python_tag|>
5*10**(-12) 2**99999//3**31000 (1<<99999)*
"""
PIECES = (
    *"()[]{}<>,:;=.'\"`\\|#@!?*+-/%&~^_ \n\t\r\0",
    *WORDS.split(),
    *("\nThought: ", "\nAction: ", "\nAction Input: ", '{"error": "", "response": "'),
    '{"answer_status": "Solved", "reason": "',
    '{"return_type": "give_answer", "final_answer": "',
    '{"name": "f", "arguments": {"a": 1}}',
    *("There is incorrect value (", ") for the parameters (", "Missing necessary parameters ("),
    *("the limitations of the function", "cannot solve this problem"),
    *(
        "缺少必要参数",
        "由于函数功能限制",
        "é",
        "ß",
        "\u202e",
        "\ud800",
        "\U0001f600",
        "\u2028",
        "“",
    ),
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
            before, cut, after = text[:at], text[at:to], text[to:]
            piece = self._random.choice(PIECES)
            changed = (before + piece + cut + after, before + after, before + piece + after)
            text = self._random.choice((*changed, before + cut * 2 + after, before, after + before))
        return text


@pytest.mark.nightly
def test_no_reader_raises_takes_long_or_grows() -> None:
    checks, golds = checks_and_golds()
    before = peak_mib()
    for number, text in enumerate(islice(Texts(SEED, golds), TEXTS)):
        for name, read in {**READERS, **checks}.items():
            with cpu_limit(f"{name}: {text[:200]!r}"):
                try:
                    read(text, number)
                except Exception as error:  # noqa: BLE001 - what no reader may do
                    pytest.fail(f"{name} on text {number}, {text[:200]!r}: {error!r}")
    assert peak_mib() - before < GROWTH_MIB


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
