"""Public answers of known models, judged again: ``reference-runs/published.md`` and its CSV file.

    python docs/published.py CLONES WORK
    python docs/published.py CLONES WORK --read CLASS [--count 20]

CLONES holds clones of the repositories in ``published.md``, each in a folder of its name. The clone
of BFCL's own repository, ``gorilla``, tells which entries have changed since 2024. WORK keeps the
scored runs, so an interrupted command continues. ``--read`` prints a sample of a class of
differences, with the answers, the expected calls and both verdicts.

The CSV file has counts only. Of the page, the tables between its marks are written anew.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import ace_ray
from ace_ray.benchmarks.acebench.check.decode import decode
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.bfcl.categories import RELEVANCE
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.types import Entry, Episode, Verdict

FOLDER = Path(__file__).parent / "reference-runs"
PAGE, COUNTS, FIGURE = (FOLDER / f"published.{ending}" for ending in ("md", "csv", "svg"))
_MARKED = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_LANGUAGE = "result_en"
# Files of 4 MiB and more, which the snapshots behind the stored numbers lack.
_LARGE_CATEGORY = "multi_turn_long_context"
# BFCL's repository when the answers of 2024-08-11 were scored.
COMMIT_2024 = "de8307b415d5e609be141e38f954a2850be4a4d5"
DATA_2024 = "berkeley-function-call-leaderboard/data"
# Names of categories in 2024.
RENAMED = {
    "simple_python": "simple",
    "simple_java": "java",
    "simple_javascript": "javascript",
    "multiple": "multiple_function",
    "parallel": "parallel_function",
    "parallel_multiple": "parallel_multiple_function",
    "irrelevance": "relevance",
}
# Models of 2024 whose handler read calls in a way of its own (``decode_ast`` in BFCL's repository).
OWN_HANDLER = re.compile(
    r"Nexusflow|NousResearch|Salesforce|THUDM|deepseek|gorilla|granite|nemotron|arctic|dbrx|gemma"
    r"|firefunction"
)


@dataclass(frozen=True, slots=True)
class Source:
    """The answers of one model: ``answers`` holds files, ``scores`` the published verdicts."""

    collection: str
    model: str
    benchmark: str
    answers: Path
    scores: Path


@dataclass(frozen=True, slots=True)
class Published:
    """The published verdicts on a category: the number of right rows, and the error type of each
    wrong row by id."""

    correct: int
    total: int
    wrong: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One answer, with the verdicts of today and the published verdict, if there is one."""

    source: Source
    entry: Entry
    episode: Episode
    official: Verdict
    strict: Verdict
    published: bool | None
    published_error: str

    @property
    def names(self) -> tuple[str, str]:
        return self.source.collection, self.source.model


def sources(clones: Path) -> Iterator[Source]:
    """Yield the models of all clones. A folder with one or two categories is left out."""
    acebench = clones / "sim2real" / "ACEBench"
    for folder in _folders(acebench / "result_all/result_en"):
        scores = acebench / "score_all/score_en" / folder.name
        yield Source("ACEBench", folder.name, "acebench", folder, scores)
    own = clones / "sim2real"
    for folder in _folders(own / "result_all/result_en"):
        scores = own / "score_all/score_en" / folder.name
        if len(list(folder.glob("data_*_result.json"))) > 2:
            yield Source("ACEBench, own harness", folder.name, "acebench", folder, scores)
    for folder in _folders(own / "acebench_perturbed_result"):
        answers = folder / "no_perturbation"
        scores = own / "acebench_perturbed_score" / folder.name / "no_perturbation"
        label = f"{folder.name}, second run" if folder.name == "gpt-4.1" else folder.name
        yield Source("ACEBench, own harness", label, "acebench", answers, scores)
    for run in _folders(clones / "bfcl-vllm-results" / "results"):
        for folder in _folders(run / "result"):
            label = f"{folder.name.removeprefix('openai_')}, {run.name}"
            yield Source("BFCL native", label, "bfcl", folder, run / "score" / folder.name)
    dated = clones / "BFCL-Result" / "2024-08-11"
    for folder in _folders(dated / "result"):
        yield Source("BFCL 2024", folder.name, "bfcl", folder, dated / "score" / folder.name)


def _folders(path: Path) -> list[Path]:
    return sorted(folder for folder in path.iterdir() if folder.is_dir()) if path.is_dir() else []


def links(source: Source, work: Path) -> Path:
    """Return a folder with links to the files that can be scored, in a layout that names the model
    and the language.

    The agent rows of the repository's own harness have no final state, so upstream cannot judge
    them. Files of models in BFCL's layout stay in their group folders."""
    name = source.answers.parent.name if source.answers.name == "no_perturbation" else ""
    folder = work / "answers" / source.collection / source.model / _LANGUAGE
    folder /= name or source.answers.name
    for file in sorted(source.answers.rglob("*_result.json")):
        unusable = "harness" in source.collection and "agent" in file.name
        if unusable or _LARGE_CATEGORY in file.name:
            continue
        link = folder / file.relative_to(source.answers)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(file.resolve())
    return folder


def score(source: Source, work: Path) -> Path:
    """Score a model's answers unless they have been. Return the folder of the run."""
    run = work / "runs" / source.collection / source.model
    if not (run / "verdicts.jsonl").exists():
        ace_ray.score(
            links(source, work),
            benchmark=source.benchmark,
            data={"acebench": "imported", "bfcl": "installed"}[source.benchmark],
            model=source.model,
            output=str(run),
            fresh=True,
        )
    return run


def published(source: Source) -> Mapping[str, Published]:
    """Return the published verdicts by category; {} if the folder has no scores.

    Files of upstream's evaluators have a first line of counts and a line for each wrong row, files
    of the other harness a line for each row."""
    verdicts = {}
    for file in sorted(source.scores.rglob("*.json")):
        match = re.fullmatch(r"(?:BFCL_v\d+_|data_)?(\w+?)_(?:score|evaluation)\.json", file.name)
        if match is None:
            continue
        category = _categories().get(match[1], match[1])
        counts, *lines = (json.loads(line) for line in file.read_text("utf-8").splitlines())
        wrong = {
            _entry_id(line["id"], category, source): str(line.get("error_type", ""))
            for line in lines
            if not line["valid"]
        }
        verdicts[category] = Published(counts["correct_count"], counts["total_count"], wrong)
    return verdicts


@cache
def _categories() -> Mapping[str, str]:
    return {old: category for category, old in RENAMED.items()}


def _entry_id(value: Any, category: str, source: Source) -> str:
    """Return the id of an entry. BFCL counted from 1 in 2024, and ACEBench numbers agent rows."""
    if isinstance(value, int):
        return f"{category}_{value - (source.collection == 'BFCL 2024')}"
    return str(value)


def rows_of(source: Source, work: Path) -> Iterator[Row]:
    """Yield the scored answers of a model, in the order of its files."""
    run = score(source, work)
    benchmark = _benchmark(source.benchmark)
    verdicts, scores = (run / "verdicts.jsonl").open(encoding="ascii"), published(source)
    outputs = benchmark.outputs(links(source, work), benchmark.output_entries())
    with verdicts:
        for output, line in zip(outputs, map(json.loads, verdicts), strict=True):
            entry = output.entry
            if entry.id != line["id"]:
                sys.exit(f"{run}: is not the run of these answers; remove the folder")
            pair = [Verdict(*(line[rules][key] for key in ("valid", "error_type", "error")))
                    for rules in ("official", "strict")]  # fmt: skip
            score_file = scores.get(entry.category)
            is_wrong = score_file is not None and entry.id in score_file.wrong
            yield Row(
                source,
                entry,
                output.episode,
                *pair,
                published=None if score_file is None else not is_wrong,
                published_error=score_file.wrong[entry.id] if score_file and is_wrong else "",
            )


@cache
def _benchmark(name: str) -> Benchmark:
    data = {"acebench": "imported", "bfcl": "installed"}[name]
    benchmark = make_benchmark(name, {"data": data})
    benchmark.ready(named=True)
    return benchmark


def rule_class(row: Row) -> str:
    """Return the class of a row whose official and strict verdicts differ."""
    return (_acebench_rule if row.source.benchmark == "acebench" else _bfcl_rule)(row)


def _bfcl_rule(row: Row) -> str:
    kinds = {
        "irrelevance_error:no_answer": "no answer to an irrelevant question",
        "irrelevance_error:unreadable_call": "a call that cannot be read, in irrelevance",
        "multi_turn:force_terminated": "cut by the step limit in the last turn",
    }
    if kind := kinds.get(row.strict.error_type):
        return kind
    if row.entry.category.startswith("multi_turn"):
        return "lists that upstream's classes share"
    text = row.episode.output or ""
    if row.official.error_type.startswith("ast_decoder") or row.entry.category in RELEVANCE:
        return "an argument named by a Python keyword"
    if re.search(r"[(,]\s*(?!\w+\s*=)[^\s)]", text):
        return "positional arguments"
    return "a repeated argument, or parallel calls in another order"


def _acebench_rule(row: Row) -> str:
    category, strict = row.entry.category, row.strict
    if category.startswith("special"):
        if strict.valid:
            return "special: the phrase with another spelling"
        return {
            "correction_failed": "special: other names or values than gold",
            "detection_failed": "special: a call, or no phrase as asked",
            "false_positive": "special: a call, or no phrase as asked",
        }[strict.error_type]
    if category.startswith("agent"):
        return "agent: the whole end state"
    if strict.valid:
        return "blanks within strings (multi-turn)" if "multi" in category else "gold that fails"
    if strict.error_type == "output_format":
        text = (row.episode.output or "").strip()
        if text[:1] != "[" or text[-1:] != "]" or "more than one" in strict.error:
            return "text beside the list of calls"
        return "a call that is not literal"
    if strict.error_type == "param_num":
        return "an optional parameter is missing"
    if strict.error_type == "function_name":
        return "one call for several gold calls"
    return _value_rule(row)


def _value_rule(row: Row) -> str:
    """Return the class of the first argument whose value differs from gold's."""
    calls = decode(row.episode.output, whole_output=False).strict
    alternatives = row.entry.gold if isinstance(row.entry.gold, list) else [row.entry.gold]
    wanted = re.search(r"parameter (\S+) has", row.strict.error)
    assert wanted is not None and not isinstance(calls, str)
    classes = [
        _pair_rule(call.args[wanted[1]], args[wanted[1]])
        for call in calls
        for name, args in alternatives[0].items()
        if re.sub(r"_\d+$", "", name) in (call.name, re.sub(r"_\d+$", "", call.name))
        and wanted[1] in call.args
        and wanted[1] in args
        and args[wanted[1]] != call.args[wanted[1]]
    ]
    return classes[0] if classes else "an argument's value"


def _pair_rule(value: Any, gold: Any) -> str:
    if isinstance(gold, (bool, int, float)) and isinstance(value, (bool, int, float)):
        return "a number or boolean with another value"
    if type(value) is not type(gold):
        return "a value of another JSON type"
    if isinstance(gold, (list, dict)):
        flat, flat_gold = (json.dumps(part, ensure_ascii=False) for part in (value, gold))
        return f"in a list or object: {_text_rule(flat, flat_gold)}"
    return _text_rule(value, gold)


def _text_rule(value: str, gold: str) -> str:
    if value.casefold() == gold.casefold():
        return "letter case"
    plain, plain_gold = (re.sub(r"[ ,./\-_*^'\"]", "", text).casefold() for text in (value, gold))
    if plain == plain_gold:
        return "blanks or punctuation"
    return "gold is a part of the text" if plain_gold in plain else "another value"


@dataclass(frozen=True, slots=True)
class Entry2024:
    """What BFCL's data of 2024 had for an entry: its functions, and its gold calls if it has any"""

    functions: Sequence[Any]
    gold: Any


def changed_entries(gorilla: Path) -> Mapping[str, Entry2024]:
    """Return the entries of 2024 by today's id whose functions or gold calls have changed since."""
    changed = {}
    for category, old in RENAMED.items():
        name = f"gorilla_openfunctions_v1_test_{old}.json"
        questions = _rows_2024(gorilla, name)
        golds = _rows_2024(gorilla, f"possible_answer/{name}") if old != "relevance" else []
        entries = _benchmark("bfcl").output_entries().entries_of("en", category)
        for number, question in enumerate(questions):
            entry = entries[f"{category}_{number}"]
            functions = question["function"]
            functions = functions if isinstance(functions, list) else [functions]
            gold = _gold_2024(golds[number]["ground_truth"], functions) if golds else entry.gold
            if (functions, gold) != (entry.data["function"], entry.gold):
                changed[entry.id] = Entry2024(functions, gold)
    return changed


def _rows_2024(gorilla: Path, name: str) -> list[Any]:
    command = ["git", "-C", str(gorilla), "show", f"{COMMIT_2024}:{DATA_2024}/{name}"]
    text = subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _gold_2024(gold: Any, functions: Sequence[Any]) -> list[Any]:
    """Return gold calls in today's form. In 2024 they were one object, in which the names of
    repeated functions had numbers."""
    names = {function["name"] for function in functions}
    calls = gold if isinstance(gold, list) else [{name: args} for name, args in gold.items()]
    return [
        {name if name in names else re.sub(r"_\d+$", "", name): args}
        for call in calls
        for name, args in call.items()
    ]


def change_class(row: Row, changed: Mapping[str, Entry2024]) -> str:
    """Return why the published verdict on a row is not today's official one."""
    if "harness" in row.source.collection:
        return "the harness's own checker"
    if entry := changed.get(row.entry.id):
        data = {**row.entry.data, "function": entry.functions}
        then = replace(row.entry, data=data, gold=entry.gold)
        verdict = _benchmark("bfcl").check(then, row.episode)["official"]
        if verdict.valid == row.published:
            return "data corrected since"
    text = row.episode.output or ""
    if "\\_" in text:
        return "escaped underscores, which the handler of 2024 removed"
    if row.entry.category in RELEVANCE and re.search(r"\w\([^=]*?\)", text):
        return "calls without named arguments, no calls in 2024"
    if text[:1] != "[" or text[-1:] != "]":
        return "blanks, fences or no brackets around the list, no calls in 2024"
    if row.episode.state and row.published_error == "relevance_error:decoder_success":
        return "arguments that are not an object, a call in 2024"
    return "unexplained"


Counts = Counter[tuple[str, str, str, str, str]]


def count(clones: Path, work: Path) -> Counts:
    """Judge all answers, and return numbers of rows by collection, model, category, measure and
    class."""
    counts: Counts = Counter()
    changed = changed_entries(clones / "gorilla")
    for source in sources(clones):
        if source.collection == "BFCL 2024" and OWN_HANDLER.search(source.model):
            continue
        for row in rows_of(source, work):
            key = (*row.names, row.entry.category)
            counts[(*key, "answers", "")] += 1
            for rules, verdict in (("official", row.official), ("strict", row.strict)):
                counts[(*key, rules, "")] += verdict.valid
                if not verdict.valid:
                    counts[(*key, f"{rules} error", verdict.error_type)] += 1
            if row.published is not None:
                counts[(*key, "published", "")] += row.published
                if row.published != row.official.valid:
                    counts[(*key, "published differs", change_class(row, changed))] += 1
            if row.official.valid != row.strict.valid:
                side = "official" if row.official.valid else "strict"
                counts[(*key, f"{side} only", rule_class(row))] += 1
    return counts


def write_counts(counts: Counts) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["collection", "model", "category", "measure", "class", "rows"])
    writer.writerows([*key, rows] for key, rows in sorted(counts.items()))
    COUNTS.write_text(text.getvalue(), encoding="utf-8")
