"""Read answers that ``bfcl generate`` stored, and convert them to episodes.

Upstream (``base_handler.py::write``) writes files ``BFCL_v4_<category>_result.json`` to the folder
``result/<model>/<group>/``. Each line is ``{"id", "result", ...}``. Older versions lack the group
folder, begin file names with ``BFCL_v3_``, and name three categories differently. Files of 2024
begin with ``gorilla_openfunctions_v1_test_``; some have the entry's number in ``idx`` or ``id``.

The result of a single-turn entry is one answer: a string, or ``[{name: arguments}, ...]`` for
models with function calling (FC). The result of a conversation is a list of turns, and a turn is a
list of answers. If inference failed, the result is an error message, which upstream judges like any
other string."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ace_ray.benchmarks.bfcl import categories as groups
from ace_ray.benchmarks.bfcl.check.single import attempts_call
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.episode.conversation import MAX_STEPS
from ace_ray.benchmarks.bfcl.functions import tool_name
from ace_ray.benchmarks.dataset import Row
from ace_ray.benchmarks.external_outputs import (
    Entries,
    Output,
    Placed,
    read_rows,
    require_known,
    sample_of,
    text_of,
    unique_outputs,
    value_of,
)
from ace_ray.errors import UserError
from ace_ray.parsing.syntax import bounded_json
from ace_ray.types import Completion, Entry, Episode, ToolAnswer, ToolCall

# Maximum turns plus answers of a conversation; upstream's have at most 8 turns of 21 answers.
MAX_ANSWERS = 1_000
_FILE = re.compile(r"(?:BFCL_v\d+|gorilla_openfunctions_v1_test)_(\w+?)_result\.json")
_GROUPS = ("non_live", "live", "multi_turn", "agentic", "format_sensitivity")
# Folders between a model's folder and its files; the last four belong to memory.
_FOLDERS = frozenset((*_GROUPS, "memory", "kv", "vector", "rec_sum"))
# Maximum levels of folders in which files are searched, counted from ``result``.
_LEVELS = 5
_RENAMED = {
    "simple": "simple_python",
    "java": "simple_java",
    "javascript": "simple_javascript",
    "multiple_function": "multiple",
    "parallel_function": "parallel",
    "parallel_multiple_function": "parallel_multiple",
    "relevance": "irrelevance",
}
_NOT_SCORED = re.compile(
    r"exec(?:utable)?_\w+|rest|sql|chatable|multi_turn_composite|memory_\w+_prereq"
)
# Names of groups in file names. Such a file does not record the category of its answers.
_GROUP_NAMES = ("memory", "web_search")
_DROPPED = """
live_multiple_1052-79-0 live_relevance_16-16-0 live_relevance_17-17-0
live_relevance_7-6-1 live_relevance_8-6-2 live_relevance_9-7-0 live_relevance_10-8-0
live_relevance_11-9-0 live_relevance_12-10-0 live_relevance_13-11-0 live_relevance_14-11-1
live_relevance_15-11-2 live_relevance_16-12-0 live_relevance_17-13-0 live_relevance_18-13-1
live_relevance_19-13-2 live_relevance_20-13-3 live_relevance_21-14-0 live_relevance_22-15-0
live_relevance_23-15-1 live_relevance_24-16-0 live_relevance_25-16-1 live_relevance_26-16-2
live_relevance_27-16-3 live_relevance_28-17-0 live_relevance_29-18-0 live_relevance_30-19-0
live_relevance_31-19-1 live_relevance_32-20-0 live_relevance_33-21-0 live_relevance_34-22-0
live_relevance_35-22-1 live_relevance_36-23-0 live_relevance_37-24-0 live_relevance_38-25-0
live_relevance_39-26-0 live_relevance_40-27-0
"""
# Ids in versions 3 and 4 that upstream has since removed, taken from the history of its files.
DROPPED_IDS = frozenset(_DROPPED.split())
_CONVERSATIONS = frozenset(groups.CONVERSATIONS + groups.AGENTIC)
_TAG, _TAG_END = "<tool_call>\n", "\n</tool_call>"
# Start of a list of calls in the format that prompts request.
_PROMPTED = re.compile(r"[\s`]*+\[?[A-Za-z_][\w.]*+\(")
# Upstream selects a handler by the model's name, which is the folder's name. Only upstream's
# handlers of these models can read calls in their texts.
_OWN_FORM = re.compile(
    r"hammer|xlam|bounty|granite-20b|glm-4-9b|thinkagent|nemotron-ultra", re.IGNORECASE
)
# The same, if FC follows in the name.
_OWN_FORM_FC = re.compile(r"llama|phi-|functiongemma|minicpm3|falcon3", re.IGNORECASE)
# Handlers that read texts as prompts request them, although the name ends in FC.
_FC_TEXTS = re.compile(r"llama-(?:3\.[23]|4)", re.IGNORECASE)
# Handlers that read tags, although the name lacks FC.
_TAGS_ONLY = re.compile(r"granite-4|nanbeige4", re.IGNORECASE)
# Handlers that read lists only, although the name lacks FC.
_LISTS_ONLY = re.compile(
    r"nova-|palmyra|arch-agent|granite-3|ministral|xiaoming|dm-cito", re.IGNORECASE
)
_GEMINI, _PHI = re.compile("gemini", re.IGNORECASE), re.compile("phi-", re.IGNORECASE)

# Format of the calls in one model's answers. "text": in the text, as prompts request. "gemini" and
# "phi": the same, in the code fences that these handlers remove. "calls" and "objects": lists with
# arguments as JSON strings or as objects; texts contain no calls. "tagged": in the text between
# ``<tool_call>`` tags, as Qwen's handler stores them.
Form = Literal["text", "gemini", "phi", "calls", "objects", "tagged"]
_TEXTS: Mapping[Form, Callable[[str], str]] = {
    "text": str,
    "gemini": lambda text: text.replace("```tool_code\n", "").replace("\n```", ""),
    "phi": lambda text: text.strip().removeprefix("```json").removeprefix("```python"),
}
# Keys of a call's name and arguments in lists of calls.
_NAMED = (("name", "arguments"), ("tool_name", "parameters"))


@dataclass(frozen=True, slots=True)
class ResultFile:
    """One file of a result folder; ``label`` is the category in the file's name."""

    path: Path
    label: str

    @property
    def category(self) -> str:
        return _RENAMED.get(self.label, self.label)


def entries_of(package: UpstreamPackage) -> Entries:
    """Return the `Entries` of a copy of bfcl-eval. Outputs of all its categories can be scored."""
    return Entries(
        lambda _, category: load(package, [category]),
        languages=["en"],
        categories=groups.CATEGORIES if package.is_mini else groups.ALL_CATEGORIES,
        searched=groups.CATEGORIES,
    )


def read_outputs(path: Path, entries: Entries) -> Iterator[Output]:
    """Yield the outputs in one model's result folder, in one file of such a folder, or in a JSON
    lines file.

    A row of a JSON lines file has ``id``, ``output`` (in any shape of ``result``) and optionally
    ``sample``. Files are read in the order of the categories. Removed ids are skipped, and so are
    conversations that fill a memory, a folder's files of `groups.UNUSED`, and files that name
    only a group (``memory``, ``web_search``) as their category.
    An answer in an unknown shape counts as undecodable.

    Raises `UserError` for a malformed line, for a path with results of several models or of none,
    and for answers in a format that only upstream's handler of the model reads."""
    return unique_outputs(_outputs(path, entries), path)


def _outputs(path: Path, entries: Entries) -> Iterator[Placed]:
    if path.is_file() and not _FILE.fullmatch(path.name):
        form = _form_of([path], "output", "")
        for location, row in read_rows(path):
            if not _is_dropped(row.get("id"), entries):
                entry = _find_entry(row, entries, location)
                value = value_of(row, "output", location)
                yield location, _output(entry, value, sample_of(row, location), form, entries)
        return
    sources = _result_files(path, entries)
    model = _model_folder(sources[0].path).name
    form = _form_of([source.path for source in sources], "result", model)
    for source in sources:
        for location, row in read_rows(source.path):
            number = row.get("id", row.get("idx"))
            numbered = type(number) is int
            entry_id = f"{source.label}_{number}" if numbered else text_of(row, "id", location)
            if "_prereq_" in entry_id or _is_dropped(entry_id, entries):
                continue
            if source.label in _RENAMED:
                entry_id = entry_id.replace(f"{source.label}_", f"{source.category}_", 1)
            entry = entries.find(entry_id, location, language="en", category=source.category)
            yield location, _output(entry, value_of(row, "result", location), 0, form, entries)


def _is_dropped(entry_id: Any, entries: Entries) -> bool:
    """Return whether upstream has removed an id. If so, count the output in ``entries.remarks``."""
    if not isinstance(entry_id, str) or entry_id not in DROPPED_IDS:
        return False
    category = entry_id.rpartition("_")[0]
    entries.remarks[f"outputs of {category} skipped: the data no longer has their ids"] += 1
    return True


def _output(entry: Entry, value: Any, sample: int | str, form: Form, entries: Entries) -> Output:
    """Return an output. Note the irrelevance answer [], which may stand for text or for nothing."""
    if value == [] and entry.category in ("irrelevance", "live_irrelevance"):
        remark = "answers [] in irrelevance categories, perhaps with text (strict: refusals)"
        entries.remarks[remark] += 1
    return Output(entry, sample, _episode(entry, value, form))


def _find_entry(row: Row, entries: Entries, location: str) -> Entry:
    """Return the entry that a row answers. Load only the category that the row's id contains."""
    if "category" not in row:
        category = text_of(row, "id", location).partition(":")[0].rpartition("_")[0]
        if category in entries.categories:
            row = {**row, "category": category}
    return entries.entry_of(row, location)


def _result_files(path: Path, entries: Entries) -> list[ResultFile]:
    """Return one file per category, in the order of the categories. Raises `UserError` if there is
    no file, or if files are from several models or repeat a category."""
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = sorted(_find_files(path))
    else:
        raise UserError("no such file or folder", where=str(path), fix="name the outputs to score")
    fix = "name one model's folder, result/<model>, one of its files, or a JSON lines file"
    if not files:
        raise UserError("contains no BFCL_v4_<category>_result.json", where=str(path), fix=fix)
    if len(models := {_model_folder(file): None for file in files}) > 1:
        names = ", ".join([folder.name for folder in models][:3])
        problem = f"contains the results of {len(models)} models: {names}"
        raise UserError(problem, where=str(path), fix=fix)
    sources: dict[str, ResultFile] = {}
    for file in files:
        name = _FILE.fullmatch(file.name)
        assert name is not None  # `_find_files` and `_outputs` have checked the name
        source = ResultFile(file, name[1])
        if source.label in _GROUP_NAMES:
            entries.remarks[f"files named {source.label}, a group of categories, skipped"] += 1
            continue
        unused_file = path.is_file() and source.label in groups.UNUSED
        if _NOT_SCORED.fullmatch(source.label) and not unused_file:
            if source.label in groups.UNUSED:
                entries.remarks["files of unused categories skipped (name one to score it)"] += 1
            continue
        require_known("category", source.category, entries.categories, str(file))
        if duplicate := sources.get(source.category):
            problem = f"is a second file of {source.category}, besides {duplicate.path}"
            raise UserError(problem, where=str(file), fix="remove one of them")
        sources[source.category] = source
    if not sources:
        raise UserError("contains no scored category", where=str(path), fix=fix)
    return [sources[category] for category in entries.categories if category in sources]


def _find_files(folder: Path) -> Iterator[Path]:
    for dirpath, folders, files in os.walk(folder):
        parent = Path(dirpath)
        if len(parent.relative_to(folder).parts) >= _LEVELS - 1:
            folders.clear()
        yield from (parent / name for name in files if _FILE.fullmatch(name))


def _model_folder(file: Path) -> Path:
    folder = file.absolute().parent
    while folder.name in _FOLDERS:
        folder = folder.parent
    return folder


def _form_of(paths: Sequence[Path], key: str, model: str) -> Form:
    """Return the format of the calls in the answers of a model.

    "text", "gemini", "phi": the model's name lacks ``FC``, and most answers with calls are strings.
    "tagged": the name has ``FC``, and most answers with calls are strings with tags.
    "calls": the calls are lists, and at least half of them have JSON strings as arguments.
    "objects": the calls are lists with other arguments.
    Some names have another format (`_FC_TEXTS`, `_TAGS_ONLY`, `_LISTS_ONLY`).

    Raises `UserError` if no answer is a list and a string has a call in a format that only
    upstream's handler of this model can read."""
    listed = json_args = prompted = tagged = 0
    lists = own_form = False
    lists_only = "FC" in model or _LISTS_ONLY.search(model) is not None
    fc_texts = _FC_TEXTS.search(model) is not None and model.upper().endswith("FC")
    in_text = fc_texts or not lists_only
    family = _OWN_FORM_FC.search(model)
    has_handler = bool(_OWN_FORM.search(model) or (family and "FC" in model[family.end() :]))
    has_handler = has_handler and not fc_texts
    for path in paths:
        for _, row in read_rows(path):
            for answer in _flatten(row.get(key), row.get("id")):
                if isinstance(answer, list):
                    called = [call for call in answer if isinstance(call, dict)]
                    lists = True
                    listed += bool(called)
                    # ``{name: arguments}`` with arguments as a JSON string.
                    json_args += any(
                        _call_parts(call) is None
                        and isinstance(next(iter(call.values()), None), str)
                        for call in called
                    )
                elif isinstance(answer, str):
                    prompted += _PROMPTED.match(answer) is not None
                    tagged += _TAG in answer
                    own_form = own_form or (has_handler and attempts_call(answer))
    if own_form and not lists:
        raise UserError(
            "contains texts with calls that only bfcl-eval's handler of the model can read",
            where=str(paths[0]),
            fix="write calls as [{name: arguments}, ...], or rename the folder if the model "
            "answered in prompt mode",
        )
    if _TAGS_ONLY.search(model):
        return "tagged"
    in_lists: Form = "calls" if 2 * json_args >= listed else "objects"
    if in_text and not (lists and listed >= prompted):
        return "gemini" if _GEMINI.search(model) else "phi" if _PHI.search(model) else "text"
    return "tagged" if tagged > listed else in_lists


def _call_parts(call: dict[str, Any]) -> tuple[str, Any] | None:
    """Return the name and the arguments of a call that has a key for each, else None."""
    for name, arguments in _NAMED:
        if call.keys() == {name, arguments} and isinstance(call[name], str):
            return call[name], call[arguments]
    return None


def _flatten(value: Any, entry_id: Any) -> Iterator[Any]:
    """Yield the answers in ``value``, the result of a single-turn entry or of a conversation."""
    nested = isinstance(value, list) and str(entry_id).startswith(("multi_", "memory_", "web_"))
    for turn in value if nested else [[value]]:
        yield from turn if isinstance(turn, list) else ()


def _episode(entry: Entry, value: Any, form: Form) -> Episode:
    """Return the episode of a result. `BFCL.check` reads its ``state``."""
    ending = ""
    if entry.category in _CONVERSATIONS:
        turns, ending = _conversation(entry, value, form)
    else:
        turns = [[_answer(value, form)]]
    episode, native = Episode(), False
    for answer in (answer for turn in turns for answer in turn):
        tools, text = None, answer.text
        if answer.calls is not None:
            native, tools = True, ToolAnswer(answer.text or "", answer.calls)
            if not text and (answer.calls or text is None):
                text = json.dumps([{call.name: call.arguments} for call in answer.calls])
        episode.record(Completion(text or "", tools=tools))
    if entry.category in _CONVERSATIONS or native:
        stored = [[answer.as_json() for answer in turn] for turn in turns]
        episode.state = {"turns": stored, "ended": ending}
    return episode


def _conversation(entry: Entry, value: Any, form: Form) -> tuple[list[list[Answer]], str]:
    """Return the answers of each turn, and the ``ending`` that `check_multi_turn` takes."""
    agentic = entry.category in groups.AGENTIC
    has_turns = isinstance(value, list) and all(isinstance(turn, list) for turn in value)
    if not has_turns or (agentic and len(value) != 1):
        return [], "inference"
    if len(value) + sum(map(len, value)) > MAX_ANSWERS:
        return [], "steps"
    gold_turns = 1 if agentic else len(entry.gold)
    turns = [[_answer(answer, form, agentic=agentic) for answer in turn] for turn in value]
    # Upstream stops a conversation in a turn with `MAX_STEPS` answers that all contain calls.
    cut = len(turns) < gold_turns or (bool(turns) and len(turns[-1]) >= MAX_STEPS)
    return turns, "steps" if cut else ""


def _answer(value: Any, form: Form, *, agentic: bool = False) -> Answer:
    """Convert a stored answer to an `Answer`."""
    if isinstance(value, str):
        if form in _TEXTS:
            return Answer(_TEXTS[form](value))
        tagged = _tagged_calls(value) if form == "tagged" else ()
        return Answer("" if tagged else value, tagged)
    if value and isinstance(value, list) and all(isinstance(part, str) for part in value):
        # Handlers of Gemini and Nova store a text as the list of its parts. In agentic categories
        # upstream judges only the first part.
        return Answer(value[0] if agentic else "\n".join(value), ())
    calls = _calls(value, form) if form in ("calls", "objects") else None
    if calls is None:
        return Answer("" if value is None else _json(value), (), unreadable=True)
    # Handlers store [] for an answer in text if the server sends `tool_calls: []`.
    return Answer("" if calls else None, calls)


def _calls(value: Any, form: Form) -> tuple[ToolCall, ...] | None:
    """Read calls from ``[{name: arguments}, ...]``, or from lists with the keys of `_NAMED`.

    Return None for any other shape. If ``form`` is "calls", arguments must be strings."""
    if not isinstance(value, list):
        return None
    calls = []
    for call in value:
        if not isinstance(call, dict) or not call:
            return None
        parts = _call_parts(call) if form == "objects" else None
        name, arguments = parts or next(iter(call.items()))
        if isinstance(arguments, str):
            calls.append(ToolCall(name, arguments))
        elif isinstance(arguments, dict) and form == "objects":
            # Handlers that store objects offer functions by their published names, with dots.
            calls.append(ToolCall(tool_name(name), _json(arguments)))
        else:
            return None
    return tuple(calls)


def _json(value: Any) -> str:
    """Return ``value`` as JSON text, or text that is not JSON if it is nested too deeply."""
    try:
        return json.dumps(value)
    except RecursionError:
        return "{..."


def _tagged_calls(text: str) -> tuple[ToolCall, ...]:
    """Read the calls between ``<tool_call>`` tags (upstream ``qwen_fc.py``). Skip blocks that are
    not JSON. If a block is JSON but not a call, return no calls."""
    calls, position = [], 0
    while (begin := text.find(_TAG, position)) >= 0:
        end = text.find(_TAG_END, begin + len(_TAG))
        if end < 0:
            break
        position = end + len(_TAG_END)
        try:
            value = bounded_json(text[begin + len(_TAG) : end])
        except ValueError:  # `NotCalls` too
            continue
        name = value.get("name") if isinstance(value, dict) else None
        arguments = value.get("arguments") if isinstance(value, dict) else None
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return ()
        calls.append(ToolCall(tool_name(name), json.dumps(arguments)))
    return tuple(calls)
