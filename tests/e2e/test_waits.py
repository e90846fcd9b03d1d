"""The causes of waits in runs where they are planted, and the cost of the runs."""

import pytest

BENCHMARK = """
import asyncio, time
from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry, Verdict

class Slow(Benchmark):
    name = "slow"

    def entries(self):
        return [Entry(id=str(i), prompt=f"{i}?", gold=i) for i in range(24)]

    async def run(self, entry, context):
        await context.answer(self.prompt(entry))
        await asyncio.sleep(LAST_S * (entry.id == "0"))
        return context.episode

    def check(self, entry, episode):
        time.sleep(CHECK_S)
        return Verdict(int(entry.id) < 12)
"""


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize(("cause", "check_s", "last_s"), [("checker", 0.4, 0), ("tail", 0, 10)])
def test_a_summary_says_why_engines_waited(evaluate, tmp_path, cause, check_s, last_s) -> None:
    text = BENCHMARK.replace("CHECK_S", str(check_s)).replace("LAST_S", str(last_s))
    (tmp_path / "slow.py").write_text(text)
    benchmark = {"name": f"{tmp_path}/slow.py:Slow"}
    result = evaluate(benchmarks=[benchmark], workers=2, worker_cpus=0.2, price_per_hour=3600)
    waits, timing = result.summary["timing"]["waits"], result.summary["timing"]
    other_causes = {"no_rows", "tail", "checker", "store"} - {cause}
    assert waits[cause] > max(waits[name] for name in other_causes), waits
    assert "engines waited" in result.stdout
    # Rows that end at once may be in flight at no look.
    assert not last_s or max(timing["rows_in_flight"]["rows"]) >= 1
    cost = result.summary["cost"]
    assert cost["total"] == pytest.approx(sum(timing["device_s"].values()), rel=1e-4)
    assert cost["per_solved_entry"] == pytest.approx(2 * cost["per_entry"], rel=1e-4)
