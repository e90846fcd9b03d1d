"""A process with limits: a request that exceeds them ends it, and no other process."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.sandbox.limited import LimitBroken, LimitedProcess, ProcessLost
from ace_ray.sandbox.limited_child import call_limits

HANDLER = "test_limited:handler"
FORBIDDEN = [getattr(resource, f"RLIMIT_{kind}") for kind in ("CORE", "NOFILE", "FSIZE", "NPROC")]


def handler() -> Any:
    return lambda request: ACTIONS[request[0]](*request[1:])


def within_limits(action: Any, *arguments: Any) -> Any:
    with call_limits():
        return action(*arguments)


def mistaken() -> None:
    raise UserError("is wrong", where="here", fix="mend it")


def surrogates() -> str:
    return "\ud83d\ude00 \ud800 \U0001f600 \x00"


ACTIONS: Mapping[str, Any] = {
    "echo": lambda value: value,
    "surrogates": surrogates,
    "pid": os.getpid,
    "environment": lambda: sorted(os.environ),
    "mistake": mistaken,
    "divide": lambda: 1 // 0,
    "spin": lambda: within_limits(lambda: 7 ** (10**9)),
    "grow": lambda: within_limits(lambda: len(bytearray(512 << 20))),
    "grow slowly": lambda: within_limits(lambda: ["x" * 1000 + str(n) for n in range(10**8)]),
    "large": lambda: "x" * (65 << 20),
    "write": lambda path: open(path, "w").close(),
    "read": lambda: open("/etc/passwd").read(),  # noqa: SIM115
    "system": lambda path: os.system(f"touch {path}"),
    "fork": os.fork,
    "spawn": lambda: subprocess.run(["true"], check=True),
    "socket": lambda: __import__("socket").create_server(("", 0)),
    "import": lambda name: __import__(name).__name__,
    "kill": lambda pid: os.kill(pid, signal.SIGKILL),
    "pipe": os.pipe,
    "lift": lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)),
    "lift_within": lambda: within_limits(resource.setrlimit, resource.RLIMIT_CPU, (9, 9)),
    "limits": lambda: [resource.getrlimit(kind) for kind in FORBIDDEN],
    "sleep": time.sleep,
    "places": lambda: [os.getcwd(), *sys.path],
    "seconds": lambda: within_limits(
        lambda: resource.getrlimit(resource.RLIMIT_CPU)[0] - time.process_time()
    ),
}


@pytest.fixture
def process() -> Iterator[LimitedProcess]:
    sys.path.insert(0, str(Path(__file__).parent))
    handler = LimitedProcess(HANDLER)
    sys.path.pop(0)
    yield handler
    handler.end()


def gone(pid: int) -> bool:
    """Return whether the process ends within a minute, or is a zombie."""
    for _ in range(600):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_values_arrive_and_errors_are_named(process: LimitedProcess) -> None:
    value = {"a": [1, 1.5, None, True, "é\n"], "nested": [[["x"]]], "big": 10**50}
    assert process.ask(["echo", value]) == value
    assert process.ask(["surrogates"]) == surrogates()
    assert process.ask(["echo", surrogates()]) == surrogates()
    with pytest.raises(UserError, match="here: is wrong; mend it"):
        process.ask(["mistake"])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        process.ask(["divide"])
    with pytest.raises(LimitBroken):
        process.ask(["echo", "x" * (65 << 20)])
    assert process.ask(["echo", 1]) == 1


@pytest.mark.parametrize("action", ["spin", "grow", "grow slowly", "large"])
def test_a_request_that_exceeds_a_limit_ends_the_process(process, action) -> None:
    pid = process.ask(["pid"])
    with pytest.raises(LimitBroken, match="takes more than 1 s or 256 MiB"):
        process.ask([action])
    assert not process.is_alive
    assert gone(pid)


def test_a_process_that_is_killed_broke_no_limit(process: LimitedProcess) -> None:
    os.kill(process.ask(["pid"]), signal.SIGKILL)
    with pytest.raises(ProcessLost, match="-9"):
        process.ask(["echo", 1])


def test_a_process_that_is_silent_is_ended(process, monkeypatch) -> None:
    pid = process.ask(["pid"])
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr("ace_ray.sandbox.limited.ANSWER_S", 0.2)
    with pytest.raises(ProcessLost, match="no answer"):
        process.ask(["echo", 1])
    assert gone(pid)


def test_it_reaches_nothing(process: LimitedProcess, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    requests: tuple[list[Any], ...] = (
        *(["write", str(marker)], ["read"], ["system", str(marker)], ["fork"], ["spawn"]),
        *(["socket"], ["import", "colorsys"], ["kill", os.getpid()], ["pipe"]),
        *(["lift"], ["lift_within"]),
    )
    for request in requests:
        with pytest.raises(RuntimeError, match=r"not allowed here|Too many open files"):
            process.ask(request)
    assert not marker.exists()
    assert process.ask(["limits"]) == [[0, 0]] * 4, "the kernel's limits, too"


def test_it_starts_without_our_environment_or_package_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    root = Path(__file__).parents[2]
    paths = [path for path in sys.path if path and Path(path).resolve() != root]
    monkeypatch.setattr(sys, "path", ["", *paths, str(Path(__file__).parent)])
    monkeypatch.chdir(tmp_path)
    process = LimitedProcess(HANDLER)
    assert "SOME_API_KEY" not in process.ask(["environment"])
    assert str(tmp_path) not in process.ask(["places"])
    assert 1 <= process.ask(["seconds"]) <= 2
    process.end()


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    script = f"""
import sys, time
sys.path[:0] = {sys.path!r}
sys.path.insert(0, {str(Path(__file__).parent)!r})
from ace_ray.sandbox.limited import LimitedProcess
process = LimitedProcess({HANDLER!r})
print(process.ask(["pid"]), flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(child)
