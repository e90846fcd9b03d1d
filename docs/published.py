"""Public answers of known models, judged again: ``reference-runs/published.md`` and its CSV file.

    python docs/published.py CLONES WORK
    python docs/published.py CLONES WORK --read CLASS [--count 20]

CLONES holds clones of the repositories in ``published.md``, each in a folder of its name. The clone
of BFCL's own repository, ``gorilla``, tells which entries have changed since 2024. WORK keeps the
scored runs, so an interrupted command continues. ``--read`` prints a sample of a class of
differences, with the answers, the expected calls and all verdicts.

The CSV file has counts only. The command rewrites the tables between the page's marks.
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
from ace_ray.benchmarks.acebench.gold import alternatives, function_name
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.bfcl.categories import RELEVANCE
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.parsing.literals import literal_calls, replace_json_words
from ace_ray.parsing.syntax import NotCalls, expression
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
        if folder.name.endswith("-FC"):  # a format that only the harness reads
            continue
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
            _entry_id(line["id"], category, source): line.get("error_type") or str(line["error"])
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
    official, strict, category = row.official, row.strict, row.entry.category
    if row.source.benchmark == "bfcl":
        return _BFCL_RULES.get(strict.error_type) or _bfcl_rule(row)
    if category.startswith("agent"):
        return "agents: the whole end state"
    if category.startswith("special"):
        return "special rows: other names or values" if official.valid else "special rows: spelling"
    if strict.valid:
        return (
            "multi-turn: blanks in values, or another wording"
            if "multi" in category
            else "another wording"
        )
    return {
        "output_format": "a call that is not literal",
        "param_num": "a missing parameter that the user asked for",
        "function_name": "one call for several gold calls",
    }.get(strict.error_type, "another value")


_BFCL_RULES = {
    "irrelevance_error:no_answer": "no answer, in irrelevance",
    "irrelevance_error:unreadable_call": "a call that no decoder reads, in irrelevance",
    "multi_turn:force_terminated": "cut by the step limit in the last turn",
}


def _bfcl_rule(row: Row) -> str:
    if row.entry.category.startswith("multi_turn"):
        return "lists that upstream's classes share"
    text = row.episode.output or ""
    if row.entry.category not in RELEVANCE and re.search(r"[(,]\s*(?!\w+\s*=)[^\s)]", text):
        return "positional arguments"
    if row.official.error_type.startswith("ast_decoder") or row.entry.category in RELEVANCE:
        return "an argument named by a Python keyword"
    return "a repeated argument, or parallel calls in another order"


@dataclass(frozen=True, slots=True)
class Entry2024:
    """An entry in BFCL's data of 2024: its functions and its gold calls."""

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


def _gold_2024(gold: Mapping[str, Any], functions: Sequence[Any]) -> list[Any]:
    """Return gold calls in today's form. In 2024 they were one object with numbered names, and the
    checker took the first function whose name is part of the gold name."""
    names = [function["name"] for function in functions]
    if len(names) == 1:
        return [{names[0]: args} for args in gold.values()]
    return [
        {next((name for name in names if name in key), key): args} for key, args in gold.items()
    ]


def change_class(row: Row, changed: Mapping[str, Entry2024]) -> str:
    """Return why the published verdict on a row is not today's official one.

    ACEBench's evaluator lists an answer as wrong that fits only a later gold alternative."""
    if row.source.benchmark == "acebench":
        if "harness" in row.source.collection:
            return _harness_class(row)
        several = isinstance(row.entry.gold, list) and row.official.valid and not row.published
        return "listed as wrong, but counted as right" if several else "unexplained"
    then = row.entry
    if entry := changed.get(row.entry.id):
        data = {**row.entry.data, "function": entry.functions}
        then = replace(row.entry, data=data, gold=entry.gold)
        if _gives_published(row, then, row.episode):
            return "data corrected since"
    text = row.episode.output or ""
    replaced = replace(row.episode, output=text.replace("\\_", "_"))
    if "\\_" in text and _gives_published(row, then, replaced):
        return "escaped underscores, which the handler of 2024 replaced"
    if row.entry.category in RELEVANCE and re.search(r"\w\([^=]*?\)", text):
        return "calls without named arguments, no calls in 2024"
    if text[:1] != "[" or text[-1:] != "]":
        return "blanks, fences or no brackets around the list, no calls in 2024"
    if row.episode.state and row.published_error == "relevance_error:decoder_success":
        return "arguments that are not an object, a call in 2024"
    return "unexplained"


def _gives_published(row: Row, entry: Entry, episode: Episode) -> bool:
    """Return whether today's checker gives the published verdict on other data or other text. An
    answer that no decoder read in 2024 is not explained by an error of the checker."""
    verdict = _benchmark("bfcl").check(entry, episode)["official"]
    errors = (row.published_error, verdict.error_type)
    is_read = [not error.startswith("ast_decoder") for error in errors]
    return verdict.valid == row.published and is_read[0] == is_read[1]


def _harness_class(row: Row) -> str:
    """Return why the other harness judged an ACEBench answer otherwise. It accepts calls that equal
    the gold calls as JSON, and no others."""
    if row.entry.category == "special_error_param" and "Missing necessary" in row.published_error:
        return "an answer about wrong values, judged as one about missing values"
    try:
        tree = replace_json_words(expression(row.episode.output or ""))
        calls = _as_json(literal_calls(tree))
    except NotCalls:
        calls = []
    is_equal = any(
        calls == _as_json((function_name(row.entry, key), args) for key, args in gold.items())
        for gold in alternatives(row.entry)
    )
    if is_equal != row.published:
        return "unexplained"
    return (
        "equal to gold, which official refuses, because it deletes blanks"
        if is_equal
        else "not equal to gold, which official accepts"
    )


def _as_json(calls: Iterable[tuple[str, Any]]) -> list[str]:
    return sorted(json.dumps(call, sort_keys=True) for call in calls)


def differences(row: Row, changed: Mapping[str, Entry2024]) -> dict[str, str]:
    """Return the class of each difference between the verdicts on a row, by measure."""
    kinds = {}
    if row.published not in (None, row.official.valid):
        kinds["published differs"] = change_class(row, changed)
    if row.official.valid != row.strict.valid:
        kinds[f"{'official' if row.official.valid else 'strict'} only"] = rule_class(row)
    return kinds


Counts = Counter[tuple[str, str, str, str, str]]


def count(clones: Path, work: Path) -> Counts:
    """Judge all answers, and return numbers of rows by collection, model, category, measure and
    class."""
    counts: Counts = Counter()
    changed = changed_entries(clones / "gorilla")
    for source in sources(clones):
        if source.collection == "BFCL 2024" and OWN_HANDLER.search(source.model):
            continue
        scores = published(source)
        for row in rows_of(source, work):
            key = (*row.names, row.entry.category)
            if score_file := scores.get(row.entry.category):
                # Not the number of rows that are not listed as wrong; see `change_class`.
                counts[(*key, "published", "")] = score_file.correct
            counts[(*key, "answers", "")] += 1
            for rules, verdict in (("official", row.official), ("strict", row.strict)):
                counts[(*key, rules, "")] += verdict.valid
                if not verdict.valid and source.collection != "BFCL 2024":
                    counts[(*row.names, "", f"{rules} error", verdict.error_type)] += 1
            for measure, kind in differences(row, changed).items():
                counts[(*key, measure, kind)] += 1
        for rules, scores in _headlines(score(source, work), source):
            for headline in scores:
                if source.benchmark == "acebench" and headline["value"] is not None:
                    name = f"{headline['name']} ({headline['formula']})"
                    key = (source.collection, source.model, "")
                    counts[(*key, f"{rules}, per mille", name)] = round(1000 * headline["value"])
    return counts


def _headlines(run: Path, source: Source) -> Iterable[tuple[str, Any]]:
    summary = json.loads((run / "summary.json").read_bytes())
    scores: Mapping[str, Any] = summary["benchmarks"][source.benchmark]["scores"]
    return scores.items()


def write_counts(counts: Counts) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["collection", "model", "category", "measure", "class", "rows"])
    writer.writerows([*key, rows] for key, rows in sorted(counts.items()) if rows)
    COUNTS.write_text(text.getvalue(), encoding="utf-8")


def read_counts() -> Counts:
    with COUNTS.open(encoding="utf-8") as file:
        return Counter({tuple(line[:5]): int(line[5]) for line in list(csv.reader(file))[1:]})


class Totals:
    """Sums over `Counts` by collection, model, measure and class."""

    def __init__(self, counts: Counts) -> None:
        self._sums: Counter[tuple[str, ...]] = Counter()
        for (collection, model, _, measure, kind), rows in counts.items():
            self._sums[collection, model, measure, kind] += rows

    def rows(self, collection: str, model: str, measure: str, kind: str = "") -> int:
        return self._sums[collection, model, measure, kind]

    def share(self, collection: str, model: str, measure: str) -> float | None:
        """Return a percentage of the answers, or None if no verdict was published."""
        right = self.rows(collection, model, measure)
        answers = self.rows(collection, model, "answers")
        return 100 * right / answers if answers and (right or measure != "published") else None

    def models(self, collection: str) -> list[str]:
        """Return the models of a collection, best official score first."""
        models = {name for group, name, *_ in self._sums if group == collection}
        return sorted(models, key=lambda name: (-self.rows(collection, name, "official"), name))

    def classes(self, collection: str, measure: str) -> list[tuple[str, int, int]]:
        """Return the classes of a measure with their rows and their number of models."""
        rows: Counter[str] = Counter()
        models: Counter[str] = Counter()
        for (group, _, name, kind), number in self._sums.items():
            if (group, name) == (collection, measure):
                rows[kind] += number
                models[kind] += 1
        ordered = sorted(rows, key=lambda kind: (-rows[kind], kind))
        return [(kind, rows[kind], models[kind]) for kind in ordered]


COLLECTIONS = ("ACEBench", "ACEBench, own harness", "BFCL native", "BFCL 2024")
# Lines of the page's tables of ranks and of errors.
_MOVED_RANKS, _ERROR_KINDS = 8, 12


def tables(totals: Totals) -> dict[str, str]:
    """Return the tables of the page by name."""
    scores = {name: _scores(totals, *names) for name, names in {
        "acebench": COLLECTIONS[:2], "native": COLLECTIONS[2:3], "dated": COLLECTIONS[3:],
    }.items()}  # fmt: skip
    changes = [
        (collection, kind, rows, models)
        for collection in COLLECTIONS
        for kind, rows, models in totals.classes(collection, "published differs")
    ]
    unexplained = sum(rows for _, kind, rows, _ in changes if kind == "unexplained")
    rules = [
        [collection, f"{side} alone", kind, f"{rows:,}", models]
        for collection in COLLECTIONS
        for side in ("official", "strict")
        for kind, rows, models in totals.classes(collection, f"{side} only")
    ]
    return scores | {
        "paper": _paper(totals),
        "changes": _table(["answers", "why published differs from official", "rows", "models"],
                          ((*names, f"{rows:,}", models) for *names, rows, models in changes))
                   + f"\n{f'{unexplained:,} answers are' if unexplained else 'No answer is'}"
                   + " unexplained.\n",
        "rules": _table(["answers", "accepted by", "class", "rows", "models"], rules),
        "errors": _errors(totals, COLLECTIONS[0]),
        "harness": _errors(totals, COLLECTIONS[1]),
        "mistakes": _errors(totals, COLLECTIONS[2]),
        "ranks": _ranks(totals),
    }  # fmt: skip


def _scores(totals: Totals, *collections: str) -> str:
    lines = []
    for collection in collections:
        for model in totals.models(collection):
            shares = [totals.share(collection, model, measure)
                      for measure in ("published", "official", "strict")]  # fmt: skip
            different = sum(
                totals.rows(collection, model, "published differs", kind)
                for kind, *_ in totals.classes(collection, "published differs")
            )
            rows = totals.rows(collection, model, "answers")
            mark = " (own checker)" if "harness" in collection else ""
            first = "" if shares[0] is None else f"{shares[0]:.1f}{mark}"
            lines.append(
                [
                    _label(collection, model),
                    f"{rows:,}",
                    first,
                    *(f"{s:.1f}" for s in shares[1:]),
                    different,
                ]
            )
    header = ["model", "answers", "published, %", "official, %", "strict, %", "rows that differ"]
    return _table(header, lines)


# Scores of ACEBench's paper and of its workbook.
_SCORES = ("Overall (paper)", "Overall (workbook)", "Normal (workbook)", "Special (workbook)",
           "Agent (workbook)")  # fmt: skip


def _paper(totals: Totals) -> str:
    lines = []
    for collection in COLLECTIONS[:2]:
        for model in totals.models(collection):
            cells = []
            for name in _SCORES:
                pair = [
                    totals.rows(collection, model, f"{rules}, per mille", name)
                    for rules in ("official", "strict")
                ]
                cells.append(" / ".join(f"{value / 10:.1f}" for value in pair if any(pair)))
            lines.append([_label(collection, model), *cells])
    return _table(["model", *_SCORES], lines)


def _label(collection: str, model: str) -> str:
    return f"{model}, own harness" if "harness" in collection else model


def _errors(totals: Totals, collection: str) -> str:
    """Return the table of strict error types by model, with the most frequent ones."""
    models = totals.models(collection)
    kinds = totals.classes(collection, "strict error")[:_ERROR_KINDS]
    lines = [
        [kind, *(totals.rows(collection, model, "strict error", kind) for model in models)]
        for kind, *_ in kinds
    ]
    return _table(["error", *models], lines)


def _ranks(totals: Totals) -> str:
    """Return the table of the models whose rank under ``strict`` is most unlike the official."""
    moves = []
    for collection in COLLECTIONS:
        by_official = totals.models(collection)
        by_strict = sorted(
            by_official, key=lambda name: (-totals.rows(collection, name, "strict"), name)
        )
        for rank, model in enumerate(by_official, 1):
            strict_rank = by_strict.index(model) + 1
            lost = [totals.share(collection, model, r) or 0.0 for r in ("official", "strict")]
            moves.append((abs(rank - strict_rank), lost[0] - lost[1], collection, model, rank,
                          strict_rank))  # fmt: skip
    moves.sort(key=lambda move: (-move[0], -move[1], move[2:4]))
    lines = [
        [model, collection, rank, strict_rank, f"{points:.1f}"]
        for _, points, collection, model, rank, strict_rank in moves[:_MOVED_RANKS]
    ]
    return _table(["model", "answers", "rank, official", "rank, strict", "points lost"], lines)


def _table(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    rows = [list(map(str, line)) for line in lines]
    numeric = [
        all(re.fullmatch(r"[\d.,/ +-]*", row[column]) for row in rows)
        for column in range(len(header))
    ]
    rule = ["--:" if right else "---" for right in numeric]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (list(header), rule, *rows))


_SIZE, _MARGIN = 420, 46
_COLOURS = {
    "ACEBench": "#0072B2",
    "BFCL native": "#009E73",
    "BFCL 2024": "#E69F00",
}


def figure(totals: Totals) -> str:
    """Return an SVG with a point for each model: published against re-scored accuracy."""
    scale = (_SIZE - 2 * _MARGIN) / 100
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE + 150} {_SIZE}" '
        'font-family="sans-serif" font-size="11" role="img">',
        f'<rect width="{_SIZE + 150}" height="{_SIZE}" fill="white"/>',
    ]
    low, high = _MARGIN, _SIZE - _MARGIN
    for level in range(0, 101, 20):
        at = level * scale
        parts += [
            f'<line x1="{low}" y1="{high - at:.1f}" x2="{high}" y2="{high - at:.1f}" '
            'stroke="#dddddd"/>',
            f'<text x="{low - 6}" y="{high - at + 4:.1f}" text-anchor="end">{level}</text>',
            f'<text x="{low + at:.1f}" y="{high + 16}" text-anchor="middle">{level}</text>',
        ]
    parts += [
        f'<line x1="{low}" y1="{high}" x2="{high}" y2="{low}" stroke="#888888"/>',
        f'<text x="{_SIZE / 2}" y="{_SIZE - 12}" text-anchor="middle">published accuracy, %</text>',
        f'<text x="14" y="{_SIZE / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {_SIZE / 2})">official accuracy here, %</text>',
    ]
    for number, (collection, colour) in enumerate(_COLOURS.items()):
        y = low + 10 + 20 * number
        models = totals.models(collection)
        parts += [
            f'<circle cx="{_SIZE}" cy="{y}" r="4" fill="{colour}"/>',
            f'<text x="{_SIZE + 10}" y="{y + 4}">{collection} ({len(models)})</text>',
        ]
        for model in models:
            pair = [totals.share(collection, model, r) or 0.0 for r in ("published", "official")]
            parts.append(
                f'<circle cx="{low + pair[0] * scale:.1f}" cy="{high - pair[1] * scale:.1f}" '
                f'r="4" fill="{colour}" fill-opacity="0.7"><title>{model}: {pair[0]:.1f} published,'
                f" {pair[1]:.1f} official</title></circle>"
            )
    return "\n".join([*parts, "</svg>\n"])


def page() -> str:
    """Return the page with the tables of the stored counts."""
    made = tables(Totals(read_counts()))
    text = PAGE.read_text(encoding="utf-8")
    return _MARKED.sub(lambda match: f"{match[1]}\n{made[match[2]]}\n{match[3]}", text)


def read_sample(clones: Path, work: Path, name: str, number: int) -> None:
    """Print a sample of the rows with a class of differences that contains ``name``."""
    changed = changed_entries(clones / "gorilla")
    rows = [
        row
        for source in sources(clones)
        if not OWN_HANDLER.search(source.model) or source.collection != "BFCL 2024"
        for row in rows_of(source, work)
        if any(name in kind for kind in differences(row, changed).values())
    ]
    for row in random.Random(0).sample(rows, min(number, len(rows))):
        print(f"# {', '.join(row.names)}: {row.entry.id}")
        print(f"published: {row.published} {row.published_error}")
        for rules, verdict in (("official", row.official), ("strict", row.strict)):
            print(f"{rules}: {verdict.valid} {verdict.error_type} {verdict.error}")
        print(f"question: {row.entry.data.get('question')}")
        print(f"answer: {row.episode.output}\nexpected: {row.entry.gold}")
        if row.entry.id in changed and row.source.collection == "BFCL 2024":
            print(f"expected in 2024: {changed[row.entry.id]}")
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("clones", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--read", help="print answers of a class of differences")
    parser.add_argument("--count", type=int, default=20, help="number of answers to print")
    arguments = parser.parse_args()
    if arguments.read:
        read_sample(arguments.clones, arguments.work, arguments.read, arguments.count)
        return
    counts = count(arguments.clones, arguments.work)
    write_counts(counts)
    PAGE.write_text(page(), encoding="utf-8")
    FIGURE.write_text(figure(Totals(counts)), encoding="utf-8")


if __name__ == "__main__":
    main()
