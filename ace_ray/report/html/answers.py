"""The browsable sample of wrong answers: each beside the gold answer, with what was asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.reporting import Table
from ace_ray.report.gold import GoldAnswers
from ace_ray.report.html.page import Section
from ace_ray.report.text import Shown, pretty, shown, shown_json
from ace_ray.report.wrong import Taken, WrongAnswer, WrongAnswers

TEXT = 4_000
"""Characters of an answer, a gold answer, a state or a message."""
MESSAGES = 16_000
"""Characters of all messages of an answer."""
_REASON = 1_000


@dataclass(frozen=True, slots=True)
class MessageView:
    """``open``: shown at once; instructions and lists of functions are long and alike."""

    role: str
    text: Shown
    open: bool


@dataclass(frozen=True, slots=True)
class JudgementView:
    rules: str
    valid: bool
    error_type: str
    reason: Shown


@dataclass(frozen=True, slots=True)
class AnswerView:
    """``gold`` is None where the data is not at hand. ``wrong`` names the rule sets under which the
    answer is wrong, ``types`` each with its error type."""

    answer: WrongAnswer
    messages: Sequence[MessageView]
    left_out: int
    output: Shown
    reasoning: Shown | None
    state: Shown | None
    gold: Shown | None
    judgements: Sequence[JudgementView]
    wrong: Sequence[str]
    types: Sequence[str]


@dataclass(frozen=True, slots=True)
class Choices:
    """What the filters offer."""

    runs: Sequence[str]
    languages: Sequence[str]
    categories: Sequence[str]
    types: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class AnswersView:
    answers: Sequence[AnswerView]
    choices: Choices
    counts: Table
    wrong: int
    missing: Mapping[str, str]


def answers(found: WrongAnswers, gold: GoldAnswers, rule_sets: Sequence[str]) -> Section:
    views = [_view(answer, gold, rule_sets) for answer in found]
    view = AnswersView(
        views,
        _choices(views, rule_sets),
        _counts(found.taken),
        sum(taken.wrong for taken in found.taken),
        gold.missing,
    )
    return Section("answers", "Wrong answers", "answers.html.j2", view)


def _counts(taken: Sequence[Taken]) -> Table:
    return Table(
        name="wrong",
        title="Wrong answers by category",
        header=["Model", "Language", "Category", "Wrong", "Shown", "Left out"],
        lines=[
            [one.run, one.language, one.category, one.wrong, one.shown, one.wrong - one.shown]
            for one in taken
        ],
    )


def _view(answer: WrongAnswer, gold: GoldAnswers, rule_sets: Sequence[str]) -> AnswerView:
    by_rules = {judgement.rules: judgement for judgement in answer.judgements}
    ordered = [by_rules[rules] for rules in rule_sets if rules in by_rules]
    key = (answer.benchmark, answer.language, answer.category, answer.id)
    known = gold.of(answer.run, key)
    messages = _messages(answer.messages)
    return AnswerView(
        answer=answer,
        messages=messages,
        left_out=len(answer.messages) - len(messages),
        output=shown(answer.output, TEXT),
        reasoning=shown(answer.reasoning, TEXT) if answer.reasoning else None,
        state=None if answer.state is None else shown_json(answer.state, TEXT),
        gold=None if known is None else shown(pretty(known[0]), TEXT),
        judgements=[
            JudgementView(j.rules, j.valid, j.error_type, shown(j.reason, _REASON)) for j in ordered
        ],
        wrong=[j.rules for j in ordered if not j.valid],
        types=[f"{j.rules} {j.error_type}" for j in ordered if not j.valid],
    )


def _messages(messages: Sequence[Mapping[str, Any]]) -> list[MessageView]:
    """As many of the first messages as there is room for."""
    views: list[MessageView] = []
    room = MESSAGES
    for message in messages:
        if room <= 0:
            break
        text = shown(_text(message), min(TEXT, room))
        room -= text.size
        role = str(message.get("role", ""))
        views.append(MessageView(role, text, role != "system"))
    return views


def _text(message: Mapping[str, Any]) -> str:
    """What a message says; of an answer in native mode the model's own text, calls and all."""
    if "text" in message:
        return pretty(message["text"])
    said = [message[key] for key in ("content", "tool_calls") if message.get(key)]
    return "\n".join(map(pretty, said))


def _choices(views: Sequence[AnswerView], rule_sets: Sequence[str]) -> Choices:
    def names(values: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(values))

    types = {
        rules: sorted(
            {j.error_type for v in views for j in v.judgements if j.rules == rules and not j.valid}
        )
        for rules in rule_sets
    }
    return Choices(
        names(view.answer.run for view in views),
        names(view.answer.language for view in views),
        names(view.answer.category for view in views),
        types,
    )
