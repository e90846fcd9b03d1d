"""Root causes of failed engine starts, and the phases of a start, from the output of vLLM."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from ace_ray.errors import EngineNotStarted
from ace_ray.models import start_failure
from ace_ray.models.start_failure import LONGEST, capture_start, first_error, root_cause, tail
from ace_ray.models.start_phases import MARKS, StartPhases
from ace_ray.util import vllm_source

WRAPPER = RuntimeError(
    "Engine core initialization failed. See root cause above. Failed core proc(s): "
)


def logged(process: str, *lines: str, level: str = "ERROR") -> str:
    head = f"({process} pid=71) {level} 11-24 21:40:45 [core.py:1510] "
    return "".join(f"{head}{line}\n" for line in lines)


TRACE = ("Traceback (most recent call last):", '  File "core.py", line 1, in run', "    load()")


FAILED = "EngineCore failed to start."
RAISED = "ray.exceptions.ActorDiedError: The actor died because of an error in its creation task"
HANDLING = "During handling of the above exception, another exception occurred:"
DIRECT = "The above exception was the direct cause of the following exception:"
MIXED = [
    logged("Worker_TP0", *TRACE, "ValueError: one").splitlines(keepends=True),
    logged("EngineCore", *TRACE, "ValueError: two").splitlines(keepends=True),
]
CASES = {
    "of the core": (
        logged("EngineCore", FAILED, *TRACE, "ValueError: no KV cache")
        + logged("Worker_TP1", *TRACE, "OSError: a follower")
        + "\n".join([*TRACE, f"RuntimeError: {WRAPPER}"]),
        "ValueError: no KV cache",
    ),
    "in mixed lines": ("".join(map("".join, zip(*MIXED, strict=True))), "ValueError: one"),
    "raised while another was handled": (
        logged("EngineCore", *TRACE, "KeyError: 'x'", "", HANDLING, "", *TRACE)
        + logged("EngineCore", "ValueError: unknown", "", DIRECT, "", *TRACE, "OSError: follower"),
        "ValueError: unknown",
    ),
    "of several lines": (
        logged("EngineCore", *TRACE, "RuntimeError: size mismatch:", "\tcopying w", "\tof 3")
        + logged("EngineCore", "another record", level="INFO"),
        "RuntimeError: size mismatch: copying w of 3",
    ),
    "of Ray's actor": (
        logged("EngineCore", *TRACE, RAISED, "torch.OutOfMemoryError: tried to allocate 80 GiB"),
        "torch.OutOfMemoryError: tried to allocate 80 GiB",
    ),
    "a warning": (logged("EngineCore", *TRACE, "ImportError: no triton", level="WARNING"), ""),
}


@pytest.mark.parametrize("case", CASES)
def test_the_first_error_is_the_cause(case: str):
    text, cause = CASES[case]
    assert first_error(text) == cause
    if cause:
        assert root_cause(text, WRAPPER) == cause


def test_without_an_error_in_the_log_the_parent_tells() -> None:
    error = RuntimeError(f"{WRAPPER}{{'EngineCore_DP0': -9}}")
    line = root_cause("one\n\ntwo\n", error)
    assert line.endswith(
        "'EngineCore_DP0': -9} (-9: killed, out of memory?); last output: one | two"
    )
    invalid = ValueError(
        "1 validation error for ModelConfig\n  Value error, max_model_len (9) is too large. "
        "[type=value_error, input_value=ArgsKwargs((), {'model': 'm'}), input_type=ArgsKwargs]"
    )
    assert root_cause("", invalid).endswith(
        "ModelConfig Value error, max_model_len (9) is too large."
    )


def test_a_cause_is_bounded_and_without_secrets():
    key = "hf_" + "a" * 30
    text = logged("EngineCore", *TRACE, f"OSError: token={key} \x1b[31m{'x' * 10_000}")
    line = first_error(text)
    assert key not in line
    assert "\x1b" not in line
    assert len(line) < LONGEST + 40
    assert key not in tail(f"Authorization: Bearer {key}\n")
    assert tail("") == "no output"


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_output_of_a_failed_start_is_passed_on_and_names_the_cause(capfd, monkeypatch) -> None:
    def fail(code: str) -> str:
        try:
            with capture_start():
                run(code)
                raise WRAPPER
        except EngineNotStarted as error:
            return str(error)

    # The two streams may be read in any order.
    line = fail("import os; os.write(1, b'out\\n\\n'); os.write(2, b'OSError: err\\n\\n')")
    assert line == "OSError: err"
    run("print('later')")
    printed = capfd.readouterr()
    assert printed.out == "out\n\nlater\n"
    assert printed.err == "OSError: err\n\n"
    # The end of a long output is kept.
    monkeypatch.setattr(start_failure, "MOST_BYTES", 1000)
    line = fail("print('OSError: old'); [print('line', number) for number in range(30_000)]")
    assert line.endswith("line 29998 | line 29999")


LOG = (
    b"(Worker pid=580) INFO 11-25 17:10:52 [cpu_model_runner.py:68] Starting to load model m\n"
    b"(Worker pid=581) INFO 11-25 17:10:52 [cpu_model_runner.py:68] Starting to load model m\n",
    b"(Worker pid=580) INFO 11-25 17:10:54 [default_loader.py:501] Loading weights took 2 s",
    b"(Worker pid=581) INFO 11-25 17:10:52 [base_loader.py:82] Initializing model took 0.1 seconds",
    b"(EngineCore pid=568) INFO 11-25 17:10:56 [kv_cache_utils.py:2327] CPU KV cache size: 7",
)


def test_each_phase_has_its_seconds() -> None:
    clock_s, heard = [0.0], list[str]()
    phases = StartPhases(heard.append, lambda: clock_s[0])
    phases.begin("process")
    for chunk in LOG:
        clock_s[0] += 2
        phases.read(chunk)
    clock_s[0] += 1
    assert phases.seconds() == {"process": 2, "weights": 2, "cache": 4}
    phases.end()
    phases.read(LOG[0])
    assert phases.seconds() == {"process": 2, "weights": 2, "cache": 4, "warm-up": 1}
    assert heard == ["process", "weights", "cache", "warm-up"]


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_the_installed_vllm_says_every_mark() -> None:
    folder = vllm_source.folder()
    assert folder is not None
    folders = ("v1/worker", "model_executor/model_loader", "v1/core")
    files = [file for name in folders for file in (folder / name).rglob("*.py")]
    source = b"".join(file.read_bytes() for file in files)
    assert [mark for marks in MARKS.values() for mark in marks if mark not in source] == []
