"""``ace-ray reread RUN``: parse the stored answers again, with other parsers or another vLLM.

The result is a new run. A row keeps its verdict if all its answers are parsed as before. If a row
has only one answer and it is parsed differently, the row is judged again. If one of several answers
is parsed differently, the conversation would have continued differently. Such a row has no verdict,
the status ``skipped`` and the error class `DIVERGED`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from pydantic import Field

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.dataset import PartialModel, parse_tree
from ace_ray.benchmarks.headline import DIVERGED
from ace_ray.benchmarks.validation import user_code
from ace_ray.errors import UserError
from ace_ray.models.answer_parser import Reading
from ace_ray.models.families import FormatChoice
from ace_ray.models.parser_plugins import read_plugins
from ace_ray.models.reparse_child import AnswerParser, StoredAnswer, tokenizer_of
from ace_ray.pipeline.actors.verdicts import judge_row
from ace_ray.pipeline.summary import finish
from ace_ray.rescoring.rejudge import rewrite_rows
from ace_ray.rescoring.stored_benchmarks import StoredBenchmarks
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.parts import part_names
from ace_ray.storage.rows import (
    episode_columns,
    episode_of,
    messages_of,
    token_ids_of,
    verdict_columns,
)
from ace_ray.storage.stored import MANIFEST, Manifest, as_json, read_timing
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import (
    CHECKED,
    RAW_CHARS,
    Completion,
    Entry,
    Sampling,
    ToolAnswer,
    ToolCall,
    assistant_message,
    bounded_raw,
    digest,
)
from ace_ray.util.safe_loading import json_of_row
from ace_ray.util.sanitizing import one_line

# Maximum number of rows that the result shows as examples.
EXAMPLES = 3
_DAMAGED = "name an intact run, or remove the part that contains the row"


class _Function(PartialModel):
    name: str
    arguments: str = ""


class _Call(PartialModel):
    function: _Function
    id: str = ""
    since_answer: int = 1


class _Answer(PartialModel):
    """A stored answer and the tools that were offered for it."""

    content: str | None = None
    text: str = ""
    raw: str = ""
    reasoning: str = ""
    tool_calls: list[_Call] = Field(default_factory=list)
    tools: list[_Call] = Field(default_factory=list)


@dataclass
class ReparseResult:
    """The result of `reparse_run`.

    ``unread``: answers that cannot be parsed again. ``with_ids``: the run stores token ids of all
    answers. ``with_tools``: a request offered tools. ``moved`` maps (benchmark,
    category) to counts: ``answers`` that are parsed differently, rows that ``gained`` or ``lost`` a
    valid verdict under the benchmark's first rule set, and ``diverged`` rows, which
    cannot be judged again because a changed answer would have changed later turns."""

    uri: str
    run: str
    rows: int = 0
    answers: int = 0
    unread: int = 0
    with_ids: bool = True
    with_tools: bool = False
    moved: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    versions: Mapping[str, Any] = field(default_factory=dict)
    parsers: Mapping[str, str | None] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def reader(self) -> str:
        """The vLLM version and the parsers that parsed the answers."""
        parser_names = [f"{key} {value}" for key, value in self.parsers.items() if value]
        return ", ".join([f"vLLM {self.versions.get('vllm')}", *parser_names])

    def update_readings(self, records: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
        """Return records of sessions or engines, with this result's versions in ``reading``."""
        readings = [(record, record.get("reading")) for record in records or ()]
        return [
            {**record, "reading": {**(r if isinstance(r, Mapping) else {}), **self.versions}}
            for record, r in readings
        ]

    def total(self, count: str) -> int:
        return sum(counts[count] for counts in self.moved.values())


class _MissingAnswer(Exception):
    """The benchmark requests an answer that is not stored."""


class _Replay:
    """A model that returns one stored answer, and raises `_MissingAnswer` for a second request."""

    def __init__(self, answer: Completion) -> None:
        self._answers = [answer]

    async def chat(self, messages: Any, sampling: Any, tools: Any = None) -> Completion:
        if not self._answers:
            raise _MissingAnswer
        answer = self._answers.pop()
        return answer if tools is not None else replace(answer, tools=None)


def reparse_run(
    uri: str,
    *,
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
    python: str | None = None,
    tokenizer: str | None = None,
    output: str | None = None,
    plugins: Sequence[str] = (),
    benchmarks: Sequence[str] = (),
    opens: Callable[[str], Store] = open_store,
) -> ReparseResult:
    """Parse the answers of the run at ``uri`` again; write the result as a new run.

    Args:
        tool_parser, reasoning_parser: names of vLLM's parsers; None: the parsers of the run.
        python: interpreter of an environment with another vLLM.
        tokenizer: the run's model (as in a config), or a folder with its config and tokenizer. It
            must be named: the model in a stored run may be a stranger's.
        output: folder of the new run; None: a folder next to the run.
        plugins: Python files that register further parsers.
        benchmarks: local benchmark files whose code may run (`StoredBenchmarks`).

    Raises `UserError` if the run did not use vLLM, the tokenizer is missing or a parser is unknown.
    """
    run = StoredRun(opens(uri))
    store, manifest = run.store, run.manifest
    if manifest.config.backend != "vllm":
        raise UserError(
            f"does not contain the text of the model (backend: {manifest.config.backend}); an "
            "endpoint returns calls that its server has parsed",
            where=store.root,
            fix="name a run that was evaluated with vLLM",
        )
    # The run stores only the plugins' hashes, and its parsers may be theirs.
    if manifest.tree["identity"].get("plugins") and not plugins and tool_parser is None:
        problem = "the run's parsers came from plugins"
        raise UserError(problem, where=store.root, fix="name the plugin files with --plugin")
    stored = StoredBenchmarks(run, benchmarks)
    stored_format = manifest.format
    earlier = FormatChoice(
        stored_format.reasoning_parser or "none",
        stored_format.tool_parser,
        template_kwargs=stored_format.template_kwargs,
        start_date=stored_format.start_date,
    )
    choice = replace(
        earlier,
        tool_parser=tool_parser or earlier.tool_parser,
        reasoning_parser=reasoning_parser or earlier.reasoning_parser,
        plugins=read_plugins(list(plugins)),
    )
    if tokenizer is None:
        problem = f"needs the tokenizer and the chat template of {manifest.model.source:.200}"
        fix = "if you trust that model, name it, or a folder with its files, with --tokenizer"
        raise UserError(problem, where=store.root, fix=fix)
    folder = tokenizer_of(tokenizer, opens)
    key = digest(manifest.run_id, choice.identity, choice.tool_parser, python)[:8]
    # A child, since the run's author may have put a link with this name beside the run.
    beside = store.root.rpartition("/")[0] or "/"
    target = opens(output) if output else opens(beside).child(f"reread-{key}")
    if part_names(target):
        problem = "the folder already contains rows"
        raise UserError(problem, where=target.root, fix="name another --output")
    stored.read()
    target.check_unlinked("rows")
    with AnswerParser(folder, choice, earlier, python) as parser:
        parsers = {"tool_parser": choice.tool_parser, "reasoning_parser": choice.reasoning_parser}
        result = ReparseResult(target.root, store.root, versions=parser.versions, parsers=parsers)
        target.put(MANIFEST, as_json(_manifest(manifest, result, choice)))
        rewrite_rows(run.ledger, target, partial(_reparse_batch, parser, stored, result))
    new = StoredRun(target)
    timing = read_timing(store)
    timing["engines"] = result.update_readings(timing.get("engines"))
    _, result.summary = finish(target, new.manifest, stored.by_name, new.ledger, timing)
    return result


def _manifest(manifest: Manifest, result: ReparseResult, choice: FormatChoice) -> dict[str, Any]:
    tree, name = manifest.tree, result.uri.rpartition("/")[2]
    return {
        **tree,
        "sessions": result.update_readings(tree.get("sessions")),
        "run_id": name if name.startswith("reread-") else f"reread-{name}",
        "identity": {**tree["identity"], **choice.identity, **result.parsers},
        "format": {**(tree.get("format") or {}), **result.parsers},
        "reread": {"of": result.run, "run_id": manifest.run_id, "reader": result.reader},
    }


def _reparse_batch(
    parser: AnswerParser,
    benchmarks: StoredBenchmarks,
    result: ReparseResult,
    rows: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Parse the answers of ``rows``. Return the rows, with new verdicts where an answer is parsed
    differently. Add the counts to ``result``."""
    stored = [_answers(row, result) for row in rows]
    readings = iter(parser.read([answer for answers in stored for _, answer in answers]))
    new_rows = []
    for row, answers in zip(rows, stored, strict=True):
        result.rows += 1
        result.answers += len(answers)
        read = [_completion(message, answer, next(readings)) for message, answer in answers]
        pairs = [(old, assistant_message(new)) for (old, _), new in zip(answers, read, strict=True)]
        different = [n for n, (old, new) in enumerate(pairs, 1) if _content(old) != _content(new)]
        new_rows.append(row)
        if not different:
            continue
        benchmark, entry = benchmarks.find_entry(row)
        counts = result.moved.setdefault((row["benchmark"], row["category"]), Counter())
        counts["answers"] += len(different)
        if len(result.examples) < EXAMPLES:
            before, after = (message_line(message, 160) for message in pairs[different[0] - 1])
            result.examples.append(f"{row['id']}: {before} -> {after}")
        if row["status"] not in CHECKED:
            continue
        # An interactive episode would call tools, services and roles that only the run names.
        needs_more = benchmark.interactive(entry) or benchmark.needs_logprobs
        judged_row = None
        if row["model_calls"] == 1 and not needs_more:
            judged_row = _rejudge_row(row, read[0], entry, benchmark)
        if judged_row is None:
            counts["diverged"] += 1
            judged_row = {
                **row,
                **verdict_columns({}, benchmark.rule_sets),
                **{"status": "skipped", "error_class": DIVERGED},
                "error": f"answer {different[0]} of {len(answers)} reads differently, "
                "so the conversation would have changed",
            }
        else:
            valid = f"{benchmark.rule_sets[0]}_valid"
            counts["gained"] += bool(judged_row[valid]) and not row[valid]
            counts["lost"] += bool(row[valid]) and not judged_row[valid]
        new_rows[-1] = judged_row
    return new_rows


def _answers(
    row: Mapping[str, Any], result: ReparseResult
) -> list[tuple[Mapping[str, Any], StoredAnswer]]:
    """Return (message, stored answer) for each assistant message of a row. Return [] if the answers
    cannot be parsed again, and count them in ``result``."""
    messages = [m for m in messages_of(row) if m.get("role") == "assistant"]
    ids = token_ids_of(row) or []
    if not ids and messages:
        result.with_ids = False
    # Benchmarks with their own protocol store answers in other messages, which are not parsed.
    if len(messages) != row["model_calls"]:
        result.unread += row["model_calls"] or 0
        return []
    answers: list[tuple[Mapping[str, Any], StoredAnswer]] = []
    ids_of_answers = ids if len(ids) == len(messages) else [None] * len(messages)
    for number, (message, token_ids) in enumerate(zip(messages, ids_of_answers, strict=True), 1):
        parse_tree(_Answer, message, f"row {row['row_id']}, column messages", _DAMAGED)
        tools = offered_tools(row, number) if "text" in message else None
        result.with_tools |= tools is not None
        text = message.get("raw") or message.get("text", message.get("content")) or ""
        if len(message.get("raw", "")) == RAW_CHARS:  # the stored text lacks its beginning
            result.unread += 1
            return []
        answers.append((message, StoredAnswer(text, token_ids, tools)))
    return answers


def offered_tools(row: Mapping[str, Any], answer: int) -> str | None:
    """Return the tools that were offered for answer number ``answer`` (from 1) of a row, as a JSON
    list, or None. Raises `UserError` if the row's column ``tools`` is damaged."""
    if row["tools"] is None:
        return None
    location = f"row {row['row_id']}, column tools"
    try:
        tools = json_of_row(row["tools"])
    except ValueError as error:
        raise UserError(str(error), where=location, fix=_DAMAGED) from error
    parse_tree(_Answer, {"tools": tools}, location, _DAMAGED)
    return json.dumps(
        [
            {key: value for key, value in tool.items() if key != "since_answer"}
            for tool in tools
            if tool.get("since_answer", 1) <= answer
        ]
    )


def _content(message: Mapping[str, Any]) -> Any:
    """Return a message's text, reasoning and calls, and whether the tool parser failed."""
    texts = [message.get(key) or "" for key in ("content", "reasoning")]
    return texts, calls_of(message), bool(message.get("tool_parser_error"))


def calls_of(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the calls of a stored message for comparison: names and arguments, without ids, which
    servers draw at random, and without the spelling of the JSON."""
    calls = message.get("tool_calls") or []
    try:
        functions = (call["function"] for call in calls)
        return [(function["name"], normalize_json(function["arguments"])) for function in functions]
    except (KeyError, TypeError):
        return [("damaged", str(calls))]


def message_line(message: Mapping[str, Any], limit: int) -> str:
    """Return a message's calls, or else its text, in a line of at most ``limit`` characters."""
    calls = "; ".join(f"{name}({arguments})" for name, arguments in calls_of(message))
    return one_line(calls or json.dumps(message.get("content"), ensure_ascii=False), limit)


@lru_cache(64)  # the old and the new parse mostly have the same arguments
def normalize_json(arguments: str) -> str:
    """Return ``arguments`` in one spelling of their JSON, or unchanged if they are not JSON."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def _completion(message: Mapping[str, Any], answer: StoredAnswer, reading: Reading) -> Completion:
    tools = reading.tools
    if "text" in message and tools is None:
        tools = ToolAnswer(reading.text)
    ids = [call.get("id", "") for call in message.get("tool_calls", ())]
    if tools is not None and len(ids) == len(tools.calls):
        calls = (ToolCall(c.name, c.arguments, i) for c, i in zip(tools.calls, ids, strict=True))
        tools = ToolAnswer(tools.content, tuple(calls), tools.error)
    return Completion(
        text=reading.text,
        reasoning=reading.reasoning,
        reasoning_truncated=reading.truncated,
        tools=tools if "text" in message else None,
        raw=bounded_raw(answer.text, reading.text),
        token_ids=answer.token_ids,
    )


def _rejudge_row(
    row: dict[str, Any], answer: Completion, entry: Entry, benchmark: Benchmark
) -> dict[str, Any] | None:
    """Judge the row again with ``answer``, the new parse of its only answer. Return None if the
    benchmark then requests further answers."""
    episode_of(row)  # raises for a damaged run, which must not count as a failed check
    answer = replace(answer, finish_reason=row["finish_reason"])
    context = EpisodeContext(RoleModel(_Replay(answer), Sampling()))
    with user_code(type(benchmark), f"the episode of entry {entry.id!r}"):
        try:
            episode = asyncio.run(benchmark.run(entry, context))
        except _MissingAnswer:
            return None
    names = ("messages", "output", "reasoning", "reasoning_truncated", "state", "tools")
    columns = episode_columns(episode)
    return judge_row({**row, **{name: columns[name] for name in names}}, entry, benchmark)
