"""A tracker may fail in any way: it is one warning, and the run is what it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.config.schema import RunConfig, load_config
from ace_ray.errors import UserError
from ace_ray.integrations import publish
from ace_ray.integrations.publish import publish_run
from ace_ray.integrations.trackers import make_publisher
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.sweep.config import SweepModel, _identity, load_sweep
from ace_ray.sweep.ledger import CostRecord
from ace_ray.sweep.sweep import Sweep
from tests.integrations.made import complete_run, sweep_of, whole

AWAY = "raise ConnectionError('the tracker is away, api_key=abcdef1234567890')"


@pytest.fixture
def config(config_file: Any, tmp_path: Path) -> RunConfig:
    target = {"to": "tensorboard", "folder": str(tmp_path / "tb")}
    return load_config(str(config_file(publish=[target])))


def stub(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let the tracker's package run ``code`` when a child imports it."""
    (folder / "tensorboard").mkdir(parents=True)
    (folder / "tensorboard" / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (AWAY, "not published: ConnectionError: the tracker is away, api_key=***"),
        ("import sys; sys.exit(3)", "not published: SystemExit: 3"),
        ("import os; os.kill(os.getpid(), 9)", "exit code -9"),
        ("import os; os._exit(0)", "the process ended before it published anything"),
        ("import time; time.sleep(600)", "not published: timed out after 8 s"),
    ],
)
def test_a_failed_tracker_is_one_warning(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, words: str
) -> None:
    run = complete_run(tmp_path / "run")
    stub(tmp_path / "site", monkeypatch, code)
    monkeypatch.setattr(publish, "MOST_S", 8.0 if "sleep" in code else 120.0)
    said: list[str] = []
    publish_run(str(run), config, said.append)
    (warning,) = said
    assert warning.startswith(f"warning: tensorboard: {words}")
    assert f"; to repeat: ace-ray publish {run} --to tensorboard --option " in warning


@pytest.mark.nightly
def test_a_run_is_published(config: RunConfig, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    said: list[str] = []
    publish_run(str(complete_run(tmp_path / "run")), config, said.append)
    assert [line.split(": ")[1] for line in said] == ["published to tensorboard"]
    assert list((tmp_path / "tb").rglob("*tfevents*"))


@pytest.mark.parametrize("code", [0, 75])
def test_evaluate_publishes_a_run_that_is_complete(
    here: Any, config_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    run = complete_run(tmp_path / "run")
    summary = {**json.loads((run / "summary.json").read_text()), "uri": str(run)}
    monkeypatch.setattr("ace_ray.pipeline.evaluate.evaluate", lambda *_, **__: (code, summary))
    published: list[str] = []
    monkeypatch.setattr(publish, "publish_run", lambda uri, *_: published.append(uri))
    assert here("evaluate", config_file()).code == code
    assert published == [str(run)] * (code == 0)


def test_a_sweep_publishes_when_its_ledger_is_written(
    here: Any, config_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = {"to": "tensorboard", "folder": str(tmp_path / "tb")}
    config = config_file(model={}, models=[{"source": "a"}], sweep_id="s", publish=[target])
    folder = tmp_path / "out" / "s"
    published: list[str] = []
    monkeypatch.setattr(publish, "publish_run", lambda uri, *_: published.append(uri))

    def run(sweep: Sweep, noted: Callable[[], None]) -> int:
        noted()
        assert not published, "nothing is complete"
        sweep_of(folder, {100: whole(2)})
        sweep.cost_records = [CostRecord("a", 100, "a", "r", state="complete")]
        noted()
        return 75

    monkeypatch.setattr(Sweep, "run", run)
    assert here("sweep", config).code == 75
    assert published == [str(folder)] * 2, "when a run has ended, and at the end"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("tensorbord", {}, "'tensorbord' is not a known tracker; one of mlflow,"),
        ("tensorboard", {"folder": "s3://b/p"}, "should be a folder of this machine"),
        ("wandb", {"projekt": "x"}, "unknown key 'projekt'; did you mean 'project'?"),
        ("wandb", {"api_key": "abcdef0123456789"}, "looks like a secret"),
        ("mlflow", {"experiment": "https://me:pw12345678@host"}, "a user name or a password"),
        ("mlflow", {}, "pip install 'ace-ray[mlflow]'"),
    ],
)
def test_what_is_refused(
    name: str, options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ace_ray.integrations.trackers.find_spec",
        lambda module: None if module == "mlflow" else module,
    )
    with pytest.raises(UserError) as error:
        make_publisher(name, options, "publish.0")
    assert words in str(error.value)
    assert "0123456789" not in str(error.value)
    assert "pw12345678" not in str(error.value)


def test_it_is_refused_before_a_run(config_file: Any) -> None:
    config = load_config(str(config_file(publish=[{"to": "nowhere"}])))
    with pytest.raises(UserError, match=r"^publish\.0: 'nowhere' is not a known tracker"):
        plan_run(config)


def test_publishing_is_no_part_of_what_a_run_or_a_sweep_is(
    config: RunConfig, config_file: Any
) -> None:
    plain = plan_run(load_config(str(config_file())))
    asked = plan_run(config)
    assert (asked.run_id, asked.identity) == (plain.run_id, plain.identity)
    path = str(config_file(model={}, models=[{"source": "a"}]))
    sweep = load_sweep(path, values={"publish": [{"to": "tensorboard"}]})
    assert _identity(sweep) == _identity(load_sweep(path))
    assert sweep.run_of(SweepModel(source="a"), "out").publish == []
