"""The judge's prompts: ace_ray's own, or upstream's read from the user's checkout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.dataset import (
    SOURCE_LIMIT_BYTES,
    assigned_text,
    python_tree,
    read_inside,
)
from ace_ray.benchmarks.stabletoolbench.judge import texts
from ace_ray.benchmarks.stabletoolbench.judge.material import broken_up, cut, one_line, trace
from ace_ray.errors import UserError
from ace_ray.records import digest

TEMPLATE = "toolbench/tooleval/evaluators/tooleval_gpt-3.5-turbo_default/template.txt"
FAC_SOURCE = "toolbench/tooleval/fac_eval.py"
MAX_FINAL_ANSWER = 1_000
"""Upstream compares only so much of final answers (``registered_cls/base.py``)."""
_FUNCTION = re.compile(
    r"<name>(\w++)</name>\s*+<description>((?:(?!</?description>).)*+)</description>", re.DOTALL
)
_SLOT = re.compile(r"\{(query|answer|answer_0|answer_1|data)\}")
_FIX = "point it at a checkout of THUNLP-MT/StableToolBench"


@dataclass(frozen=True, slots=True)
class Prompts:
    """Texts with slots: ``{data}`` in our own, ``{query}`` and ``{answer}`` in upstream's.

    ``source`` is ``own`` or ``upstream``. A final answer is Finish's arguments as the model wrote
    them, as upstream shows it.
    """

    source: str
    answer_status: str
    trace_status: str
    fac: str
    better: str

    @property
    def sha256(self) -> str:
        return digest(self.answer_status, self.trace_status, self.fac, self.better)

    def of_answer(self, query: str, final: str, limit: int) -> str:
        """SoPR's first question."""
        return _filled(self.answer_status, _pair(query, final, limit))

    def of_fac(self, query: str, final: str, limit: int) -> str:
        return _filled(self.fac, _pair(query, final, limit))

    def of_trace(self, query: str, answer: Mapping[str, Any], final: str, limit: int) -> str:
        """SoPR's second question, with the execution of a converted answer."""
        shown = {"final_answer": cut(final, limit // 4), "execution": trace(answer, limit)}
        return _filled(self.trace_status, {"query": cut(query, limit // 4), "answer": shown})

    def of_two(self, query: str, answers: list[Mapping[str, Any]], limit: int) -> str:
        """Which of two converted answers is the better one, 0 or 1."""
        shown = {
            f"answer_{place}": {
                "final_answer": _raw(answer)[:MAX_FINAL_ANSWER],
                "total_steps": _steps(answer),
                "execution": trace(answer, limit // 2),
            }
            for place, answer in enumerate(answers)
        }
        return _filled(self.better, {"query": cut(query, limit // 4), **shown})


def own() -> Prompts:
    return Prompts("own", texts.ANSWER_STATUS, texts.TRACE_STATUS, texts.FAC, texts.BETTER)


def official(upstream: Path, where: str = "upstream") -> Prompts:
    """Upstream's wording, with a line on the form of the reply where upstream forces a function
    call. Its files are read as text, nothing of them runs.

    Raises:
        UserError: naming ``where``, the config's key: a file or a text in it is missing.
    """
    template = _text(upstream, TEMPLATE, where)
    found = dict(_FUNCTION.findall(template))
    names = ("check_answer_status", "parse_answer_status", "select_better_answer")
    for name in names:
        if name not in found:
            raise UserError(f"{TEMPLATE} has no {name}", where=where, fix=_FIX)
    answer, executed, better = (found[name] for name in names)
    return Prompts(
        "upstream",
        answer + texts.AFTER_OFFICIAL_STATUS,
        executed + texts.AFTER_OFFICIAL_STATUS,
        _fac_prompt(upstream, where),
        better + texts.AFTER_OFFICIAL_INDEX,
    )


def _fac_prompt(upstream: Path, where: str) -> str:
    try:
        tree = python_tree(_text(upstream, FAC_SOURCE, where).encode())
    except ValueError as error:
        raise UserError(f"{FAC_SOURCE} is no Python", where=where, fix=_FIX) from error
    text = assigned_text(tree, "PROMPT")
    if text is None:
        raise UserError(f"{FAC_SOURCE} has no PROMPT", where=where, fix=_FIX)
    return text


def _text(upstream: Path, relative: str, where: str) -> str:
    try:
        return read_inside(upstream, relative, SOURCE_LIMIT_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{relative} is no UTF-8", where=where, fix=_FIX) from error
    except UserError as error:
        raise UserError(f"{error.where} {error.what}", where=where, fix=_FIX) from error


def _pair(query: str, final: str, limit: int) -> dict[str, Any]:
    return {"query": cut(query, limit // 4), "answer": cut(final, limit // 4)}


def _filled(template: str, values: Mapping[str, Any]) -> str:
    """One pass, so that a slot's name inside of a value stays text."""

    def fill(slot: re.Match[str]) -> str:
        if slot[1] == "data":
            return one_line(values)
        value = values.get(slot[1], "")
        return broken_up(value) if isinstance(value, str) else one_line(value)

    return _SLOT.sub(fill, template)


def _raw(answer: Mapping[str, Any]) -> str:
    raw = answer.get("final_answer")
    return raw if isinstance(raw, str) else ""


def _steps(answer: Mapping[str, Any]) -> int | None:
    steps = answer.get("total_steps")
    return steps if isinstance(steps, int) else None
