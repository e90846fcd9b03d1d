"""Jobs are sent and followed, with a client that plays a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.pipeline import submit as module
from ace_ray.pipeline.submit import Submission, submit

SUBMISSION = Submission("evaluate", ("--config", "c.yaml"), Path("/x"), (), "0" * 64)
NAME = SUBMISSION.name


class Status(str):
    def is_terminal(self) -> bool:
        return self in ("STOPPED", "SUCCEEDED", "FAILED")


def job(name: str | None, status: str, code: int | None = None, **more: Any) -> Any:
    defaults = {"message": None, "error_type": None}
    return SimpleNamespace(
        submission_id=name, status=Status(status), driver_exit_code=code, **{**defaults, **more}
    )


@dataclass
class Client:
    """Jobs by id. ``logs``: the texts of each connection; an exception breaks it off."""

    jobs: dict[str, Any] = field(default_factory=dict)
    logs: list[list[Any]] = field(default_factory=list)
    ends: Any = None
    """The job after its last log."""
    sent: list[dict[str, Any]] = field(default_factory=list)
    rival: bool = False

    def get_address(self) -> str:
        return "http://head:8265"

    def list_jobs(self) -> list[Any]:
        return [job(None, "RUNNING"), job("raysubmit_1", "RUNNING"), *self.jobs.values()]

    def submit_job(self, **request: Any) -> str:
        name = request["submission_id"]
        if self.rival:
            self.jobs[name] = job(name, "RUNNING")
        if name in self.jobs:
            raise RuntimeError(f"Request failed with status code 500: {name} already exists.")
        self.sent.append(request)
        self.jobs[name] = job(name, "PENDING")
        return str(name)

    async def tail_job_logs(self, name: str) -> AsyncIterator[str]:
        assert name in self.jobs
        for text in self.logs.pop(0):
            if isinstance(text, BaseException):
                raise text
            yield text

    def get_job_info(self, name: str) -> Any:
        if not self.logs and self.ends is not None:
            return self.ends
        return self.jobs[name]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "RECONNECT_S", 0.0)

    def run(client: Client, *, follow: bool = True) -> tuple[int, str]:
        monkeypatch.setattr(module, "_client", lambda address: client)
        said: list[str] = []
        say = lambda text, nl=True: said.append(text + "\n" * nl)  # noqa: E731
        return submit(SUBMISSION, address=None, follow=follow, say=say), "".join(said)

    return run


def test_next_attempt_is_sent_and_followed(sent: Any) -> None:
    # Ended attempts, and names that only look similar.
    jobs = {f"{NAME}-{n}": job(f"{NAME}-{n}", "FAILED") for n in (9, 10)}
    jobs |= {f"{NAME}-x": job(f"{NAME}-x", "RUNNING"), f"{NAME}9-1": job(f"{NAME}9-1", "RUNNING")}
    code, said = sent(Client(jobs), follow=False)
    assert code == 0
    assert said.startswith(f"submitted {NAME}-11\n")
    assert f"ray job logs --follow --address http://head:8265 {NAME}-11" in said
    client = Client(logs=[["one\n", "two\n"]], ends=job("x", "SUCCEEDED", 0))
    assert sent(client) == (0, f"submitted {NAME}-1\none\ntwo\n")
    assert client.sent == [
        {
            "entrypoint": SUBMISSION.entrypoint,
            "submission_id": f"{NAME}-1",
            "runtime_env": SUBMISSION.runtime_env,
        }
    ]


def test_running_attempt_is_followed_instead(sent: Any) -> None:
    jobs = {f"{NAME}-{n}": job(f"{NAME}-{n}", "FAILED", 75) for n in (1, 2, 9)}
    jobs[f"{NAME}-10"] = job(f"{NAME}-10", "PENDING")
    client = Client(jobs, [["log\n"]], job("x", "SUCCEEDED", 0))
    assert sent(client) == (0, f"already running, not submitted again: {NAME}-10\nlog\n")
    assert client.sent == []
    # Another follower may have been faster.
    client = Client(logs=[["its\n"]], ends=job("x", "FAILED", 75), rival=True)
    assert sent(client) == (75, f"already running, not submitted again: {NAME}-1\nits\n")


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (job("x", "FAILED", 75), 75, ""),
        (job("x", "FAILED", -9), 137, ""),
        (job("x", "STOPPED"), 75, f"{NAME}-1 was stopped; the same command continues its run\n"),
        (job("x", "FAILED", message="\nwhy\nand how"), 1, f"{NAME}-1 failed: why\n"),
        (
            job("x", "FAILED", message="gone", error_type=module.DIED),
            75,
            f"{NAME}-1 failed: gone\n",
        ),
    ],
)
def test_exit_code_is_the_job_s(sent: Any, end: Any, code: int, said: str) -> None:
    assert sent(Client(logs=[[]], ends=end)) == (code, f"submitted {NAME}-1\n{said}")


def test_interrupted_log_is_printed_once(sent: Any) -> None:
    logs: list[list[Any]] = [
        ["ab\n", RuntimeError("closed")],
        [],
        ["ab\n", "cd", ConnectionError("refused")],
        ["a", "b\ncd", "\nef\n"],
    ]
    assert sent(Client(logs=logs, ends=job("x", "SUCCEEDED", 0)))[1] == (
        f"submitted {NAME}-1\nab\ncd\nef\n"
    )
