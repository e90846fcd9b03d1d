"""What `ace-ray submit` sends: one call of ``jobs/*.py``, and how it is known again.

The id of a submission is a hash of the resolved config and the number of the attempt, so whoever
submits the same config meets the job that runs it. What is sent can be read by everyone who
reaches the cluster's dashboard: a config that holds a secret is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import ace_ray
from ace_ray.config import RunConfig, load_config, read_tree
from ace_ray.errors import UserError
from ace_ray.store import is_relative

CHECKOUT = Path(ace_ray.__file__).resolve().parents[1]
LEFT_OUT = (".git", ".venv", "runs")
"""Folders of a checkout that a job does not need; Ray honours its ``.gitignore`` besides."""

LARGE_BYTES = 10 << 20
"""Files above this size stay behind: weights and data belong in the image, the cache or a store."""

TEXT_BYTES = 100_000
"""An entrypoint is one argument of a shell, which takes 128 KiB."""

_SECRET = re.compile(
    r"(hf_|auth_|access_|session_)?token|(access_|api_)?key(_id)?|"
    r"(?=[a-z_]*?(?:password|secret))[a-z_]*+",
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(r"\w://[^/\s@]+@")


@dataclass(frozen=True)
class Submission:
    """A job that may be sent many times, one attempt after another."""

    job: str
    """``evaluate``, ``sweep``, ``score`` or ``report``: the file in ``jobs/``."""
    arguments: tuple[str, ...]
    checkout: Path
    excludes: tuple[str, ...]
    digest: str
    """SHA-256 (hex) of the job and its resolved config, or the run that it is about."""
    facts: Mapping[str, str]

    @property
    def name(self) -> str:
        """What the ids of all attempts begin with."""
        return f"ace-ray-{self.job}-{self.digest[:12]}"

    def id(self, attempt: int) -> str:
        return f"{self.name}-{attempt}"

    @property
    def entrypoint(self) -> str:
        """For a shell, in a copy of the checkout."""
        return shlex.join(self._words)

    @property
    def _words(self) -> tuple[str, ...]:
        return ("python", f"jobs/{self.job}.py", *self.arguments)

    @property
    def runtime_env(self) -> dict[str, Any]:
        return {"working_dir": str(self.checkout), "excludes": list(self.excludes)}

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
        words += ["--runtime-env-json", json.dumps({"excludes": list(self.excludes)})]
        return shlex.join([*words, "--", *self._words])


def make_submission(
    job: str,
    config: str,
    *,
    overrides: Sequence[str] = (),
    output: str | None = None,
    limit: int | None = None,
    checkout: Path = CHECKOUT,
) -> Submission:
    """The submission of ``config`` to ``jobs/{job}.py``.

    A config in the checkout's ``configs/`` travels with it; any other one as text.

    Raises:
        UserError: a bad config, one that holds a secret, an output that a job's end would take
            along, checkpoints that a job's folder does not hold, or a checkout that is none.
    """
    _check_checkout(job, checkout)
    asked = {"output": output, "limit": limit}
    values = {key: value for key, value in asked.items() if value is not None}
    if job == "evaluate":
        # Validated here: a typing error should not cost a cluster's start.
        tree = load_config(config, overrides, values).model_dump(mode="json")
    else:
        tree = read_tree(config, overrides, values)
    _refuse_secrets(tree)
    _check_paths(tree)
    arguments = [*_config_arguments(config, checkout)]
    for flag, value in (("--output", output), ("--limit", limit)):
        arguments += [] if value is None else [f"{flag}={value}"]
    arguments += [f"--set={item}" for item in overrides]
    return _submission(job, tree, arguments, checkout)


def submission_about(
    job: str, run: str, *, output: str | None = None, checkout: Path = CHECKOUT
) -> Submission:
    """The submission of ``jobs/{job}.py`` about a run or a sweep that is there already: ``score``,
    or ``report``, whose files may go to another ``output``. Raises `UserError` as
    `make_submission` does."""
    _check_checkout(job, checkout)
    tree = {"run": run, "output": output} if output else {"run": run}
    _refuse_secrets(tree)
    for where, value in tree.items():
        _check_lasting(value, where)
    arguments = [run, *([f"--out={output}"] if output else [])]
    return _submission(job, tree, arguments, checkout)


def _check_checkout(job: str, checkout: Path) -> None:
    if not (checkout / "jobs" / f"{job}.py").is_file():
        raise UserError(
            f"there is no jobs/{job}.py: this ace_ray was not installed from a checkout",
            where=str(checkout),
            fix="submit from a checkout (pip install --editable .), or with ray job submit",
        )


def _submission(
    job: str, tree: Mapping[str, Any], arguments: Sequence[str], checkout: Path
) -> Submission:
    content = yaml.safe_dump({"job": job, "config": dict(tree)}, sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return Submission(
        job=job,
        arguments=tuple(arguments),
        checkout=checkout,
        excludes=tuple(f"/{name}" for name in (*LEFT_OUT, *sorted(_large(checkout)))),
        digest=digest,
        facts=_facts(job, tree, digest, checkout),
    )


def _config_arguments(config: str, checkout: Path) -> tuple[str, ...]:
    path = Path(config).resolve()
    if path.is_relative_to(checkout / "configs"):
        return ("--config", path.relative_to(checkout).as_posix())
    text = path.read_text(encoding="utf-8")
    if len(text.encode()) > TEXT_BYTES:
        raise UserError(
            f"holds {len(text.encode())} bytes, a config that travels as text holds {TEXT_BYTES}",
            where=config,
            fix=f"move it to {checkout / 'configs'}",
        )
    # One word: its first character may be a dash.
    return (f"--config-text={text}",)


def _large(checkout: Path) -> Iterator[str]:
    """Files too large to upload, as paths in the checkout."""
    for base, folders, names in os.walk(checkout):
        if Path(base) == checkout:
            folders[:] = [name for name in folders if name not in LEFT_OUT]
        for name in names:
            file = Path(base, name)
            if not file.is_symlink() and file.stat().st_size > LARGE_BYTES:
                yield re.sub(r"([\\*?\[\]!# ])", r"\\\1", file.relative_to(checkout).as_posix())


def _check_paths(tree: Mapping[str, Any]) -> None:
    # A sweep's tree is as it was written: what it leaves out is the default.
    _check_lasting(tree.get("output", RunConfig.model_fields["output"].default), "output")
    for where in ("checkpoints", "stop_file"):
        _check_lasting(tree.get(where), where)


def _check_lasting(value: Any, where: str) -> None:
    if isinstance(value, str) and is_relative(value):
        raise UserError(
            f"{value!r} is relative, and a job's folder is temporary",
            where=where,
            fix="pass --output s3://bucket/prefix or an absolute path"
            if where == "output"
            else "name an absolute path or an s3:// URI",
        )


def _refuse_secrets(node: Any, where: str = "") -> None:
    if isinstance(node, Mapping):
        for key, value in node.items():
            at = f"{where}.{key}" if where else str(key)
            given = bool(value) and not isinstance(value, Mapping | bool)
            if given and _SECRET.fullmatch(str(key)):
                raise UserError(
                    "looks like a secret, and a job's command is for all to see",
                    where=at,
                    fix="put it into the environment of the cluster's nodes (docs/clusters.md)",
                )
            _refuse_secrets(value, at)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            _refuse_secrets(value, f"{where}.{index}")
    elif isinstance(node, str) and _CREDENTIALS.search(node):
        raise UserError(
            "the address holds a user name or a password",
            where=where,
            fix="leave them to the environment or the credential chain (docs/clusters.md)",
        )


def _facts(job: str, tree: Mapping[str, Any], digest: str, checkout: Path) -> dict[str, str]:
    """What the dashboard shows beside the job. Texts only: Ray takes nothing else."""
    model = tree.get("model")
    of_run = [model] if isinstance(model, Mapping) else []
    found = {
        "ace_ray": ace_ray.__version__,
        "job": job,
        "run": tree.get("run"),
        "model": _joined("source", [*of_run, *_mappings(tree.get("models"))]),
        "checkpoints": tree.get("checkpoints"),
        "benchmarks": _joined("name", _mappings(tree.get("benchmarks"))),
        "output": tree.get("output"),
        "config_sha256": digest,
        "git": _commit(checkout),
    }
    return {key: str(value) for key, value in found.items() if value}


def _mappings(listed: Any) -> list[Mapping[str, Any]]:
    return [item for item in listed if isinstance(item, Mapping)] if listed else []


def _joined(key: str, items: Sequence[Mapping[str, Any]]) -> str:
    return ",".join(str(item[key]) for item in items if item.get(key))


def _commit(checkout: Path) -> str:
    """The checkout's commit, ``-dirty`` where files differ from it; "" when it is none of git's."""
    top = _git(checkout, "rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != checkout:
        return ""
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    return _git(checkout, "rev-parse", "HEAD") + ("-dirty" if changed else "")


def _git(checkout: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:  # a machine without git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
