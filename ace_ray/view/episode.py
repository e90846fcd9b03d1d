"""One row whole, as plain values: what was asked and answered, what ran, and what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.transcript import Step, Tool, tools_of
from ace_ray.bounded import Unbounded, json_of_row
from ace_ray.clean import one_line
from ace_ray.run.storage.rows import messages_of, metrics_of, state_of
from ace_ray.view.changes import Change, changes

KEYS = ("benchmark", "category", "language", "id")
FACTS = (
    *("run_id", "model", "sample", "repeat", "seed", "attempts", "finish_reason"),
    *("reasoning_truncated", "prompt_tokens", "completion_tokens", "model_calls"),
    *("generation_s", "duration_s", "started_at", "worker"),
)
COLUMNS = [
    *("row_id", *KEYS, "group", "status", "error_class", "error", "messages", "output"),
    *("reasoning", "state", "endpoint", "tools", "gold", "second_reading", *FACTS),
]
"""What `episode_view` reads, besides the columns of verdicts."""


@dataclass(frozen=True, slots=True, repr=False)
class EpisodeView:
    """``verdicts``: rule set -> ``{valid, error_type, error, metrics}``. ``states``: the sandbox
    before and after, None without one. ``tools``: those that were offered through the model's own
    template, None where its messages say it all, or in rows of earlier versions, which have no
    ``gold`` either (a 1-tuple). ``left``: the rest of what the episode left."""

    row_id: str
    key: Mapping[str, str]
    status: str
    error: str
    verdicts: Mapping[str, Mapping[str, Any]]
    steps: list[Step]
    tools: list[Tool] | None
    gold: tuple[Any] | None
    states: tuple[Any, Any] | None
    changed: list[Change]
    left: Any
    second_reading: Any
    endpoint: Any
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        """One line: steps and states may be megabytes."""
        judged = {r: "right" if v["valid"] else v["error_type"] for r, v in self.verdicts.items()}
        told = ", ".join(f"{rules} {one_line(said, 80)}" for rules, said in judged.items())
        name = f"{one_line(self.key['id'], 80)}, sample {self.facts['sample']}"
        return f"<EpisodeView {name}: {told or self.status}, {len(self.steps)} steps>"

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        started = self.facts.get("started_at")
        return {
            "row_id": self.row_id,
            **self.key,
            "status": self.status,
            "error": self.error or None,
            "verdicts": self.verdicts,
            "steps": [asdict(step) for step in self.steps],
            "tools": None if self.tools is None else [asdict(tool) for tool in self.tools],
            "gold": None if self.gold is None else self.gold[0],
            "states": None
            if self.states is None
            else dict(zip(("before", "after"), self.states, strict=True)),
            "changes": [change.as_json() for change in self.changed],
            "state": self.left,
            "second_reading": self.second_reading,
            "endpoint": self.endpoint,
            **self.facts,
            "started_at": started.isoformat() if started is not None else None,
        }


def episode_view(row: Mapping[str, Any], benchmark: type[Benchmark]) -> EpisodeView:
    """``row`` has `COLUMNS` and those of the verdicts of ``benchmark``. Raises `UserError`: it is
    none that a run stores."""
    state = state_of(row)
    states = benchmark.sandbox_states(state)
    why = ": ".join(filter(None, (row["error_class"], row["error"])))
    return EpisodeView(
        row_id=row["row_id"],
        key={name: row[name] or "" for name in KEYS},
        status=row["status"],
        error=why,
        verdicts={
            rules: {
                "valid": row[f"{rules}_valid"],
                "error_type": row[f"{rules}_error_type"] or "",
                "error": row[f"{rules}_error"] or "",
                "metrics": metrics_of(row[f"{rules}_metrics"]),
            }
            for rules in benchmark.rule_sets
            if row.get(f"{rules}_valid") is not None
        },
        steps=benchmark.transcript(messages_of(row), state),
        tools=tools_of(_json(row["tools"])),
        gold=None if row["gold"] is None else (_json(row["gold"]),),
        states=states,
        changed=[] if states is None else changes(*states),
        left=state,
        second_reading=_json(row["second_reading"]),
        endpoint=_json(row["endpoint"]),
        facts={name: row[name] for name in FACTS},
    )


def _json(text: str | None) -> Any:
    """The value in a JSON column; the text itself where it is none."""
    if text is None:
        return None
    try:
        return json_of_row(text)
    except Unbounded:
        return text
