"""Upstream's results JSON: written of stored rows, read back as the same episodes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.outputs import Entries
from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.errors import UserError
from ace_ray.records import Entry, Episode
from tests.benchmarks.tau2.scripted import Scripted, entry_of, made, play

pytestmark = pytest.mark.usefixtures("package")
SUMMARY = {"model": {"source": "s3://bucket/secret-place/org/name-7b"}}


def row(benchmark: Tau2, entry: Entry, episode: Episode, sample: int = 0) -> dict[str, Any]:
    verdict = benchmark.verdicts(entry, episode)["official"]
    return {
        "row_id": f"{entry.category}/{entry.id}/{sample}",
        "category": entry.category,
        "id": entry.id,
        "sample": sample,
        "seed": sample,
        "status": "scored",
        "state": json.dumps(episode.state),
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "duration_s": 1.5,
        "official_valid": verdict.valid,
        "official_error": verdict.error,
        "official_metrics": json.dumps(verdict.metrics),
    }


@pytest.fixture(scope="module")
def benchmark(package: object) -> Tau2:
    url = "https://host.example/v1"
    user = {"endpoint": {"url": url, "model": "gpt-x", "api_key_env": None}}
    return made(domains=["airline", "telecom_solo"], user=user)


def test_it_reads_back_what_was_written(benchmark: Tau2, tmp_path: Path) -> None:
    rows, played = [], []
    for category, agent in (
        ("airline", Scripted([("list_all_airports", {}), ("nothing", {"a": 1})], "42 of them.")),
        ("telecom_solo", Scripted(("toggle_data", {}), ("done", {}))),
    ):
        entry = entry_of(benchmark, category)
        episode = play(benchmark, entry, agent, Scripted("Hi", "###STOP###"))
        rows += [row(benchmark, entry, episode, sample) for sample in (0, 1)]
        played.append((entry, episode))
    rows.append({**rows[0], "status": "infra_error", "sample": 2, "state": None})
    files = dict(benchmark.files(lambda: iter(rows), SUMMARY))
    assert set(files) == {"results_airline.json", "results_telecom_solo.json"}
    entries = Entries.among(benchmark.dataset())
    for (entry, episode), (name, content) in zip(played, files.items(), strict=True):
        tree = json.loads(content)
        assert len(tree["simulations"]) == 2
        assert tree["info"]["num_trials"] == 3
        assert tree["info"]["agent_info"]["llm"] == "name-7b"
        assert b"secret-place" not in content
        assert b"host.example" not in content
        path = tmp_path / name
        path.write_bytes(content)
        first, second = benchmark.outputs(path, entries)
        assert (first.entry, first.sample, second.sample) == (entry, 0, 1)
        assert first.episode.state["trajectory"] == episode.state["trajectory"]
        assert benchmark.verdicts(entry, first.episode) == benchmark.verdicts(entry, episode)


@pytest.mark.parametrize("year", [9999, 1, 1969])
def test_any_time_has_a_place_in_the_file(benchmark: Tau2, year: int) -> None:
    entry = entry_of(benchmark, "airline")
    episode = play(benchmark, entry, Scripted("x"), Scripted("Hi", "###STOP###"))
    odd = {"started_at": datetime(year, 12, 31, tzinfo=UTC), "duration_s": 2.0**40}
    rows = [row(benchmark, entry, episode) | odd]
    content = dict(benchmark.files(lambda: iter(rows), SUMMARY))["results_airline.json"]
    (simulation,) = json.loads(content)["simulations"]
    assert "1970" <= simulation["start_time"] < simulation["end_time"] < "3011"
    times = [message["timestamp"] for message in simulation["messages"]]
    assert len(times) > 1
    assert times == sorted(set(times)), "upstream sorts by them"


def test_lone_surrogates_do_not_spoil_the_file(benchmark: Tau2) -> None:
    entry = entry_of(benchmark, "airline")
    episode = play(benchmark, entry, Scripted("x\ud800🙂"), Scripted("Hi", "###STOP###"))
    rows = [row(benchmark, entry, episode)]
    content = dict(benchmark.files(lambda: iter(rows), SUMMARY))["results_airline.json"]
    assert any(m["content"] == "x?🙂" for m in json.loads(content)["simulations"][0]["messages"])


def test_ends_that_upstream_does_not_know(benchmark: Tau2) -> None:
    entry = entry_of(benchmark, "airline")
    episode = play(benchmark, entry, Scripted("x"), Scripted("Hi", "###STOP###"))
    state = {**episode.state, "ended": "deadline"}
    rows = [row(benchmark, entry, Episode(state=state))]
    files = dict(benchmark.files(lambda: iter(rows), SUMMARY))
    (simulation,) = json.loads(files["results_airline.json"])["simulations"]
    assert simulation["termination_reason"] == "agent_error"
    assert simulation["reward_info"]["reward"] == 0.0
    assert "deadline" in simulation["reward_info"]["info"]["note"]


def test_numbers_that_are_none_are_read_back(benchmark: Tau2, tmp_path: Path) -> None:
    entry = entry_of(benchmark, "airline")
    agent = Scripted(("get_user_details", '{"user_id": NaN, "more": 1e999}'), "Yes.")
    episode = play(benchmark, entry, agent, Scripted("Hi", "###STOP###"))
    rows = [row(benchmark, entry, episode)]
    path = tmp_path / "results.json"
    path.write_bytes(dict(benchmark.files(lambda: iter(rows), SUMMARY))["results_airline.json"])
    (read,) = benchmark.outputs(path, Entries.among(benchmark.dataset()))
    assert benchmark.verdicts(entry, read.episode) == benchmark.verdicts(entry, episode)


@pytest.mark.parametrize(
    ("category", "last", "stopped"),
    [
        ("airline", {"role": "user", "content": "Bye ###TRANSFER###"}, True),
        ("airline", {"role": "user", "content": "###STOP###", "tool_calls": [
            {"id": "1", "name": "x", "arguments": {}}]}, False),
        ("airline", {"role": "assistant", "content": "###STOP###"}, False),
        ("airline", {"role": "tool", "id": "1", "content": "###STOP###"}, False),
        ("telecom_solo", {"role": "assistant", "content": "###STOP###"}, True),
        ("telecom_solo", {"role": "assistant", "content": "so ###STOP###"}, False),
    ],
)  # fmt: skip
def test_a_stop_in_the_last_step_is_found(
    benchmark: Tau2, tmp_path: Path, category: str, last: Any, stopped: bool
) -> None:
    simulation = {"task_id": entry_of(benchmark, category).id, "trial": None,
                  "termination_reason": "max_steps", "messages": [last]}  # fmt: skip
    path = results_of(tmp_path, category, simulation)
    (read,) = benchmark.outputs(path, Entries.among(benchmark.dataset()))
    assert read.episode.state["stopped"] is stopped


def results_of(folder: Path, category: str, *simulations: Any) -> Path:
    solo = category == "telecom_solo"
    info = {
        "environment_info": {"domain_name": category.removesuffix("_solo")},
        "agent_info": {"implementation": "llm_agent_solo" if solo else "llm_agent"},
    }
    path = folder / "results.json"
    path.write_text(json.dumps({"info": info, "simulations": simulations}))
    return path


CALL = {"id": "1", "name": "x", "arguments": {}}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"trial": 1.5}, "trial is 1.5"),
        ({"trial": True}, "trial is True"),
        ({"trial": 1 << 40}, "trial is 1"),
        ({"termination_reason": {"a": [1]}}, "is no simulation"),
        ({"termination_reason": "user_stop\ud800"}, "termination_reason"),
        ({"messages": None}, "is no simulation"),
        ({"messages": [{"role": "system", "content": "x"}]}, "the role 'system'"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "is no simulation"),
        ({"messages": [{"role": "user", "content": ["a", {"b": 1}]}]}, "content of the kind list"),
        ({"messages": [{"role": "assistant", "tool_calls": [{**CALL, "arguments": "x"}]}]},
         "without an object of arguments"),
        ({"messages": [{"role": "assistant", "tool_calls": [{**CALL, "name": 3}]}]},
         "a call without a name"),
        ({"messages": [{"role": "tool", "id": "1", "requestor": "x"}]}, "the requestor 'x'"),
    ],
)  # fmt: skip
def test_what_is_no_simulation_is_named(
    benchmark: Tau2, tmp_path: Path, change: dict[str, Any], what: str
) -> None:
    fine = {"task_id": entry_of(benchmark, "airline").id, "trial": 0,
            "termination_reason": "user_stop", "messages": []}  # fmt: skip
    path = results_of(tmp_path, "airline", fine, fine | {"trial": 1} | change)
    with pytest.raises(UserError, match=what) as caught:
        list(benchmark.outputs(path, Entries.among(benchmark.dataset())))
    assert "simulation 1" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("[]", "is no results file"),
        ("{}", "is no results file"),
        ('{"info": {"environment_info": {"domain_name": "banking"}, "agent_info": '
         '{"implementation": "llm_agent"}}, "simulations": []}', "of the domain 'banking'"),
        ('{"info": {"environment_info": {"domain_name": "airline"}, "agent_info": '
         '{"implementation": "llm_agent"}}, "simulations": [{"task_id": "0"}]}', "simulation 0"),
    ],
)  # fmt: skip
def test_other_files_are_refused(benchmark: Tau2, tmp_path: Path, content: str, what: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(UserError, match=what):
        list(benchmark.outputs(path, Entries.among(benchmark.dataset())))
