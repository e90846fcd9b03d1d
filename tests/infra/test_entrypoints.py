"""Commands and flags that the infrastructure and the documentation name exist."""

import re
import shlex
from pathlib import Path

import click

from ace_ray.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    file
    for folder in ("infra", "jobs", "docs")
    for file in sorted((ROOT / folder).rglob("*"))
    if file.is_file() and file.suffix in (".yaml", ".md", ".py", ".Dockerfile", ".json")
] + [ROOT / "README.md"]


def commands(text: str) -> list[list[str]]:
    """Return the calls of ``ace-ray`` in code, comments and manifests, as words."""
    joined = re.sub(r"\\\n\s*#?\s*", " ", text)
    calls = re.findall(r"(?m)(?:^|[#$`:]|-- |\|\| )\s*(ace-ray [^\n`#;]*)", joined)
    return [shlex.split(re.sub("['\"]", "", call)) for call in calls]


def test_commands_and_flags_exist() -> None:
    called = [(file, words) for file in TEXTS for words in commands(file.read_text())]
    assert {"evaluate", "submit", "doctor", "report", "score"} <= {words[1] for _, words in called}
    for file, words in called:
        command: click.Command = cli
        arguments = words[1:]
        while isinstance(command, click.Group) and arguments and arguments[0] in command.commands:
            command = command.commands[arguments.pop(0)]
        if command is cli:
            continue  # a sentence about ace-ray
        flags = {o for p in command.params for o in [*p.opts, *p.secondary_opts]} | {"--help"}
        for word in arguments:
            if word.startswith("--"):
                flag = word.partition("=")[0].rstrip(".,)")
                assert flag in flags, f"{file}: {shlex.join(words)}"
