"""When a run must end, and which rows can still end in time."""

import threading
import time

import pytest
from rich.console import Console

from ace_ray.cluster import connection
from ace_ray.errors import COMPLETE, UserError
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.end_time import RowTimes, rows_end_at, share_end
from ace_ray.pipeline.evaluate import evaluate
from tests.pipeline.made_run import answered, planned_run, written_run


def unix_times(environment: dict[str, str]) -> dict[str, str]:
    """Return ``environment``, whose seconds are of the monotonic clock, with Unix times."""
    boot = time.time() - time.monotonic()
    return {name: text and str(boot + float(text)) for name, text in environment.items()}


@pytest.mark.parametrize(
    ("limit", "environment", "end"),
    [
        ("auto", {}, None),
        (None, {"SLURM_JOB_END_TIME": "5000"}, None),
        ("auto", {"SLURM_JOB_END_TIME": "5000", "ACE_RAY_END_TIME": "6000"}, 4940.0),
        ("1h", {"ACE_RAY_END_TIME": "90000"}, 1000 + 3600 - 60.0),
        ("5m", {"SLURM_JOB_END_TIME": ""}, 1000 + 300 - 20.0),
        ("auto", {"ACE_RAY_END_TIME": "5000.5"}, 4940.5),
    ],
)
def test_a_run_ends_before_its_limit_and_before_the_end_of_its_job(limit, environment, end) -> None:
    assert rows_end_at(limit, 1000.0, unix_times(environment)) == pytest.approx(end, abs=0.1)


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf"])
def test_an_end_that_is_not_a_unix_time_is_refused(value: str) -> None:
    with pytest.raises(UserError, match=rf"^ACE_RAY_END_TIME: '{value}' is not a Unix time; set "):
        rows_end_at("1h", 1000.0, {"ACE_RAY_END_TIME": value})


@pytest.mark.parametrize("name", ["SLURM_JOB_END_TIME", "ACE_RAY_END_TIME"])
def test_a_job_that_has_ended_refuses_only_runs_with_rows_left(name, tmp_path, monkeypatch) -> None:
    config = planned_run(tmp_path / "run", ModelRef("fake", "fake", "fake", "fake")).config
    for variable in ("SLURM_JOB_END_TIME", "ACE_RAY_END_TIME"):
        monkeypatch.setenv(variable, "1700000000" if variable == name else "4000000000")
    monkeypatch.setattr(connection, "connect_early", lambda: pytest.fail("Ray was started"))
    with pytest.raises(UserError, match=rf"^{name}: this end time has passed"):
        evaluate(config, fresh=False, console=Console(quiet=True))
    written_run(tmp_path / "run", answered)
    code, summary = evaluate(config, fresh=False, console=Console(quiet=True))
    assert (code, summary["scored"]) == (COMPLETE, 8)


def test_a_run_stops_at_its_limit_before_ray_is_up(tmp_path, monkeypatch) -> None:
    run = planned_run(tmp_path / "run", ModelRef("fake", "fake", "fake", "fake"))
    config = run.config.model_copy(update={"time_limit": "60s"})
    up = threading.Event()
    monkeypatch.setattr(connection, "_connect", lambda: up.wait(20))
    with pytest.raises(KeyboardInterrupt, match="limit was reached before an engine was ready"):
        evaluate(config, fresh=False, console=Console(quiet=True), began=time.monotonic() - 41)
    up.set()


def test_a_row_is_expected_to_take_as_long_as_most_rows_of_its_category() -> None:
    durations = RowTimes(None, [], lambda run: True)
    assert durations.expected_s("agent") == 0.0
    for second in range(1, 11):
        durations.add("single", float(second))
    assert durations.expected_s("agent") == durations.expected_s("single") == 8.0
    durations.add("agent", 300.0)
    assert (durations.expected_s("agent"), durations.expected_s("single")) == (300.0, 8.0)
    # A row that is expected to take three times as long took 60 s, so half of it is typical.
    durations.add("other", 60.0, length=3.0)
    assert durations.expected_s("other", length=0.5) == 10.0


@pytest.mark.parametrize(
    ("later", "row_s", "end"), [(0, 0.0, 400), (3, 0.0, 175), (3, 80.0, 200), (3, 900.0, 400)]
)
def test_runs_share_the_time_that_is_left(later: int, row_s: float, end: float) -> None:
    assert share_end(100.0, 400.0, later, row_s) == end
