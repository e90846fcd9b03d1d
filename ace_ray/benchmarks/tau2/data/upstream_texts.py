"""The texts of upstream's prompts, out of the sources and guidelines of the user's copy; nothing is
run. Upstream fills them with ``str.format``."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ace_ray.benchmarks.dataset import python_tree
from ace_ray.benchmarks.tau2.data.upstream_package import (
    AGENT_SOURCE,
    GREETING_SOURCE,
    GUIDELINES,
    GUIDELINES_WITH_TOOLS,
    UPSTREAM,
    USER_SOURCE,
    UpstreamPackage,
)
from ace_ray.errors import UserError
from ace_ray.types import digest

_FIX = f"use an unmodified copy: {UPSTREAM.get_data}"
_FIELD = re.compile(r"\{(\w+)\}")
DONE = "done"
"""The tool by which a solo agent ends (upstream ``LLMSoloAgent.STOP_FUNCTION_NAME``)."""
STOP = "###STOP###"
ENDS = (STOP, "###TRANSFER###", "###OUT-OF-SCOPE###")
"""What a user says to end (upstream ``user/base.py``)."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Upstream's, as they are in its files."""

    agent: str
    agent_system: str
    solo: str
    solo_system: str
    user_system: str
    guidelines: str
    guidelines_with_tools: str
    greeting: str

    @property
    def sha256(self) -> str:
        return digest(asdict(self))

    def agent_prompt(self, policy: str) -> str:
        """The agent's system message."""
        return filled(self.agent_system, agent_instruction=self.agent, domain_policy=policy)

    def solo_prompt(self, policy: str, ticket: str) -> str:
        """The system message of an agent without a user."""
        asked = filled(self.solo, stop_function_name=DONE, stop_token=STOP)
        return filled(
            self.solo_system, agent_instruction=asked, domain_policy=policy, ticket=ticket
        )

    def user_prompt(self, scenario: str, *, tools: bool) -> str:
        """The user simulator's system message."""
        guidelines = self.guidelines_with_tools if tools else self.guidelines
        return filled(
            self.user_system, global_user_sim_guidelines=guidelines, instructions=scenario
        )


def filled(template: str, **values: str) -> str:
    """``template`` with ``{name}`` replaced, in one pass. Raises `UserError` for another name."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise UserError(f"a prompt has the field {match[0]}", where="data", fix=_FIX)
        return values[match[1]]

    return _FIELD.sub(value, template)


def read_texts(package: UpstreamPackage) -> Texts:
    """Raises `UserError` naming the file in which a text is missing."""
    agent = _Source(package, AGENT_SOURCE)
    user = _Source(package, USER_SOURCE)
    return Texts(
        agent=agent.text("AGENT_INSTRUCTION"),
        agent_system=agent.text("SYSTEM_PROMPT"),
        solo=agent.text("AGENT_SOLO_INSTRUCTION"),
        solo_system=agent.text("SYSTEM_PROMPT_SOLO"),
        user_system=user.text("SYSTEM_PROMPT"),
        guidelines=read_text(package, GUIDELINES),
        guidelines_with_tools=read_text(package, GUIDELINES_WITH_TOOLS),
        greeting=_Source(package, GREETING_SOURCE).text("DEFAULT_FIRST_AGENT_MESSAGE"),
    )


def read_text(package: UpstreamPackage, path: str) -> str:
    """A text file of the copy. Raises `UserError`."""
    try:
        # As upstream's text mode reads it.
        return package.read(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        where = package.where(path)
        raise UserError(f"is no UTF-8 ({error.reason})", where=where, fix=_FIX) from error


class _Source:
    def __init__(self, package: UpstreamPackage, path: str) -> None:
        self._where = package.where(path)
        try:
            tree = python_tree(package.read(path))
        except ValueError as error:
            what = f"is not Python source that can be read ({error})"
            raise UserError(what, where=self._where, fix=_FIX) from error
        self._values: Mapping[str, ast.expr] = {
            to.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for to in node.targets
            if isinstance(to, ast.Name)
        }

    def text(self, name: str) -> str:
        """The text that the module assigns to ``name``: a literal, one that is stripped, or the
        content of a message."""
        node = self._values.get(name)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr == "strip" and not node.args:
                inner = called.value
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    return inner.value.strip()
            for keyword in node.keywords:
                content = keyword.value
                if keyword.arg == "content" and isinstance(content, ast.Constant):
                    return str(content.value)
        raise UserError(f"has no text {name}", where=self._where, fix=_FIX)
