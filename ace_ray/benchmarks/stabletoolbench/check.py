"""From an episode's state to verdicts and per-row metrics.

``official`` reads the votes as upstream (``eval_pass_rate.py``) does: valid when the answer's
mean of 1 for Solved, 0.5 for Unsure and 0 for Unsolved is over a half; its SoPR is that mean.
``strict``: every vote says Solved, so no judgement contradicts another; its SoPR is 1 or 0.

A call is what an episode's state keeps of it: ``{"name", "tool", "api", "arguments", "code",
"source", "error"}``, names as published and empty where no API has the called name. Finish is no
call of an API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench.converted import has_finish
from ace_ray.benchmarks.stabletoolbench.judge.measures import (
    POINTS,
    UNANSWERED,
    majority,
    mean_points,
    unanswered,
)
from ace_ray.types import Entry, Verdict

ORIGINS = ("recorded", "simulator", "real")
"""Who first made an answer that came from the cache."""
SOURCES = ("cache", "simulator", "real", "none")
HALLUCINATED = 1
"""Upstream's status code of a call whose name no function has."""
CALLS = "calls_"
FROM = "from_"
CACHED = "cached_"
FAILED = "failed_"
"""Prefixes of metrics that carry a count, or a share of the calls, by its name."""

Pairs = Sequence[Sequence[str]]


def api_recall(relevant: Pairs, calls: Sequence[Mapping[str, Any]]) -> float:
    """The result JSON's API call score: the share of the relevant APIs that were called, 0 where
    none are published."""
    wanted = {(tool, api) for tool, api in relevant}
    return len(wanted & _reached(calls)) / len(wanted) if wanted else 0.0


def metrics(relevant: Pairs, calls: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Shares in 0..1 of one run.

    ``api_recall``; ``api_precision`` (of the APIs reached, those that are relevant; absent for
    none); ``exact_set`` (1 when they are the same); of all calls, if any: ``hallucinated``,
    ``errors`` (an API that has the name answered with an error), ``cache_hit`` and
    ``from_<source>``, of the cache also ``cached_<origin>``, and if there are any ``failed_<kind>``
    (no answer of an API, see `Answered.failure`); ``calls_<n>`` is 1 for n calls.
    """
    wanted = {(tool, api) for tool, api in relevant}
    reached, made = _reached(calls), calls
    shares = {
        "api_recall": api_recall(relevant, calls),
        "exact_set": float(reached == wanted),
        f"{CALLS}{len(made)}": 1.0,
    }
    if reached:
        shares["api_precision"] = len(wanted & reached) / len(reached)
    if not made:
        return shares
    sources = Counter(_source(call) for call in made)
    hallucinated = sum(_hallucinated(call) for call in made)
    failed = sum(_failed(call) for call in made if not _hallucinated(call))
    shares |= {
        "hallucinated": hallucinated / len(made),
        "errors": failed / len(made),
        "cache_hit": sources["cache"] / len(made),
    }
    kinds = Counter(call["failure"] for call in made if call.get("failure"))
    shares |= {f"{FAILED}{kind}": count / len(made) for kind, count in kinds.items()}
    origins = Counter(call.get("origin") for call in made if _source(call) == "cache")
    shares |= {f"{CACHED}{name}": origins[name] / len(made) for name in ORIGINS if origins[name]}
    return shares | {f"{FROM}{name}": count / len(made) for name, count in sources.items()}


def _reached(calls: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    return {(call["tool"], call["api"]) for call in calls if not _hallucinated(call)}


def _hallucinated(call: Mapping[str, Any]) -> bool:
    return bool(call["code"] == HALLUCINATED)


def _failed(call: Mapping[str, Any]) -> bool:
    return bool(call["code"] or call["error"])


def _source(call: Mapping[str, Any]) -> str:
    return call["source"] if call["source"] in SOURCES else "none"


VOTE = "vote_"
"""Prefix of the metric that holds what one vote is worth."""
_WHY = {
    **UNANSWERED,
    "unsolved": "the judge says Unsolved",
    "unsure": "the judge cannot tell",
    "not_judged": "no judge was asked",
}


def verdicts(entry: Entry, state: Mapping[str, Any]) -> dict[str, Verdict]:
    """Both rule sets' verdicts of one episode.

    ``state`` is `Episode.state`: ``answer`` (a converted answer), ``calls``, ``votes`` of
    `judge_sopr`, ``fac`` of `judge_fac` and ``sowr`` of `judge_sowr`; the last three may be null.
    Metrics: those of `metrics`; ``finish``, ``give_up``; ``sopr`` and ``vote_<n>``,
    ``fac``, and of SoWR ``win``, ``lose`` and ``tie``, each only where it was judged;
    ``sowr_missing`` where the reference has no answer (``sowr_missing`` of the state). ``sopr``
    differs between the rule sets, the others do not.
    """
    answer = state["answer"]["answer"]
    votes: Sequence[Mapping[str, Any]] = state["votes"] or ()
    why = unanswered(answer, answer["final_answer"])
    common = metrics(entry.gold["relevant"], state["calls"]) | {
        "finish": float(has_finish(answer)),
        "give_up": float(why == "gave_up"),
    }
    common |= {f"{VOTE}{n}": POINTS[vote["status"]] for n, vote in enumerate(votes)}
    if state["fac"]:
        common["fac"] = float(state["fac"]["status"] == "Solved")
    if state["sowr"]:
        outcome = state["sowr"]["outcome"]
        common |= {name: float(name == outcome) for name in ("win", "lose", "tie")}
    if state.get("sowr_missing"):
        common["sowr_missing"] = 1.0
    if not votes:
        kind = why or "not_judged"
        return dict.fromkeys(("official", "strict"), Verdict(False, kind, _WHY[kind], common))
    score = mean_points(votes)
    return {
        "official": _verdict(score > 0.5, why or _majority(votes), common, score),
        "strict": _verdict(score == 1, why or _worst(votes), common, float(score == 1)),
    }


def _verdict(valid: bool, kind: str, common: dict[str, float], score: float) -> Verdict:
    shares = {**common, "sopr": score}
    return Verdict(True, metrics=shares) if valid else Verdict(False, kind, _WHY[kind], shares)


def _majority(votes: Sequence[Mapping[str, Any]]) -> str:
    return "unsure" if majority(votes) == "Unsure" else "unsolved"


def _worst(votes: Sequence[Mapping[str, Any]]) -> str:
    return "unsolved" if any(vote["status"] == "Unsolved" for vote in votes) else "unsure"
