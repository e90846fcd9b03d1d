"""Logs of commands: levels, JSON lines, and the stream that they go to."""

import json
import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from ace_ray.pipeline.monitoring.tally import Progress, Tally
from ace_ray.reports.printed_summary import tell_results
from ace_ray.rescoring.rejudge import rejudge_run
from ace_ray.util import log
from tests.pipeline.made_run import sound_run

SECRET = "sk-abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore level and format, which belong to the process."""
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
    """Read JSON lines without terminal sequences."""
    assert "\x1b" not in text
    return [json.loads(line) for line in text.splitlines()]


def test_a_json_line_has_fields_and_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    with log.use_console(Console(force_terminal=True)):
        with log.common_fields(run_id="r"):
            log.warning(f"a\nb \x1b[31m{SECRET}", done=3, at={"key": [SECRET, float("nan")]})
        log.info("after")
    logging.getLogger("ace_ray.somewhere").warning("own %s", 1)
    logging.getLogger("another.package").warning("theirs")
    logging.getLogger("another.package").info("less")
    output = capsys.readouterr()
    assert output.out == ""
    first, second, ours, theirs = lines(output.err)
    assert first["time"].endswith("Z")
    assert (first["level"], first["message"], first["run_id"]) == ("warning", "a b ***", "r")
    assert (first["done"], first["at"]) == (3, {"key": ["***", None]})
    assert "run_id" not in second
    assert (ours["logger"], ours["message"]) == ("ace_ray.somewhere", "own 1")
    assert (theirs["logger"], theirs["level"]) == ("another.package", "warning")


def test_a_text_line_has_its_traceback_and_no_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log.error("it ended: :100:", traceback=f"Traceback\n  line {SECRET}", done=3)
    output = capsys.readouterr()
    assert (output.out, output.err) == ("it ended: :100:\nTraceback\n  line ***\n", "")


def test_text_lines_go_to_the_console_of_printing(capsys: pytest.CaptureFixture[str]) -> None:
    lines = StringIO()
    with log.use_console(Console(file=lines)):
        log.info("inside")
    log.info("outside")
    assert (lines.getvalue(), capsys.readouterr().out) == ("inside\n", "outside\n")


@pytest.mark.parametrize(("level", "signs"), [("debug", "diwe"), ("warning", "we"), ("error", "e")])
def test_a_level_hides_lower_levels_and_no_result(level, signs, capsys) -> None:
    log.configure(level)
    log.debug("d")
    log.info("i")
    log.warning("w")
    log.error("e")
    log.print_result("the result")
    try:
        raise ValueError("why")
    except ValueError as error:
        log.fail(str(error))
    output = capsys.readouterr()
    assert output.out == "".join(f"{sign}\n" for sign in signs) + "the result\n"
    assert output.err.startswith("ace-ray: why\n")
    assert ("Traceback" in output.err) is (level == "debug")


def test_options_and_environment_choose_the_format(invoke, config_file, monkeypatch) -> None:
    option, words = ["--log-format", "json"], ["doctor", config_file()]
    for order in ([*words, *option], [*option, *words]):
        records = lines(invoke(*order).stdout)
        assert {"machine", "config", "output"} <= {line["topic"] for line in records}
        assert {line["level"] for line in records} == {"info"}
    monkeypatch.setenv("ACE_RAY_LOG_LEVEL", "error")
    result = invoke("evaluate", config_file(), "--plan", *option)
    assert {line["topic"] for line in lines(result.stdout)} >= {"rows", "results"}
    monkeypatch.setenv("ACE_RAY_LOG_LEVEL", "loud")
    assert invoke("doctor", config_file()).code == 2


def test_a_mistake_is_a_json_line(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Usage: ace-ray" in invoke("evaluate", "--bad").stderr
    monkeypatch.setenv("ACE_RAY_LOG_FORMAT", "json")
    for arguments in (("--bad",), ("evaluate", "--bad"), ("data", "bad")):
        result = invoke(*arguments)
        (line,) = lines(result.stderr)
        assert (result.code, result.stdout, line["level"]) == (2, "", "error")
        assert "bad" in line["message"]


def test_progress_is_a_line_with_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(form="json")
    tally = Tally()
    tally.workers.append({"load_s": 2.5, "start_s": {"weights": 2.0}})
    tally.add([(0, "b", "en", "scored", {}, 5, 5), (0, "b", "en", "skipped", {}, 0, 0)])
    tally.deaths.append("w1 ended")
    stream = StringIO()
    with log.use_console(Console(file=stream, force_terminal=True)):
        Progress(4).show(tally)
    assert stream.getvalue() == ""
    start, line, *_ = lines(capsys.readouterr().err)
    assert (start["event"], start["start_s"]) == ("engine_ready", {"weights": 2.0})
    assert line["message"].startswith("2/4 rows")
    numbers = ("event", "done", "planned", "not_scored", "engine_deaths")
    assert [line[name] for name in numbers] == ["progress", 2, 4, 1, 1]


def test_the_result_of_a_run_is_a_json_line(tmp_path, capsys) -> None:
    _, summary = rejudge_run(str(sound_run(tmp_path / "run")))
    capsys.readouterr()
    log.configure(form="json")
    tell_results(summary, 0)
    (line,) = lines(capsys.readouterr().out)
    assert (line["event"], line["exit_code"], line["scored"]) == ("results", 0, 8)
    assert line["scores"]["acebench"]["official"][-1]["value"] == 1.0
