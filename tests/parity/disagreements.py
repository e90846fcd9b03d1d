"""Outputs on which our two rule sets do not agree, drawn at random to be read.

``python tests/parity/disagreements.py --data imported [--category special] [--count 60]`` prints
how many there are, then a draw with gold answer and both verdicts. The outputs are the variations
of the parity run and rewritten gold answers. What reading them found is in docs/acebench.md.
``--votes`` draws votes of StableToolBench's judge instead.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from variations import variations

from ace_ray.benchmarks.acebench.benchmark import check
from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.benchmarks.stabletoolbench.check import verdicts
from ace_ray.benchmarks.stabletoolbench.converted import called, linked
from ace_ray.benchmarks.stabletoolbench.judge.asking import read_status
from ace_ray.benchmarks.stabletoolbench.names import FINISH
from ace_ray.errors import UserError
from ace_ray.types import Entry, Verdict, canonical_json

_NUMBER = re.compile(r"=(\d+)(?=[,)])")
REAL: dict[str, Callable[[str], str]] = {
    "prose before": lambda gold: f"Here is the API request:\n{gold}",
    "fence": lambda gold: f"```python\n{gold}\n```",
    "thought": lambda gold: f"<think>I should call the API.</think>\n\n{gold}",
    "double quotes": lambda gold: gold.replace("'", '"'),
    "JSON booleans": lambda gold: gold.replace("True", "true").replace("False", "false"),
    "integers as floats": lambda gold: _NUMBER.sub(r"=\1.0", gold),
    "numbers as texts": lambda gold: _NUMBER.sub(r"='\1'", gold),
    "capitals": lambda gold: re.sub(r"'([a-z])", lambda found: found.group().upper(), gold),
    "slashes in dates": lambda gold: gold.replace("-", "/"),
    "a remark in a value": lambda gold: re.sub(r"'([^']*)'\)", r"'\1 (approx.)')", gold),
    "last argument dropped": lambda gold: re.sub(r", \w+=[^=]*\)\]$", ")]", gold),
    "one argument more": lambda gold: re.sub(r"\)\]$", ", note='please')]", gold),
    "words behind": lambda gold: f"{gold}\nLet me know if you need anything else.",
    "no brackets": lambda gold: gold.strip("[]"),
    "apology": lambda gold: "Sorry, " + gold.strip('["]'),
    "lower case": str.lower,
}
_REPLIES = (
    '{{"content": "The answer lists what was asked.", "answer_status": "{0}"}}',
    '```json\n{{"answer_status": "{0}", "reason": "ok"}}\n```',
    "The answer covers the request.\nAnswer Status: {0}",
    "It may look {1}, but see the data.\n\n{0}",
    '{{"answer_status": "{0}", "content": "cut off he',
    "**Answer Status:** **{0}**",
    "Answer Status: {0} or {1}?",
    "I would say {0}.",
)
_STATUSES = ("Solved", "Unsure", "Unsolved")


def disagreements(
    entries: list[Entry], per_row: int, seed: int
) -> tuple[int, list[tuple[Entry, str, Any, dict[str, Verdict]]]]:
    """How many outputs were judged, and those on which the rule sets do not agree."""
    count, found = 0, []
    for entry in entries:
        outputs = [(made.kind, made.output) for made in variations(entry, per_row, seed)]
        agent = entry.category.startswith("agent_")
        if not agent:
            gold = render_gold(entry)
            outputs += [(f"real: {kind}", change(gold)) for kind, change in REAL.items()]
        for kind, output in outputs:
            judged = check_agent(entry, *output) if agent else check(entry, output)
            count += 1
            if judged["official"].valid != judged["strict"].valid:
                found.append((entry, kind, output, judged))
    return count, found


def votes(count: int, seed: int) -> Counter[tuple[str, ...]]:
    """The votes of ``count`` judged answers on which StableToolBench's rule sets do not agree.

    Replies that state nothing, also after a character was changed, are drawn again, as the judge
    is asked again.
    """
    rng = random.Random(seed)
    entry = Entry("stabletoolbench", "G1_instruction", "en", "1", {"query": "?"}, {"relevant": []})
    raw = canonical_json({"return_type": "give_answer", "final_answer": "It is 5."})
    answer = {"final_answer": raw, "answer_details": linked([called(FINISH, raw)])}
    state: dict[str, Any] = {"answer": {"answer": answer}, "calls": [], "fac": None, "sowr": None}
    found: Counter[tuple[str, ...]] = Counter()
    while found.total() < count:
        said = [_vote(rng) for _ in range(rng.choice([1, 2, 3, 3, 3, 5]))]
        judged = [{"status": status} for status in said]
        both = verdicts(entry, {**state, "votes": judged})
        if both["official"].valid != both["strict"].valid:
            found[tuple(sorted(said))] += 1
    return found


def _vote(rng: random.Random) -> str:
    while True:
        status = rng.choices(_STATUSES, [5, 2, 3])[0]
        other = rng.choice([one for one in _STATUSES if one != status])
        reply = rng.choice(_REPLIES).format(status, other)
        if rng.random() < 0.3:
            place = rng.randrange(len(reply))
            reply = reply[:place] + rng.choice(["\n", " ", '"', "{", "x", ""]) + reply[place + 1 :]
        if read := read_status(reply):
            return read


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="imported", help="as in a run's config")
    parser.add_argument("--category", default="", help="what the categories' names begin with")
    parser.add_argument("--per-row", type=int, default=12, help="variations per row")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--votes", action="store_true", help="of StableToolBench's judge")
    asked = parser.parse_args()
    if asked.votes:
        for said, number in votes(asked.count, asked.seed).most_common():
            print(f"{number:4} {', '.join(said)}")
        return 0
    try:
        entries = [e for e in load(locate(asked.data)) if e.category.startswith(asked.category)]
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    count, found = disagreements(entries, asked.per_row, asked.seed)
    print(f"{count:,} outputs, {len(found):,} disagreements")
    drawn = random.Random(asked.seed).sample(found, min(asked.count, len(found)))
    for entry, kind, output, judged in drawn:
        gold = entry.gold if entry.category.startswith("agent_") else render_gold(entry)
        says = ", ".join(
            f"{rules} {verdict.error_type or 'valid'}" for rules, verdict in judged.items()
        )
        print(f"{entry.language} {entry.id} [{kind}] {says}: {judged['strict'].error}")
        print(f"  output {str(output)[:600]!a}\n  gold   {str(gold)[:600]!a}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
