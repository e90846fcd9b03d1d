"""Choose vLLM's parsers for a model by its family, which the model's files identify.

Marks in the chat template take precedence over the architecture and the model type, since a
fine-tuned model may use another format. This module does not import vLLM."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ace_ray.config.roles import ServedRole
from ace_ray.errors import UserError
from ace_ray.models.parser_plugins import load_plugin, plugin_sha256

# Template variables that tell vLLM's parsers whether an answer begins with reasoning.
SWITCHES = ("enable_thinking", "thinking")
# Marks in a chat template -> the tool parser of their format.
_TOOL_MARKS: tuple[tuple[str, str], ...] = (
    ("<arg_key>", "glm45"),
    ("<function=", "qwen3_coder"),
    ("<|tool_calls_section_begin|>", "kimi_k2"),
    ("<｜tool▁calls▁begin｜>", "deepseek_v3"),
    ("<minimax:tool_call>", "minimax_m2"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama3_json"),
    ("<|tool_call>", "gemma4"),
    ("<start_function_call>", "functiongemma"),
    ("<function_calls>", "olmo3"),
    ("<|START_ACTION|>", "cohere_command3"),
    ("<seed:tool_call>", "seed_oss"),
    ("<|tool_call_start|>", "lfm2"),
    ("<|tool|>", "phi4_mini_json"),
    ("<|start_of_role|>", "granite"),
    ("<|channel|>", "openai"),
)

# Marks of Llama 3.2's templates, which lack ``<|python_tag|>`` though its tokenizer has it.
_LLAMA = ("<|start_header_id|>", '"parameters": ')
# Tool parsers of model types without a template, or whose template lacks a mark.
_TOOL_TYPES = {
    "gpt_oss": "openai",
    "deepseek_v32": "deepseek_v32",
    "deepseek_v4": "deepseek_v4",
    "llama4": "llama4_pythonic",
    "kimi_k3": "kimi_k3",
    "kimi_k2": "kimi_k2",
    "mistral": "mistral",
    "mistral3": "mistral",
    "phi4": "phi4_mini_json",
    "xlam": "xlam",
}

_GLM47 = ("glm4_moe_lite", "glm_moe_dsa", "glm5")
_REASONING_TYPES = {
    "gpt_oss": "openai_gptoss",
    "deepseek_v32": "deepseek_v3",
    "deepseek_v4": "deepseek_v4",
    "kimi_k3": "kimi_k3",
    "nemotron_h": "nemotron_v3",
    "seed_oss": "seed_oss",
    "minimax_m2": "minimax_m2",
}
# Model types whose chats vLLM renders by code.
_ENCODED = ("gpt_oss", "deepseek_v32", "deepseek_v4", "kimi_k3")
_SWITCH = re.compile(r"\b(enable_thinking|thinking)\b")


@dataclass(frozen=True)
class FamilyFacts:
    """Facts about a model's family, from its files."""

    templates: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    model_type: str = ""
    tekken: bool = False
    """Whether the model is stored in Mistral's format, which has no chat template."""
    thinks: bool = False
    """Whether a model in Mistral's format has tokens for reasoning."""

    @property
    def writes_by_code(self) -> bool:
        """Whether vLLM renders chats with an encoder and ignores the template."""
        return self.tekken or self.model_type in _ENCODED

    @property
    def reads_date(self) -> bool:
        """Whether prompts contain the current date."""
        if self.writes_by_code:
            return self.model_type == "gpt_oss"
        return any("strftime_now" in text for text in self.templates)

    @property
    def reads_reasoning(self) -> bool:
        """Whether prompts may contain the reasoning of earlier answers."""
        if self.tekken:
            return self.thinks
        return self.writes_by_code or any(
            re.search(r"\breasoning(_content)?\b", text) for text in self.templates
        )


@dataclass(frozen=True)
class ModelFiles:
    """The small files of a model, which a plan reads once.

    ``folder``: local folder; None for a model without files. ``config``: its config.json."""

    folder: Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: FamilyFacts = field(default_factory=FamilyFacts)

    def context(self, max_model_len: Any) -> int | None:
        """Return the context length in tokens; None if only vLLM knows it. ``max_model_len`` is the
        engine argument of this name."""
        text = self.config.get("text_config")
        inner = text if isinstance(text, dict) else self.config
        length = inner.get("max_position_embeddings") if max_model_len is None else max_model_len
        # vLLM also accepts -1, with which it chooses the length.
        return length if isinstance(length, int) and length > 0 else None


@dataclass(frozen=True)
class FormatChoice:
    """Format of a model: how chats are rendered and answers are parsed."""

    reasoning_parser: str = "auto"
    """A parser of vLLM, ``auto`` (removes ``<think>`` blocks) or ``none``."""
    tool_parser: str | None = None
    """A parser of vLLM; None: tools cannot be offered."""
    chat_template: str | None = None
    """Text of a template that replaces the model's."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[tuple[str, str], ...] = ()
    """(name, text) of files with further parsers."""
    start_date: str | None = None
    """The date in prompts that contain one."""

    @property
    def vllm_reasoning_parser(self) -> str | None:
        """Name of the reasoning parser if it is one of vLLM's, else None."""
        return None if self.reasoning_parser in ("auto", "none") else self.reasoning_parser

    @property
    def identity(self) -> dict[str, Any]:
        """Settings that determine the prompts and the parsing of answers, as JSON values.

        Template variables and tool parser are not included. Defaults are omitted, so that a new key
        does not change existing ids."""
        identity: dict[str, Any] = {"reasoning_parser": self.reasoning_parser}
        if self.chat_template is not None:
            text = self.chat_template.encode()
            identity["chat_template_sha256"] = hashlib.sha256(text).hexdigest()
        if self.plugins:
            identity["plugins"] = [plugin_sha256(text) for _, text in self.plugins]
        if self.start_date is not None:
            identity["start_date"] = self.start_date
        return identity

    def load_plugins(self) -> None:
        """Register the plugin files' parsers with vLLM. Raises `UserError` if a file fails."""
        for name, text in self.plugins:
            load_plugin(name, text)


def date_variables(date: str | None) -> dict[str, Any]:
    """Return the template variable that sets the date to ``date``; {} for None (today's date)."""
    return {"strftime_now": datetime.fromisoformat(date).strftime} if date else {}


def family_facts(folder: Path, tokenizer_mode: str = "auto") -> FamilyFacts:
    """Read the facts of a model folder. Missing or unreadable files are ignored.

    ``tokenizer_mode`` is the engine argument of this name."""
    templates: list[Any] = []
    for name in ("tokenizer_config.json", "chat_template.json"):
        listed = read_json(folder / name).get("chat_template")
        variants = listed if isinstance(listed, list) else [listed]
        templates += [t.get("template") if isinstance(t, dict) else t for t in variants]
    for path in (folder / "chat_template.jinja", *sorted(folder.glob("*_chat_templates/*.jinja"))):
        templates.append(_text(path))
    config = read_json(folder / "config.json")
    is_mistral = _is_mistral(folder, tokenizer_mode)
    names = config.get("architectures")
    return FamilyFacts(
        tuple(text for text in templates if isinstance(text, str) and text),
        tuple(map(str, names)) if isinstance(names, list) else (),
        str(config.get("model_type", "")),
        is_mistral,
        is_mistral and "[THINK]" in _text(folder / "tekken.json"),
    )


def _is_mistral(folder: Path, tokenizer_mode: str) -> bool:
    """Return whether vLLM reads the folder in Mistral's format (``vllm/tokenizers/registry.py``).

    For ``tokenizer_mode`` "auto" the folder needs Mistral's tokenizer, and Mistral's weights or
    ``params.json``. Without ``tokenizer_config.json`` the tokenizer suffices."""
    tokenizers = any(folder.glob("tekken.json")) or any(folder.glob("tokenizer.model.v*"))
    if tokenizer_mode != "auto" or not tokenizers:
        return tokenizers and tokenizer_mode == "mistral"
    weights = any(folder.glob("consolidated*.safetensors")) or (folder / "params.json").is_file()
    return weights or not (folder / "tokenizer_config.json").is_file()


def tool_parsers(facts: FamilyFacts) -> list[str]:
    """Return the tool parsers that may fit the model. The list has one name if the fit is clear."""
    text = "\n".join(facts.templates)
    hits = list(dict.fromkeys(parser for mark, parser in _TOOL_MARKS if mark in text))
    if facts.tekken:
        hits = ["mistral"]
    elif facts.model_type in _TOOL_TYPES and (facts.writes_by_code or not hits):
        hits = [_TOOL_TYPES[facts.model_type]]
    if "glm45" in hits and facts.model_type in _GLM47:
        hits[hits.index("glm45")] = "glm47"
    # DeepSeek V3 writes arguments as a fenced JSON block, V3.1 does not.
    if "deepseek_v3" in hits and "```json" not in text:
        hits[hits.index("deepseek_v3")] = "deepseek_v31"
    if hits == ["granite"] and "<tool_call>" in text:
        hits = ["granite4"]
    if not hits and "<tool_call>" in text:
        hits = ["hermes"]
    if not hits and all(mark in text for mark in _LLAMA):
        hits = ["llama3_json"]
    if not hits and any("Llama4" in name for name in facts.architectures):
        hits = ["llama4_pythonic"]
    return hits


def reasoning_parser(facts: FamilyFacts) -> str:
    """Return vLLM's reasoning parser for the model, or "auto" if the choice is not clear.

    A template must open a reasoning block or have a switch for reasoning. For other models some
    parsers would read a full answer as reasoning."""
    text = "\n".join(facts.templates)
    if facts.tekken:
        return "mistral" if facts.thinks else "auto"
    if facts.model_type in _REASONING_TYPES and (facts.writes_by_code or "think" in text):
        return _REASONING_TYPES[facts.model_type]
    switch = _SWITCH.search(text) is not None
    think = "<think>" in text or "</think>" in text
    hits = {
        "glm47" if facts.model_type in _GLM47 else "glm45": "[gMASK]" in text and think,
        "kimi_k2": "<|im_middle|>" in text and think,
        "deepseek_v3": "<｜Assistant｜>" in text and think and switch,
        "deepseek_r1": "<｜Assistant｜><think>" in text and not switch,
        "minimax_m2": "]~b]" in text and think,
        "granite": "<|start_of_role|>" in text and switch,
        "gemma4": ("<|tool_call>" in text or "<|think|>" in text) and switch,
        "openai_gptoss": "<|channel|>" in text,
        "mistral": "[THINK]" in text,
        "seed_oss": "<seed:think>" in text,
        "olmo3": "<function_calls>" in text and think,
        "cohere_command3": "<|START_THINKING|>" in text,
        "qwen3": "<|im_start|>" in text
        and think
        and (switch or bool(re.search(r"<\|im_start\|>assistant(\\n|\n)<think>", text))),
    }
    parsers = [name for name, hit in hits.items() if hit]
    # Other families use the same marks as these two parsers, and additional ones.
    for common in ("qwen3", "deepseek_r1"):
        if len(parsers) > 1 and common in parsers:
            parsers.remove(common)
    return parsers[0] if len(parsers) == 1 else "auto"


def resolve_parsers(role: ServedRole, facts: FamilyFacts, *, calls: bool) -> ServedRole:
    """Return ``role`` with ``auto`` replaced by the parsers of the model's family. ``calls``:
    whether the role is offered tools; if not, it gets no tool parser. Raises `UserError` if a tool
    parser is needed and the family is unknown."""
    model = role.model
    parsers: dict[str, str | None] = {}
    if model.reasoning_parser == "auto" and not role.engine.get("reasoning_parser"):
        parsers["reasoning_parser"] = reasoning_parser(facts)
    if model.tool_parser == "auto":
        parsers["tool_parser"] = choose_tool_parser(facts, str(model.source)) if calls else None
    return role.model_copy(update={"model": model.model_copy(update=parsers)})


def choose_tool_parser(facts: FamilyFacts, source: str, *, instead: str = "") -> str:
    """Return the only tool parser that fits the model. Raises `UserError` if none or several fit.
    The error names the parsers that fit, and ends with ``instead``."""
    hits = tool_parsers(facts)
    if len(hits) == 1:
        return hits[0]
    problem, fix = "has no known format of tool calls", "name vLLM's parser of the family"
    if names := ", ".join(hits):
        problem, fix = f"has marks of several formats: {names}", f"name one of them: {names}"
    problem, fix = f"the chat template of {source} {problem}", fix + instead
    raise UserError(problem, where="model.tool_parser", fix=fix)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if it cannot be read."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
