"""The cause of an engine that does not start, out of what its processes print."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from ace_ray.models import start_failure
from ace_ray.models.start_failure import LONGEST, OutputCapture, first_error, root_cause, tail

WRAPPER = RuntimeError(
    "Engine core initialization failed. See root cause above. Failed core proc(s): {}"
)


def logged(process: str, *lines: str, level: str = "ERROR") -> str:
    """As vLLM's log has it."""
    head = f"({process} pid=71) {level} 11-24 21:40:45 [core.py:1510] "
    return "".join(f"{head}{line}\n" for line in lines)


TRACE = ("Traceback (most recent call last):", '  File "core.py", line 1, in run', "    load()")


def test_the_core_s_error_is_the_cause():
    text = logged("EngineCore", "EngineCore failed to start.", *TRACE, "ValueError: no KV cache")
    raw = "\n".join(
        [*TRACE, "RuntimeError: Engine core initialization failed. See root cause above"]
    )
    assert root_cause(text + raw, WRAPPER) == "ValueError: no KV cache"


def test_a_worker_s_comes_before_the_core_s():
    text = logged("EngineCore", *TRACE, "OSError: a follower")
    text += logged("Worker_TP1", "WorkerProc failed to start.", *TRACE, "KeyError: 'lm_head'")
    assert root_cause(text, WRAPPER) == "KeyError: 'lm_head'"


def test_lines_of_two_processes_may_be_mixed():
    a = logged("Worker_TP0", *TRACE, "ValueError: one").splitlines()
    b = logged("EngineCore", *TRACE, "ValueError: two").splitlines()
    mixed = "\n".join(line for pair in zip(a, b, strict=True) for line in pair)
    assert first_error(mixed) == "ValueError: one"


def test_of_errors_while_another_was_handled_the_last_counts():
    text = logged(
        "EngineCore",
        *TRACE,
        "KeyError: 'x'",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        *TRACE,
        "ValueError: there is no architecture x",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        *TRACE,
        "RuntimeError: a follower",
    )
    assert first_error(text) == "ValueError: there is no architecture x"


def test_what_was_logged_as_a_warning_is_no_cause():
    text = logged("EngineCore", *TRACE, "ImportError: no triton", level="WARNING")
    assert first_error(text) == ""


def test_a_message_of_several_lines_is_one_line():
    text = logged("EngineCore", *TRACE, "RuntimeError: size mismatch:", "\tcopying w", "\tof 3")
    text += logged("EngineCore", "another record", level="INFO")
    assert first_error(text) == "RuntimeError: size mismatch: copying w of 3"


def test_of_ray_s_error_it_is_that_of_its_actor():
    text = logged(
        "EngineCore",
        *TRACE,
        "ray.exceptions.ActorDiedError: The actor died because of an error in its creation task",
        '  File "worker.py", line 3, in __init__',
        "torch.OutOfMemoryError: tried to allocate 80 GiB",
    )
    assert first_error(text) == "torch.OutOfMemoryError: tried to allocate 80 GiB"


def test_what_the_parent_meets_itself_needs_no_log():
    error = ValueError(
        "1 validation error for ModelConfig\n  Value error, max_model_len (9) is too large. "
        "[type=value_error, input_value=ArgsKwargs((), {'model': 'm'}), input_type=ArgsKwargs]"
    )
    assert root_cause("", error) == "max_model_len (9) is too large."


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("{'EngineCore_DP0': 3}", "EngineCore_DP0 ended with exit code 3 without an error"),
        ("{'EngineCore_DP0': -9}", "EngineCore_DP0 was killed by SIGKILL (out of memory?)"),
        ("{}", "its process ended without an error; last output: one | two"),
    ],
)
def test_without_an_error_it_is_how_the_core_ended(told: str, shown: str):
    error = RuntimeError(f"Engine core initialization failed. See root cause above. {told}")
    assert root_cause("one\n\ntwo\n", error).startswith(shown)


def test_it_is_bounded_and_without_secrets():
    key = "hf_" + "a" * 30
    text = logged("EngineCore", *TRACE, f"OSError: token={key} \x1b[31m{'x' * 10_000}")
    line = first_error(text)
    assert key not in line
    assert "\x1b" not in line
    assert len(line) < LONGEST + 40
    assert key not in tail(f"Authorization: Bearer {key}\n")
    assert tail("") == "no output"


def fail(*commands: str) -> None:
    for code in commands:
        subprocess.run([sys.executable, "-c", code], check=True)
    raise ZeroDivisionError


def test_what_children_print_is_kept_and_goes_where_it_went(capfd: pytest.CaptureFixture[str]):
    captured = OutputCapture()
    with pytest.raises(ZeroDivisionError), captured:
        fail("import os; os.write(1, b'out'); os.write(2, b'err')")
    assert sorted([captured.text[:3], captured.text[3:]]) == ["err", "out"]
    subprocess.run([sys.executable, "-c", "print('later')"], check=True)
    said = capfd.readouterr()
    assert said.out.split() == ["outlater"]
    assert said.err == "err"
    assert "later" not in captured.text


def test_a_child_that_stays_prints_on(capfd: pytest.CaptureFixture[str]):
    with OutputCapture() as captured:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    child.communicate(b"still here")
    wait_until(lambda: "still here" in capfd.readouterr().out)
    assert captured.text == ""


def test_of_much_the_end_is_kept(monkeypatch: pytest.MonkeyPatch, capfd: object):
    monkeypatch.setattr(start_failure, "MOST_BYTES", 1000)
    captured = OutputCapture()
    with pytest.raises(ZeroDivisionError), captured:
        fail("for number in range(30_000): print('line', number)")
    assert captured.text.endswith("line 29999\n")
    assert "line 0\n" not in captured.text


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


CPU_ENGINE = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


START = """
import json, sys
from pathlib import Path
from ace_ray.errors import EngineNotStarted
from ace_ray.models.families import FormatChoice
from ace_ray.models.vllm_engine import VLLMEngine
if __name__ == "__main__":
    try:
        VLLMEngine(Path(sys.argv[1]), json.loads(sys.argv[2]), FormatChoice("none"))
    except EngineNotStarted as error:
        print("CAUSE", error)
"""


def started(folder: Path, **engine: object) -> str:
    """Why an engine on ``folder`` does not start, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", START, str(folder), json.dumps({"enforce_eager": True, **engine})],
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    causes = [line for line in done.stdout.splitlines() if line.startswith("CAUSE")]
    assert len(causes) == 1, done.stdout + done.stderr
    assert "root cause" not in causes[0]
    return causes[0]


@pytest.mark.engine
@pytest.mark.nightly
@CPU_ENGINE
def test_a_context_that_is_too_long_is_named(tiny_llama: Callable[..., Path], tmp_path: Path):
    assert "max_model_len (99999)" in started(tiny_llama(tmp_path / "m"), max_model_len=99_999)


@pytest.mark.engine
@CPU_ENGINE
@pytest.mark.nightly
def test_a_kv_cache_that_is_too_small_is_named(tiny_llama: Callable[..., Path], tmp_path: Path):
    line = started(tiny_llama(tmp_path / "m"), kv_cache_memory_bytes=1 << 12, max_model_len=2048)
    assert "No available memory for the cache blocks" in line


@pytest.mark.engine
@CPU_ENGINE
@pytest.mark.nightly
def test_damaged_weights_are_named(tiny_llama: Callable[..., Path], tmp_path: Path):
    folder = tiny_llama(tmp_path / "m")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    line = started(folder, kv_cache_memory_bytes=1 << 24, max_model_len=128)
    assert "safetensors" in line.lower()


def test_a_log_that_nobody_reads_does_not_hold_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_failure, "DRAIN_S", 0.2)
    unread, full = os.pipe()
    before = os.dup(1)
    os.dup2(full, 1)
    try:
        with OutputCapture():
            child = subprocess.Popen([sys.executable, "-c", "print('x' * (1 << 20))"])
            select.select([unread], [], [])  # more than both pipes hold is on its way
    finally:
        os.dup2(before, 1)
        for descriptor in (before, full):
            os.close(descriptor)
    child.kill()
    child.wait()
    os.close(unread)
