"""From an episode's state to verdicts and per-row metrics.

``official`` reads the votes as upstream (``eval_pass_rate.py``) does: valid when the answer's
mean of 1 for Solved, 0.5 for Unsure and 0 for Unsolved is over a half; its SoPR is that mean.
``strict``: every vote says Solved, so no judgement contradicts another; its SoPR is 1 or 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench.judge.sopr import (
    POINTS,
    UNANSWERED,
    majority,
    mean_points,
    unanswered,
)
from ace_ray.benchmarks.stabletoolbench.results.details import has_finish
from ace_ray.benchmarks.stabletoolbench.scoring.calls import metrics
from ace_ray.records import Entry, Verdict

ERROR_TYPES = ("no_finish", "gave_up", "empty_answer", "unsolved", "unsure", "not_judged")
VOTE = "vote:"
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
    Metrics: those of `scoring.calls.metrics`; ``finish``, ``give_up``; ``sopr`` and ``vote:<n>``,
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
    found = {**common, "sopr": score}
    return Verdict(True, metrics=found) if valid else Verdict(False, kind, _WHY[kind], found)


def _majority(votes: Sequence[Mapping[str, Any]]) -> str:
    return "unsure" if majority(votes) == "Unsure" else "unsolved"


def _worst(votes: Sequence[Mapping[str, Any]]) -> str:
    return "unsolved" if any(vote["status"] == "Unsolved" for vote in votes) else "unsure"
