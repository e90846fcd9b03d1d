"""What agent, user simulator and execution are told: upstream's texts, or our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.acebench.agent.texts import OWN
from ace_ray.benchmarks.acebench.prompts import fill, problem_of
from ace_ray.errors import UserError
from ace_ray.records import digest

_TURN, _STEP = "multi_turn/common_agent:", "multi_step/common_agent_step:"
_PERSON = "multi_turn/APIModel_user:"
_FAILED = "multi_turn/multi_turn_utils:execute_agent_func_call#0"
_UNSET = "cannot access local variable 'func_call_result' where it is not associated with a value"
"""What CPython 3.11 to 3.13 say of the variable that upstream reads before it is set."""
_FIELDS = {
    "turn_user": {"functions", "history"},
    "step_user": {"functions", "history"},
    "person_phone": {"instruction"},
    "person_travel": {"instruction"},
}


@dataclass(frozen=True)
class AgentTexts:
    """The texts of the agent categories by language and name (those of `texts.OWN`).

    ``source`` is "official" or "own". Finance, which upstream lacks, is always in our own words.
    """

    source: str
    texts: Mapping[str, Mapping[str, str]]

    @property
    def sha256(self) -> str:
        return digest({language: dict(found) for language, found in self.texts.items()})

    def turn(
        self, language: str, classes: Sequence[str], functions: Any, history: str
    ) -> list[dict[str, str]]:
        """The agent's prompt in agent_multi_turn: rules of every involved service, then the
        functions and the transcript."""
        texts = self.texts[language]
        values = {"functions": str(functions), "history": history}
        system = texts["turn_system"] + self._rules(language, classes)
        return _chat(system, fill(texts["turn_user"], values))

    def step(self, language: str, functions: Any, history: str) -> list[dict[str, str]]:
        """The agent's prompt in agent_multi_step."""
        texts = self.texts[language]
        values = {"functions": str(functions), "history": history}
        return _chat(texts["step_system"], fill(texts["step_user"], values))

    def native(self, language: str, category: str, classes: Sequence[str]) -> dict[str, str]:
        """The agent's system message with native tool calling, where a chat follows it."""
        texts = self.texts[language]
        if category == "agent_multi_step":
            return {"role": "system", "content": texts["native_step_system"]}
        system = texts["native_turn_system"] + self._rules(language, classes)
        return {"role": "system", "content": system}

    def _rules(self, language: str, classes: Sequence[str]) -> str:
        texts = self.texts[language]
        rules = [texts["rules_travel"]] if "Travel" in classes else []
        rules += [texts["rules_phone"]] if "BaseApi" in classes else []
        rules += [texts["rules_finance"]] if "Finance" in classes else []
        return "".join(rules)

    def person(self, language: str, classes: Sequence[str], instruction: str) -> dict[str, str]:
        """The system message of the user simulator."""
        texts = self.texts[language]
        kind = "phone" if "BaseApi" in classes else "travel" if "Travel" in classes else "finance"
        content = fill(texts[f"person_{kind}"], {"instruction": instruction})
        return {"role": "system", "content": content}


def own() -> AgentTexts:
    return AgentTexts("own", OWN)


def official(found: Mapping[str, Any], *, where: str) -> AgentTexts:
    """Upstream's texts out of ``prompts.json``. Raises `UserError` naming what is missing."""
    return AgentTexts(
        "official", {language: _of(found, language, where) for language in ("en", "zh")}
    )


def _of(found: Mapping[str, Any], language: str, where: str) -> dict[str, str]:
    upper = language.upper()
    opener = "0" if language == "zh" else "1"
    keys = {
        "turn_system": f"{_TURN}MULTI_TURN_AGENT_PROMPT_SYSTEM_{upper}",
        "turn_user": f"{_TURN}MULTI_TURN_AGENT_PROMPT_USER_{upper}",
        "rules_travel": f"TRAVEL_PROMPT_{upper}",
        "rules_phone": f"BASE_PROMPT_{upper}",
        "step_system": f"{_STEP}MULTI_TURN_AGENT_PROMPT_SYSTEM_{upper}",
        "step_user": f"{_STEP}MULTI_TURN_AGENT_PROMPT_USER_{upper}",
        "person_phone": f"{_PERSON}SYSTEM_PROMPT_BASE_{upper}",
        "person_travel": f"{_PERSON}SYSTEM_PROMPT_TRAVEL_{upper}",
        "opener": f"{_PERSON}get_init_prompt#{opener}",
        "no_questions": "multi_step/execution_role_step:respond#0",
        "turn_failed": _FAILED,
    }
    texts = dict(OWN[language])
    for name, key in keys.items():
        text = found.get(key)
        if name == "turn_failed" and isinstance(text, str):
            problem = ""  # its braces are shown to the model as they are
        else:
            problem = problem_of(text, _FIELDS.get(name, set()))
        if problem:
            raise UserError(
                f"{key} {problem}",
                where=where,
                fix="run `ace-ray data import acebench PATH` again, or choose our own prompts",
            )
        texts[name] = str(text)
    texts["step_failed"] = texts["turn_failed"].partition("{")[0] + "{error}"
    texts["unset"] = _UNSET
    return texts


def _chat(system: str, user: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
