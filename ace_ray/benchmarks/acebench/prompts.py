"""Build the messages of entries that take one model call, and of agent episodes.

Messages are built as in the official inference code. The texts come from the user's copy of the
official texts, or are ace_ray's own (`texts`, `agent_texts`). Texts that upstream lacks (Finance,
native tool calling) are always ace_ray's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.agent_texts import OWN as AGENT_OWN
from ace_ray.benchmarks.acebench.texts import NORMAL_VARIANTS, OWN
from ace_ray.benchmarks.dataset import json_value, read_bounded
from ace_ray.errors import UserError
from ace_ray.types import Entry, digest

VARIANTS = ("standard", *NORMAL_VARIANTS)
OFFICIAL_FILE = Path("upstream", "prompts.json")

_TOKEN = re.compile(r"\{\{|\}\}|\{(time|profile|functions?|question|history|instruction)\}|[{}]")


@dataclass(frozen=True)
class Prompts:
    """One set of prompt texts for entries that take one model call.

    ``source`` is "official", "own" (ace_ray's) or "file" (the user's). ``variant`` is one of
    `VARIANTS`. ``templates`` has the texts by upstream's names. The leaderboard's runs had
    "official" and "standard"."""

    source: str
    variant: str
    templates: Mapping[str, str]

    @property
    def sha256(self) -> str:
        """Hash of all texts, which changes if any text changes."""
        return digest(dict(self.templates))

    def messages(self, entry: Entry) -> list[dict[str, str]]:
        """Return the system and the user message of an entry that takes one model call."""
        language = entry.language.upper()
        special = (name for name in ("special", "preference") if name in entry.category)
        kind = next(special, "normal").upper()
        row = entry.data
        # Values are rendered as upstream does it: the function list by Python's str().
        values = {
            "time": str(row.get("time", "")),
            "profile": str(row.get("profile", "")),
            "function": str(row["function"]),
            "question": str(row["question"]),
        }
        system = self.templates[f"SYSTEM_PROMPT_FOR_{kind}_DATA_{language}"]
        user = self.templates[f"USER_PROMPT_{language}"]
        return [
            {"role": "system", "content": fill(system, values)},
            {"role": "user", "content": fill(user, values)},
        ]


def own_prompts(variant: str = "standard") -> Prompts:
    """Return ace_ray's own prompts. Variants other than "standard" shorten the prompt of the normal
    categories (not of preference and special), after the paper's appendix D.4."""
    return Prompts("own", variant, {**OWN, **NORMAL_VARIANTS.get(variant, {})})


def load_prompts(data_folder: Path, variant: str = "standard") -> Prompts:
    """Read the official texts from ``<data_folder>/upstream/prompts.json``.

    Upstream has only the standard variant. For another ``variant``, the prompt of the normal
    categories is ace_ray's, and the result's ``source`` is "own". Raises `UserError` naming the
    file and the text that is missing or malformed."""
    shorter = NORMAL_VARIANTS.get(variant, {})
    path = data_folder / OFFICIAL_FILE
    upstream = read_texts(path)
    for name in OWN:
        problem = template_problem(upstream.get(name), _fields(name))
        if problem:
            raise UserError(f"{name} {problem}", where=str(path), fix=_FIX)
    texts = {name: upstream[name] for name in OWN}
    return Prompts("own" if shorter else "official", variant, {**texts, **shorter})


def users_texts(source: str | Mapping[str, str]) -> dict[str, str]:
    """Return the user's prompt texts by name: ``source``, or the content of the JSON file with this
    name. Raises `UserError` for a name that `OWN` lacks, and for other placeholders than in `OWN`.
    """
    fix = f"give an object with some of the texts {', '.join(OWN)}"
    location, texts = "benchmarks.acebench.prompt_file", source
    if isinstance(source, str):
        location, texts = source, json_value(read_bounded(Path(source)), Path(source), fix)
    if not isinstance(texts, dict) or not texts:
        raise UserError("has no prompt texts", where=location, fix=fix)
    for name, text in texts.items():
        if name not in OWN:
            raise UserError(f"has the unknown text {name[:80]!r}", where=location, fix=fix)
        if problem := template_problem(text, _fields(name)):
            raise UserError(f"{name} {problem}", where=location, fix="edit this text")
    return texts


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace the known placeholders of ``template`` as `str.format` does, in one pass.

    Placeholders inside values are not replaced. A template is data, so it cannot access attributes
    or items of values."""

    def substitute(match: re.Match[str]) -> str:
        name = match[1]
        return match[0][0] if name is None else values[name]

    return _TOKEN.sub(substitute, template)


_FIX = "run `ace-ray data import acebench PATH` again, or set prompts: own"


def read_texts(path: Path) -> dict[str, Any]:
    """Return the texts in a JSON file by name. Raises `UserError` if it is missing or damaged."""
    if not path.exists():
        raise UserError("no official prompts: no such file", where=str(path), fix=_FIX)
    texts = json_value(read_bounded(path), path, _FIX)
    if not isinstance(texts, dict):
        raise UserError("not a JSON object of prompt texts", where=str(path), fix=_FIX)
    return texts


def template_problem(text: object, expected: set[str]) -> str:
    """Return why ``text`` is not a template with exactly the placeholders ``expected``, or ""."""
    if text is None:
        return "is missing"
    if not isinstance(text, str):
        return "is not a string"
    if re.search("[\ud800-\udfff]", text):
        return "has half of a surrogate pair, which is not Unicode"
    tokens = list(_TOKEN.finditer(text))
    if any(token[0] in ("{", "}") for token in tokens):
        return "has a brace that is neither doubled nor part of a known placeholder"
    if expected != {token[1] for token in tokens if token[1]}:
        names = ", ".join(f"{{{name}}}" for name in sorted(expected))
        return f"must have the placeholders {names} and no other"
    return ""


def _fields(name: str) -> set[str]:
    if name.startswith("USER_"):
        return {"question"}
    return {"profile" if "PREFERENCE" in name else "time", "function"}


_TURN, _STEP = "multi_turn/common_agent:", "multi_step/common_agent_step:"
_PERSON = "multi_turn/APIModel_user:"
_FAILED = "multi_turn/multi_turn_utils:execute_agent_func_call#0"
# Error text of CPython 3.11 to 3.13 for the variable that upstream reads before it is set.
_UNSET = "cannot access local variable 'func_call_result' where it is not associated with a value"
# Class that has a service's tools, and the name of its rules in a prompt, in their order there.
_SERVICES = {"Travel": "travel", "BaseApi": "phone", "Finance": "finance"}
_AGENT_FIELDS = {
    "turn_user": {"functions", "history"},
    "step_user": {"functions", "history"},
    "person_phone": {"instruction"},
    "person_travel": {"instruction"},
}


@dataclass(frozen=True)
class AgentTexts:
    """Prompt texts of the agent categories by language and name (the names of `agent_texts.OWN`).

    ``source`` is "official" or "own" (ace_ray's). The texts of Finance are always ace_ray's."""

    source: str
    texts: Mapping[str, Mapping[str, str]]

    @property
    def sha256(self) -> str:
        return digest({language: dict(texts) for language, texts in self.texts.items()})

    def prompt(self, entry: Entry, history: str) -> list[dict[str, str]]:
        """Return the agent's prompt: the rules, the functions, and the transcript ``history``."""
        kind = "step" if entry.category == "agent_multi_step" else "turn"
        values = {"functions": str(entry.data["function"]), "history": history}
        user = fill(self.texts[entry.language][f"{kind}_user"], values)
        return [self.system(entry), {"role": "user", "content": user}]

    def system(self, entry: Entry, prefix: str = "") -> dict[str, str]:
        """Return the agent's system message, with the rules of every involved service in
        agent_multi_turn. ``prefix`` is "native_" for native tool calling."""
        texts, classes = self.texts[entry.language], entry.data["involved_classes"]
        if entry.category == "agent_multi_step":
            return {"role": "system", "content": texts[f"{prefix}step_system"]}
        rules = [texts[f"rules_{kind}"] for name, kind in _SERVICES.items() if name in classes]
        return {"role": "system", "content": texts[f"{prefix}turn_system"] + "".join(rules)}

    def simulator_system(self, entry: Entry) -> dict[str, str]:
        """Return the system message of the user simulator."""
        texts, classes = self.texts[entry.language], entry.data["involved_classes"]
        kind = "phone" if "BaseApi" in classes else "travel" if "Travel" in classes else "finance"
        values = {"instruction": str(entry.data["question"])}
        return {"role": "system", "content": fill(texts[f"person_{kind}"], values)}


def official_agents(data_folder: Path) -> AgentTexts:
    """Read the official texts from ``<data_folder>/upstream/prompts.json``. Raises `UserError`
    naming a text that is missing or malformed."""
    path = data_folder / OFFICIAL_FILE
    upstream = read_texts(path)
    texts = {language: _texts_of(upstream, language, str(path)) for language in ("en", "zh")}
    return AgentTexts("official", texts)


def _texts_of(upstream: Mapping[str, Any], language: str, location: str) -> dict[str, str]:
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
    texts = dict(AGENT_OWN[language])
    for name, key in keys.items():
        text = upstream.get(key)
        if name == "turn_failed" and isinstance(text, str):
            problem = ""  # upstream shows its braces to the model unchanged
        else:
            problem = template_problem(text, _AGENT_FIELDS.get(name, set()))
        if problem:
            raise UserError(f"{key} {problem}", where=location, fix=_FIX)
        texts[name] = str(text)
    texts["step_failed"] = texts["turn_failed"].partition("{")[0] + "{error}"
    texts["unset"] = _UNSET
    return texts
