"""Build the view of one complete row: prompt, answers, calls, states and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, zip_longest
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.transcript import Step, Tool, tools_of
from ace_ray.storage.rows import messages_of, metrics_of, state_of
from ace_ray.util.safe_loading import (
    SHOWN_CHARS,
    SHOWN_VALUES,
    InvalidContent,
    json_of_row,
    shorten_json,
)
from ace_ray.util.sanitizing import one_line

KEYS = ("benchmark", "category", "language", "id")
FACTS = (
    *("run_id", "model", "sample", "repeat", "seed", "attempts", "finish_reason"),
    *("reasoning_truncated", "prompt_tokens", "completion_tokens", "model_calls"),
    *("generation_s", "duration_s", "started_at", "worker", "second_reading"),
)
# Columns that `episode_view` reads, besides the columns of verdicts.
COLUMNS = [
    *("row_id", *KEYS, "group", "status", "error_class", "error", "messages", "state"),
    *("endpoint", "tools", "gold", *FACTS),
]
# Maximum characters of all messages, and of each part of a state.
_EPISODE_CHARS = 8 * SHOWN_CHARS
# Maximum parts of a state that are shortened one by one; benchmarks have about ten.
_MOST_PARTS = 100
# Maximum differences listed for a pair of states.
MOST_CHANGES = 1_000

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between two states. ``key_path``: path of keys and indices to a value. ``kind``:
    ``added``, ``removed`` or ``changed``. ``before``, ``after``: JSON values, None if absent."""

    key_path: tuple[str | int, ...]
    kind: str
    before: Any = None
    after: Any = None

    @property
    def path(self) -> str:
        """``key_path`` as a string, such as ``a.b[0]``."""
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.key_path)
        return "".join(parts).removeprefix(".")

    def as_json(self) -> dict[str, Any]:
        values = {"before": self.before, "after": self.after}
        return {"path": self.path, "place": list(self.key_path), "kind": self.kind, **values}


def _changes(key_path: tuple[str | int, ...], before: Any, after: Any) -> Iterator[Change]:
    """Yield the differences between two values at ``key_path``. Lists are compared by index."""
    if before is _ABSENT:
        yield Change(key_path, "added", after=after)
    elif after is _ABSENT:
        yield Change(key_path, "removed", before=before)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            inner = (*key_path, str(key))
            yield from _changes(inner, before.get(key, _ABSENT), after.get(key, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        pairs = zip_longest(before, after, fillvalue=_ABSENT)
        for number, (old, new) in enumerate(pairs):
            yield from _changes((*key_path, number), old, new)
    elif before != after or type(before) is not type(after):
        yield Change(key_path, "changed", before, after)


@dataclass(frozen=True, slots=True, repr=False)
class EpisodeView:
    """One row to show. `shorten_json` has shortened long values.

    ``verdicts``: rule set -> ``{valid, error_type, error, metrics}``. ``tools``: tools that the
    chat template offered, None if the messages contain them. ``gold``: gold answer in a 1-tuple,
    None if not stored. ``states``: sandbox before and after the episode, None without a sandbox.
    ``changed``: differences between the two states. ``state``: the row's column ``state``, which
    the benchmark defines. ``facts``: the columns `FACTS`."""

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
    state: Any
    endpoint: Any
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        """Return one line, since steps and states may have megabytes."""
        judged = {r: "right" if v["valid"] else v["error_type"] for r, v in self.verdicts.items()}
        words = ", ".join(f"{rules} {one_line(text, 80)}" for rules, text in judged.items())
        name = f"{one_line(self.key['id'], 80)}, sample {self.facts['sample']}"
        return f"<EpisodeView {name}: {words or self.status}, {len(self.steps)} steps>"

    def fact_texts(self) -> list[tuple[str, str]]:
        """Return (name, text) of each known fact on the row, such as tokens and seed."""
        facts = self.facts
        tokens = (facts["prompt_tokens"], facts["completion_tokens"])
        values = {
            "model": facts["model"] or "",
            "tokens": "unknown" if None in tokens else f"{tokens[0]:,} + {tokens[1]:,}",
            "model calls": facts["model_calls"],
            "seconds": "unknown" if facts["duration_s"] is None else f"{facts['duration_s']:.1f}",
            "ended by": facts["finish_reason"],
            "unread calls": facts["second_reading"],
            "sample": facts["sample"],
            "seed": facts["seed"],
            "attempts": facts["attempts"],
            "worker": facts["worker"],
            "started": "" if facts["started_at"] is None else f"{facts['started_at']:%F %T} UTC",
            "repeat": "yes" if facts["repeat"] else "",
        }
        return [(name, str(value)) for name, value in values.items() if value not in ("", None)]

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
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
            "state": self.state,
            "endpoint": self.endpoint,
            **self.facts,
            "started_at": started.isoformat() if started is not None else None,
        }


def episode_view(row: Mapping[str, Any], benchmark: type[Benchmark]) -> EpisodeView:
    """Build the view of ``row``, which has `COLUMNS` and the columns of the verdicts of
    ``benchmark``. Raises `UserError` if its messages or its state are damaged."""
    messages, state = messages_of(row), state_of(row)
    states = benchmark.sandbox_states(state)
    changed = [] if states is None else list(islice(_changes((), *states), MOST_CHANGES))
    short_messages = [m for m in shorten_json(messages, _EPISODE_CHARS) if isinstance(m, Mapping)]
    short_state = shorten_json(state, _EPISODE_CHARS)
    if isinstance(state, dict) and len(state) <= _MOST_PARTS:
        # Separately, so that one large part does not hide the others.
        short_state = {name: shorten_json(part, _EPISODE_CHARS) for name, part in state.items()}
    steps = benchmark.transcript(short_messages, short_state)
    for name, raw, value in (("messages", messages, short_messages), ("state", state, short_state)):
        if value != raw:
            size = f"{len(row[name]):,} characters"
            steps.append(Step("note", f"[the row's {name}, {size}, are shortened]"))
    why = ": ".join(filter(None, (row["error_class"], row["error"])))
    return EpisodeView(
        row_id=row["row_id"],
        key={name: row[name] or "" for name in KEYS},
        status=row["status"],
        error=shorten_json(why),
        verdicts={
            rules: {
                "valid": row[f"{rules}_valid"],
                "error_type": shorten_json(row[f"{rules}_error_type"] or ""),
                "error": shorten_json(row[f"{rules}_error"] or ""),
                "metrics": _metrics(row[f"{rules}_metrics"]),
            }
            for rules in benchmark.rule_sets
            if row.get(f"{rules}_valid") is not None
        },
        steps=steps,
        tools=tools_of(_parse_json(row["tools"])),
        gold=None if row["gold"] is None else (_parse_json(row["gold"]),),
        states=None if states is None else (shorten_json(states[0]), shorten_json(states[1])),
        changed=_shorten_changes(changed),
        state=short_state,
        endpoint=_parse_json(row["endpoint"]),
        facts={name: shorten_json(row[name]) for name in FACTS},
    )


def _shorten_changes(changed: Sequence[Change]) -> list[Change]:
    """Shorten all changes, so that together they are not larger than one shortened value."""
    shares = len(changed) or 1
    share = {"chars": SHOWN_CHARS // shares, "values": SHOWN_VALUES // shares}
    return [
        Change(
            tuple(shorten_json(part, **share) for part in change.key_path),
            change.kind,
            shorten_json(change.before, **share),
            shorten_json(change.after, **share),
        )
        for change in changed
    ]


def _metrics(text: str | None) -> dict[str, float]:
    metrics = islice(metrics_of(text).items(), SHOWN_VALUES // MOST_CHANGES)
    return {shorten_json(name): value for name, value in metrics}


def _parse_json(text: str | None) -> Any:
    """Parse and shorten the value of a JSON column. Text that is not JSON is only shortened."""
    if text is None:
        return None
    try:
        return shorten_json(json_of_row(text))
    except InvalidContent:
        return shorten_json(text)
