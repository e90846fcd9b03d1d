"""What can be said of a run without a judge: which APIs it called, and how that went.

A call is what an episode's state keeps of it: ``{"name", "tool", "api", "arguments", "code",
"source", "error"}``, names as published and empty where no API has the called name. Finish is no
call of an API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench.names import FINISH

ORIGINS = ("recorded", "simulator", "other simulator", "real")
"""Who first made an answer that came from the cache."""
SOURCES = ("cache", "simulator", "real", "stub", "none")
HALLUCINATED = 1
"""Upstream's status code of a call whose name no function has."""
CALLS = "calls:"
FROM = "from:"
CACHED = "cached:"
FAILED = "failed:"
UNRECORDED = "unrecorded"
"""Prefixes of metrics that carry a count, or a share of the calls, by its name."""

Pairs = Sequence[Sequence[str]]


def of_apis(calls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [call for call in calls if call["name"] != FINISH]


def api_recall(relevant: Pairs, calls: Sequence[Mapping[str, Any]]) -> float:
    """The seed document's API call score: the share of the relevant APIs that were called, 0 where
    none are published."""
    wanted = {(tool, api) for tool, api in relevant}
    return len(wanted & _reached(calls)) / len(wanted) if wanted else 0.0


def metrics(relevant: Pairs, calls: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Shares in 0..1 of one run.

    ``api_recall``; ``api_precision`` (of the APIs reached, those that are relevant; absent for
    none); ``exact_set`` (1 when they are the same); of all calls, if any: ``hallucinated``,
    ``errors`` (an API that has the name answered with an error), ``cache_hit`` and
    ``from:<source>``, of the cache also ``cached:<origin>``, and if there are any ``unrecorded``
    (answered, but the cache could not keep it) and ``failed:<kind>`` (no answer of an API, see
    `Answered.failure`); ``calls:<n>`` is 1 for n calls.
    """
    wanted = {(tool, api) for tool, api in relevant}
    reached, made = _reached(calls), of_apis(calls)
    found = {
        "api_recall": api_recall(relevant, calls),
        "exact_set": float(reached == wanted),
        f"{CALLS}{len(made)}": 1.0,
    }
    if reached:
        found["api_precision"] = len(wanted & reached) / len(reached)
    if not made:
        return found
    sources = Counter(_source(call) for call in made)
    hallucinated = sum(_hallucinated(call) for call in made)
    failed = sum(_failed(call) for call in made if not _hallucinated(call))
    found |= {
        "hallucinated": hallucinated / len(made),
        "errors": failed / len(made),
        "cache_hit": sources["cache"] / len(made),
    }
    if lost := sum(bool(call.get(UNRECORDED)) for call in made):
        found[UNRECORDED] = lost / len(made)
    kinds = Counter(call["failure"] for call in made if call.get("failure"))
    found |= {f"{FAILED}{kind}": count / len(made) for kind, count in kinds.items()}
    origins = Counter(call.get("origin") for call in made if _source(call) == "cache")
    found |= {f"{CACHED}{name}": origins[name] / len(made) for name in ORIGINS if origins[name]}
    return found | {f"{FROM}{name}": count / len(made) for name, count in sources.items()}


def _reached(calls: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    return {(call["tool"], call["api"]) for call in of_apis(calls) if not _hallucinated(call)}


def _hallucinated(call: Mapping[str, Any]) -> bool:
    return bool(call["code"] == HALLUCINATED)


def _failed(call: Mapping[str, Any]) -> bool:
    return bool(call["code"] or call["error"])


def _source(call: Mapping[str, Any]) -> str:
    return call["source"] if call["source"] in SOURCES else "none"
