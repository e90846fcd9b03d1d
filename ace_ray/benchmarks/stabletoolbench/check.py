"""Compute the verdicts and metrics of a row from the state of its episode.

The rule set ``official`` counts votes as upstream does (``eval_pass_rate.py``). A row's SoPR
(solvable pass rate) is the mean of its votes: 1 for Solved, 0.5 for Unsure, 0 for Unsolved. The row
is valid if its SoPR exceeds 0.5. Under ``strict``, a row is valid and has the SoPR 1 if every vote
is Solved. Other rows are not valid and have the SoPR 0.

Calls are the ``calls`` in the episode's state (docs/results.md), which do not include Finish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench.answer_trees import has_finish
from ace_ray.benchmarks.stabletoolbench.judge import measures
from ace_ray.benchmarks.stabletoolbench.tools import UNKNOWN
from ace_ray.types import Entry, Verdict

# Origins of cached answers (`ApiAnswer.origin`).
ORIGINS = ("recorded", "simulator", "real")
SOURCES = ("cache", "simulator", "real", "none")
# Prefixes of metrics: number of calls, and shares of calls by source, origin and failure.
CALLS = "calls_"
FROM = "from_"
CACHED = "cached_"
FAILED = "failed_"

Pairs = Sequence[Sequence[str]]


def api_recall(relevant: Pairs, calls: Sequence[Mapping[str, Any]]) -> float:
    """Return the share of the query's ``relevant`` APIs that were called; 0 if none is relevant.
    The result JSON calls this share ``api_call_score``."""
    pairs = {(tool, api) for tool, api in relevant}
    return len(pairs & _reached_apis(calls)) / len(pairs) if pairs else 0.0


def metrics(relevant: Pairs, calls: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the metrics of one row, in 0..1.

    All rows have ``api_recall``, ``exact_set`` (1 if exactly the relevant APIs were called) and
    ``calls_<n>`` (1 for n calls). Rows that called a known API have ``api_precision``. Rows with a
    call, even of an unknown function, have these shares of their calls: ``hallucinated`` (unknown
    function), ``errors`` (an API answered with an error), ``cache_hit``, ``from_<source>``,
    ``cached_<origin>`` and ``failed_<kind>`` (see `ApiAnswer.failure`)."""
    pairs, reached = {(tool, api) for tool, api in relevant}, _reached_apis(calls)
    shares = {
        "api_recall": api_recall(relevant, calls),
        "exact_set": float(reached == pairs),
        f"{CALLS}{len(calls)}": 1.0,
    }
    if reached:
        shares["api_precision"] = len(pairs & reached) / len(reached)
    counts: Counter[str] = Counter()
    for call in calls:
        is_unknown = call["code"] == UNKNOWN
        source = call["source"] if call["source"] in SOURCES else "none"
        counts["hallucinated"] += is_unknown
        counts["errors"] += not is_unknown and bool(call["code"] or call["error"])
        counts["cache_hit"] += source == "cache"
        counts[f"{FROM}{source}"] += 1
        if call.get("failure"):
            counts[f"{FAILED}{call['failure']}"] += 1
        if source == "cache" and call.get("origin") in ORIGINS:
            counts[f"{CACHED}{call['origin']}"] += 1
    return shares | {name: count / len(calls) for name, count in counts.items()}


def _reached_apis(calls: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    # In converted answers, calls of a pool's other APIs have only a name.
    return {
        (call["tool"], call["name"] if call["api"] is None else call["api"])
        for call in calls
        if call["code"] != UNKNOWN
    }


# Prefix of the metrics with the points of one vote.
VOTE = "vote_"
_WHY = {
    **measures.UNANSWERED,
    "unsolved": "the judge says Unsolved",
    "unsure": "the judge cannot tell",
}


def verdicts(entry: Entry, state: Mapping[str, Any]) -> dict[str, Verdict]:
    """Return the verdicts of both rule sets on one episode.

    ``state`` is `Episode.state`. If its ``votes``, ``fac`` or ``sowr`` is null, the metrics that
    are computed from this key are missing. The metric ``sowr_missing`` is 1 if the reference run
    has not answered the query. ``offered_recall`` is the share of relevant APIs that the agent was
    offered from a pool. The rule sets differ only in validity and in the metric ``sopr``."""
    answer = state["answer"]["answer"]
    votes: Sequence[Mapping[str, Any]] = state["votes"] or ()
    why = measures.unanswered_reason(answer)
    common = metrics(entry.gold["relevant"], state["calls"]) | {
        "finish": float(has_finish(answer)),
        "give_up": float(why == "gave_up"),
    }
    common |= {f"{VOTE}{n}": measures.POINTS[vote["status"]] for n, vote in enumerate(votes)}
    if state["fac"]:
        common["fac"] = float(state["fac"]["status"] == "Solved")
    if state.get("offered_recall") is not None:
        common["offered_recall"] = float(state["offered_recall"])
    if state["sowr"]:
        outcome = state["sowr"]["outcome"]
        common |= {name: float(name == outcome) for name in ("win", "lose", "tie")}
    if state.get("sowr_missing"):
        common["sowr_missing"] = 1.0
    if not votes:
        # Not even for answers that are Unsolved without a judge: their accuracy would be 0.
        reason = state.get("judge_error") or "no judge was asked"
        none = Verdict(None, "not_judged", reason, common)
        return dict.fromkeys(("official", "strict"), none)
    score = measures.mean_points(votes)
    by_majority = "unsure" if measures.majority(votes) == "Unsure" else "unsolved"
    worst = "unsolved" if any(vote["status"] == "Unsolved" for vote in votes) else "unsure"
    return {
        "official": _verdict(score > 0.5, why or by_majority, common, score),
        "strict": _verdict(score == 1, why or worst, common, float(score == 1)),
    }


def _verdict(valid: bool, kind: str, common: dict[str, float], score: float) -> Verdict:
    shares = {**common, "sopr": score}
    return Verdict(True, metrics=shares) if valid else Verdict(False, kind, _WHY[kind], shares)
