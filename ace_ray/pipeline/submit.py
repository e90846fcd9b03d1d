"""``ace-ray submit``: send a job to a Ray cluster, follow its log, end with its exit code.

The job does not depend on its follower. The same command follows a running job again, after Ctrl-C
or a lost connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import Any

from ace_ray.cluster.connection import running_cluster, set_environment
from ace_ray.errors import COMPLETE, FAILED, INCOMPLETE, UserError, first_line
from ace_ray.pipeline.submission import Submission

INTERRUPTED = 130
"""Exit code of a follower that was stopped with Ctrl-C, as in a shell."""

RECONNECTS = 20
"""Times in a row that a log may break off, or the cluster not answer, before the follower ends."""

RECONNECT_S = 3.0

AGENT_S = 180.0
"""Wait for the cluster's job agent, which starts after its dashboard."""

NO_AGENT = "No available agent to submit job"
"""Error text of Ray's job server while the agent is not there."""

DIED = "JOB_SUPERVISOR_ACTOR_DIED"
"""Ray's name for a job whose node went away: its run can be continued."""

_ADDRESS = "RAY_API_SERVER_ADDRESS"


def submit(
    submission: Submission, *, address: str | None, follow: bool, say: Callable[..., Any]
) -> int:
    """Send ``submission``, unless an attempt of it runs, and follow it. Return the exit code: the
    job's own, 75 when it was stopped.

    Args:
        address: of the cluster's dashboard; None: ``RAY_API_SERVER_ADDRESS``, ``RAY_ADDRESS``, or
            the cluster on this machine.
        say: prints a text, without a line end if told ``nl=False``.

    Raises:
        UserError: no cluster answers there, or it refuses the job.
    """
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
        say(f"\nstopped following {name}, which goes on; the same command follows it again")
        say(f"to stop the job: ray job stop {at} {name}")
        return INTERRUPTED


def _client(address: str | None) -> Any:
    set_environment()
    from ray.job_submission import JobSubmissionClient

    if address is not None:
        os.environ[_ADDRESS] = address  # it wins over what the client is given
    elif not os.environ.get(_ADDRESS):
        address = running_cluster()
        if address == "local":
            raise UserError(
                "no Ray cluster is named, and none runs on this machine",
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
    """Return (id of the job that runs, whether it was sent now)."""
    attempt, running = _latest(client, submission)
    if running:
        return submission.id(attempt), False
    attempt += 1
    name = submission.id(attempt)
    deadline = time.monotonic() + AGENT_S
    while True:
        try:
            client.submit_job(
                entrypoint=submission.entrypoint,
                submission_id=name,
                runtime_env=submission.runtime_env,
                metadata=submission.metadata(attempt),
            )
        except RuntimeError as error:
            # Another submitter may have been first: ids are unique in a cluster.
            if _latest(client, submission)[0] >= attempt:
                return name, False
            if NO_AGENT not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(RECONNECT_S)
        else:
            return name, True


def _latest(client: Any, submission: Submission) -> tuple[int, bool]:
    """Return the newest attempt that the cluster knows (0: none), and whether it still runs."""
    attempts = {0: False}
    for job in client.list_jobs():
        base, _, number = (job.submission_id or "").rpartition("-")
        if base == submission.name and number.isdigit():
            attempts[int(number)] = not job.status.is_terminal()
    newest = max(attempts)
    return newest, attempts[newest]


def _follow(client: Any, name: str, say: Callable[..., Any]) -> int:
    """Print the job's log until it ends, once however often the connection breaks; return its exit
    code."""
    shown = failures = 0

    async def tail() -> None:
        nonlocal shown
        seen = 0  # Ray begins with the first line each time
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
        # A proxy, a head that restarts, a network: the job is asked for again.
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
    if code is None:  # its node went, or it never began
        say(f"{name} failed: {first_line(job.message or '', 'no reason was given')}")
        return INCOMPLETE if job.error_type == DIED else FAILED
    # A signal's number is negative here, and 128 more in a shell.
    return int(code) if code >= 0 else 128 - int(code)
