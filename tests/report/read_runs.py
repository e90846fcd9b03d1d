"""Runs whose answers are written in a family's format, with token ids, for `ace-ray reread`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from ace_ray.benchmarks.bfcl.functions import tool_name
from ace_ray.benchmarks.bfcl.gold import gold_calls
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.config.schema import RunConfig
from ace_ray.models.answer_parser import Reading
from ace_ray.models.families import FormatChoice
from ace_ray.models.reparse_child import ChildParser, StoredAnswer
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.actors.verdicts import judge_row
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.planning.plan import make_plan
from ace_ray.pipeline.planning.preflight import make_benchmarks
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS, entry_columns
from ace_ray.storage.stored import MANIFEST, as_json
from ace_ray.types import Completion, Entry, Episode, Sampling, ToolAnswer, ToolCall
from tests.models.conftest import save_letters
from tests.pipeline.made_run import made_row
from tests.scripted_model import ScriptedModel

Calls = Sequence[tuple[str, dict[str, Any]]]
THOUGHT = "<think>\nlet me see\n</think>\n"
MARKS = [
    "<tool_call>",
    "</tool_call>",
    "<|tool_call|>",
    "<|python_tag|>",
    "<think>",
    "</think>",
    "<|end|>",
]


def python(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _listed(calls: Calls, key: str = "arguments") -> list[str]:
    return [json.dumps({"name": name, key: arguments}) for name, arguments in calls]


# vLLM's tool parser -> its text of some calls.
FAMILIES: dict[str, Callable[[Calls], str]] = {
    "hermes": lambda calls: "\n".join(
        f"<tool_call>\n{call}\n</tool_call>" for call in _listed(calls)
    ),
    "llama3_json": lambda calls: "; ".join(_listed(calls, "parameters")),
    "pythonic": lambda calls: f"[{', '.join(python(*call) for call in calls)}]",
    "granite": lambda calls: f"<|tool_call|>[{', '.join(_listed(calls))}]",
    "phi4_mini_json": lambda calls: f"functools[{', '.join(_listed(calls))}]",
    "olmo3": lambda calls: (
        "<function_calls>\n" + "\n".join(python(*call) for call in calls) + "\n</function_calls>"
    ),
}


def toy_model(folder: Path) -> Path:
    """Save a model folder whose tokenizer has bytes and the families' marks as tokens."""
    folder.mkdir(parents=True)
    template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    save_letters(folder, template, MARKS)
    return folder


def gold_of(entry: Entry) -> Calls:
    """Return the right calls of a single-turn entry of BFCL; [] if none are right."""
    gold = (entry.gold or {}).get("ground_truth") if isinstance(entry.gold, dict) else entry.gold
    calls = gold_calls(gold or [], entry.data["function"])
    return [(tool_name(call.name), dict(call.args)) for call in calls]


def read_run(
    folder: Path,
    model: Path,
    family: str,
    *,
    categories: Sequence[str],
    calls_of: Callable[[Entry], Calls] = gold_of,
    data: str = "mini",
    thinks: bool = False,
) -> Path:
    """Write a run of BFCL whose answers have ``calls_of`` an entry, as ``family`` writes them.

    An episode of several turns has three answers: a call, two calls, and a text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tree = {
        "model": {"source": str(model), "tool_parser": family},
        "benchmarks": [
            {"name": "bfcl", "mode": "native", "categories": list(categories), "data": data}
        ],
        "output": str(folder.parent),
        "run_id": folder.name,
    }
    config = RunConfig.model_validate(tree)
    plan = make_plan(
        config, ModelRef(str(model), "folder", str(model), "1"), make_benchmarks(config)
    )

    def answer(calls: Calls) -> Completion:
        tool_calls = tuple(ToolCall(name, json.dumps(arguments)) for name, arguments in calls)
        text = FAMILIES[family](calls) if calls else "No function fits."
        full = THOUGHT + text if thinks else text
        return Completion(
            text=text,
            reasoning="let me see" if thinks else "",
            raw=full if thinks else "",
            tools=ToolAnswer("" if calls else text, tool_calls),
            token_ids=tokenizer.encode(full, add_special_tokens=False).ids,
        )

    def episode_of(entry: Entry, benchmark: Any) -> Episode:
        if entry.category.startswith("multi_turn"):
            episode = Episode(messages=[{"role": "user", "content": "go"}])
            episode.record_tools(
                [{"type": "function", "function": {"name": "f", "parameters": {}}}]
            )
            call = ("f", {"key": "x"})
            for calls in ([call], [call, call], []):
                episode.record(answer(calls))
            return episode
        context = EpisodeContext(RoleModel(ScriptedModel(answer(calls_of(entry))), Sampling()))
        return asyncio.run(benchmark.run(entry, context))

    rows = []
    for planned in pa.table(plan.rows.columns()).to_pylist():
        entry = plan.entries[planned["entry"]]
        benchmark = plan.benchmarks[entry.benchmark]
        row = made_row(
            planned["row_id"].decode(),
            episode_of(entry, benchmark),
            run_id=plan.run_id,
            **entry_columns(entry),
        )
        rows.append(judge_row(row, entry, benchmark))
    store = LocalStore(str(folder))
    facts = {"format": {"tool_parser": family, "reasoning_parser": "auto"}}
    store.put(MANIFEST, as_json(make_manifest(plan, facts)))
    write_parts(store, "00000000000001-aa", pa.Table.from_pylist(rows, schema=ROWS))
    store.put("_SUCCESS", b"")
    return folder


class InProcess:
    """An `AnswerParser` without a child process, which takes vLLM's import time only once."""

    def __init__(
        self, folder: Path, choice: FormatChoice, earlier: FormatChoice, python: str | None = None
    ) -> None:
        settings = {"choice": asdict(choice), "earlier": asdict(earlier)}
        self.versions = {"vllm": "of this process"}
        self._parser = ChildParser({"folder": str(folder), **settings})

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, answers: Sequence[StoredAnswer]) -> list[Reading]:
        return [self._parser.read(vars(answer)) for answer in answers]
