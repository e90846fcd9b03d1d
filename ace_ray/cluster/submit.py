"""``ace-ray submit``: send a config to a Ray cluster as a job, and follow the job's log.

A job is one call of ``jobs/*.py`` in a copy of the checkout. The job does not depend on the command
that follows it: after Ctrl-C or a lost connection the same command follows the job again. The job's
id contains a hash of the resolved config and the number of the attempt. The cluster's dashboard
shows the job's command to everyone, so a config that contains a secret is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import ace_ray
from ace_ray.benchmarks.registry import is_local, local_parts
from ace_ray.cluster.connection import running_cluster, set_environment
from ace_ray.config.schema import RunConfig, config_text, read_tree, run_config
from ace_ray.errors import COMPLETE, FAILED, INCOMPLETE, UserError, first_line
from ace_ray.storage.object_store import is_relative
from ace_ray.util import log
from ace_ray.util.secrets import masked

CHECKOUT = Path(ace_ray.__file__).resolve().parents[1]

# Maximum size of a text in a job's command. One argument of a shell has at most 128 KiB.
TEXT_BYTES = 100_000

# Patterns (as in a .gitignore) of files that are not sent, in any case: files that a job does not
# need, and files whose names suggest keys. Ray also excludes the patterns in ``.gitignore``.
LEFT_OUT = tuple(
    re.sub("[a-z]", lambda letter: f"[{letter[0]}{letter[0].upper()}]", name)
    for name in (
        "/.git", "/.venv", "/runs", "__pycache__", ".aws", ".azure", ".docker", ".dockercfg",
        ".env*", ".git-credentials", ".gnupg", ".kaggle", ".kube", ".netrc", ".npmrc", ".pgpass",
        ".pypirc", ".s3cfg", ".ssh", "*.env", "*.jks", "*.kdbx", "*.key", "*.keystore", "*.keytab",
        "*.p12", "*.pem", "*.pfx", "*.ppk", "*.tfstate*", "*credentials.json", "credentials",
        "hf_token*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "id_rsa*", "kubeconfig*", "secrets",
        "secrets.json", "secrets.toml", "secrets.y*ml", "service?account*.json", "token",
        "token.json",
    )
)  # fmt: skip

# Exit code of ``submit`` if it was stopped with Ctrl-C, as in a shell.
INTERRUPTED = 130

# Number of consecutive failures to read the job's log after which ``submit`` gives up.
RECONNECTS = 20

RECONNECT_S = 3.0

# Ray's error type for a job whose node is gone. The run of such a job can be continued.
DIED = "JOB_SUPERVISOR_ACTOR_DIED"

_ADDRESS = "RAY_API_SERVER_ADDRESS"


@dataclass(frozen=True)
class Submission:
    """A job that may be sent several times, one attempt after another."""

    job: str
    """``evaluate`` or ``sweep``: the name of the file in ``jobs/``."""
    arguments: tuple[str, ...]
    checkout: Path
    excludes: tuple[str, ...]
    digest: str
    """SHA-256 (hex) of the job and its resolved config."""

    @property
    def name(self) -> str:
        """Common prefix of the job ids of all attempts."""
        return f"ace-ray-{self.job}-{self.digest[:12]}"

    def id(self, attempt: int) -> str:
        return f"{self.name}-{attempt}"

    @property
    def entrypoint(self) -> str:
        """Shell command of the job, which runs in a copy of the checkout."""
        return shlex.join(("python", f"jobs/{self.job}.py", *self.arguments))

    @property
    def runtime_env(self) -> dict[str, Any]:
        # The driver and the actors use the log settings of this command.
        variables = log.environment()
        named = {"env_vars": variables} if variables else {}
        return {"working_dir": str(self.checkout), "excludes": list(self.excludes), **named}

    def command(self, address: str | None) -> str:
        """Return the ``ray job submit`` command for the first attempt, for a POSIX shell."""
        words = ["ray", "job", "submit"]
        if address is not None:
            words += ["--address", address]
        words += ["--submission-id", self.id(1), "--runtime-env-json", json.dumps(self.runtime_env)]
        return f"{shlex.join(words)} -- {self.entrypoint}"


def make_submission(
    job: str,
    config: str,
    *,
    overrides: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
    checkout: Path = CHECKOUT,
) -> Submission:
    """Return the submission of ``config`` to ``jobs/{job}.py``. ``overrides`` and ``values`` are
    arguments of `read_tree`; the config is sent with them applied.

    Raises `UserError` if the config is invalid or contains a secret, if a path such as ``output``
    is relative (a job's folder is temporary), or if ``checkout`` is not a checkout of ace_ray."""
    untracked = _check_checkout(job, checkout)
    tree = read_tree(config, overrides, values)
    trees = [tree]
    if job == "evaluate":  # validate here, so that a typing error does not cost a cluster's start
        trees.append(run_config(tree, where=config).model_dump(mode="json"))
    # A sweep's tree has no defaults.
    _check_lasting(tree.get("output", RunConfig.model_fields["output"].default), "output")
    for where in ("checkpoints", "stop_file"):
        _check_lasting(tree.get(where), where)
    for one in trees:
        files = list(_local_files(one))
    text = _sendable(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), config)
    # Ray ignores a backslash before a blank at the end, and cannot send text that is not Unicode.
    left = [re.sub(r"[]!^[\\]|[^\0-\x7f]", "?", f"/{path}") for path in untracked]
    content = yaml.safe_dump({"job": job, "config": trees[-1]}, sort_keys=True)
    return Submission(
        job=job,
        # Write option and value as one word, since a value may begin with a dash.
        arguments=(f"--config-text={text}", *files),
        checkout=checkout,
        excludes=(*LEFT_OUT, *(re.sub(r"[^\w./?-]", r"[\g<0>]", path) for path in left)),
        digest=hashlib.sha256(content.encode()).hexdigest(),
    )


def _local_files(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield a job argument with the content of each local file that ``tree`` names. Replace the
    file's path in ``tree`` by its name in the job's folder. Raises `UserError`."""
    for section in tree.get("benchmarks") or ():
        if not isinstance(section, dict):
            continue
        if is_local(name := str(section.get("name"))):
            path, attribute = local_parts(name)
            yield _travelling(section, "name", str(path), f":{attribute}")
        if isinstance(prompts := section.get("prompt_file"), str):
            yield _travelling(section, "prompt_file", prompts)
    for model in (tree.get("model"), *(tree.get("models") or ())):
        if not isinstance(model, dict):
            continue
        if isinstance(template := model.get("chat_template"), str):
            yield _travelling(model, "chat_template", template)
        plugins = model.get("plugins") or []
        for number, plugin in enumerate(plugins):
            yield _travelling(plugins, number, str(plugin))


def _travelling(node: Any, key: Any, path: str, attribute: str = "") -> str:
    """Return the job argument that writes the file at ``path`` into the job's folder, under a name
    with a hash of its content. Set ``node[key]`` to this name followed by ``attribute``."""
    text = _sendable(config_text(path), path)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    there = f"sent_{digest}{Path(path).suffix}"
    node[key] = f"./{there}{attribute}"
    return f"--file={there}:{text}"


def _sendable(text: str, where: str) -> str:
    """Return ``text`` if it may be sent in a job's command. Raises `UserError` if it contains a
    secret or is too long."""
    for number, line in enumerate(text.splitlines(), 1):
        if masked(line) != line:
            raise UserError(
                f"line {number} looks like a secret, but a job's command is visible to everyone",
                where=where,
                fix="remove it, also from comments, and set it in the environment",
            )
    if len(text.encode()) > TEXT_BYTES:
        raise UserError(
            f"has {len(text.encode())} bytes, but a file sent as text has at most {TEXT_BYTES}",
            where=where,
            fix="shorten it, or put it into the image or the model's folder",
        )
    return text


def _check_checkout(job: str, checkout: Path) -> list[str]:
    """Return the untracked paths of ``checkout``; [] if it is a copy without git. Raises
    `UserError` if ``checkout`` is not a checkout of ace_ray, or git cannot list them."""
    if not (checkout / "jobs" / f"{job}.py").is_file():
        raise UserError(
            f"there is no jobs/{job}.py: this ace_ray was not installed from a checkout",
            where=str(checkout),
            fix="submit from a checkout (pip install --editable .), or with ray job submit",
        )
    # A monorepo has its `.git` above the checkout.
    inside = any((folder / ".git").exists() for folder in (checkout, *checkout.resolve().parents))
    return _untracked(checkout) if inside else []


def _untracked(checkout: Path) -> list[str]:
    """Return the paths of ``checkout`` that git does not track, ignored ones included, since Ray
    does not read all files that tell git what to ignore. Raises `UserError`."""

    def listed(*options: str) -> list[str]:
        command = ["git", "-C", str(checkout), "ls-files", "-z", *options]
        names = subprocess.run(command, capture_output=True, check=True).stdout.split(b"\0")
        return [os.fsdecode(name).rstrip("/") for name in names if name]

    try:
        paths = listed("--others", "--directory", "--exclude=__pycache__")
        tracked, staged = listed(), listed("--stage")
    except (OSError, subprocess.CalledProcessError) as error:
        problem = getattr(error, "stderr", b"").decode("utf-8", "replace") or error
        what = f"git does not list its files: {first_line(problem)}"
        fix = "make git work here, since only files that it tracks are sent"
        raise UserError(what, where=str(checkout), fix=fix) from error
    if not tracked:
        return []  # a copy without git in a folder of another checkout
    links = [path for path in tracked if (checkout / path).is_symlink()]
    # Of a submodule, git lists only the folder.
    paths += [line.partition("\t")[2] for line in staged if line.startswith("160000 ")]
    for _ in links:  # a link may lead to further links
        before = len(paths)
        for link in set(links) - set(paths):
            # Ray packs the files behind a link under the link's name.
            target = os.path.relpath((checkout / link).resolve(), checkout.resolve()) + "/"
            outside = target.startswith(("./", "../", *(f"{path}/" for path in paths)))
            if outside or link.startswith(target):  # or a loop
                paths.append(link)
                continue
            behind = (link + path[len(target) - 1 :] for path in paths if path.startswith(target))
            paths += [path for path in behind if path not in paths]
        if len(paths) == before:
            break
    return paths


def _check_lasting(value: Any, where: str) -> None:
    if isinstance(value, str) and is_relative(value):
        raise UserError(
            f"{value!r} is relative, but a job's folder is temporary",
            where=where,
            fix="name an absolute path or an s3:// URI",
        )


def submit(
    submission: Submission, *, address: str | None, follow: bool, say: Callable[..., Any]
) -> int:
    """Send ``submission`` unless an attempt of it is running already. With ``follow``, follow the
    job and return its exit code, or 75 if it was stopped; else return 0.

    Args:
        address: address of the cluster's dashboard; None: ``RAY_API_SERVER_ADDRESS``,
            ``RAY_ADDRESS``, or the cluster on this machine.
        say: prints a string; with ``nl=False`` it adds no line end.

    Raises `UserError` if no cluster answers, or the cluster refuses the job."""
    client = _client(address)
    try:
        name, sent = _send(client, submission)
    except Exception as error:
        raise _refused(error, client.get_address()) from error
    say(f"{'submitted' if sent else 'already running, not submitted again:'} {name}")
    at = f"--address {client.get_address()}"
    if not follow:
        say(f"its log: ray job logs --follow {at} {name}")
        return COMPLETE
    try:
        return _follow(client, name, say)
    except KeyboardInterrupt:
        say(f"\nstopped following {name}, which keeps running; the same command follows it again")
        say(f"to stop the job: ray job stop {at} {name}")
        return INTERRUPTED


def _client(address: str | None) -> Any:
    set_environment()
    from ray.job_submission import JobSubmissionClient

    if address is not None:
        os.environ[_ADDRESS] = address  # the client prefers this variable to its argument
    elif not os.environ.get(_ADDRESS):
        address = running_cluster()
        if address == "local":
            raise UserError(
                "no Ray cluster is named, and this machine runs none",
                where="--address",
                fix="pass the dashboard's address, e.g. --address http://HEAD:8265",
            )
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        return JobSubmissionClient(address)
    except Exception as error:
        raise _refused(error, address or os.environ[_ADDRESS]) from error


def _refused(error: Exception, address: str) -> UserError:
    return UserError(
        f"cannot submit: {first_line(error)[:300].rstrip('.')}",
        where=f"Ray at {address}",
        fix="check --address; if the cluster asks for a token, export its RAY_AUTH_TOKEN and "
        "RAY_AUTH_MODE=token (docs/clusters.md)",
    )


def _send(client: Any, submission: Submission) -> tuple[str, bool]:
    """Send the job unless an attempt is running. Return (job id, whether it was sent now)."""
    attempt, running = _latest(client, submission)
    if running:
        return submission.id(attempt), False
    attempt += 1
    name = submission.id(attempt)
    try:
        client.submit_job(
            entrypoint=submission.entrypoint,
            submission_id=name,
            runtime_env=submission.runtime_env,
        )
    except RuntimeError:
        # Another command may have sent this attempt first, since ids are unique in a cluster.
        if _latest(client, submission)[0] >= attempt:
            return name, False
        raise
    return name, True


def _latest(client: Any, submission: Submission) -> tuple[int, bool]:
    """Return the number of the newest attempt in the cluster (0: none), and whether it runs."""
    attempts = {0: False}
    for job in client.list_jobs():
        base, _, number = (job.submission_id or "").rpartition("-")
        if base == submission.name and number.isdigit():
            attempts[int(number)] = not job.status.is_terminal()
    newest = max(attempts)
    return newest, attempts[newest]


def _follow(client: Any, name: str, say: Callable[..., Any]) -> int:
    """Print the job's log until the job ends, and return the job's exit code. After a lost
    connection, continue at the first line that was not printed."""
    shown = failures = 0

    async def tail() -> None:
        nonlocal shown
        seen = 0  # Ray sends the log from its first line each time
        async for text in client.tail_job_logs(name):
            seen += len(text)
            if seen > shown:
                say(text[-(seen - shown) :], nl=False)
                shown = seen

    while True:
        before = shown
        try:
            asyncio.run(tail())
            job = client.get_job_info(name)
            if job.status.is_terminal():
                return _ended(job, name, say)
        # A proxy, the network or a restarting head node may be the cause: try again.
        except Exception as error:
            if failures == RECONNECTS:
                raise UserError(
                    f"the cluster has not answered {failures + 1} times: {error}",
                    where=name,
                    fix="the same command follows the job again, if it still runs",
                ) from error
        failures = 0 if shown > before else failures + 1
        time.sleep(RECONNECT_S if failures else RECONNECT_S / 10)


def _ended(job: Any, name: str, say: Callable[..., Any]) -> int:
    if job.status == "STOPPED":
        say(f"{name} was stopped; the same command continues its run")
        return INCOMPLETE
    if job.status == "SUCCEEDED":
        return COMPLETE
    code = job.driver_exit_code
    if code is None:  # the job's node is gone, or the job never began
        say(f"{name} failed: {first_line(job.message or '', 'no reason was given')}")
        return INCOMPLETE if job.error_type == DIED else FAILED
    # A signal is a negative code here. In a shell it is 128 plus the number.
    return int(code) if code >= 0 else 128 - int(code)
