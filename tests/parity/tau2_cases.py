"""Calls, conversations and scripts of episodes near the gold paths of tau2's tasks."""

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
"""Side, tool, arguments."""
Turns = list[tuple[str, str, list[Call]]]
"""Side, text, calls."""
REASONS = ("user_stop", "agent_stop", "max_steps", "too_many_errors", "agent_error", "user_error")
FAULTS = ("content", "error", "missing", "id", "extra", "requestor", "system", "user_turn")
"""What can be wrong with the record of a conversation."""
JUNK: tuple[Any, ...] = (
    *(None, "", " ", "x", "null", "é✓漢🙂", "\ud800", "a\nb", "#W0000000", "x" * 3000, 0, -1, 2.0),
    *(1e308, 10**20, True, float("inf"), float("nan"), [], {}, [None], {"a": {"b": [1, None]}}),
)
LIMITS = ((200, 10), (200, 10), (200, 10), (7, 10), (30, 2), (12, 1))
"""max_steps and max_errors of episodes; upstream's defaults most often."""


class Pool:
    """The tools and the gold arguments of one category, from which calls are drawn."""

    def __init__(self, benchmark: Tau2, name: str) -> None:
        self.category = CATEGORIES[name]
        self.entries = [entry for entry in benchmark.dataset() if entry.category == name]
        agents = [t for t in benchmark._agent_tools(name) if t["function"]["name"] != DONE]
        sides = {"assistant": agents, "user": benchmark._user_tools(self.category)}
        self.hidden = [action["arguments"]["arguments"] for action in _hidden_calls(self.entries)]
        """Gold arguments of tools that are found in documents, as JSON."""
        self.tools = [(side, tool["function"]) for side, all_ in sides.items() for tool in all_]
        self.values: dict[str, list[Any]] = {}
        """Gold arguments by parameter."""
        for entry in self.entries:
            for _, _, arguments in gold_calls(entry):
                for key, value in arguments.items():
                    self.values.setdefault(key, []).append(value)

    def call(self, rng: random.Random, entry: Entry) -> Call:
        """Return a call of any tool, or of one that is not there."""
        gold = gold_calls(entry)
        if gold and rng.random() < 0.4:
            side, tool, arguments = rng.choice(gold)
            return side, tool, self.changed(rng, arguments)
        side, schema = rng.choice(self.tools)
        if rng.random() < 0.05:
            side = rng.choice(["assistant", "user"])
        if rng.random() < 0.03:
            return side, rng.choice(["", "get", "é", "think", "use_tool", "x" * 300]), {"x": 1}
        mine = {key: value for _, _, args in gold for key, value in args.items()}
        arguments = {
            key: mine[key] if key in mine and rng.random() < 0.7 else self._value(rng, key, part)
            for key, part in schema["parameters"].get("properties", {}).items()
        }
        return side, schema["name"], self.changed(rng, arguments, 0.12)

    def _value(self, rng: random.Random, key: str, part: Mapping[str, Any]) -> Any:
        if key == "expression" and rng.random() < 0.9:
            parts = [*"10()+-*/ a", "2.50", "007", ".5", "3.", "//", "()", "((3))", "2**3", "12+5"]
            return "".join(rng.choice(parts) for _ in range(rng.randint(0, 7)))
        if "enum" in part or key in self.values:
            return rng.choice(part.get("enum") or self.values[key])
        kinds = [kind.get("type") for kind in (part, *part.get("anyOf", ()))]
        samples: Any = {"integer": [0, 1, 3, -1], "number": [0, 2.5, 100, -3]}
        samples["boolean"] = [True, False]
        return rng.choice([value for k in kinds for value in samples.get(str(k), ())] or JUNK)

    def changed(
        self, rng: random.Random, arguments: Mapping[str, Any], often: float = 0.35
    ) -> dict[str, Any]:
        """Return the arguments, sometimes with one missing, added, mistyped or from elsewhere."""
        values: dict[str, Any] = json.loads(json.dumps(arguments))
        if rng.random() >= often:
            return values
        if rng.random() < 0.2 or not values:
            return {**values, rng.choice(["note", "db", "é", "", "a b"]): rng.choice(JUNK)}
        name = rng.choice(list(values))
        value = values.pop(name)
        if rng.random() < 0.2:
            return values
        near: list[Any] = [rng.choice(JUNK), str(value), [value], *self.values.get(name, [])[:3]]
        if isinstance(value, list):
            near += [value[:-1], [*value, *value[:1]], value[::-1]]
        elif isinstance(value, str) and value.startswith("{"):
            near = [json.dumps(self.changed(rng, json.loads(value), 1.0)), rng.choice(self.hidden)]
            near += [value[:-1], value.replace("0", "0.0", 1), near[0], near[0]]
        elif isinstance(value, str):
            near += [value.upper(), f" {value}", value[:-1], f"#{value}"]
        elif isinstance(value, int | float):
            near += [float(value), value + 1, -value, bool(value)]
        return {**values, name: rng.choice(near)}


def _hidden_calls(entries: Sequence[Entry]) -> list[Any]:
    actions = [action for e in entries for action in (e.gold or {}).get("actions") or ()]
    return [a for a in actions if isinstance(a["arguments"].get("arguments"), str)]


def gold_calls(entry: Entry) -> list[Call]:
    """Return the gold calls of a task, as an agent and its user make them."""
    solo = CATEGORIES[entry.category].solo
    return [
        (
            "assistant" if solo else action.get("requestor", "assistant"),
            action["name"],
            action["arguments"],
        )
        for action in (entry.gold or {}).get("actions") or ()
    ]


@dataclass
class Conversation:
    """A conversation without the answers of its calls, which an environment gives."""

    entry: Entry
    turns: Turns = field(default_factory=list)
    ending: str = "user_stop"
    fault: str = ""


def conversation(pool: Pool, rng: random.Random, entry: Entry | None = None) -> Conversation:
    """Make a conversation near a task's gold path."""
    entry, solo = entry or rng.choice(pool.entries), pool.category.solo
    dropped, changed, added = (rng.choice([0, 0, 0.1, 0.4]) for _ in range(3))
    calls: list[Call] = []
    for side, name, arguments in gold_calls(entry):
        if rng.random() < added:
            calls.append(pool.call(rng, entry))
        if rng.random() >= dropped:
            often = 1.0 if rng.random() < changed else 0.0
            calls.append((side, name, pool.changed(rng, arguments, often)))
    if rng.random() < 0.1:
        rng.shuffle(calls)
    if solo:
        calls = [("assistant", name, arguments) for _, name, arguments in calls]
    talk = Conversation(entry)
    if not solo:
        talk.turns.append(("user", "I need help.", []))
    for group in _grouped(calls, rng):
        beside = _statement(rng, entry) if rng.random() < 0.2 else ""
        talk.turns.append((group[0][0], beside, group))
        if not solo and rng.random() < 0.2:
            talk.turns.append((rng.choice(["user", "assistant"]), _statement(rng, entry), []))
    if not solo:
        talk.turns.append(("assistant", _statement(rng, entry), []))
    talk.turns.append(("assistant" if solo else "user", STOP, []))
    stop = "agent_stop" if solo else "user_stop"
    talk.ending = stop if rng.random() < 0.8 else rng.choice(REASONS)
    talk.fault = rng.choice(FAULTS) if rng.random() < 0.15 else ""
    return talk


def _grouped(calls: Sequence[Call], rng: random.Random) -> Iterator[list[Call]]:
    """Yield calls of one side after another, several in a message now and then."""
    group: list[Call] = []
    for call in calls:
        if group and (group[0][0] != call[0] or rng.random() < 0.7):
            yield group
            group = []
        group.append(call)
    if group:
        yield group


def _statement(rng: random.Random, entry: Entry) -> str:
    """Return a text with all, some or none of what has to be said, in some writing."""
    infos = (entry.gold or {}).get("communicate_info") or ()
    facts = [info for info in infos if rng.random() < rng.choice([1, 1, 1, 0.5, 0])]
    writings: list[Callable[[str], str]] = [str.upper, str.title, lambda text: f"x{text}x"]
    writings += [lambda text: f"{int(text):,}" if text.isdecimal() else text.replace(" ", ", ")]
    writing = rng.choice(writings) if rng.random() < 0.4 else str
    return rng.choice([" ", "\n", ", "]).join(["So:", *map(writing, facts)])


@dataclass
class Script:
    """An episode's models: the turns of each side, the last of each for ever."""

    entry: Entry
    turns: dict[str, list[dict[str, Any]]]
    limits: tuple[int, int]


def script(pool: Pool, rng: random.Random) -> Script:
    """Split a conversation into what each side says, with gaps and noise."""
    talk, solo = conversation(pool, rng), pool.category.solo
    replies: dict[str, list[tuple[str, list[Call]]]] = {"assistant": [], "user": []}
    noise = rng.choice([0, 0, 0.1, 0.3])
    before = ""
    # A user without tools, as in some banking tasks, cannot call any.
    user_calls = (calls for side, _, calls in talk.turns if side == "user")
    can_call = bool(pool.category.user_tools) and any(user_calls)
    for side, text, calls in talk.turns[:-1]:
        if before and side != before:  # a side goes on until it says something
            replies[before].append(("Please do that.", []))
        if rng.random() < noise:
            stop = f"Soon {STOP}" if not solo or rng.random() < 0.1 else " "
            odd = rng.choice(["", "\n", "é✓ 漢", stop, *ENDS])
            call = (side == "assistant" or can_call) and rng.random() < 0.6
            more = [pool.call(rng, talk.entry)] if call else []
            replies[side].append((odd, more) if solo or rng.random() < 0.8 else ("", []))
        replies[side].append((text, calls if side == "assistant" or can_call else []))
        before = side if calls else ""
    replies["assistant"].append(("", [("assistant", DONE, {})]) if solo else ("Done.", []))
    replies["user"].append((rng.choice(["Thanks. " + STOP, *ENDS]), []))
    if rng.random() < noise / 3:
        replies["assistant"][-1:-1] = [("", [])] * 4  # no answer at all
    turns = {"agent": _numbered(replies["assistant"], "a", rng, noise)}
    turns["user"] = _numbered(replies["user"], "u", rng, noise)
    return Script(talk.entry, turns, rng.choice(LIMITS))


def _numbered(
    turns: Sequence[tuple[str, list[Call]]], mark: str, rng: random.Random, noise: float
) -> list[dict[str, Any]]:
    replies: list[dict[str, Any]] = []
    for text, calls in turns:
        tool_calls: list[Any] = []
        for _, name, arguments in calls:
            odd = rng.choice(["{", "[]", "null", "5", ""])
            raw = odd if rng.random() < noise / 20 else json.dumps(arguments)
            tool_calls.append(
                {"id": f"{mark}{len(replies)}{len(tool_calls)}", "name": name, "arguments": raw}
            )
        replies.append({"text": text, "calls": tool_calls})
    return replies


def recorded(benchmark: Tau2, talk: Conversation) -> list[dict[str, Any]]:
    """Return the messages of a conversation with the answers of its calls, and with its fault."""
    scenario = benchmark.scenario(talk.entry)
    messages = list(history(talk.entry))
    if not messages and not CATEGORIES[talk.entry.category].solo:
        messages = [{"role": "assistant", "content": benchmark._texts.greeting}]
    for number, (side, text, calls) in enumerate(talk.turns):
        message: dict[str, Any] = {"role": side, "content": text}
        answers = []
        for index, (_, name, arguments) in enumerate(calls):
            last = index + 1 == len(calls)
            options = {"requestor": side, "arguments": arguments, "last": last}
            answer = scenario.call(name, options)
            call = {"id": f"c{number}_{index}", "name": name, "arguments": json.dumps(arguments)}
            message.setdefault("tool_calls", []).append(call)
            fields = {"content": answer.value, "error": bool(answer.error)}
            answers.append({"role": "tool", "id": call["id"], "requestor": side, **fields})
        messages += [message, *answers]
    return _faulty(messages, talk.fault)


def _faulty(messages: list[dict[str, Any]], fault: str) -> list[dict[str, Any]]:
    """Return messages as no loop records them, but a results file may hold them."""
    results = [at for at, message in enumerate(messages) if message["role"] == "tool"]
    if fault == "user_turn":
        return [*messages[:-1], {"role": "user", "content": "And?"}, messages[-1]]
    if not fault or not results:
        return messages
    at = results[len(results) // 2]
    result = messages[at]
    if fault == "requestor":
        message = next(m for m in reversed(messages[:at]) if m.get("tool_calls"))
        side = "user" if message["role"] == "assistant" else "assistant"
        message["tool_calls"] = [{**call, "requestor": side} for call in message["tool_calls"]]
        return messages
    replaced = {
        "content": [{**result, "content": f"{result['content']}x"}],
        "error": [{**result, "error": not result["error"]}],
        "missing": [],
        "id": [{**result, "id": "other"}],
        "extra": [result, result],
        "system": [{"role": "system", "content": "Be kind."}, result],
    }
    return [*messages[:at], *replaced[fault], *messages[at + 1 :]]
