"""Conversations near the answer key of a multi-turn entry: what models get almost right."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Call = str | None
"""A call text; None stands for a step that is no call."""
Turns = list[list[list[str] | None]]
"""The steps of each turn, as decoded."""


@dataclass(frozen=True)
class Case:
    kind: str
    turns: Turns


class Mutator:
    """Makes cases of one entry. ``docs`` are those of its classes."""

    def __init__(
        self, gold: Sequence[Sequence[str]], docs: Sequence[Mapping[str, Any]], seed: str
    ) -> None:
        self.gold, self.docs = gold, docs
        self.random = random.Random(seed)
        self.kinds: Mapping[str, Callable[[Turns], None]] = {
            "as it is": lambda turns: None,
            "dropped": self.dropped,
            "shuffled": self.shuffled,
            "duplicated": self.duplicated,
            "altered": self.altered,
            "read": self.read,
            "any call": self.any_call,
            "bad arguments": self.bad_arguments,
            "unknown": self.unknown,
            "nested": self.nested,
            "silent turn": self.silent,
            "cut": self.cut,
            "longer": self.longer,
            "moved": self.moved,
            "steps": self.steps,
            "text": self.text,
            "positional": self.positional,
            "talk": self.talk,
            "syntax": self.syntax,
        }

    def cases(self, number: int) -> list[Case]:
        """``number`` cases of kinds in turn, one in three with a second change on top."""
        names = list(self.kinds)
        start = self.random.randrange(len(names))
        made = []
        for index in range(number):
            kinds = [names[(start + index) % len(names)]]
            if self.random.random() < 0.3:
                kinds.append(self.random.choice(names))
            turns: Turns = [[list(turn)] if turn else [] for turn in self.gold]
            for kind in kinds:
                self.kinds[kind](turns)
            made.append(Case(" + ".join(kinds), turns))
        return made

    def _place(self, turns: Turns) -> tuple[list[str], int] | None:
        """A step with calls and the place of one in it."""
        steps = [step for turn in turns for step in turn if step]
        if not steps:
            return None
        step = self.random.choice(steps)
        return step, self.random.randrange(len(step))

    def _turn(self, turns: Turns) -> list[list[str] | None]:
        return self.random.choice(turns) if turns else []

    def dropped(self, turns: Turns) -> None:
        if place := self._place(turns):
            place[0].pop(place[1])

    def shuffled(self, turns: Turns) -> None:
        if place := self._place(turns):
            self.random.shuffle(place[0])

    def duplicated(self, turns: Turns) -> None:
        if place := self._place(turns):
            step, index = place
            step.insert(self.random.randint(0, len(step)), step[index])

    def altered(self, turns: Turns) -> None:
        if place := self._place(turns):
            step, index = place
            step[index] = self._with_argument(step[index], self._other)

    def _other(self, value: Any) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, (int, float)):
            return self.random.choice([value + 1, -value, float(value), str(value), 0])
        if isinstance(value, str):
            other = [value + "x", value.upper(), "", value[:-1], f" {value}", value.lower(), 7]
            return self.random.choice(other)
        if isinstance(value, list):
            return self.random.choice([value[:-1], value[::-1], value * 2, tuple(value), "x"])
        return None

    def _with_argument(self, text: str, change: Callable[[Any], Any]) -> str:
        tree = _parsed(text)
        if tree is None or not tree.keywords:
            return text
        keyword = self.random.choice(tree.keywords)
        try:
            value = ast.literal_eval(keyword.value)
        except ValueError:
            return text
        keyword.value = ast.parse(repr(change(value)), mode="eval").body
        return ast.unparse(tree)

    def read(self, turns: Turns) -> None:
        quiet = [d["name"] for d in self.docs if not d["parameters"].get("required")]
        if quiet:
            self._insert(turns, f"{self.random.choice(quiet)}()")

    def any_call(self, turns: Turns) -> None:
        doc = self.random.choice(self.docs)
        self._insert(turns, self._made(doc))

    def _made(self, doc: Mapping[str, Any]) -> str:
        parameters = doc["parameters"]["properties"]
        required = doc["parameters"].get("required", [])
        given = {
            name: self._value(name, schema)
            for name, schema in parameters.items()
            if name in required or self.random.random() < 0.3
        }
        return f"{doc['name']}({', '.join(f'{k}={v!r}' for k, v in given.items())})"

    def _value(self, name: str, schema: Mapping[str, Any]) -> Any:
        known = self._known().get(name)
        if known and self.random.random() < 0.7:
            return self.random.choice(known)
        kind = schema.get("type")
        return {
            "string": self.random.choice(["report.txt", "AAPL", "x", "", "SFO", "Rivermist", "."]),
            "integer": self.random.choice([0, 1, 2, 10, -1, 12446]),
            "float": self.random.choice([0.0, 1.5, 100.0, -2.0, 3]),
            "boolean": self.random.choice([True, False]),
            "array": self.random.choice([[], [1, 2, 3], ["a", "b"], ["driver"]]),
            "dict": self.random.choice([{}, {"priority": 3}, {"title": "t"}, {"x": 1}]),
        }.get(str(kind), "x")

    def _known(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for turn in self.gold:
            for text in turn:
                tree = _parsed(text)
                for keyword in tree.keywords if tree else ():
                    found.setdefault(str(keyword.arg), []).append(ast.literal_eval(keyword.value))
        return found

    def _insert(self, turns: Turns, text: str) -> None:
        turn = self._turn(turns)
        steps = [step for step in turn if step]
        if not steps or self.random.random() < 0.3:
            turn.insert(self.random.randint(0, len(turn)), [text])
        else:
            step = self.random.choice(steps)
            step.insert(self.random.randint(0, len(step)), text)

    def bad_arguments(self, turns: Turns) -> None:
        if place := self._place(turns):
            step, index = place
            name = step[index].partition("(")[0]
            step[index] = self.random.choice(
                [
                    *(f"{name}(nothing=1)", f"{name}()", f"{name}(1, 2, 3, 4, 5, 6, 7, 8)"),
                    *(step[index].replace("=", "_=", 1), f"{name}(*[1])", f"{name}(None)"),
                ]
            )

    def unknown(self, turns: Turns) -> None:
        names = ["no_such_tool", "GorillaFileSystem.ls", "math.sqrt", "os.remove", "exit", "kill"]
        names += ["quit", "a.run", "self.cd", "subprocess.Popen", "ls.x", "a.b.unlink"]
        arguments = self.random.choice(["", "x=1", "folder='a'", "x=ls()", "x=nan"])
        self._insert(turns, f"{self.random.choice(names)}({arguments})")

    def nested(self, turns: Turns) -> None:
        inner = self._made(self.random.choice(self.docs))
        outer = self.random.choice(self.docs)
        names = list(outer["parameters"]["properties"])
        if names:
            wanted = self.random.choice(names)
            others = [
                f"{name}={self._value(name, schema)!r}"
                for name, schema in outer["parameters"]["properties"].items()
                if name != wanted and name in outer["parameters"].get("required", [])
            ]
            shape = self.random.choice(["{}", "[{}]", "{{'a': {}}}", "({}, 1)"]).format(inner)
            self._insert(turns, f"{outer['name']}({', '.join([f'{wanted}={shape}', *others])})")

    def silent(self, turns: Turns) -> None:
        if turns:
            turns[self.random.randrange(len(turns))] = []

    def cut(self, turns: Turns) -> None:
        del turns[self.random.randint(0, len(turns)) :]

    def longer(self, turns: Turns) -> None:
        turns.append([["ls()"]] if self.random.random() < 0.5 else [])

    def moved(self, turns: Turns) -> None:
        if len(turns) > 1:
            index = self.random.randrange(len(turns) - 1)
            one, other = (index, index + 1) if self.random.random() < 0.5 else (index + 1, index)
            step = turns[one][0] if turns[one] else None
            if step:
                turns[other].insert(0, [step.pop(0)])

    def steps(self, turns: Turns) -> None:
        """Every call in a step of its own."""
        for turn in turns:
            turn[:] = [[text] for step in turn if step for text in step]

    def text(self, turns: Turns) -> None:
        """Tools' names and spaces before brackets in string arguments."""
        if place := self._place(turns):
            step, index = place
            name = self.random.choice(self.docs)["name"]
            added = self.random.choice(
                [f"{name}(x)", f" {name} (y)", " (z)", "a (b)", "\u00a0(", "1a (", "x\n (", "x\t("]
            )
            keep = self.random.random() < 0.3

            def change(value: Any) -> Any:
                return re.sub(r" ?\(", " (", str(value)) if keep else f"{value}{added}"

            step[index] = self._with_argument(step[index], change)

    def positional(self, turns: Turns) -> None:
        if place := self._place(turns):
            step, index = place
            tree = _parsed(step[index])
            if tree is not None:
                tree.args = [keyword.value for keyword in tree.keywords]
                tree.keywords = []
                step[index] = ast.unparse(tree)

    def talk(self, turns: Turns) -> None:
        """Steps that are no calls, and steps without any."""
        for turn in turns:
            turn.insert(self.random.randint(0, len(turn)), self.random.choice([None, [], [""]]))

    def syntax(self, turns: Turns) -> None:
        if place := self._place(turns):
            step, index = place
            text = step[index]
            step[index] = self.random.choice(
                [
                    *(text[:-1], f" {text}", f"{text} ", text.replace("(", "((", 1)),
                    *(f"x = {text}", text.replace("(", " (", 1), f"{text}; ls()"),
                    text.replace("='", "=b'", 1),
                ]
            )


def _parsed(text: str) -> ast.Call | None:
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    return tree if isinstance(tree, ast.Call) else None
