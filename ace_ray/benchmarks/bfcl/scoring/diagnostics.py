"""What rows carry beside their verdicts: how episodes ended, and how likely the gold calls were.

Both travel as metrics of verdicts, so that a summary needs nothing but the rows.

The contamination score follows the seed document: the perplexity of the published single-turn
answers over that of the crowd-sourced (live) ones. The perplexity of an answer is
``exp(-mean logprob of its tokens)``, given the prompt; that of a set is the geometric mean over its
entries, so that long answers count no more than short ones. Far below 1 the model finds the
published answers likelier than those that it cannot have seen before they were collected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.bfcl.categories import LIVE, NON_LIVE
from ace_ray.benchmarks.results import ScoredRow
from ace_ray.records import Verdict
from ace_ray.stats import Z95

ENDINGS = ("finished", "steps", "context", "deadline", "preparation")
"""The last: of memory questions, where a conversation before them was cut and forgotten."""
GOLD = "gold_token_probability"
_ENDED = "ended:"


def with_metrics(
    verdicts: Mapping[str, Verdict],
    *,
    ended: str | None,
    gold_logprobs: Sequence[float] | None = None,
) -> dict[str, Verdict]:
    """``verdicts`` with what the episode is known for.

    ``ended`` is one of `ENDINGS`, None for a single call; ``gold_logprobs`` those of the gold
    calls' tokens, if they were asked for.
    """
    more: dict[str, float] = {}
    if ended in ENDINGS:
        more[f"{_ENDED}{ended}"] = 1
    if gold_logprobs:
        more[GOLD] = math.exp(sum(gold_logprobs) / len(gold_logprobs))
    return {
        rules: replace(verdict, metrics={**verdict.metrics, **more}) if more else verdict
        for rules, verdict in verdicts.items()
    }


class Diagnostics:
    """Collects both while rows pass by."""

    def __init__(self) -> None:
        self._endings: dict[str, Counter[str]] = {}
        self._logs: dict[str, list[float]] = {"single_turn": [], "live": []}

    def through(self, rows: Iterable[ScoredRow]) -> Iterator[ScoredRow]:
        for row in rows:
            for name, value in row.verdicts["official"].metrics.items() if row.verdicts else ():
                if name.startswith(_ENDED):
                    how = name.removeprefix(_ENDED)
                    self._endings.setdefault(row.category, Counter())[how] += 1
                elif name == GOLD and value > 0:
                    where = "live" if row.category in LIVE else "single_turn"
                    self._logs[where].append(math.log(value))
            yield row

    def endings(self) -> dict[str, dict[str, int]]:
        """``{category: {ending: episodes}}``."""
        return {
            category: {how: found[how] for how in ENDINGS}
            for category, found in self._endings.items()
        }

    def contamination(self) -> dict[str, Any] | None:
        """The score, its 95 % interval and both perplexities; None where either set is absent."""
        if not all(self._logs.values()):
            return None
        single, live = (_mean(logs) for logs in self._logs.values())
        gap, half = live[0] - single[0], Z95 * math.sqrt(single[1] + live[1])
        return {
            "score": math.exp(gap),
            "interval": [math.exp(gap - half), math.exp(gap + half)],
            "perplexity": {"single_turn": math.exp(-single[0]), "live": math.exp(-live[0])},
            "n": {name: len(logs) for name, logs in self._logs.items()},
        }


def asked_for_gold(category: str) -> bool:
    """Whether a category has gold calls that enter the contamination score: the Python ones."""
    return category in (*NON_LIVE, *LIVE) and not category.endswith(
        ("relevance", "_java", "_javascript")
    )


def _mean(logs: Sequence[float]) -> tuple[float, float]:
    """The mean, and the square of its standard error."""
    mean = sum(logs) / len(logs)
    spread = sum((value - mean) ** 2 for value in logs)
    return mean, spread / max(len(logs) - 1, 1) / len(logs)
