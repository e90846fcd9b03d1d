"""Waits of engines by cause, and rows in flight over time."""

import pytest

from ace_ray.pipeline.health.heartbeat import EngineLoad
from ace_ray.pipeline.monitoring.tally import EngineCounts, Tally
from ace_ray.pipeline.monitoring.utilization import Backlog, Utilization


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
