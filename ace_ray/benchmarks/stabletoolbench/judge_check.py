"""A judge held against people's labels, as a benchmark of its own: ``ace-ray judge check``.

The candidate is the judge. Its categories are the labels, so that a row needs no more than what it
said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pydantic import Field

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext
from ace_ray.benchmarks.results import ScoredRow
from ace_ray.benchmarks.stabletoolbench import judge
from ace_ray.benchmarks.stabletoolbench.judge.reading import STATUSES
from ace_ray.benchmarks.tally import Tally, accuracies, counts
from ace_ray.config import Section
from ace_ray.local_files import folder_of
from ace_ray.records import RULE_SETS, Entry, Episode, Sampling, Verdict, digest

_WHERE = "benchmarks.stabletoolbench_judge"
_SAID = "said:"


class JudgeOptions(Section):
    labels: str = Field(
        min_length=1, description="JSON lines of query_id, query, answer, label (see docs)"
    )
    upstream: str | None = Field(None, description="a checkout: its judge's prompts")
    votes: int = Field(1, ge=1, le=32, description="of the judge on each answer")
    temperature: float = Field(
        judge.SAMPLING.temperature, ge=0, le=2, description="of the judge, as in the runs it judges"
    )


class JudgeCheck(Benchmark):
    """One entry a label; valid where most votes of the judge say the same."""

    name = "stabletoolbench_judge"
    rule_sets = RULE_SETS
    Options = JudgeOptions

    def __init__(self, options: JudgeOptions) -> None:
        super().__init__(options)
        self._options = options
        self._labels = judge.read_labels(folder_of(options.labels, f"{_WHERE}.labels"))
        upstream = options.upstream
        self._prompts = (
            judge.official(folder_of(upstream, f"{_WHERE}.upstream")) if upstream else judge.own()
        )

    def entries(self) -> Sequence[Entry]:
        return [
            Entry(
                self.name,
                label.label,
                "en",
                f"{number}-{label.query_id}",
                {"query": label.query, "answer": label.answer_json},
                label.label,
                group=label.query_id,
            )
            for number, label in enumerate(self._labels)
        ]

    def identity(self) -> Mapping[str, Any]:
        return {
            "labels_sha256": digest([entry.content_hash() for entry in self.dataset()]),
            "protocol": {
                **judge.protocol(),
                "votes": self._options.votes,
                "prompts": self._prompts.source,
                "prompts_sha256": self._prompts.sha256,
                "temperature": self._options.temperature,
            },
        }

    def resolved(self) -> dict[str, Any]:
        absolute = {
            name: str(folder_of(value, f"{_WHERE}.{name}").absolute())
            for name in ("labels", "upstream")
            if (value := getattr(self._options, name))
        }
        return {**self._options.model_dump(mode="json"), **absolute}

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        final = json.loads(entry.data["answer"])["final_answer"]
        text = self._prompts.of_answer(entry.data["query"], final, judge.CUTS[0])
        return [{"role": "user", "content": text}]

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        episode, drawn = context.episode, self._sampling(context.candidate.sampling)
        model = replace(context.candidate, sampling=drawn, on_answer=episode.count)
        answer = json.loads(entry.data["answer"])
        votes = await judge.judge_sopr(
            judge.retried(model, context.attempt),
            entry.data["query"],
            answer,
            answer["final_answer"],
            self._options.votes,
            self._prompts,
        )
        episode.messages, episode.output = self.prompt(entry), judge.majority(votes)
        episode.state = {"votes": votes, "judge_attempt": context.attempt}
        return episode

    def _sampling(self, given: Sampling) -> Sampling:
        """As of a run's judge, and what the config says beside the temperature."""
        default = asdict(Sampling())
        said = {name: value for name, value in asdict(given).items() if value != default[name]}
        return replace(judge.SAMPLING, **{**said, "temperature": self._options.temperature})

    def check(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
        said = episode.output
        metrics = {f"{_SAID}{said}": 1.0}
        if said == entry.gold:
            return dict.fromkeys(RULE_SETS, Verdict(True, metrics=metrics))
        wrong = Verdict(False, f"{said.lower()}", f"people say {entry.gold}", metrics)
        return dict.fromkeys(RULE_SETS, wrong)

    def summarize(self, rows: Iterable[ScoredRow], max_unscored: float) -> dict[str, Any]:
        labels: list[str] = []
        said: list[str | None] = []
        tallies: dict[str, Tally] = {}
        for row in rows:
            tallies.setdefault(row.category, Tally(row.category, RULE_SETS)).add(row)
            labels.append(row.category)
            metrics = row.verdicts["strict"].metrics if row.verdicts else {}
            found = [name.removeprefix(_SAID) for name in metrics if name.startswith(_SAID)]
            said.append(found[0] if found else None)
        measured = judge.agreement(labels, said)
        lines = [
            [label, *(str(measured["confusion"][label][status]) for status in STATUSES)]
            for label in STATUSES
        ]
        return {
            "counts": counts(list(tallies.values())),
            "categories": {
                name: counts([tally]) | {rules: accuracies([tally], rules) for rules in RULE_SETS}
                for name, tally in tallies.items()
            },
            "agreement": measured,
            "comparable": _sentence(measured),
            "table": {"header": ["people say", *STATUSES], "lines": lines},
        }


def _sentence(measured: Mapping[str, Any]) -> str:
    if not measured["n"]:
        return "no answer was judged"
    low, high = measured["accuracy_interval"]
    kappa = "Cohen's kappa is not defined: chance alone would agree"
    if measured["kappa"] is not None:
        least, most = measured["kappa_interval"]
        kappa = f"Cohen's kappa {measured['kappa']:.2f} [{least:.2f}, {most:.2f}]"
    return (
        f"the judge agrees with people on {100 * measured['accuracy']:.1f} % "
        f"[{100 * low:.1f}, {100 * high:.1f}] of {measured['n']} answers; {kappa}; "
        f"{measured['judge_errors']} without a judgement"
    )
