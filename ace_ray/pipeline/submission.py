"""Build the job that `ace-ray submit` sends: one call of ``jobs/*.py``.

The id of a submission is a hash of the resolved config and the number of the attempt, so that the
same config finds the job that runs it. The cluster's dashboard shows the command to everyone: a
config that holds a secret is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import ace_ray
from ace_ray.benchmarks.registry import check_source, is_local, local_parts
from ace_ray.config.schema import RunConfig, config_path, config_text, read_tree
from ace_ray.errors import UserError
from ace_ray.pipeline.planning.requested_run import asked_run
from ace_ray.storage.object_store import is_relative
from ace_ray.util import log
from ace_ray.util.secrets import masked

CHECKOUT = Path(ace_ray.__file__).resolve().parents[1]

TEXT_BYTES = 100_000
"""An entrypoint is one argument of a shell, which takes 128 KiB."""

LEFT_OUT = (
    "/.git", "/.venv", "/runs", "__pycache__", ".aws", ".docker", ".env*", "*.env", ".kube",
    ".netrc", ".npmrc", ".pypirc", ".ssh", "*.key", "*.p12", "*.pem", "credentials",
    "credentials.json", "id_ed25519*", "id_rsa*", "secrets", "service-account*.json",
)  # fmt: skip
"""Patterns, as in a .gitignore, of files that a job does not need and of files that hold keys by
their names. Ray leaves out what the checkout's ``.gitignore`` names."""


@dataclass(frozen=True)
class Submission:
    """A job that may be sent many times, one attempt after another."""

    job: str
    """``evaluate`` or ``sweep``: the file in ``jobs/``."""
    arguments: tuple[str, ...]
    checkout: Path
    excludes: tuple[str, ...]
    digest: str
    """SHA-256 (hex) of the job and its resolved config."""
    facts: Mapping[str, str]

    @property
    def name(self) -> str:
        """Common prefix of the ids of all attempts."""
        return f"ace-ray-{self.job}-{self.digest[:12]}"

    def id(self, attempt: int) -> str:
        return f"{self.name}-{attempt}"

    @property
    def entrypoint(self) -> str:
        """Shell command, run in a copy of the checkout."""
        return shlex.join(self._words)

    @property
    def _words(self) -> tuple[str, ...]:
        return ("python", f"jobs/{self.job}.py", *self.arguments)

    @property
    def runtime_env(self) -> dict[str, Any]:
        return {"working_dir": str(self.checkout), **self._environment}

    @property
    def _environment(self) -> dict[str, Any]:
        # The driver and the actors use the log settings of this command.
        variables = log.environment()
        named = {"env_vars": variables} if variables else {}
        return {"excludes": list(self.excludes), **named}

    def metadata(self, attempt: int) -> dict[str, str]:
        return {**self.facts, "attempt": str(attempt)}

    def command(self, address: str | None, attempt: int = 1) -> str:
        """The ``ray job submit`` call that does the same, for a POSIX shell."""
        words = ["ray", "job", "submit"]
        if address is not None:
            words += ["--address", address]
        words += ["--submission-id", self.id(attempt)]
        words += ["--metadata-json", json.dumps(self.metadata(attempt))]
        words += ["--working-dir", str(self.checkout)]
        words += ["--runtime-env-json", json.dumps(self._environment)]
        return shlex.join([*words, "--", *self._words])


def make_submission(
    job: str,
    config: str,
    *,
    overrides: Sequence[str] = (),
    output: str | None = None,
    limit: int | None = None,
    ids: Sequence[str] = (),
    checkout: Path = CHECKOUT,
) -> Submission:
    """Return the submission of ``config`` to ``jobs/{job}.py``.

    A config that git tracks in the checkout's ``configs/`` travels with it; any other one as text.

    Raises:
        UserError: a bad config, one that holds a secret, an output that a job's end would take
            along, checkpoints that a job's folder does not hold, or a checkout that is none.
    """
    untracked = _check_checkout(job, checkout)
    config = config_path(config)
    asked = {"output": output, "limit": limit, "ids": list(ids) or None}
    values = {key: value for key, value in asked.items() if value is not None}
    if job == "evaluate":
        # Validated here: a typing error should not cost a cluster's start.
        tree = asked_run(config, overrides, values).model_dump(mode="json")
    else:
        tree = read_tree(config, overrides, values)
    # A sweep's tree is as it was written: what it leaves out is the default.
    _check_lasting(tree.get("output", RunConfig.model_fields["output"].default), "output")
    for where in ("checkpoints", "stop_file"):
        _check_lasting(tree.get(where), where)
    travelling = list(_local_files(tree))
    text, path = _sendable(config), Path(config).resolve()
    arguments = [f"--config-text={text}"]  # one word: its first character may be a dash
    if path.is_relative_to(checkout / "configs"):
        relative = path.relative_to(checkout).as_posix()
        if relative not in untracked and "configs/" not in untracked:
            arguments = ["--config", relative]
    for flag, value in (("--output", output), ("--limit", limit)):
        arguments += [] if value is None else [f"{flag}={value}"]
    arguments += [f"--id={one}" for one in ids]
    arguments += [f"--set={item}" for item in overrides]
    content = yaml.safe_dump({"job": job, "config": dict(tree)}, sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()
    left = [re.sub(r"([\\*?\[\]!# ])", r"\\\1", f"/{path}") for path in untracked]
    facts = _facts(tree) | {"job": job, "config_sha256": digest, "git": _commit(checkout)}
    return Submission(
        job=job,
        arguments=(*arguments, *travelling),
        checkout=checkout,
        excludes=(*LEFT_OUT, *left),
        digest=digest,
        facts={key: str(value) for key, value in facts.items() if value},
    )


def _local_files(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments that carry the local files that ``tree`` names, and name them in it as
    the job has them. Raises `UserError`."""
    for number, section in enumerate(tree.get("benchmarks") or ()):
        if isinstance(section, dict) and is_local(name := str(section.get("name"))):
            path, attribute = local_parts(name)
            check_source(name, config_text(str(path)))
            where = f"benchmarks.{number}.name"
            yield from _travelling(section, "name", str(path), where, f":{attribute}")
    models = {f"models.{n}": one for n, one in enumerate(tree.get("models") or ())}
    for where, model in {"model": tree.get("model"), **models}.items():
        if not isinstance(model, dict):
            continue
        if isinstance(template := model.get("chat_template"), str):
            yield from _travelling(model, "chat_template", template, f"{where}.chat_template")
        plugins = model.get("plugins") or []
        for number, plugin in enumerate(plugins):
            yield from _travelling(plugins, number, str(plugin), f"{where}.plugins.{number}")


def _travelling(node: Any, key: Any, path: str, where: str, attribute: str = "") -> Iterator[str]:
    """Yield the arguments that write the file at ``path`` into the job's folder, under a name of
    its content, and name it there in the config."""
    text = _sendable(path)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    there = f"sent_{digest}{Path(path).suffix}"
    node[key] = f"./{there}{attribute}"
    yield f"--file={there}:{text}"
    yield f"--set={where}={node[key]}"


def _sendable(path: str) -> str:
    """Return the text of a file that travels in a job's command. Raises `UserError`."""
    text = config_text(path)
    for number, line in enumerate(text.splitlines(), 1):
        if masked(line) != line:
            raise UserError(
                f"line {number} holds what looks like a secret, and a job's command is for all to "
                "see",
                where=path,
                fix="take it out, comments too: a key belongs in the environment",
            )
    if len(text.encode()) > TEXT_BYTES:
        raise UserError(
            f"holds {len(text.encode())} bytes, a file that travels as text holds {TEXT_BYTES}",
            where=path,
            fix="shorten it, or put it into the image or the model's folder",
        )
    return text


def _check_checkout(job: str, checkout: Path) -> list[str]:
    """Return the untracked paths of ``checkout``. Raises `UserError`: it is not a checkout."""
    if not (checkout / "jobs" / f"{job}.py").is_file():
        raise UserError(
            f"there is no jobs/{job}.py: this ace_ray was not installed from a checkout",
            where=str(checkout),
            fix="submit from a checkout (pip install --editable .), or with ray job submit",
        )
    options = ("--others", "--exclude-standard", "--directory", "-z")
    return [path for path in _git(checkout, "ls-files", *options).split("\0") if path]


def _check_lasting(value: Any, where: str) -> None:
    if isinstance(value, str) and is_relative(value):
        raise UserError(
            f"{value!r} is relative, and a job's folder is temporary",
            where=where,
            fix="name an absolute path or an s3:// URI",
        )


def _facts(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the dashboard shows beside the job. Texts only: Ray takes nothing else."""

    def joined(listed: Sequence[Any], part: str) -> str:
        return ",".join(str(one[part]) for one in listed if isinstance(one, dict) and one.get(part))

    names = {
        "model": joined([tree.get("model"), *(tree.get("models") or ())], "source"),
        "benchmarks": joined(tree.get("benchmarks") or (), "name"),
    }
    plain = {key: tree.get(key) for key in ("checkpoints", "output")}
    return {"ace_ray": ace_ray.__version__, **plain, **names}


def _commit(checkout: Path) -> str:
    """Return the checkout's commit, ``-dirty`` where files differ from it; "" without git."""
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    commit = _git(checkout, "rev-parse", "HEAD")
    return commit + "-dirty" * bool(commit and changed)


def _git(checkout: Path, *arguments: str) -> str:
    """Return what git says of ``checkout``; "" where it is not a work tree of its own."""
    if not (checkout / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:  # a machine without git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
