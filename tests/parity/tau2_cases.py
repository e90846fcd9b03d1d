"""Calls, conversations and scripts of episodes for `tau2_parity`, drawn at random.

Much of them succeeds: arguments come from a task's gold calls, and from records of the databases
that lead to each other (a user, its orders, their items).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.options import CATEGORIES
from ace_ray.benchmarks.tau2.tasks import history
from ace_ray.benchmarks.tau2.upstream_package import DONE, ENDS, STOP
from ace_ray.types import Entry

Call = tuple[str, str, dict[str, Any]]
"""Who calls, the tool, its arguments."""
REASONS = (
    *("user_stop", "agent_stop", "max_steps", "too_many_errors", "agent_error", "user_error"),
    "judge_stop",
)
JUNK: tuple[Any, ...] = (
    *(None, "", " ", "x", "null", "None", "é✓漢🙂", "\ud800", "a\nb", "#W0000000", "user_1", "0"),
    *(0, 1, -1, 2.0, 0.5, 1e308, 10**20, True, False, float("inf"), float("nan")),
    *([], {}, [None], ["x", 1], {"a": {"b": [1, {"c": None}]}}, [[]], "x" * 3000, "2024-05-20"),
)
LIMITS = ((200, 10), (200, 10), (200, 10), (7, 10), (30, 2), (12, 1))
"""max_steps and max_errors of episodes; upstream's defaults most often."""
CLASHING = ("self", "tool_name", "requestor")
"""Names of parameters of upstream's own functions; see docs/parity.md."""
_ALIASES: Mapping[str, Sequence[str]] = {
    "payment_method_id": ("payment_methods.", "payment_method_id"),
    "payment_id": ("payment_methods.", "payment_id"),
    "payment_methods": ("payment_history",),
    "new_item_ids": ("variants.", "item_id"),
    "item_ids": ("item_id",),
    "user_id": ("user_id", "users."),
    "order_id": ("order_id", "orders"),
    "reservation_id": ("reservation_id", "reservations"),
    "flights": ("flights",),
    "passengers": ("passengers", "saved_passengers"),
    "zip": ("zip",),
    "phone_number": ("phone_number",),
    "origin": ("origin",),
    "destination": ("destination",),
}


class Pool:
    """What arguments of one category's calls are drawn from."""

    def __init__(self, benchmark: Tau2, name: str) -> None:
        self.category = CATEGORIES[name]
        self.entries = [entry for entry in benchmark.dataset() if entry.category == name]
        self.tools: list[tuple[str, Mapping[str, Any]]] = [
            (side, tool["function"])
            for side, tools in self._sides(benchmark).items()
            for tool in tools
        ]
        self.gold: dict[str, list[dict[str, Any]]] = {}
        for entry in self.entries:
            for _, tool, arguments in gold_calls(entry):
                self.gold.setdefault(tool, []).append(arguments)
        self.records: dict[str, Any] = {}
        self.tables: dict[str, list[str]] = {}
        for text in benchmark._sources[self.category.domain].database_texts().values():
            for table, rows in json.loads(text).items():
                found = rows if isinstance(rows, dict) else dict(_rows(table, rows))
                self.records |= found
                self.tables[table] = list(found)

    def _sides(self, benchmark: Tau2) -> dict[str, list[dict[str, Any]]]:
        name = self.category.name
        tools = [tool for tool in benchmark._agent_tools(name) if tool["function"]["name"] != DONE]
        return {"assistant": tools, "user": benchmark._user_tools(self.category)}

    def focus(self, rng: random.Random) -> dict[str, list[Any]]:
        """By name, the values of a record and of those it leads to."""
        found: dict[str, list[Any]] = {}
        table = rng.choice(list(self.tables))
        todo = [rng.choice(self.tables[table])]
        seen: set[str] = set()
        while todo and len(seen) < 6:
            key = todo.pop(0)
            if key in seen:
                continue
            seen.add(key)
            for name, value in _values(self.records[key], ""):
                found.setdefault(name, []).append(value)
                if isinstance(value, str) and value in self.records:
                    todo.append(value)
        return found

    def call(
        self, rng: random.Random, focus: Mapping[str, list[Any]], entry: Entry | None = None
    ) -> Call:
        """A call of any tool, or of one that is not there."""
        own = gold_calls(entry) if entry is not None else []
        if own and rng.random() < 0.25:
            side, tool, arguments = rng.choice(own)
            return side, tool, self.changed(rng, arguments, focus)
        if rng.random() < 0.03:
            side = rng.choice(["assistant", "user"])
            name = rng.choice(["", "done_", "get", "é", "think", "use_tool", "x" * 300])
            return side, name, {"x": 1} if rng.random() < 0.5 else {}
        side, schema = rng.choice(self.tools)
        if rng.random() < 0.03:
            side = "user" if side == "assistant" else "assistant"
        tool = schema["name"]
        if tool in self.gold and rng.random() < 0.3:
            return side, tool, self.changed(rng, rng.choice(self.gold[tool]), focus)
        arguments = {
            name: self.value(rng, tool, name, part, focus)
            for name, part in schema["parameters"].get("properties", {}).items()
        }
        return side, tool, self.changed(rng, arguments, focus, 0.12)

    def value(
        self,
        rng: random.Random,
        tool: str,
        name: str,
        part: Mapping[str, Any],
        focus: Mapping[str, list[Any]],
    ) -> Any:
        """Of a parameter; ``part``: its schema."""
        drawn = rng.random()
        if name == "expression" and drawn < 0.9:
            return expression(rng)
        gold = [one[name] for one in self.gold.get(tool, ()) if name in one]
        if gold and drawn < 0.25:
            return rng.choice(gold)
        choices = [value for key in (name, *_ALIASES.get(name, ())) for value in focus.get(key, ())]
        if choices and drawn < 0.85:
            if part.get("type") == "array" and not isinstance(choices[0], list):
                return [rng.choice(choices) for _ in range(rng.choice([1, 1, 2, 3]))]
            return rng.choice(choices)
        if "enum" in part:
            return rng.choice(part["enum"])
        kinds = [one.get("type") for one in (part, *part.get("anyOf", ()))]
        if drawn < 0.93:
            if "integer" in kinds:
                return rng.randint(-1, 5)
            if "number" in kinds:
                return rng.choice([0, 1, 2, 2.5, 5.0, 100, -3])
            if "boolean" in kinds:
                return rng.random() < 0.5
            if gold:
                return rng.choice(gold)
            tables = [key for key in self.tables if key.startswith(name.removesuffix("_id")[:5])]
            if tables:
                return rng.choice(self.tables[tables[0]])
        return rng.choice(JUNK)

    def changed(
        self,
        rng: random.Random,
        arguments: Mapping[str, Any],
        focus: Mapping[str, list[Any]],
        often: float = 0.35,
    ) -> dict[str, Any]:
        """The arguments, sometimes with one missing, added, mistyped or from elsewhere."""
        values: dict[str, Any] = json.loads(json.dumps(arguments))
        if rng.random() >= often:
            return values
        kind = rng.randrange(6)
        if values and kind == 0:
            del values[rng.choice(list(values))]
        elif kind == 1:
            name = rng.choice(["note", "db", "é", "", "a b"])
            values[name] = rng.choice(JUNK)
        elif values:
            name = rng.choice(list(values))
            values[name] = self._other(rng, name, values[name], focus, kind)
        return values

    def _other(
        self, rng: random.Random, name: str, value: Any, focus: Mapping[str, list[Any]], kind: int
    ) -> Any:
        if kind == 2:
            return rng.choice(JUNK)
        if kind == 3 and focus.get(name):
            return rng.choice(focus[name])
        if isinstance(value, list) and value:
            return rng.choice([value[:-1], [*value, value[0]], value[::-1], value[0], str(value)])
        if isinstance(value, str):
            other = [value.upper(), f" {value}", value[:-1], f"#{value}", [value], {"x": value}]
            return rng.choice([*other, *([int(value)] if value.isdecimal() else [])])
        if isinstance(value, int | float):
            return rng.choice([str(value), float(value), value + 1, -value, [value], bool(value)])
        return rng.choice(JUNK)


def gold_calls(entry: Entry) -> list[Call]:
    """The gold calls of a task, as an agent and its user make them."""
    solo = CATEGORIES[entry.category].solo
    return [
        (
            "assistant" if solo else action.get("requestor", "assistant"),
            action["name"],
            dict(action["arguments"]),
        )
        for action in (entry.gold or {}).get("actions") or ()
    ]


def told(entry: Entry) -> list[str]:
    """What the agent has to say."""
    return list((entry.gold or {}).get("communicate_info") or ())


def expression(rng: random.Random) -> str:
    """Arithmetic for ``calculate``, some of it none. Powers stay small: upstream computes them."""
    parts = ["1", "0", "2.50", "007", "12", ".5", "3.", "1000000", "(", ")", " ", "+", "-", "*"]
    parts += ["/", "//", "()", "(2)", "99.99", "((3))", "--", "2**3", "7**-1", "0.1"]
    if rng.random() < 0.5:
        numbers = [f"{rng.randint(0, 999)}.{rng.randint(0, 99):02}" for _ in range(4)]
        return rng.choice([" + ", "-", " * ", "/"]).join(numbers[: rng.randint(1, 4)])
    text = "".join(rng.choice(parts) for _ in range(rng.randint(0, 7)))
    return rng.choice([text, text, text, text + "a", "\t1", "(" * 50 + "1" + ")" * 50])


def sequence(pool: Pool, rng: random.Random) -> tuple[Entry, list[list[Any]]]:
    """A task to begin with, and calls [requestor, name, arguments, whether a message ends]."""
    entry = rng.choice(pool.entries)
    focus = pool.focus(rng)
    calls = gold_calls(entry) if rng.random() < 0.4 else []
    for _ in range(rng.randint(3, 16)):
        if rng.random() < 0.15:
            focus = pool.focus(rng)
        calls.insert(rng.randint(0, len(calls)), pool.call(rng, focus, entry))
        if rng.random() < 0.01:
            calls[-1][2][rng.choice(CLASHING)] = "x"
    solo = pool.category.solo
    return entry, [
        ["assistant" if solo and rng.random() < 0.95 else side, name, values, rng.random() < 0.8]
        for side, name, values in calls
    ]


@dataclass
class Conversation:
    """A conversation without the answers of its calls, which an environment gives."""

    entry: Entry
    turns: list[tuple[str, str, list[Call]]] = field(default_factory=list)
    """Who speaks, a text, calls."""
    ended: str = "user_stop"
    fault: str = ""
    """What is wrong with the record of it."""


FAULTS = ("content", "error", "missing", "id", "order", "extra", "user_turn")


def conversation(pool: Pool, rng: random.Random) -> Conversation:
    """One near a task's gold path."""
    entry = rng.choice(pool.entries)
    focus, solo = pool.focus(rng), pool.category.solo
    dropped, changed, added = (rng.choice([0, 0, 0.1, 0.4]) for _ in range(3))
    calls: list[Call] = []
    for side, name, arguments in gold_calls(entry):
        if rng.random() < added:
            calls.append(pool.call(rng, focus, entry))
        if rng.random() >= dropped:
            often = 1.0 if rng.random() < changed else 0.0
            calls.append((side, name, pool.changed(rng, arguments, focus, often)))
    if rng.random() < 0.1:
        rng.shuffle(calls)
    if solo:
        calls = [("assistant", name, arguments) for _, name, arguments in calls]
    found = Conversation(entry)
    if not solo:
        found.turns.append(("user", "I need help.", []))
    for group in _grouped(calls, rng):
        beside = _said(rng, told(entry)) if rng.random() < 0.2 else ""
        found.turns.append((group[0][0], beside, group))
        if not solo and rng.random() < 0.2:
            found.turns.append((rng.choice(["user", "assistant"]), _said(rng, told(entry)), []))
    if not solo:
        found.turns.append(("assistant", _said(rng, told(entry)) or "Done.", []))
    stop = "agent_stop" if solo else "user_stop"
    found.turns.append(("assistant" if solo else "user", STOP, []))
    found.ended = stop if rng.random() < 0.8 else rng.choice(REASONS)
    if rng.random() < 0.1:
        found.fault = rng.choice(FAULTS)
    return found


def _grouped(calls: Sequence[Call], rng: random.Random) -> Iterator[list[Call]]:
    """Calls of one side after another, several in a message now and then."""
    group: list[Call] = []
    for call in calls:
        if group and (group[0][0] != call[0] or rng.random() < 0.7):
            yield group
            group = []
        group.append(call)
    if group:
        yield group


def _said(rng: random.Random, infos: Sequence[str]) -> str:
    """A text with all, some or none of what has to be said, in some writing."""
    kept = [info for info in infos if rng.random() < rng.choice([1, 1, 1, 0.5])]
    if rng.random() < 0.15:
        kept = []
    writings: list[Callable[[str], str]] = [str, str.upper, str.title]
    writings += [lambda text: f"x{text}x", lambda text: f"${_thousands(text)}."]
    writing = rng.choices(writings, [6, 1, 1, 1, 1])[0]
    return rng.choice([" ", "\n", ", "]).join(["So:", *map(writing, kept)])


def _thousands(text: str) -> str:
    return f"{int(text):,}" if text.isdecimal() else text.replace(" ", ", ")


Turn = dict[str, Any]
"""What a model says: {"text", "calls": [{"id", "name", "arguments": JSON text}]}."""


@dataclass
class Script:
    """An episode's models: their turns, the last of each for ever."""

    entry: Entry
    agent: list[Turn]
    user: list[Turn]
    limits: tuple[int, int]


def script(pool: Pool, rng: random.Random) -> Script:
    """Turns along a task's gold path, with gaps and noise."""
    entry, solo = rng.choice(pool.entries), pool.category.solo
    agent: list[tuple[str, list[Call]]] = []
    user: list[tuple[str, list[Call]]] = [("I need help.", [])]
    groups = list(_grouped(gold_calls(entry), rng))
    for place, group in enumerate(groups):
        if group[0][0] == "assistant":
            agent.append(("", group))
            continue
        before = groups[place - 1][0][0] if place else "assistant"
        if before == "assistant":
            agent.append(("Please do that.", []))
        user.append(("", group))
        after = groups[place + 1][0][0] if place + 1 < len(groups) else "assistant"
        if after == "assistant":
            user.append(("I have.", []))
    if solo:
        agent.append(("", [("assistant", DONE, {})]))
    else:
        agent.append((_said(rng, told(entry)), []))
    user.append((rng.choice(["Thanks. " + STOP, *ENDS]), []))
    noise = rng.choice([0, 0, 0.1, 0.3])
    focus = pool.focus(rng)
    return Script(
        entry,
        list(_numbered(_noisy(agent, pool, rng, noise, focus, "assistant"), "a", rng, noise)),
        list(_numbered(_noisy(user, pool, rng, noise, focus, "user"), "u", rng, noise)),
        rng.choice(LIMITS),
    )


def _noisy(
    turns: Sequence[tuple[str, list[Call]]],
    pool: Pool,
    rng: random.Random,
    noise: float,
    focus: Mapping[str, list[Any]],
    side: str,
) -> Iterator[tuple[str, list[Call]]]:
    solo, can_call = pool.category.solo, side == "assistant" or bool(pool.category.user_tools)
    for text, calls in turns[:-1]:
        drawn = rng.random()
        if drawn < noise / 3:
            continue
        if drawn < noise and can_call:
            more = [pool.call(rng, focus) for _ in range(rng.choice([1, 1, 2, 3]))]
            beside = rng.choice(["", "", "One moment.", f"Soon {STOP}", " "])
            if not solo or STOP not in beside or rng.random() < 0.1:
                yield beside, more
        elif drawn < noise * 1.3:
            yield rng.choice(["", " ", "\n"]), []  # asked again
        if not solo and rng.random() < noise / 3:
            yield rng.choice(["Well.", ENDS[rng.randrange(3)], "é✓ 漢"]), []
        if calls and rng.random() < noise:
            calls = [(who, tool, pool.changed(rng, args, focus)) for who, tool, args in calls]
        yield text, calls
    if rng.random() < noise / 3:
        yield from [("", [])] * 4  # no answer at all
    if solo and rng.random() < noise / 2:
        yield rng.choice(["I am done.", STOP]), []
    yield turns[-1]


def _numbered(
    turns: Iterator[tuple[str, list[Call]]], mark: str, rng: random.Random, noise: float
) -> Iterator[Turn]:
    number = 0
    for text, calls in turns:
        made = []
        for _, name, arguments in calls:
            number += 1
            given = json.dumps(arguments)
            if rng.random() < noise / 20:
                given = rng.choice(["{", "[]", "null", "5", ""])
            made.append({"id": f"{mark}{number}", "name": name, "arguments": given})
        yield {"text": text, "calls": made}


def opening(entry: Entry, greeting: str) -> list[dict[str, Any]]:
    """The messages that a conversation begins with."""
    begun = list(history(entry))
    if begun or CATEGORIES[entry.category].solo:
        return begun
    return [{"role": "assistant", "content": greeting}]


def _values(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every value within a record, by its key; the keys of its mappings by the mapping's, with a
    point."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{name}.", key
            yield from _values(inner, key)
    elif isinstance(value, list):
        yield name, value
        for inner in value:
            yield from _values(inner, name)
    else:
        yield name, value


def _rows(table: str, rows: list[Any]) -> Iterator[tuple[str, Any]]:
    """Of a table that is a list: its rows by their ids."""
    for number, row in enumerate(rows):
        yield str(row.get(f"{table[:-1]}_id", f"{table}{number}")), row
