"""What commands say while they work: levels, JSON lines, and where they go."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ace_ray.cluster import connection
from ace_ray.pipeline.monitoring import counts
from ace_ray.pipeline.monitoring.counts import Tally
from ace_ray.pipeline.submit import make_submission
from ace_ray.util import log
from ace_ray.util.subprocesses import module_environment

SECRET = "sk-abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Level and format are of a whole process."""
    logger, root = logging.getLogger("ace_ray"), logging.getLogger()
    before = logger.handlers[:], logger.propagate, root.handlers[:]
    for name in ("ACE_RAY_LOG_LEVEL", "ACE_RAY_LOG_FORMAT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    logger.handlers, logger.propagate = [], True
    yield
    logger.handlers, logger.propagate, root.handlers = before
    logger.setLevel(logging.NOTSET if not before[0] else logging.INFO)
    logging.captureWarnings(False)


def lines(text: str) -> list[dict[str, Any]]:
    """Each line is one JSON object, and has no terminal's sequences."""
    assert "\x1b" not in text
    return [json.loads(line) for line in text.splitlines()]


def test_a_json_line_holds_fields_and_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    say = log.say_on(Console(force_terminal=True))
    with log.known(run_id="r"):
        say(log.warning(f"a\nb \x1b[31m{SECRET}", done=3, at={"key": [SECRET, float("nan")]}))
    say("after")
    said = capsys.readouterr()
    assert said.out == ""
    first, second = lines(said.err)
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "warning",
        "logger": "ace_ray",
        "message": "a b ***",
        "run_id": "r",
        "done": 3,
        "at": {"key": ["***", None]},
    }
    assert "run_id" not in second


def test_text_is_as_it_was_and_a_traceback_keeps_its_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.say(log.error("it ended: :100:", traceback=f"Traceback\n  line {SECRET}", done=3))
    said = capsys.readouterr()
    assert (said.out, said.err) == ("it ended: :100:\nTraceback\n  line ***\n", "")


@pytest.mark.parametrize(
    ("level", "shown"), [("debug", "diwe"), ("info", "iwe"), ("warning", "we"), ("error", "e")]
)
def test_a_level_hides_what_is_below_and_no_result(
    level: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log.configure(level)
    for line in (log.debug("d"), "i", log.warning("w"), log.error("e")):
        log.say(line)
    log.result("the result")
    log.fail("why")
    said = capsys.readouterr()
    assert said.out == "".join(f"{sign}\n" for sign in shown) + "the result\n"
    assert said.err == "ace-ray: why\n"


def test_at_level_debug_an_error_has_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    for level in ("info", "debug"):
        log.configure(level)
        try:
            raise ValueError("why")
        except ValueError as error:
            log.fail(str(error))
    said = capsys.readouterr().err
    assert said.startswith("ace-ray: why\nace-ray: why\nTraceback")
    assert said.rstrip().endswith("ValueError: why")


def test_loggers_of_modules_go_through_the_same_door(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    logging.getLogger("ace_ray.somewhere").warning("own %s", 1)
    logging.getLogger("another.package").warning("theirs")
    logging.getLogger("another.package").info("less")
    own, theirs = lines(capsys.readouterr().err)
    assert (own["logger"], own["message"]) == ("ace_ray.somewhere", "own 1")
    assert (theirs["logger"], theirs["level"]) == ("another.package", "warning")


def test_a_program_with_handlers_of_its_own_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    taken = StringIO()
    handler = logging.StreamHandler(taken)
    logging.getLogger("ace_ray").addHandler(handler)
    logging.getLogger("ace_ray").setLevel(logging.INFO)
    log.say("a line")
    assert taken.getvalue() == "a line\n"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("after", [False, True])
def test_options_stand_before_or_after_the_command(
    after: bool, here: Any, config_file: Callable[..., Path]
) -> None:
    option = ["--log-format", "json"]
    words = ["doctor", config_file()]
    done = here(*([*words, *option] if after else [*option, *words]))
    assert done.code == 0
    found = lines(done.stdout)
    assert {"machine", "config", "output"} <= {line["topic"] for line in found}
    assert {line["level"] for line in found} == {"info"}


def test_the_environment_is_asked_and_a_mistake_is_a_line(
    here: Any, config_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACE_RAY_LOG_FORMAT", "json")
    monkeypatch.setenv("ACE_RAY_LOG_LEVEL", "error")
    done = here("evaluate", config_file(nonsense=1))
    (line,) = lines(done.stderr)
    assert (done.code, done.stdout, line["level"]) == (2, "", "error")
    assert "unknown key 'nonsense'" in line["message"]
    done = here("evaluate", config_file(), "--plan")
    assert {line["topic"] for line in lines(done.stdout)} >= {"rows", "results"}
    done = here("evaluate", "--nonsense")
    (line,) = lines(done.stderr)
    assert done.code == 2
    assert "--nonsense" in line["message"]
    monkeypatch.setenv("ACE_RAY_LOG_LEVEL", "loud")
    assert here("doctor", config_file()).code == 2


def test_progress_is_lines_with_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(form="json")
    tally = Tally()
    tally.workers.append({"load_s": 2.5, "start_s": {"weights": 2.0}})
    tally.add([(0, "b", "en", "scored", {}, 5, 5), (0, "b", "en", "skipped", {}, 0, 0)])
    tally.deaths.append("w1 ended")
    said = StringIO()
    counts.Progress(4, log.say_on(Console(file=said, force_terminal=True))).show(tally)
    assert said.getvalue() == ""
    start, line, *_ = lines(capsys.readouterr().err)
    assert (start["event"], start["start_s"]) == ("engine_ready", {"weights": 2.0})
    assert line["event"] == "progress"
    assert {name: line[name] for name in ("done", "planned", "not_scored", "engine_deaths")} == {
        "done": 2,
        "planned": 4,
        "not_scored": 1,
        "engine_deaths": 1,
    }
    assert line["message"].startswith("2/4 rows")


def test_child_processes_and_jobs_log_as_they_are_told(
    config_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, checkout = str(config_file(output="s3://b/p")), tmp_path / "checkout"
    (checkout / "jobs").mkdir(parents=True)
    (checkout / "jobs" / "evaluate.py").touch()
    submitted = partial(make_submission, "evaluate", config, checkout=checkout)
    assert "env_vars" not in submitted().runtime_env
    assert connection._logging() is None
    log.configure("debug", "json")
    told = {"ACE_RAY_LOG_LEVEL": "debug", "ACE_RAY_LOG_FORMAT": "json"}
    submission = submitted()
    assert submission.runtime_env["env_vars"] == told
    assert '"ACE_RAY_LOG_LEVEL": "debug"' in submission.command(None)
    assert connection._logging() == {"env_vars": told}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert connection._logging() is None, "the job's own environment has them"
    code = "from ace_ray.util import log; log.say(log.debug('d', a=1))"
    child = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=module_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = lines(child.stderr)
    assert (line["message"], line["a"]) == ("d", 1)


@pytest.mark.parametrize("arguments", [("--bad",), ("evaluate", "--bad"), ("data", "bad")])
def test_a_mistake_of_the_command_line_is_a_json_line(
    here: Any, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    assert "Usage: ace-ray" in here(*arguments).stderr
    monkeypatch.setenv("ACE_RAY_LOG_FORMAT", "json")
    ended = here(*arguments)
    (line,) = lines(ended.stderr)
    assert (ended.code, ended.stdout, line["level"]) == (2, "", "error")
    assert "bad" in line["message"]
