"""The browsable sample of wrong answers: each beside the gold answer, with what was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.results import Table
from ace_ray.reports.html.page import LONGEST, Section
from ace_ray.reports.text import pretty, shown, shown_json
from ace_ray.reports.wrong import CategorySample, GoldAnswers, WrongAnswer, WrongAnswers

TEXT = LONGEST
"""Characters of an answer, a gold answer, a state or a message."""
MESSAGES = 16_000
"""Characters of all messages of an answer."""
MOST_MESSAGES = 500
"""Maximum messages of an answer; `MESSAGES` does not bound empty ones."""
_REASON = 1_000


def answers(sample: WrongAnswers, gold: GoldAnswers, rule_sets: Sequence[str]) -> Section:
    """The section; ``choices`` are what its filters offer."""
    views = list(sample.each(lambda answer: _view(answer, gold, rule_sets)))
    wrong = [view["answer"] for view in views]
    view = {
        "answers": views,
        "choices": {
            "runs": list(dict.fromkeys(answer.run for answer in wrong)),
            "languages": list(dict.fromkeys(answer.language for answer in wrong)),
            "categories": list(dict.fromkeys(answer.category for answer in wrong)),
            "types": {rules: _error_types(wrong, rules) for rules in rule_sets},
        },
        "counts": _counts(sample.categories),
        "wrong": sum(category.wrong for category in sample.categories),
        "missing": gold.missing,
    }
    return Section("answers", "Wrong answers", "answers.html.j2", view)


def _error_types(answers: Sequence[WrongAnswer], rules: str) -> list[str]:
    judgements = [j for answer in answers for j in answer.judgements if j.rules == rules]
    return sorted({j.error_type for j in judgements if not j.valid})


def _counts(categories: Sequence[CategorySample]) -> Table:
    return Table(
        name="wrong",
        title="Wrong answers by category",
        header=["Model", "Language", "Category", "Wrong", "Shown", "Left out"],
        lines=[
            [one.run, one.language, one.category, one.wrong, one.shown, one.wrong - one.shown]
            for one in categories
        ],
    )


def _view(answer: WrongAnswer, gold: GoldAnswers, rule_sets: Sequence[str]) -> dict[str, Any]:
    """``gold`` is None where the data is not at hand. ``wrong`` names the rule sets under which the
    answer is wrong, ``types`` each with its error type."""
    by_rules = {judgement.rules: judgement for judgement in answer.judgements}
    ordered = [by_rules[rules] for rules in rule_sets if rules in by_rules]
    key = (answer.benchmark, answer.language, answer.category, answer.id)
    expected = gold.of(answer.run, key)
    messages = _messages(answer.messages)
    return {
        "answer": _without_texts(answer),
        "messages": messages,
        "left_out": len(answer.messages) - len(messages),
        "output": shown(answer.output, TEXT),
        "reasoning": shown(answer.reasoning, TEXT) if answer.reasoning else None,
        "state": None if answer.state is None else shown_json(answer.state, TEXT),
        "gold": None if expected is None else shown(pretty(expected[0]), TEXT),
        "judgements": [
            {
                "rules": j.rules,
                "valid": j.valid,
                "error_type": j.error_type,
                "reason": shown(j.reason, _REASON),
            }
            for j in ordered
        ],
        "wrong": [j.rules for j in ordered if not j.valid],
        "types": [f"{j.rules} {j.error_type}" for j in ordered if not j.valid],
    }


def _without_texts(answer: WrongAnswer) -> WrongAnswer:
    judgements = [replace(judgement, reason="") for judgement in answer.judgements]
    texts: dict[str, Any] = {"messages": (), "output": "", "reasoning": "", "state": None}
    return replace(answer, judgements=judgements, **texts)


def _messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """As many of the first messages as there is room for.

    ``open``: shown at once; instructions and lists of functions are long and alike.
    """
    views: list[dict[str, Any]] = []
    room = MESSAGES
    for message in messages[:MOST_MESSAGES]:
        if room <= 0:
            break
        text = shown(_text(message), min(TEXT, room))
        room -= text.size
        role = str(message.get("role", ""))
        views.append({"role": role, "text": text, "open": role != "system"})
    return views


def _text(message: Mapping[str, Any]) -> str:
    """What a message says; of an answer in native mode the model's own text, calls and all."""
    if "text" in message:
        return pretty(message["text"])
    parts = [message[key] for key in ("content", "tool_calls") if message.get(key)]
    return "\n".join(map(pretty, parts))
