"""Upstream's results JSON: written of stored rows, read back as the same episodes."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.external_outputs import Output, UnscoredOutput
from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.errors import UserError
from ace_ray.rescoring.import_outputs import score_outputs
from ace_ray.rescoring.rejudge import rejudge_run
from ace_ray.storage.object_store import LocalStore
from ace_ray.types import Entry, Episode
from tests.benchmarks.play import play
from tests.benchmarks.tau2.scripted import build, entry_of
from tests.scripted_model import ScriptedModel, say

pytestmark = pytest.mark.usefixtures("package")
STOP = "###STOP###"
DOMAINS = ["telecom", "mock"]
SUMMARY = {"model": {"source": "s3://bucket/secret-place/org/name-7b"}}


def row(benchmark: Tau2, entry: Entry, episode: Episode, sample: int = 0) -> dict[str, Any]:
    verdict = benchmark.verdicts(entry, episode)["official"]
    fields: dict[str, Any] = {"row_id": entry.id, "category": entry.category, "id": entry.id}
    fields |= {"status": "scored", "sample": sample, "seed": sample, "duration_s": 1.5}
    fields |= {"official_valid": verdict.valid, "official_error": verdict.error}
    texts = {"official_metrics": json.dumps(verdict.metrics), "state": json.dumps(episode.state)}
    return fields | texts | {"started_at": datetime(9999 if sample else 1, 12, 31, tzinfo=UTC)}


@pytest.fixture(scope="module")
def benchmark(package: object) -> Tau2:
    endpoint = {"url": "https://host.example/v1", "model": "gpt-x", "api_key_env": None}
    return build(domains=[*DOMAINS, "telecom_solo"], user={"endpoint": endpoint})


def read_all(benchmark: Tau2, path: Path) -> list[Output | UnscoredOutput]:
    return list(benchmark.outputs(path, benchmark.output_entries()))


def scored(benchmark: Tau2, path: Path) -> list[Output]:
    outputs = read_all(benchmark, path)
    assert all(isinstance(output, Output) for output in outputs)
    return [output for output in outputs if isinstance(output, Output)]


def results_of(folder: Path, category: str, *simulations: Any) -> Path:
    solo = category == "telecom_solo"
    info = {
        "environment_info": {"domain_name": category.removesuffix("_solo")},
        "agent_info": {"implementation": "llm_agent_solo" if solo else "llm_agent"},
    }
    path = folder / "results.json"
    path.write_text(json.dumps({"info": info, "simulations": simulations}))
    return path


def simulation_of(task: str = "create_task_1", trial: int | None = 0, **changes: Any) -> Any:
    messages = [{"role": "assistant", "content": "Hi!"}, {"role": "user", "content": STOP}]
    fine = {"task_id": task, "trial": trial, "termination_reason": "user_stop"}
    return {**fine, "messages": messages, **changes}


@pytest.mark.nightly
def test_a_written_file_reads_back(benchmark: Tau2, tmp_path: Path) -> None:
    odd = '{"user_id": NaN, "more": 1e999}'
    calls = say("x\ud800🙂", ("get_users", {}), ("get_users", odd))
    rows, played = [], []
    for category, agent in (
        ("mock", ScriptedModel(calls, "42 of them.")),
        ("telecom_solo", ScriptedModel(("toggle_data", {}), ("done", {}))),
    ):
        entry = entry_of(benchmark, category)
        episode = play(benchmark, entry, agent, ScriptedModel("Hi", STOP))
        rows += [row(benchmark, entry, episode, sample) for sample in (0, 1)]
        late = Episode(state={**episode.state, "ended": "deadline"})
        rows.append(row(benchmark, entry, late, 2))
        played.append((f"results_{category}.json", entry, episode))
    rows.append({**rows[0], "status": "infra_error", "sample": 3, "state": None})
    files = dict(benchmark.files(lambda: iter(rows), SUMMARY))
    assert set(files) == {f"results_{name}.json" for name in (*DOMAINS, "telecom_solo")}
    for name, entry, episode in played:
        content = files[name]
        tree = json.loads(content)
        simulation, _, failure = tree["simulations"]
        assert (tree["info"]["num_trials"], tree["info"]["agent_info"]["llm"]) == (4, "name-7b")
        assert not any(secret in content for secret in (b"secret-place", b"host.example"))
        times = [message["timestamp"] for message in simulation["messages"]]
        assert times == sorted(set(times)), "upstream sorts by them"
        assert failure["termination_reason"] == "agent_error"
        assert failure["reward_info"]["reward"] == 0.0
        assert "deadline" in failure["reward_info"]["info"]["note"]
        path = tmp_path / name
        path.write_bytes(content)
        first, second, _ = scored(benchmark, path)
        assert (first.entry.key, first.sample, second.sample) == (entry.key, 0, 1)
        trajectory = json.dumps(episode.state["trajectory"]).replace("1e999", "Infinity")
        assert first.episode.state["trajectory"] == json.loads(
            trajectory.replace(r"\ud800", "?", 1)
        )
        assert benchmark.verdicts(entry, first.episode) == benchmark.verdicts(entry, episode)


@pytest.mark.parametrize(
    ("category", "role", "content", "stopped"),
    [
        ("mock", "user", "Bye ###TRANSFER###", True),
        ("telecom_solo", "assistant", STOP, True),
        ("telecom_solo", "assistant", f"so {STOP}", False),
    ],
    ids=["transfer", "stop", "stop in a sentence"],
)
def test_a_stop_in_the_last_step_is_found(benchmark, tmp_path, category, role, content, stopped):
    messages = [{"role": "system", "content": "Be kind."}, {"role": role, "content": content}]
    more = {"messages": messages, "termination_reason": "max_steps"}
    simulation = simulation_of(entry_of(benchmark, category).id, None, **more)
    # Simulations without a trial are numbered.
    first, two = scored(benchmark, results_of(tmp_path, category, simulation, simulation))
    assert (first.sample, two.sample, first.episode.state["stopped"]) == (0, 1, stopped)
    assert len(first.episode.messages) == 1, "without the system message"


def test_an_odd_simulation_is_named_and_the_others_are_read(benchmark, tmp_path) -> None:
    call = {"id": "1", "name": "x", "arguments": "x"}
    faults: list[tuple[dict[str, Any], str]] = [
        ({"task_id": "create_task_9"}, "task 'create_task_9' is not in the data of mock"),
        ({"termination_reason": "meteor"}, "'meteor' is not known"),
        ({"messages": None, "ticks": [{}]}, "voice"),
        ({"messages": [None]}, r"messages\.0: is not an object"),
        ({"messages": [{"role": "user", "tool_calls": [call]}]}, r"tool_calls\.0\.arguments"),
        ({"trial": 0}, "two simulations of trial 0"),
    ]
    for change, why in faults:
        simulations = [simulation_of(), simulation_of(trial=1) | change, simulation_of(trial=2)]
        first, odd, last = read_all(benchmark, results_of(tmp_path, "mock", *simulations))
        assert (type(first), type(last)) == (Output, Output)
        assert isinstance(odd, UnscoredOutput)
        assert odd.location == "simulation 1"
        assert re.search(why, odd.reason)


def test_the_folder_form_is_read(benchmark: Tau2, tmp_path: Path) -> None:
    path = results_of(tmp_path, "mock")
    head = json.loads(path.read_text()) | {"simulation_index": [{"id": "a"}, {"id": "gone"}, 3]}
    del head["simulations"]
    path.write_text(json.dumps(head), encoding="utf-8-sig")
    folder = tmp_path / "simulations"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(simulation_of()))
    (folder / "b.json").write_text("{")
    for source in (path, tmp_path):
        output, *unscored = read_all(benchmark, source)
        assert isinstance(output, Output)
        problems = [
            f"{row.location} {row.reason}" for row in unscored if isinstance(row, UnscoredOutput)
        ]
        assert re.search(r"b\.json.*not valid JSON", problems[0])
        assert re.search(r"gone\.json.*No such file", problems[1])


BANKING = {"environment_info": {"domain_name": "banking"}, "agent_info": {"implementation": "x"}}


def test_other_files_are_refused(benchmark: Tau2, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    contents: list[tuple[Any, str]] = [
        ([], "is not a results file"),
        ({"simulations": [{}]}, "is not a results file"),
        ({"info": BANKING, "simulations": [{}]}, "of the domain 'banking'"),
        ({"simulations": []}, "contains no simulations"),
    ]
    for content, problem in contents:
        path.write_text(json.dumps(content))
        for source in (path, tmp_path):
            with pytest.raises(UserError, match=problem):
                read_all(benchmark, source)


def score(path: Path, output: Path) -> dict[str, Any]:
    store = LocalStore(str(output))
    return score_outputs(path, benchmark="tau2", data="installed", model=None, store=store)


@pytest.mark.nightly
def test_simulations_without_a_verdict_are_counted_and_not_wrong(tmp_path: Path) -> None:
    """As upstream's pass^k: over the trials that ended by themselves."""
    lost = "infrastructure_error"
    simulations = [
        *(simulation_of("create_task_1_nl_eval", trial) for trial in range(3)),
        simulation_of("create_task_1_nl_eval", 3, termination_reason=lost, messages=[]),
        *(simulation_of("create_task_1", trial) for trial in range(3)),
        simulation_of("nobody_has_this"),
    ]
    output = tmp_path / "out"
    summary = score(results_of(tmp_path, "mock", *simulations), output)
    stats = summary["categories"]["mock"]
    assert (stats["status"]["scored"], stats["status"]["infra_error"]) == (6, 1)
    assert stats["official"]["samples"]["pass_hat_k"] == {"1": 0.5, "2": 0.5, "3": 0.5}
    (note,) = [line for line in summary["notes"] if line.startswith("not scored: 2 of the input")]
    for number, why in ((3, lost), (7, "nobody_has_this")):
        assert re.search(f"simulation {number}: [^;]*{why}", note)
    lines = [json.loads(line) for line in (output / "verdicts.jsonl").read_text().splitlines()]
    assert [n for n, line in enumerate(lines) if line["official"] is None] == [3, 7]
    code, again = rejudge_run(str(output))
    assert code == 0
    assert (again["categories"], again["notes"]) == (summary["categories"], summary["notes"])
