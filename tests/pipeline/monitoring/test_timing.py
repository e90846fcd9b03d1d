"""Seconds of engine workers by state, their waits by cause, and the timing of a session."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ace_ray.cluster.resources import Resources
from ace_ray.pipeline.health.heartbeat import EngineLoad
from ace_ray.pipeline.monitoring.tally import EngineCounts, Tally
from ace_ray.pipeline.monitoring.timing import STATES, Clock, timing
from ace_ray.pipeline.monitoring.utilization import Backlog, Use, Utilization
from ace_ray.pipeline.summary import cost_of, costs
from ace_ray.storage.object_store import open_store
from ace_ray.storage.stored import read_summary


def test_every_second_has_one_state() -> None:
    now_s = [100.0]
    clock = Clock(lambda: now_s[0])

    def spent(seconds: float) -> dict[str, float]:
        now_s[0] += seconds
        read = clock.read()
        assert tuple(read) == STATES
        return {state: seconds for state, seconds in read.items() if seconds}

    assert spent(3) == {"idle": 3}
    clock.enter_state("load")
    spent(5)
    clock.enter_state("warm_up")
    spent(2)
    clock.enter_state(None)
    assert spent(1) == {"load": 5, "warm_up": 2, "idle": 4}
    clock.restart()
    with clock.track("row"):
        spent(1)
        with suppress(RuntimeError), clock.track("call"):
            spent(10)
            raise RuntimeError
        spent(2)
        with clock.track("call"):
            spent(20)
    assert spent(4) == {"generation": 30, "tool": 3, "idle": 4}


@pytest.mark.parametrize(
    ("resources", "device", "devices", "generation"),
    [
        # Served models are held as long as the engines.
        (Resources(2, 1.0, 4, 1, server_cpus=2.0, server_gpus=4), "gpu", 12, 120),
        (Resources(2, 1.5, 0, 1, server_cpus=2.0), "cpu", 5, 50),
        # An endpoint is not a device of the cluster.
        (Resources(2, 0.25, 0, 1, server_gpus=4, endpoint=True), "endpoint", 4, 40),
    ],
    ids=["GPUs", "CPUs", "endpoint"],
)
def test_device_seconds_cover_engines_served_models_and_earlier_sessions(
    resources: Resources, device: str, devices: float, generation: float
) -> None:
    tally = Tally()
    spent: dict[str, float] = {**dict.fromkeys(STATES, 0.0), "generation": 10.0, "load": 2.0}
    tally.counts_of(0).spent = {"a": (spent, 0), "b": (spent, 0)}
    arguments: dict[str, Any] = {"began": 0, "planned": 0, "reached": {}, "resources": resources}
    arguments["use"] = Use()
    result = timing([tally], 0, earlier={}, **arguments)
    assert (result["device"], result["devices"]) == (device, devices)
    assert result["device_s"]["generation"] == pytest.approx(generation)
    assert result["device_s"]["load"] == pytest.approx(generation / 5)
    more = timing([tally], 0, earlier=result, **arguments)
    assert more["device_s"]["generation"] == pytest.approx(2 * generation)
    assert (result["waits"], result["output_tokens_per_s"]) == (None, None)


def test_workers_have_a_speed_and_the_time_after_their_last_row_counts() -> None:
    tally, resources = Tally(), Resources(2, 1.0, 1, 1)
    spent: dict[str, float] = {**dict.fromkeys(STATES, 0.0), "generation": 10.0, "tool": 5.0}
    tally.counts_of(0).spent = {"a": (spent, 400), "b": ({**spent, "generation": 20.0}, 200)}
    tally.workers = [{"worker": name, "engine": {}} for name in "abc"]
    use = Use()
    use.engine_s, use.waited_s = 100.0, {"start": 40.0, "tail": 20.0}
    more: dict[str, Any] = {"began": 0.0, "planned": 0.0, "reached": {}}
    more["earlier"] = {"price_per_hour": 2.0}
    result = timing([tally], 0, resources=resources, use=use, **more)
    assert result["output_tokens_per_s"] == 20
    assert [worker["output_tokens_per_s"] for worker in result["workers"]] == [40, 10, None]
    assert result["waits"] == {"all": 0.7, "start": 0.4, "tail": 0.2, "tools": 0.1}
    assert (sum(result["device_s"].values()), result["device_s"]["idle"]) == (100, 60)
    assert cost_of(result) == pytest.approx(100 * 2 / 3600)
    assert costs(8.0, 4, 0) == {"total": 8, "per_entry": 2, "per_solved_entry": None}
    unknown: list[dict[str, Any]] = [{"price_per_hour": None}, {"device_s": {}}]
    for change in (*unknown, {"device": "endpoint"}):
        assert cost_of({**result, **change}) is None


def test_a_stored_span_below_zero_is_unknown(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("summary.json", b'{"timing": {"wall_s": -3549.45, "engine_start_s": 2.5}}')
    summary = read_summary(store)
    assert summary is not None
    assert (summary.timing.wall_s, summary.timing.engine_start_s) == (None, 2.5)


def test_time_until_the_first_row_by_phase() -> None:
    tally, reached = Tally(), {"ray": 13.0, "actors": 13.5}
    tally.begun_at = 15.0
    tally.deaths = ["host:1"]
    engine = {"versions": {"vllm": "1"}}
    tally.workers = [{"worker": "a", "engine": engine}, {"worker": "b", "engine": engine}]
    counts = tally.counts_of(0)
    counts.ready_at, counts.first_row_at, counts.last_row_at = 40.0, 42.25, 50.0
    counts.last_stored_at, counts.ended_rows = 52.0, 7
    counts.prompt_tokens = counts.completion_tokens = 20
    arguments: dict[str, Any] = {"began": 10.0, "planned": 12.0, "earlier": {}, "use": Use()}
    arguments["resources"] = Resources(1, 1.0, 0, 1)
    use = arguments["use"]
    use.most_rows_at, use.engine_s = 47.5, 72.0
    use.calls.extend([3, 8, 9])
    result = timing([tally], 0, reached=reached, **arguments)
    pace = {"until_90_s": 7.5, "last_tenth": 0.25, "calls_per_engine": 8}
    assert result["pace"] == {**pace, "episodes_per_engine_hour": 350}
    phases = {"plan": 2, "ray": 1, "actors": 0.5, "worker": 1.5, "engine": 25, "row": 2.25}
    assert result["until_first_row_s"] == phases
    assert sum(phases.values()) == result["first_row_s"]
    names = ("engine_start_s", "generation_wall_s", "until_stored_s")
    assert [result[name] for name in names] == [28, 10, 12]
    assert (result["tokens_per_s"], result["rows_evaluated"], result["passes"]) == (4, 7, 1)
    assert (result["engines"], result["engine_deaths"]) == ([engine], ["host:1"])
    assert [worker["worker"] for worker in result["workers"]] == ["a", "b"]
    # Ray started beside the plan of another run of the lane.
    early = timing([tally], 0, reached={**reached, "ray": 11.0}, **arguments)
    assert early["until_first_row_s"] == {}
    assert timing([], 0, reached=reached, **arguments) == {}


@pytest.mark.parametrize(
    ("engines", "backlog", "waited"),
    [
        # One of four workers is not known yet.
        (EngineCounts(starting=1, unused=1, at_work=1), Backlog(planned=3), {"start": 30}),
        (EngineCounts(unused=3, at_work=1), Backlog(), {"tail": 30}),
        (EngineCounts(idle=1, at_work=3), Backlog(planned=3), {"no_rows": 10}),
        (EngineCounts(idle=1, at_work=3), Backlog(checkers=1), {"tail": 10}),
        (EngineCounts(idle=4), Backlog(3, checker_queue=2, checkers=5), {"checker": 40}),
        (EngineCounts(idle=4), Backlog(checkers=5, writer=1), {"checker": 40}),
        (EngineCounts(idle=4), Backlog(3, writer_queue=1, writer=9), {"store": 40}),
        (EngineCounts(idle=4), Backlog(writer=1), {"store": 40}),
    ],
)
def test_each_second_of_an_engine_without_rows_has_one_cause(engines, backlog, waited) -> None:
    now_s = [100.0]
    use, tally = Utilization(lambda: now_s[0]), Tally()
    use.count_time(tally)  # no graph runs yet
    use.begin(4, {0: [None] * 10})
    use.note(backlog)
    tally.engines, tally.in_flight = engines, 6
    tally.load, tally.counts_of(0).ended_rows = EngineLoad(running=12), 9
    now_s[0] += 10
    use.count_time(tally)
    of_run = use.take(0)
    assert {cause: s for cause, s in of_run.waited_s.items() if s} == waited
    assert (of_run.engine_s, of_run.rows_in_flight()) == (40, {"every_s": 1.0, "rows": [6.0] * 10})
    assert [*of_run.calls] == [12 / n for n in [engines.at_work] if n]
    assert of_run.most_rows_at == 110, "9 of 10 rows"
    use.end()
    now_s[0] += 10
    use.count_time(tally)
    assert (use.take(0).engine_s, use.take(0).rows_in_flight()["rows"]) == (0, [])


def test_each_second_counts_for_one_run_of_a_lane() -> None:
    now_s = [100.0]
    use, tally = Utilization(lambda: now_s[0]), Tally()
    use.begin(1, {run: [None] for run in (0, 1, 2)})

    def look(seconds: float) -> None:
        now_s[0] += seconds
        use.count_time(tally)

    tally.engines = EngineCounts(starting=1)
    look(5)
    tally.engines = EngineCounts(at_work=1)
    tally.counts_of(0).ready_at = 1.0
    look(7)
    assert use.take(0).engine_s == 12
    look(1)  # the weights of the next run are being loaded
    tally.counts_of(1).ready_at = 2.0
    look(3)
    tally.counts_of(2).ready_at = 3.0
    look(9)
    assert [use.take(run).engine_s for run in (1, 2)] == [4, 9]
