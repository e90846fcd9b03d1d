"""What `ace-ray submit` sends: one call of ``jobs/*.py``, and how it is known again.

The id of a submission is a hash of the resolved config and the number of the attempt, so whoever
submits the same config meets the job that runs it. What is sent can be read by everyone who
reaches the cluster's dashboard: a config that holds a secret is refused.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

import yaml

import ace_ray
from ace_ray import log
from ace_ray.benchmarks.registry import check_source, is_local, local_parts
from ace_ray.config import (
    RunConfig,
    config_path,
    config_text,
    read_tree,
    refuse_secrets,
)
from ace_ray.credentials import holds_shape, masked
from ace_ray.errors import UserError
from ace_ray.run.planning.asked import asked_run
from ace_ray.store import is_relative

CHECKOUT = Path(ace_ray.__file__).resolve().parents[1]
LEFT_OUT = (".git", ".venv", "runs")
"""Folders of a checkout that a job does not need; Ray honours its ``.gitignore`` besides."""

LARGE_BYTES = 10 << 20
"""Files above this size stay behind: weights and data belong in the image, the cache or a store."""

TEXT_BYTES = 100_000
"""An entrypoint is one argument of a shell, which takes 128 KiB."""

_PUBLIC = "a job's command is for all to see"

# Patterns of a .gitignore: at any depth, and folders with all that they hold.
SECRET_FILES = (
    ".git", ".aws", ".azure", ".boto*", ".cache", ".config", ".credentials*", ".direnv", ".docker",
    ".dockercfg*", ".dockerconfigjson*", ".env*", ".git-credentials*", ".gnupg", ".*_history",
    ".htpasswd*", ".huggingface", ".kube", ".my.cnf*", ".netrc*", "_netrc*", ".npmrc*", ".oci",
    ".password-store", ".pgpass*", ".pypirc*", ".s3cfg*", ".secrets*", ".ssh", ".terraform",
    ".vault*", ".wandb", ".yarnrc.yml*", "*.jks", "*.kdb", "*.kdbx", "*.key", "*.keystore", "*.p8",
    "*.p12", "*.pem", "*.pfx", "*.ppk", "*.tfstate", "*.tfstate.*", "*.tfvars", "*.tfvars.*",
    "*env", "*.env.*", "env.*sh", "auth_token", "credentials", "credentials.d", "id_dsa*",
    "id_ecdsa*", "id_ed25519*", "id_rsa*", "kubeconfig*", "kube.config*", "secrets", "secrets.d",
    "service-account*.json", "service_account*.json", "vault.y*ml",
    "__pycache__",  # the constants of modules that stay
)  # fmt: skip
"""What holds keys by its name."""
_SECRET_NAME = re.compile("|".join(map(fnmatch.translate, SECRET_FILES)), re.IGNORECASE)
_SECRET_STEM = re.compile(
    r"(.*[._-])?(auth|credentials?|creds|keys?|passwords?|secrets?|tokens?)([._-]?\d{1,40})?"
    r"|(.*[._-])?(access|api|private|root|service|secret)[._-]?keys?",
    re.IGNORECASE,
)
_DATA = frozenset(
    ("", ".cfg", ".conf", ".csv", ".ini", ".json", ".properties", ".toml", ".txt", ".yaml", ".yml")
)
"""Endings of files that a stem of `_SECRET_STEM` says to hold keys; ``credentials.py`` is code."""
_COPY = re.compile(r"(\.(bak|backup|old|orig|save|swp|template|tmp)|~)\Z", re.IGNORECASE)
_KEY_HEAD = re.compile(r"\s{0,99}(PuTTY-User-Key-File|\[default\]\s{1,9}aws_)")
_KEY_IN_JSON = re.compile(r'"(private_key|client_secret|refresh_token)"\s{0,9}:')


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
        return {"working_dir": str(self.checkout), **self._environment}

    @property
    def _environment(self) -> dict[str, Any]:
        # Its driver and its actors log as this command was told to.
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
    """The submission of ``config`` to ``jobs/{job}.py``.

    A config in the checkout's ``configs/`` travels with it; any other one as text.

    Raises:
        UserError: a bad config, one that holds a secret, an output that a job's end would take
            along, checkpoints that a job's folder does not hold, or a checkout that is none.
    """
    _check_checkout(job, checkout)
    config = config_path(config)
    asked = {"output": output, "limit": limit, "ids": list(ids) or None}
    values = {key: value for key, value in asked.items() if value is not None}
    if job == "evaluate":
        # Validated here: a typing error should not cost a cluster's start.
        tree = asked_run(config, overrides, values).model_dump(mode="json")
    else:
        tree = read_tree(config, overrides, values)
    refuse_secrets(tree, _PUBLIC)
    _check_paths(tree)
    travelling = list(_local_files(tree))
    arguments = [*_config_arguments(config, checkout)]
    for flag, value in (("--output", output), ("--limit", limit)):
        arguments += [] if value is None else [f"{flag}={value}"]
    arguments += [f"--id={one}" for one in ids]
    arguments += [f"--set={item}" for item in overrides]
    arguments += travelling
    return _submission(job, tree, arguments, checkout, config)


def submission_about(
    job: str,
    run: str,
    *,
    output: str | None = None,
    place: Mapping[str, str | None] | None = None,
    checkout: Path = CHECKOUT,
) -> Submission:
    """The submission of ``jobs/{job}.py`` about a run or a sweep that is there already: ``score``,
    or ``report``, whose files may go to another ``output``. ``place`` has the options that name an
    S3 service. Raises `UserError` as `make_submission` does."""
    _check_checkout(job, checkout)
    tree = {"run": run, "output": output} if output else {"run": run}
    refuse_secrets(tree, _PUBLIC)
    for where, value in tree.items():
        _check_lasting(value, where)
    named = {key: value for key, value in (place or {}).items() if value is not None}
    refuse_secrets(named, _PUBLIC)
    arguments = [run, *([f"--output={output}"] if output else [])]
    arguments += [f"--{key}={value}" for key, value in named.items()]
    return _submission(job, tree | named, arguments, checkout)


def _local_files(tree: Mapping[str, Any]) -> Iterator[str]:
    """The arguments that carry the local files that ``tree`` names; there each gets the name that
    it has in the job. Raises `UserError`."""
    for number, section in enumerate(_mappings(tree.get("benchmarks"))):
        name = str(section.get("name"))
        if not is_local(name):
            continue
        path, attribute = local_parts(name)
        there, text = _travelling(str(path), "benchmark")
        check_source(name, text)
        cast(dict[str, Any], section)["name"] = f"./{there}:{attribute}"
        yield f"--file={there}:{text}"
        yield f"--set=benchmarks.{number}.name=./{there}:{attribute}"
    listed = enumerate(_mappings(tree.get("models")))
    models = {"model": tree.get("model"), **{f"models.{n}": model for n, model in listed}}
    for where, model in models.items():
        if isinstance(model, dict):
            yield from _files_of_model(model, where)


def _files_of_model(model: dict[str, Any], where: str) -> Iterator[str]:
    if isinstance(template := model.get("chat_template"), str):
        there, text = _travelling(template, "template")
        model["chat_template"] = f"./{there}"
        yield f"--file={there}:{text}"
        yield f"--set={where}.chat_template=./{there}"
    for number, plugin in enumerate(model.get("plugins") or ()):
        there, text = _travelling(str(plugin), "plugin")
        model["plugins"][number] = f"./{there}"
        yield f"--file={there}:{text}"
        yield f"--set={where}.plugins.{number}=./{there}"


def _travelling(path: str, kind: str) -> tuple[str, str]:
    """The name in a job of the file at ``path``, and its text. Raises `UserError`."""
    text = config_text(path)
    _refuse_secret_lines(text, path)
    if len(text.encode()) > TEXT_BYTES:
        raise UserError(
            f"holds {len(text.encode())} bytes, a file that travels holds {TEXT_BYTES}",
            where=path,
            fix="make a package of it, installed on the cluster"
            if kind == "benchmark"
            else "shorten it, or put it into the model's folder or the image",
        )
    ending = "jinja" if kind == "template" else "py"
    return f"{kind}_{hashlib.sha256(text.encode()).hexdigest()[:16]}.{ending}", text


def _check_checkout(job: str, checkout: Path) -> None:
    if not (checkout / "jobs" / f"{job}.py").is_file():
        raise UserError(
            f"there is no jobs/{job}.py: this ace_ray was not installed from a checkout",
            where=str(checkout),
            fix="submit from a checkout (pip install --editable .), or with ray job submit",
        )


def _submission(
    job: str, tree: Mapping[str, Any], arguments: Sequence[str], checkout: Path, *files: str
) -> Submission:
    content = yaml.safe_dump({"job": job, "config": dict(tree)}, sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return Submission(
        job=job,
        arguments=tuple(arguments),
        checkout=checkout,
        excludes=(
            *(
                f"/{name}"
                for name in (*LEFT_OUT, *sorted(_left_behind(job, [tree, *files], checkout)))
            ),
            *SECRET_FILES,
        ),
        digest=digest,
        facts=_facts(job, tree, digest, checkout),
    )


def _refuse_secret_lines(text: str, where: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if masked(line) != line:
            raise UserError(
                f"line {number} holds what looks like a secret, and {_PUBLIC}",
                where=where,
                fix="take it out, comments too: a key belongs in the environment",
            )


def _config_arguments(config: str, checkout: Path) -> tuple[str, ...]:
    text = config_text(config)
    # Comments travel too, and what an override replaces.
    _refuse_secret_lines(text, config)
    path = Path(config).resolve()
    if path.is_relative_to(checkout / "configs"):
        return ("--config", path.relative_to(checkout).as_posix())
    if len(text.encode()) > TEXT_BYTES:
        raise UserError(
            f"holds {len(text.encode())} bytes, a config that travels as text holds {TEXT_BYTES}",
            where=config,
            fix=f"move it to {checkout / 'configs'}",
        )
    # One word: its first character may be a dash.
    return (f"--config-text={text}",)


def _left_behind(job: str, tree: Any, checkout: Path) -> Iterator[str]:
    """What else stays here, as patterns of paths in the checkout: what git does not track, files
    too large to upload, keys, and links that lead elsewhere, which Ray would follow."""
    sent = _sent(job, tree, checkout)
    for base, folders, names in os.walk(checkout):
        if Path(base) == checkout:
            folders[:] = [name for name in folders if name not in LEFT_OUT]
            names = [name for name in names if name not in LEFT_OUT]
        for name in [*names, *folders]:
            file = Path(base, name)
            path = file.relative_to(checkout).as_posix()
            if (sent is not None and path not in sent) or _stays(file, checkout):
                if name in folders:
                    folders.remove(name)
                if name != "__pycache__":
                    yield re.sub(r"([\\*?\[\]!# ])", r"\\\1", path)


def _sent(job: str, tree: Any, checkout: Path) -> set[str] | None:
    """Paths that may travel, with their folders: what git tracks, and what ``tree`` names. None
    where git does not track the job's own file, so that only names and contents decide."""
    listed = _git(checkout, "ls-files", "-z", "--recurse-submodules").split("\0")
    if f"jobs/{job}.py" not in listed:
        return None
    for text in _texts(tree):
        for named in (Path(text), checkout / text):
            with suppress(OSError, ValueError):
                file = named.resolve()
                if file.is_relative_to(checkout) and file.is_file():
                    listed.append(file.relative_to(checkout).as_posix())
    return {path for name in listed for path in (name, *map(str, PurePosixPath(name).parents))}


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for value in node.values():
            yield from _texts(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _texts(value)
    elif isinstance(node, str) and len(node) < 4096:
        yield node


def _stays(file: Path, checkout: Path) -> bool:
    if file.is_symlink():
        target = file.resolve()
        if target.is_dir() or not target.is_relative_to(checkout):
            return True
        inside = target.relative_to(checkout).parts
        if inside[0] in LEFT_OUT or any(map(_secret_name, inside)):
            return True
    if _secret_name(file.name):
        return True
    if file.is_dir():
        return False
    if not file.is_file() or file.stat().st_size > LARGE_BYTES:
        return True
    plain = Path(_COPY.sub("", file.name))
    if plain.suffix.lower() in _DATA and _SECRET_STEM.fullmatch(plain.stem):
        return True
    try:
        content = file.read_bytes()
    except OSError:  # what cannot be read is not sent
        return True
    if b"\0" in content[:8192]:
        return False
    text = content.decode("latin-1")
    if file.suffix.lower() == ".json" and _KEY_IN_JSON.search(text):
        return True
    return holds_shape(text) or _KEY_HEAD.match(text) is not None


def _secret_name(name: str) -> bool:
    return _SECRET_NAME.fullmatch(_COPY.sub("", name.strip("#")) or name) is not None


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


def _facts(job: str, tree: Mapping[str, Any], digest: str, checkout: Path) -> dict[str, str]:
    """What the dashboard shows beside the job. Texts only: Ray takes nothing else."""
    model = tree.get("model")
    of_run = [model] if isinstance(model, Mapping) else []
    facts = {
        "ace_ray": ace_ray.__version__,
        "job": job,
        "run": tree.get("run"),
        "model": _joined("source", [*of_run, *_mappings(tree.get("models"))]),
        "adapter": _joined("adapter", [*of_run, *_mappings(tree.get("models"))]),
        "checkpoints": tree.get("checkpoints"),
        "benchmarks": _joined("name", _mappings(tree.get("benchmarks"))),
        "output": tree.get("output"),
        "config_sha256": digest,
        "git": _commit(checkout),
    }
    return {key: str(value) for key, value in facts.items() if value}


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
