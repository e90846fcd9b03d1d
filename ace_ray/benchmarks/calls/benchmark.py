"""Implement the `Benchmark` interface for the user's own cases (docs/calls.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.calls.cases import read_cases, schemas_of
from ace_ray.benchmarks.calls.rules import Call, example, judge, read_native, read_text
from ace_ray.benchmarks.diagnosis import Answers, answer_texts
from ace_ray.benchmarks.gold_check import Gold
from ace_ray.benchmarks.messages import add_system, join_users, merge_system
from ace_ray.benchmarks.results import Score
from ace_ray.benchmarks.statistics import POOLED, estimate
from ace_ray.benchmarks.tally import Tally, accuracies
from ace_ray.config.schema import Section
from ace_ray.types import Entry, Episode, OfferedApi, ResultRow, Verdict
from ace_ray.util.local_files import path_of

PROMPT = """\
You can call the functions that are listed below, one JSON object per line. If calls are needed, \
answer with a JSON list of all of them and nothing else:
[{"name": "FUNCTION", "arguments": {"PARAMETER": VALUE}}]
Arguments must fit the function's parameters, which are a JSON Schema. If no function helps, or a \
required value is unknown, answer in words and call nothing.

Functions:
"""
RESULT = "Result of a call: "

# Titles of the numbers beside the accuracy, each a share of rows (docs/calls.md).
NUMBERS = {
    "right_name": "Right name",
    "right_arguments": "Right arguments",
    "schema_valid": "Fits the schema",
    "trigger_precision": "Trigger precision",
    "trigger_recall": "Trigger recall",
    "trigger_f1": "Trigger F1",
    "no_call": "No call where none is due",
}


class Options(Section):
    data: str = Field(min_length=1)
    """file of cases, one JSON object per line"""
    mode: Literal["prompt", "native"] = "prompt"
    """way to offer functions; native: through the model's template, read by model.tool_parser"""
    system: Literal["system", "user"] = "system"
    """role of system messages; user: for templates that reject the system role"""


class Calls(Benchmark):
    """The user's own cases. An answer is right when its calls are the expected calls."""

    name = "calls"
    rule_sets = ("exact",)
    without_native = "benchmarks.calls.mode: prompt"
    refused_fix = "write benchmarks.calls.mode: prompt, and system: user if it lacks that role"
    Options = Options

    def entries(self) -> Iterable[Entry]:
        return read_cases(path_of(self.options.data, "benchmarks.calls.data"))

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        messages = super().prompt(entry)
        if self.options.mode == "prompt":
            functions = [json.dumps(tool["function"]) for tool in entry.data["tools"]]
            messages = add_system(PROMPT + "\n".join(functions), _as_texts(messages))
        return merge_system(messages) if self.options.system == "user" else messages

    def tools(self, entry: Entry) -> list[dict[str, Any]] | None:
        return (entry.data["tools"] or None) if self.options.mode == "native" else None

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        schemas, ordered = schemas_of(entry.data["tools"]), entry.data["order"] == "listed"
        return judge(entry.gold, self._calls(episode), schemas, ordered)

    def _calls(self, episode: Episode) -> list[Call]:
        if self.options.mode == "prompt":
            return read_text(episode.output)
        return read_native(episode.messages[-1].get("tool_calls") or ())

    def parse_failures(self, entry: Entry, episode: Episode) -> Answers:
        return () if self._calls(episode) else [answer_texts(episode, episode.output)]

    def gold(self, entry: Entry) -> Gold:
        """Return the expected calls; the wrong copy has other arguments in its last call."""
        right = [{**call, "arguments": example(call["arguments"])} for call in entry.gold]
        *calls, last = right or [{"name": "unwanted", "arguments": {}}]
        values: dict[str, Any] = {
            name: [value, "wrong"] for name, value in last["arguments"].items()
        }
        wrong = [*calls, {**last, "arguments": values or {"wrong": 0}}]
        return Gold(Episode(output=json.dumps(right)), Episode(output=json.dumps(wrong)))

    def composition(self, entry: Entry) -> tuple[list[OfferedApi], int | None]:
        users = sum(message["role"] == "user" for message in entry.prompt)
        return [OfferedApi(tool) for tool in entry.data["tools"]], users

    @classmethod
    def statistics(cls, rows: Iterable[ResultRow], max_unscored: float) -> dict[str, Any]:
        tallies = {name: Tally(name, cls.rule_sets) for name in NUMBERS}

        def tally_rows() -> Iterator[ResultRow]:
            for row in rows:
                for name, value in row.metrics("exact").items():
                    if name in tallies:  # stored rows are not trusted
                        tallies[name].add(replace(row, verdicts={"exact": Verdict(value == 1)}))
                yield row

        summary = super().statistics(tally_rows(), max_unscored)
        cells = {name: accuracies([tally], "exact") for name, tally in tallies.items()}
        f1 = cells["trigger_f1"]
        if f1["interval"]:
            # So far J, the share of due calls that were made, of all rows with a due or made call.
            value, low, high = (2 * j / (1 + j) for j in (f1["accuracy"], *f1["interval"]))
            cells["trigger_f1"] = {**f1, "accuracy": value, "interval": (low, high)}
        keys = ("accuracy", "interval", "n")
        return {**summary, "calls": {n: {k: cell[k] for k in keys} for n, cell in cells.items()}}

    @classmethod
    def scores(cls, summary: Mapping[str, Any], rules: str) -> Sequence[Score]:
        cells = summary["calls"]
        more = [Score(title, POOLED, estimate(cells[name])) for name, title in NUMBERS.items()]
        return [*super().scores(summary, rules), *more]


def _as_texts(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a conversation in which tool calls and their results are texts, as in prompt mode."""
    texts: list[dict[str, Any]] = []
    for message in messages:
        role, content = message["role"], message["content"]
        if calls := read_native(message.get("tool_calls") or ()):
            content = json.dumps(calls)
        if role == "tool":
            role, content = "user", f"{RESULT}{content}"
        texts.append({"role": role, "content": content})
    return join_users(texts)
