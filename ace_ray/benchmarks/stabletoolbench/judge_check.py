"""Benchmark that compares a judge with labels that people gave (``ace-ray judge check``).

The judge is the candidate of this benchmark, and the labels are its categories.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext
from ace_ray.benchmarks.dataset import json_lines, read_bounded
from ace_ray.benchmarks.stabletoolbench.answer_trees import answer_json, answer_of_text, is_answer
from ace_ray.benchmarks.stabletoolbench.judge import asking
from ace_ray.benchmarks.stabletoolbench.judge.measures import judge_sopr, majority
from ace_ray.benchmarks.stabletoolbench.judge.prompts import official_prompts, own_prompts
from ace_ray.config.schema import Section
from ace_ray.errors import UserError
from ace_ray.types import RULE_SETS, Entry, Episode, ResultRow, Sampling, Verdict, digest
from ace_ray.util.local_files import path_of
from ace_ray.util.stats import wilson

_WHERE = "benchmarks.stabletoolbench_judge"
_SAID = "said_"
NAME = "stabletoolbench_judge"


class JudgeOptions(Section):
    labels: str = Field(min_length=1)
    """file of JSON lines with query_id, query, answer and label (see docs)"""
    upstream: str | None = None
    """checkout of StableToolBench whose judge prompts are used"""
    votes: int = Field(1, ge=1, le=32)
    """votes of the judge on each answer"""


class JudgeCheck(Benchmark):
    """One entry for each label. A row is valid if most votes of the judge equal the label."""

    name = NAME
    rule_sets = RULE_SETS
    Options = JudgeOptions

    def __init__(self, options: JudgeOptions) -> None:
        super().__init__(options)
        self._options = options
        self._labels = read_labels(path_of(options.labels, f"{_WHERE}.labels"))
        upstream = options.upstream
        self._prompts = (
            official_prompts(path_of(upstream, f"{_WHERE}.upstream")) if upstream else own_prompts()
        )

    def entries(self) -> Sequence[Entry]:
        return self._labels

    def identity(self) -> Mapping[str, Any]:
        return {
            "labels_sha256": digest([entry.content_hash() for entry in self.dataset()]),
            "protocol": {
                **asking.protocol(),
                "votes": self._options.votes,
                **self._prompts.identity(),
                "temperature": asking.SAMPLING.temperature,
            },
        }

    def resolved(self) -> dict[str, Any]:
        absolute = {
            name: str(path_of(value, f"{_WHERE}.{name}").absolute())
            for name in ("labels", "upstream")
            if (value := getattr(self._options, name))
        }
        return {**self._options.model_dump(mode="json"), **absolute}

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        answer = json.loads(entry.data["answer"])
        text = self._prompts.fill("answer", entry.data["query"], answer, asking.CUTS[0])
        return [{"role": "user", "content": text}]

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        episode, drawn = context.episode, self._sampling(context.candidate.sampling)
        model = replace(context.candidate, sampling=drawn, on_answer=episode.add_usage)
        model = asking.reseed(model, context.attempt)
        query, answer = entry.data["query"], json.loads(entry.data["answer"])
        votes = await judge_sopr(model, query, answer, self._options.votes, self._prompts)
        episode.messages, episode.output = self.prompt(entry), majority(votes)
        episode.state = {"votes": votes, "judge_attempt": context.attempt}
        return episode

    def _sampling(self, sampling: Sampling) -> Sampling:
        """Return the judge's default sampling, changed by the config except in temperature."""
        default = asdict(Sampling())
        changed = {k: v for k, v in asdict(sampling).items() if v != default[k]}
        return replace(asking.SAMPLING, **{**changed, "temperature": asking.SAMPLING.temperature})

    def check(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
        status = episode.output
        metrics = {f"{_SAID}{status}": 1.0}
        if status == entry.gold:
            return dict.fromkeys(RULE_SETS, Verdict(True, metrics=metrics))
        wrong = Verdict(False, status.lower(), f"people say {entry.gold}", metrics)
        return dict.fromkeys(RULE_SETS, wrong)

    def summarize(self, rows: Iterable[ResultRow], max_unscored: float) -> dict[str, Any]:
        pairs: Counter[tuple[str, str | None]] = Counter()

        def count_pairs() -> Iterator[ResultRow]:
            for row in rows:
                stated = row.verdicts["strict"].metrics if row.verdicts else {}
                statuses = (name.removeprefix(_SAID) for name in stated if name.startswith(_SAID))
                pairs[row.category, next(statuses, None)] += 1
                yield row

        summary = self.statistics(count_pairs(), max_unscored)
        stats = summary["categories"]
        summary["categories"] = {label: stats[label] for label in asking.STATUSES if label in stats}
        measured = agreement(pairs)
        lines = [
            [label, *(str(measured["confusion"][label][status]) for status in asking.STATUSES)]
            for label in asking.STATUSES
        ]
        return {
            **summary,
            **self.tables(summary),
            "agreement": measured,
            "comparable": _sentence(measured),
            "table": {"header": ["people say", *asking.STATUSES], "lines": lines},
        }


def _sentence(measured: Mapping[str, Any]) -> str:
    if not measured["n"]:
        return "the judge judged no answer"
    low, high = measured["accuracy_interval"]
    kappa = "Cohen's kappa is not defined: chance alone would agree"
    if measured["kappa"] is not None:
        kappa = f"Cohen's kappa {measured['kappa']:.2f}"
    return (
        f"the judge agrees with people on {100 * measured['accuracy']:.1f} % "
        f"[{100 * low:.1f}, {100 * high:.1f}] of {measured['n']} answers; {kappa}; "
        f"{measured['judge_errors']} without a judgement"
    )


_FIX = 'write {"query_id": ..., "query": ..., "answer": ..., "label": ...} on each line'


def read_labels(path: Path) -> list[Entry]:
    """Read labelled answers from a file of JSON lines as entries; an entry's category is its label.

    Each line is ``{"query_id", "query", "answer", "label"}``. ``answer`` is a converted answer (see
    `answer_trees`), the value of its key ``answer``, or a string, without calls for the judge's
    second question. ``label`` is Solved, Unsure or Unsolved. Several answers may have the same
    query. Raises `UserError` at a line that is invalid."""
    lines = enumerate(json_lines(read_bounded(path), path))
    return [_entry(number, row, line) for number, (line, row) in lines]


def _entry(number: int, row: Mapping[str, Any], line: str) -> Entry:
    for key in ("query_id", "query", "answer", "label"):
        if key not in row:
            raise UserError(f"has no {key}", where=line, fix=_FIX)
    name, query, label = row["query_id"], row["query"], row["label"]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise UserError(f"query_id is {name!r:.60}", where=line, fix="write a number or a string")
    if not isinstance(query, str) or not query.strip():
        raise UserError(f"query is {query!r:.60}", where=line, fix="write the user's request")
    status = label.capitalize() if isinstance(label, str) else None
    if status not in asking.STATUSES:
        fix = f"write {', '.join(asking.STATUSES)}"
        raise UserError(f"label is {label!r:.60}", where=line, fix=fix)
    answer = row["answer"]
    if isinstance(answer, str):
        answer = answer_of_text(answer)
    elif isinstance(answer, Mapping):
        answer = answer.get("answer", answer)
    if not is_answer(answer):
        fix = 'write a string, or {"final_answer": string, "answer_details": [...]}'
        raise UserError("answer is neither a string nor a converted answer", where=line, fix=fix)
    # As JSON text: a long chain cannot be pickled.
    data = {"query": query, "answer": answer_json(answer, line)}
    return Entry(NAME, status, "en", f"{number}-{name}", data, status, group=str(name))


def agreement(pairs: Counter[tuple[str, str | None]]) -> dict[str, Any]:
    """Compare labels and verdicts, both from `asking.STATUSES`. ``pairs`` counts (label, verdict).
    A verdict None is a failure of the judge.

    Returns:
        ``n`` (compared pairs), ``judge_errors``, ``accuracy``, ``accuracy_interval`` (Wilson),
        ``kappa`` (Cohen's; None if chance alone would always agree) and ``confusion``
        (``{label: {verdict: n}}``). If ``n`` is 0, accuracy, interval and kappa are None."""
    confusion = {a: {b: pairs[a, b] for b in asking.STATUSES} for a in asking.STATUSES}
    n = sum(sum(by_verdict.values()) for by_verdict in confusion.values())
    right = sum(confusion[s][s] for s in asking.STATUSES)
    totals = {s: sum(confusion[a][s] for a in asking.STATUSES) for s in asking.STATUSES}
    # Number of agreements expected by chance.
    chance = sum(sum(confusion[s].values()) * totals[s] for s in asking.STATUSES) / n if n else 0.0
    share = wilson(right, n)
    return {
        "n": n,
        "judge_errors": pairs.total() - n,
        "accuracy": right / n if n else None,
        "accuracy_interval": None if share is None else list(share),
        "kappa": (right - chance) / (n - chance) if chance < n else None,
        "confusion": confusion,
    }
