"""Explain why the rows of two runs differ, and print the result of ``ace-ray reread``.

``ace-ray compare --explain`` compares the messages of each row in order. The first difference is
the cause. Answers are compared by their token ids, or by their texts if token ids are not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from statistics import median
from typing import Any, Literal

import numpy as np
from rich.console import Console

from ace_ray.benchmarks.headline import DIVERGED, headline_score
from ace_ray.benchmarks.registry import class_of
from ace_ray.benchmarks.results import Table
from ace_ray.reports.comparison import paired_data
from ace_ray.reports.comparison_tables import interval_text, signed_points
from ace_ray.reports.hypotheses import difference_of
from ace_ray.reports.paired import pairs_of
from ace_ray.reports.runs import ScoredRun, diverged_line, load_runs
from ace_ray.reports.table import cell, csv_lines, print_table
from ace_ray.rescoring.prompts import FirstPrompts
from ace_ray.rescoring.reparse import ReparseResult, calls_of, message_line, normalize_json
from ace_ray.storage.object_store import Store
from ace_ray.storage.rows import messages_of, state_of, token_ids_of
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import digest
from ace_ray.util.sanitizing import print_line

Cause = Literal["prompt", "tokens", "reading", "tools", "simulator", "checker", "not scored"]
CAUSES: dict[Cause, str] = {
    "prompt": "other prompt",
    "tokens": "other tokens from the same prompt",
    "reading": "same tokens read differently",
    "tools": "other tool result or sandbox state",
    "simulator": "other answer of the user simulator or judge",
    "checker": "other checker",
    "not scored": "not scored in one run",
}
_KEY = ("benchmark", "language", "category", "id", "sample")
_COLUMNS = (
    *(*_KEY, "repeat", "status", "error_class"),
    *("tools", "state", "output_token_ids", "prompt_tokens", "model_calls", "output", "messages"),
)
# Columns with the content of a row.
_CONTENT = ("status", "messages", "tools", "state", "output_token_ids", "output")
_BATCH = 512  # maximum rows of each run that are compared at a time, to bound memory
# Keys of a message that depend on how the answer was parsed; a server returns only the first two.
_READ = ("content", "reasoning", "tool_parser_error", "text", "raw")
_READ_BY_SERVER = _READ[:2]
# Parts of an episode's state that another model wrote.
_OF_MODELS = frozenset({"user", "votes", "judge", "preferences", "steps"})


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs between two runs, and the first cause.

    ``call``: number of the model call. ``position``: number of the first differing token, or
    character if the tokens are unknown. Both count from 1; 0 is unknown. ``flips``: rule sets under
    which the verdict differs."""

    key: tuple[Any, ...]
    cause: Cause
    call: int = 0
    position: int = 0
    detail: str = ""
    flips: tuple[str, ...] = ()


@dataclass
class Explanation:
    """The causes of all rows that differ between two runs. ``base``, ``other``: labels of the runs.

    ``template``: whether both chat templates are known and differ. ``parsed``: whether the texts of
    a run lack the calls, because a server parsed them. ``simulated``: benchmarks with a simulated
    user. ``unnumbered``: why the first differing token of prompts is not known; "" if it is."""

    base: str
    other: str
    paired: int = 0
    with_ids: bool = True
    template: bool = False
    parsed: bool = False
    simulated: frozenset[str] = frozenset()
    unnumbered: str = ""
    differences: list[Difference] = field(default_factory=list)

    def table(self) -> Table:
        """Count rows and flipped verdicts by cause."""
        rows = Counter(d.cause for d in self.differences)
        flips = Counter(d.cause for d in self.differences if d.flips)
        return Table(
            name="explained",
            title=f"{self.other} against {self.base}: first cause of each differing row",
            header=["Cause", "Rows", "Verdict differs"],
            lines=[[CAUSES[c], str(rows[c]), str(flips[c])] for c in CAUSES if rows[c]]
            or [["none", "0", "0"]],
            notes=list(self.notes()),
        )

    def notes(self) -> Iterator[str]:
        """Yield notes on how many rows and verdicts differ, which shows repeatability."""
        flipped = sum(bool(d.flips) for d in self.differences)
        positions = [d.position for d in self.differences if d.cause == "tokens"]
        total = max(1, self.paired)
        yield (
            f"{len(self.differences)} of {self.paired} paired rows differ; verdicts of {flipped} "
            f"({100 * flipped / total:.1f} %) differ"
        )
        if positions:
            yield (
                f"{len(positions)} rows ({100 * len(positions) / total:.1f} %) have other tokens; "
                f"the first differing {'token' if self.with_ids else 'character'} is number "
                f"{median(positions):.0f} in the median, {min(positions)} at the earliest"
            )
        if not self.with_ids:
            text = "rows without readable token ids were compared by their texts"
            hidden = "; a server parsed answers, so other tokens and another reading look the same"
            yield text + (hidden if self.parsed else "")
        if self.unnumbered:
            yield f"the first differing token of other prompts is left out: {self.unnumbered}"

    def csv(self) -> str:
        """Return a CSV line per differing row."""
        header = [*_KEY, "cause", "call", "position", "detail", "verdict_differs"]
        return csv_lines(
            [header, *([*d.key, *astuple(d)[1:5], " ".join(d.flips)] for d in self.differences)]
        )


def explain(
    base_run: StoredRun, other_run: StoredRun, *, prompts: FirstPrompts | None = None
) -> Explanation:
    """Find the first cause of each row that differs in content or verdict.

    ``prompts``: finds the first differing token of prompts. Raises `UserError` when the columns of
    a row are damaged."""
    runs = (base_run, other_run)
    result = Explanation(base_run.label, other_run.label)
    roles = (pair for run in runs for pair in run.manifest.identity.roles.items())
    result.simulated = frozenset(name for name, played in roles if "user" in played)
    rows = [{(*row.path, row.sample): row for row in run.rows if not row.repeat} for run in runs]
    shared = sorted(rows[0].keys() & rows[1].keys())
    result.paired = len(shared)
    contents = [
        {
            _stored_key(row): digest([row[name] for name in _CONTENT])
            for row in run.read_columns([of[key] for key in shared], (*_COLUMNS[:6], *_CONTENT))
        }
        for run, of in zip(runs, rows, strict=True)
    ]
    verdicts = {key: [of[key].verdicts for of in rows] for key in shared}
    flips = {
        key: tuple(n for n in before if n in after and before[n].valid != after[n].valid)
        for key, (before, after) in verdicts.items()
    }
    differing = [k for k in shared if flips[k] or contents[0][k] != contents[1][k]]
    result.parsed = any(run.manifest.config.backend != "vllm" for run in runs)
    if not result.parsed:  # the template behind an endpoint is not known
        hashes = [run.manifest.tree.get("chat_template_sha256") for run in runs]
        variables = [run.manifest.format.template_kwargs for run in runs]
        result.template = hashes[0] != hashes[1] or variables[0] != variables[1]
    for start in range(0, len(differing), _BATCH):
        keys = differing[start : start + _BATCH]
        before, after = (
            {_stored_key(row): row for row in run.read_columns([of[key] for key in keys], _COLUMNS)}
            for run, of in zip(runs, rows, strict=True)
        )
        for key in keys:
            if key not in before or key not in after:
                continue
            pair = (before[key], after[key])
            origin = _first_cause(*pair, result)
            if origin is not None and origin[0] == "prompt" and not result.parsed:
                origin = _find_token(origin, runs, pair, prompts, result)
            if origin is not None or flips[key]:
                origin = origin or ("checker", 0, 0, "")
                result.differences.append(Difference(key, *origin, flips=flips[key]))
    return result


def _stored_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


_Origin = tuple[Cause, int, int, str]


def _first_cause(
    before: Mapping[str, Any], after: Mapping[str, Any], result: Explanation
) -> _Origin | None:
    """Return the first difference between two rows, or None if they have the same content."""
    if before["status"] != after["status"]:
        diverged = DIVERGED in (before["error_class"], after["error_class"])
        why = f"{before['status']} -> {DIVERGED if diverged else after['status']}"
        return ("reading" if diverged else "not scored"), 0, 0, why
    ids = [token_ids_of(row) for row in (before, after)]
    result.with_ids &= None not in ids
    call = 0
    simulated = before["benchmark"] in result.simulated
    chats = [messages_of(row) for row in (before, after)]
    if before["tools"] != after["tools"]:
        return "prompt", 1, 0, "other tools offered"
    for number, (first, second) in enumerate(zip(*chats, strict=False)):
        if first.get("role") != second.get("role"):
            return ("reading" if call else "prompt"), call, 0, f"message {number + 1}: other role"
        if first.get("role") == "assistant":
            call += 1
            if origin := _answer_change(first, second, ids, call, parsed=result.parsed):
                single = before["model_calls"] == after["model_calls"] == 1
                counts = [row["prompt_tokens"] for row in (before, after)]
                other_prompt = single and None not in counts and counts[0] != counts[1]
                # Another chat template turns the same messages into another prompt.
                if origin[0] == "tokens" and (result.template or other_prompt):
                    words = f": {counts[0]} -> {counts[1]} prompt tokens" if other_prompt else ""
                    return "prompt", call, 0, f"other chat template or variables{words}"
                return origin
        elif _drop_ids(first) != _drop_ids(second):
            at = _first_difference(str(first.get("content")), str(second.get("content")))
            by_model = simulated and first.get("role") != "tool"
            kind: Cause = "simulator" if by_model else "tools"
            # A simulated user may speak before the candidate. Message 1 is part of the prompt.
            opening = simulated and number > 0 and first.get("role") == "user"
            if not call and not (opening and before["state"] is not None):
                kind = "prompt"
            return kind, call, at, f"message {number + 1}"
    if len(chats[0]) != len(chats[1]):
        kind = "simulator" if simulated else "tools"
        return (kind if call else "prompt"), call, 0, "one conversation goes on"
    if ids[0] is not None and ids[1] is not None and ids[0] != ids[1]:
        call = _first_difference(ids[0], ids[1])
        answers = [[] if call > len(of) else of[call - 1] for of in (ids[0], ids[1])]
        return "tokens", call, _first_difference(*answers), ""
    # The output repeats the text of the last answer, which a server returns without its calls.
    if before["output"] != after["output"] and not (result.parsed and call):
        return "reading", call, 0, "other output"
    old, new = (_drop_times(state_of(row)) for row in (before, after))
    if old == new:
        return None
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return "tools", call, 0, "state"
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    kind = "simulator" if names and _OF_MODELS.issuperset(names) else "tools"
    return kind, call, 0, f"state: {', '.join(names[:3])}"


def _find_token(
    origin: _Origin,
    runs: Sequence[StoredRun],
    rows: Sequence[Mapping[str, Any]],
    prompts: FirstPrompts | None,
    result: Explanation,
) -> _Origin:
    """Return ``origin`` with the number of the first differing token of two first prompts. If the
    number is not known, note the reason in ``result``."""
    cause, call, _, detail = origin
    if prompts is None:
        why = "the models' chat templates are needed; name models that you trust with --tokenizer"
        result.unnumbered = why
    elif lacking := [run.label for run in runs if prompts.chat(run.manifest) is None]:
        result.unnumbered = f"no model named with --tokenizer has the chat template of {lacking[0]}"
    else:
        old, new = (prompts.tokens(run.manifest, row) for run, row in zip(runs, rows, strict=True))
        if old is not None and new is not None and old != new:
            token = _first_difference(old, new)
            return cause, call, token, f"{detail}: token {token} of the prompt"
    return origin


def _answer_change(
    old: Mapping[str, Any], new: Mapping[str, Any], ids: Sequence[Any], call: int, *, parsed: bool
) -> _Origin | None:
    """Return the first difference of two answers, in their tokens or in their parsing, or None."""
    has_ids = all(of is not None and len(of) >= call for of in ids)
    if has_ids:
        first, second = (of[call - 1] for of in ids)
        if first != second:
            return "tokens", call, _first_difference(first, second), ""
    elif (texts := [_text(m, parsed=parsed) for m in (old, new)])[0] != texts[1]:
        return "tokens", call, _first_difference(*texts), ""
    read = _READ_BY_SERVER if parsed else _READ
    texts_match = all((old.get(name) or "") == (new.get(name) or "") for name in read)
    if not texts_match or calls_of(old) != calls_of(new):
        return "reading", call, 0, " -> ".join(message_line(m, 60) for m in (old, new))
    return None


def _text(message: Mapping[str, Any], *, parsed: bool) -> str:
    if parsed:
        read = (str(message.get(name) or "") for name in _READ_BY_SERVER)
        return f"{''.join(read)}{calls_of(message)}"
    return str(message.get("raw") or message.get("text", message.get("content")) or "")


def _drop_ids(message: Mapping[str, Any]) -> dict[str, Any]:
    return {**message, "tool_calls": calls_of(message), "tool_call_id": None}


def _first_difference(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the number, from 1, of the first differing item."""
    pairs = enumerate(zip(first, second, strict=False), 1)
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)) + 1)


def _drop_times(state: Any) -> Any:
    """Return a state without the seconds that its parts took and without the spelling of JSON."""
    if isinstance(state, str) and state[:1] == "{":
        return normalize_json(state)
    if isinstance(state, dict):
        return {k: _drop_times(v) for k, v in state.items() if k not in ("seconds", "judged_s")}
    return list(map(_drop_times, state)) if isinstance(state, list) else state


_COUNTS = ("answers", "gained", "lost", "diverged")


def print_reparse(result: ReparseResult, opens: Callable[[str], Store], console: Console) -> None:
    """Print the result of ``ace-ray reread``: changes by category, headlines and examples."""
    header = ["Benchmark", "Category", "Answers read differently", "Gained", "Lost", "Diverged"]
    lines = [[*key, *(str(n[name]) for name in _COUNTS)] for key, n in sorted(result.moved.items())]
    if lines:
        title = "Rereading (gained, lost: verdicts under each benchmark's first rule set)"
        print_table(Table("reread", title, header, lines), console, intervals=False)
    for text in _reparse_lines(result, opens):
        print_line(console, text)


def _reparse_lines(result: ReparseResult, opens: Callable[[str], Store]) -> Iterator[str]:
    yield f"{result.answers:,} answers of {result.rows:,} rows read with {result.reader}"
    if not result.with_ids:
        yield "the rows have no token ids: their stored text was read"
    if result.parsers.get("tool_parser") and not result.with_tools:
        yield "no tools were offered natively, so the tool parser was not used"
    if result.unread:
        yield f"{result.unread:,} answers were not read: their complete text is not stored"
    runs = load_runs([result.run, result.uri], opens)
    for name in runs[1].benchmarks:
        before, after = (
            headline_score(class_of(name, run.manifest), run.rows_of(name)) for run in runs
        )
        yield f"{name}: {after.name} {cell(before.estimate)} before, {cell(after.estimate)} after"
        yield from diverged_line(runs[1], name)
    if result.total("answers"):
        yield from _difference(runs)
    yield from (f"  {example}" for example in result.examples)
    rows = sum(result.total(name) for name in ("gained", "lost", "diverged"))
    yield f"the model changed 0 rows, the parser {rows:,}"
    yield f"results: {result.uri}"


def _difference(runs: Sequence[ScoredRun]) -> Iterator[str]:
    """Yield the paired difference of two runs over all rows, for each benchmark and rule set."""
    for name in runs[1].benchmarks:
        data = paired_data(name, runs)
        for rules in data.rule_sets:
            pairs = pairs_of(data.cells, "accuracy", rules, 0, 1)
            if not pairs.samples.any():
                continue
            every = np.ones(len(data.cells.units), dtype=bool)
            difference = difference_of(data.cells, pairs, every)
            yield (
                f"{name}, {rules}: {signed_points(difference.value)} points, 95 % CI "
                f"{interval_text(difference.interval)}, paired over all judged rows, "
                f"n={difference.n}"
            )
