"""Find reasons, other than wrong answers, for low scores in the rows of a run.

If a model writes calls in a format that the run's tool parser does not read, every answer is wrong.
So `second_reader` searches the answers in which the run found no call, with the readers of
`ace_ray.parsing.formats`. Calls that these readers find do not change verdicts.

`Diagnosis` counts three kinds of rows of one benchmark: rows with unread calls, rows whose answer
was cut off (``finish_reason`` is ``length``), and rows whose reasoning never ended. A kind is a
finding if it has at least `MIN_ROWS` rows and `MIN_SHARE` of the scored rows. Within one category,
the minimum share is `MIN_CATEGORY_SHARE`. Accuracies are plain means over rows, not the benchmark's
aggregates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ace_ray.benchmarks.statistics import percent
from ace_ray.parsing.formats import READERS, parse_known_formats
from ace_ray.types import CHECKED, Entry, Episode, ResultRow

# The texts that may contain a call (`texts_of`), for each answer in which no call was found.
Answers = Sequence[Sequence[str]]
_END_OF_REASONING = "</think>"


def second_reader(benchmark: Any, entry: Entry, episode: Episode) -> str | None:
    """Search an episode for calls, in known formats, that the run did not read.

    Search the answers in `Benchmark.parse_failures`, or else reasoning that never ended. Return the
    name of the reader (`ace_ray.parsing.formats`) that finds calls in most answers, or None."""
    answers = benchmark.parse_failures(entry, episode)
    readers = _readers(answers)
    if answers and not readers and episode.reasoning_truncated:
        readers = _readers([[episode.reasoning]])
    return Counter(readers).most_common(1)[0][0] if readers else None


def _readers(answers: Answers) -> list[str]:
    """Return, for each answer in which a reader finds calls, the name of the first such reader."""
    parsed = (next(filter(None, map(parse_known_formats, texts)), None) for texts in answers)
    return [calls.reader for calls in parsed if calls is not None]


def texts_of(message: Mapping[str, Any]) -> list[str]:
    """Return the texts of an assistant's stored message that may contain calls.

    These are the answer, the content outside calls, and the raw output without reasoning."""
    texts = [message.get("text"), message.get("content")]
    if isinstance(raw := message.get("raw"), str):
        _, marker, answer = raw.rpartition(_END_OF_REASONING)
        reasoning = message.get("reasoning")
        # Reasoning that never ended, or that other marks end, is not part of the answer.
        if not marker and isinstance(reasoning, str) and reasoning and reasoning in raw:
            answer = raw.partition(reasoning)[2]
        texts.append(answer)
    return [text for text in dict.fromkeys(texts) if isinstance(text, str) and text]


def answer_texts(episode: Episode, *first: str) -> list[str]:
    """Return the texts ``first``, then the texts of the episode's last message if it answers."""
    last = episode.messages[-1] if episode.messages else {}
    stored = texts_of(last) if last.get("role") == "assistant" else []
    return list(dict.fromkeys([*(text for text in first if text), *stored]))


MIN_ROWS = 5
MIN_SHARE = 0.05
# Larger than `MIN_SHARE`: among many categories, one often has 5 % by chance.
MIN_CATEGORY_SHARE = 0.1
_NAMED_CATEGORIES = 3


def _finding_text(finding: Mapping[str, Any], tool_parser: str | None) -> str:
    rows = f"{finding['rows']} of {finding['of']} rows"
    if categories := finding.get("categories"):
        parts = [f"{cell['rows']} of {cell['of']} in {name}" for name, cell in categories.items()]
        if (more := len(parts) - _NAMED_CATEGORIES) > 0:
            noun = "category" if more == 1 else "categories"
            parts[_NAMED_CATEGORIES:] = [f"many in {more} more {noun}"]
        rows = f"{rows} ({', '.join(parts)})"
    if finding["kind"] == "unread_calls":
        readers = ", ".join(f"{name} ({count})" for name, count in finding["readers"].items())
        return (
            f"{rows} hold calls that were not read; readers that find them: {readers}. "
            f"No verdict counts them{_reread_hint(next(iter(finding['readers'])), tool_parser)}"
        )
    problem = "have reasoning that never ended, and no answer"
    if finding["kind"] == "cut_by_length":
        problem = "end in an answer cut by max_tokens or the context"
    shares = ", ".join(
        f"{rules} {percent(finding['others'][rules])} (of all rows {percent(share)})"
        for rules, share in finding["accuracy"].items()
    )
    return f"{rows} {problem}. Accuracy of the other rows: {shares}"


def _reread_hint(reader: str, tool_parser: str | None) -> str:
    """Return the end of a sentence: a command that judges calls in a reader's format; or ""."""
    parser = {"fenced_json": "llama3_json", "other": ""}.get(reader, reader)
    if parser in ("", "functionary", "fenced_python"):  # vLLM has no such parser
        return ""
    if parser == tool_parser:  # perhaps the reasoning parser took the calls
        return "; with native calls, ace-ray reread RUN --reasoning-parser none may"
    needs = " if the tokenizer has the token <|python_tag|>" if parser == "llama3_json" else ""
    return f"; with native calls, ace-ray reread RUN --tool-parser {parser} does{needs}"


@dataclass
class _Tally:
    rows: int = 0
    judged: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    """Sum of the rows' scores, by rule set."""
    categories: Counter[str] = field(default_factory=Counter)

    def add(self, row: ResultRow) -> None:
        self.rows += 1
        self.judged += bool(row.verdicts)
        self.categories[row.category] += 1
        for rules, verdict in row.verdicts.items():
            self.sums[rules] = self.sums.get(rules, 0.0) + verdict.score


class Diagnosis:
    """Counters over one benchmark's rows. ``tool_parser``: name of the run's tool parser."""

    def __init__(self, tool_parser: str | None = None) -> None:
        self._tool_parser = tool_parser
        self._all = _Tally()
        self._readers: Counter[str] = Counter()
        kinds = ("unread_calls", "cut_by_length", "reasoning_never_ended")
        self._kinds = {kind: _Tally() for kind in kinds}

    def add_rows(self, rows: Iterable[ResultRow]) -> Iterator[ResultRow]:
        """Count and yield each of ``rows``."""
        for row in rows:
            self.add(row)
            yield row

    def add(self, row: ResultRow) -> None:
        if row.status not in CHECKED or row.repeat:
            return
        self._all.add(row)
        if row.second_reading is not None:
            reader = row.second_reading  # a stored name, which is not trusted
            self._readers[reader if reader in READERS else "other"] += 1
            self._kinds["unread_calls"].add(row)
        if row.finish_reason == "length":
            self._kinds["cut_by_length"].add(row)
        if row.reasoning_truncated:
            self._kinds["reasoning_never_ended"].add(row)

    def findings(self) -> list[dict[str, Any]]:
        """Return the findings as JSON values, unread calls first (docs/results.md).

        A finding concerns some rows: their number is in ``rows``, the number of all scored rows in
        ``of``. ``accuracy`` is the accuracy of all scored rows, ``others`` the accuracy without the
        rows of the finding, both by rule set. ``categories`` lists the categories that reach the
        minimum share, if the whole benchmark does not. ``text`` describes the finding."""
        every = self._all
        accuracy = {rules: total / every.judged for rules, total in every.sums.items()}
        findings = []
        for kind, tally in self._kinds.items():
            are_many = _are_many(tally.rows, every.rows, MIN_SHARE)
            categories = {} if are_many else self._frequent_categories(tally)
            if not categories and not are_many:
                continue
            other_rows = every.judged - tally.judged
            other_accuracy = {
                rules: (total - tally.sums.get(rules, 0.0)) / other_rows if other_rows else None
                for rules, total in every.sums.items()
            }
            finding: dict[str, Any] = {"kind": kind, "rows": tally.rows, "of": every.rows}
            finding |= {"accuracy": accuracy, "others": other_accuracy}
            if categories:
                finding["categories"] = categories
            if kind == "unread_calls":
                finding["readers"] = dict(self._readers.most_common())
            findings.append({**finding, "text": _finding_text(finding, self._tool_parser)})
        return findings

    def _frequent_categories(self, tally: _Tally) -> dict[str, dict[str, int]]:
        """Return the categories in which the rows of ``tally`` reach the minimum share, most rows
        first."""
        return {
            name: {"rows": rows, "of": self._all.categories[name]}
            for name, rows in sorted(tally.categories.items(), key=lambda item: (-item[1], item[0]))
            if _are_many(rows, self._all.categories[name], MIN_CATEGORY_SHARE)
        }


def _are_many(rows: int, of: int, share: float) -> bool:
    return rows >= max(MIN_ROWS, share * of)


def diagnose(rows: Iterable[ResultRow]) -> list[dict[str, Any]]:
    """Return the findings on the rows of one benchmark (see `Diagnosis.findings`)."""
    diagnosis = Diagnosis()
    for row in rows:
        diagnosis.add(row)
    return diagnosis.findings()
