"""``ace-ray submit``: send a config to a Ray cluster as a job, and follow the job's log.

A job is one call of ``jobs/*.py`` in a copy of the checkout. The job does not depend on the command
that follows it: after Ctrl-C or a lost connection the same command follows the job again. The job's
id contains a hash of the resolved config and the number of the attempt. The cluster's dashboard
shows the job's command to everyone, so a config that contains a secret is refused."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shlex
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
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
from ace_ray.util.secrets import mask_secrets

CHECKOUT = Path(ace_ray.__file__).resolve().parents[1]

# Maximum size of a text in a job's command. One argument of a shell has at most 128 KiB.
TEXT_BYTES = 100_000

# Patterns of names, in any case, of files and folders that are not sent: a job does not need them,
# or their names suggest keys.
LEFT_OUT = (
    "__pycache__", ".aws", ".azure", ".docker", ".dockercfg", ".env*", ".git", ".git-credentials",
    ".gnupg", ".kaggle", ".kube", ".netrc", ".npmrc", ".pgpass", ".pypirc", ".s3cfg", ".ssh",
    ".venv", "*.env", "*.jks", "*.kdbx", "*.key", "*.keystore", "*.keytab", "*.p12", "*.pem",
    "*.pfx", "*.ppk", "*.tfstate*", "*credentials.json", "credentials", "hf_token*", "id_dsa*",
    "id_ecdsa*", "id_ed25519*", "id_rsa*", "kubeconfig*", "secrets", "secrets.json",
    "secrets.toml", "secrets.y*ml", "service?account*.json", "token", "token.json",
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
    files: Mapping[str, Path]
    """Name in the job's folder -> file of the checkout."""
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

    def runtime_env(self, folder: str) -> dict[str, Any]:
        """Write the job's files as a zip into ``folder``, and return Ray's runtime environment."""
        package = Path(folder, "checkout.zip")
        with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as zipped:
            for name, path in self.files.items():
                zipped.write(path, name)
        # The driver and the actors use the log settings of this command.
        variables = log.environment()
        return {"working_dir": str(package), **({"env_vars": variables} if variables else {})}

    def command(self, address: str | None) -> str:
        """Return the ``ray job submit`` command for the first attempt, for a POSIX shell. The job's
        files are in a new temporary folder."""
        words = ["ray", "job", "submit", "--submission-id", self.id(1)]
        if address is not None:
            words += ["--address", address]
        runtime_env = self.runtime_env(tempfile.mkdtemp(prefix="ace-ray-"))
        words += ["--runtime-env-json", json.dumps(runtime_env)]
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
    sent = _sent_files(job, checkout.resolve())
    tree = read_tree(config, overrides, values)
    trees = [tree]
    if job == "evaluate":  # validate here, so that a typing error does not cost a cluster's start
        trees.append(run_config(tree, where=config).model_dump(mode="json"))
    # A sweep's tree has no defaults.
    lasting = {"output": RunConfig.model_fields["output"].default, **tree}
    for key in ("output", "checkpoints", "stop_file"):
        if isinstance(path := lasting.get(key), str) and is_relative(path):
            problem = f"{path!r} is relative, but a job's folder is temporary"
            raise UserError(problem, where=key, fix="name an absolute path or an s3:// URI")
    for job_tree in trees:
        files = list(_local_files(job_tree))
    text = _check_public_text(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), config)
    content = yaml.safe_dump({"job": job, "config": trees[-1]}, sort_keys=True)
    # Write option and value as one word, since a value may begin with a dash.
    arguments = (f"--config-text={text}", *files)
    return Submission(job, arguments, sent, hashlib.sha256(content.encode()).hexdigest())


def _local_files(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield a job argument with the content of each local file that ``tree`` names. Replace the
    file's path in ``tree`` by its name in the job's folder. Raises `UserError` if a file cannot be
    read, is too long or contains a secret."""
    for section in tree.get("benchmarks") or ():
        if not isinstance(section, dict):
            continue
        if is_local(name := str(section.get("name"))):
            path, attribute = local_parts(name)
            yield _file_argument(section, "name", str(path), f":{attribute}")
        for key in ("prompt_file", "data"):  # data of most benchmarks is a name or a folder
            if isinstance(file := section.get(key), str) and (key != "data" or _is_short(file)):
                yield _file_argument(section, key, file)
    for model in (tree.get("model"), *(tree.get("models") or ())):
        if not isinstance(model, dict):
            continue
        if isinstance(template := model.get("chat_template"), str):
            yield _file_argument(model, "chat_template", template)
        plugins = model.get("plugins") or []
        for number, plugin in enumerate(plugins):
            yield _file_argument(plugins, number, str(plugin))


def _is_short(file: str) -> bool:
    """Return whether ``file`` exists and can be sent as text. Jobs read other files in place."""
    return os.path.isfile(file) and os.path.getsize(file) <= TEXT_BYTES


def _file_argument(node: Any, key: Any, path: str, attribute: str = "") -> str:
    """Return the job argument that writes the file at ``path`` into the job's folder, under a name
    with a hash of its content. Set ``node[key]`` to this name followed by ``attribute``."""
    text = _check_public_text(config_text(path), path)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"sent_{digest}{Path(path).suffix}"
    node[key] = f"./{name}{attribute}"
    return f"--file={name}:{text}"


def _check_public_text(text: str, location: str) -> str:
    """Return ``text`` if it may be sent in a job's command. Raises `UserError` if it contains a
    secret or is too long."""
    for number, line in enumerate(text.splitlines(), 1):
        if mask_secrets(line) != line:
            why = "looks like a secret, but a job's command is visible to everyone"
            fix = "remove the secret, also from comments, and set it in the environment"
            raise UserError(f"line {number} {why}", where=location, fix=fix)
    if (size := len(text.encode())) > TEXT_BYTES:
        problem = f"has {size} bytes, but a file sent as text has at most {TEXT_BYTES}"
        fix = "shorten it, or put it into the image or the model's folder"
        raise UserError(problem, where=location, fix=fix)
    return text


def _sent_files(job: str, checkout: Path) -> dict[str, Path]:
    """Map names in the job's folder to the files that are sent: the files that git tracks, or all
    files of a copy without git, except `LEFT_OUT`.

    Raises `UserError` if ``checkout`` is no checkout of ace_ray, or git cannot list its files."""
    if not (checkout / "jobs" / f"{job}.py").is_file():
        problem = f"there is no jobs/{job}.py: this ace_ray was not installed from a checkout"
        fix = "submit from a checkout (pip install --editable .), or with ray job submit"
        raise UserError(problem, where=str(checkout), fix=fix)
    # A monorepo has its `.git` above the checkout. A copy in another checkout is not tracked.
    inside = any((folder / ".git").exists() for folder in (checkout, *checkout.parents))
    names = _tracked_paths(checkout) if inside else []
    names = names or [path.relative_to(checkout).as_posix() for path in checkout.rglob("*")]
    paths = {name: checkout / name for name in names if not _is_left_out(name)}
    files = {n: path for n, path in paths.items() if path.is_file() and path == path.resolve()}
    # Files behind a link are also sent under the link's name.
    links = {n: path.resolve() for n, path in paths.items() if path.is_symlink()}
    return files | {
        Path(link, path.relative_to(target)).as_posix(): path
        for link, target in links.items()
        if not checkout.is_relative_to(target)
        for path in files.values()
        if path.is_relative_to(target)
    }


def _is_left_out(name: str) -> bool:
    parts = name.lower().split("/")
    return parts[0] == "runs" or any(fnmatchcase(p, kind) for p in parts for kind in LEFT_OUT)


def _tracked_paths(checkout: Path) -> list[str]:
    """Return the paths that git tracks in ``checkout``. Raises `UserError` if git fails."""
    command = ["git", "-C", str(checkout), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        reason = first_line(getattr(error, "stderr", b"").decode("utf-8", "replace") or error)
        fix = "make git work here, since only files that it tracks are sent"
        problem = f"git does not list its files: {reason}"
        raise UserError(problem, where=str(checkout), fix=fix) from error
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def submit(submission: Submission, *, address: str | None, follow: bool) -> int:
    """Send ``submission`` unless an attempt of it is running already. With ``follow``, print the
    job's log and return its exit code, or 75 if it was stopped; else return 0.

    ``address``: address of the cluster's dashboard; None: ``RAY_API_SERVER_ADDRESS``,
    ``RAY_ADDRESS``, or the cluster on this machine. Raises `UserError` if no cluster answers, or
    the cluster refuses the job."""
    client = _client(address)
    try:
        name, sent = _send(client, submission)
    except Exception as error:
        raise _refusal(error, client.get_address()) from error
    log.info(f"{'submitted' if sent else 'already running, not submitted again:'} {name}")
    at = f"--address {client.get_address()}"
    if not follow:
        log.info(f"its log: ray job logs --follow {at} {name}")
        return COMPLETE
    try:
        return _follow(client, name)
    except KeyboardInterrupt:
        log.info(f"stopped following {name}, which keeps running; the same command follows again")
        log.info(f"to stop the job: ray job stop {at} {name}")
        return INTERRUPTED


def _client(address: str | None) -> Any:
    set_environment()
    from ray.job_submission import JobSubmissionClient

    if address is not None:
        os.environ[_ADDRESS] = address  # the client prefers this variable to its argument
    elif not os.environ.get(_ADDRESS):
        address = running_cluster()
        if address == "local":
            fix = "pass the dashboard's address, e.g. --address http://HEAD:8265"
            problem = "no Ray cluster is named, and this machine runs none"
            raise UserError(problem, where="--address", fix=fix)
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        return JobSubmissionClient(address)
    except Exception as error:
        raise _refusal(error, address or os.environ[_ADDRESS]) from error


def _refusal(error: Exception, address: str) -> UserError:
    return UserError(
        f"cannot submit: {first_line(error)[:300].rstrip('.')}",
        where=f"Ray at {address}",
        fix="check --address; if the cluster asks for a token, export its RAY_AUTH_TOKEN and "
        "RAY_AUTH_MODE=token (docs/clusters.md)",
    )


def _send(client: Any, submission: Submission) -> tuple[str, bool]:
    """Send the job unless an attempt is running. Return (job id, whether it was sent now)."""
    is_running = {0: False}  # by the number of the attempt
    for job in client.list_jobs():
        base, _, number = (job.submission_id or "").rpartition("-")
        if base == submission.name and number.isdigit():
            is_running[int(number)] = not job.status.is_terminal()
    attempt, running = max(is_running.items())
    if running:
        return submission.id(attempt), False
    job_id = submission.id(attempt + 1)
    with tempfile.TemporaryDirectory() as folder:
        options = {"submission_id": job_id, "runtime_env": submission.runtime_env(folder)}
        client.submit_job(entrypoint=submission.entrypoint, **options)
    return job_id, True


def _follow(client: Any, name: str) -> int:
    """Print the job's log until the job ends, and return the job's exit code. After a lost
    connection, continue at the first line that was not printed."""
    printed_chars = failures = 0

    async def tail() -> None:
        nonlocal printed_chars
        log_chars = 0  # Ray sends the log from its first line each time
        async for text in client.tail_job_logs(name):
            log_chars += len(text)
            if log_chars > printed_chars:
                print(text[-(log_chars - printed_chars) :], end="", flush=True)  # of the job's log
                printed_chars = log_chars

    while True:
        before = printed_chars
        try:
            asyncio.run(tail())
            job = client.get_job_info(name)
            if job.status.is_terminal():
                return _exit_code(job, name)
        # A proxy, the network or a restarting head node may be the cause: try again.
        except Exception as error:
            if failures == RECONNECTS:
                problem = f"the cluster has not answered {failures + 1} times: {error}"
                fix = "the same command follows the job again, if it still runs"
                raise UserError(problem, where=name, fix=fix) from error
        failures = 0 if printed_chars > before else failures + 1
        time.sleep(RECONNECT_S if failures else RECONNECT_S / 10)


def _exit_code(job: Any, name: str) -> int:
    if job.status == "STOPPED":
        log.info(f"{name} was stopped; the same command continues its run")
        return INCOMPLETE
    if job.status == "SUCCEEDED":
        return COMPLETE
    code = job.driver_exit_code
    if code is None:  # the job's node is gone, or the job never began
        log.info(f"{name} failed: {first_line(job.message or '', 'no reason was given')}")
        return INCOMPLETE if job.error_type == DIED else FAILED
    # A signal is a negative code here. In a shell it is 128 plus the number.
    return int(code) if code >= 0 else 128 - int(code)
