"""Publications of runs and sweeps, what trackers hold, and trackers that fail."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ace_ray
from ace_ray.config.schema import RunConfig, load_config
from ace_ray.errors import UserError
from ace_ray.integrations import publisher
from ace_ray.integrations.publisher import publish_run
from ace_ray.integrations.tracker_metrics import publications
from ace_ray.integrations.trackers import Publication, make_publisher
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.storage.object_store import LocalStore
from ace_ray.sweep.ledger import ledger_lines
from ace_ray.sweep.sweep import Sweep
from tests.limits import until
from tests.report.builders import complete_run, full_rows, sweep_of

HEADLINE = "acebench/official/headline"
AWAY = "raise ConnectionError('the tracker is away, api_key=abcdef1234567890')"


def of(folder: Path) -> Publication:
    (publication,) = publications(LocalStore(str(folder)))
    return publication


@pytest.fixture
def config(config_file: Any, tmp_path: Path) -> RunConfig:
    target = {"tracker": "tensorboard", "folder": str(tmp_path / "tb")}
    return load_config(str(config_file(publish=[target])))


def test_the_config_is_flat_and_names_no_local_folder(tmp_path: Path) -> None:
    engine: dict[str, Any] = {"several": ["/home/me/a", {"at": "file:/home/me/b"}]}
    engine |= {"dtype": "float16", "speculative_config": {"model": "/home/me/draft"}}
    identity = {"engine": engine, "model": "abc"}
    run = complete_run(tmp_path / "run", model="/home/me/toy", extra_identity=identity)
    config = of(run).config
    assert config["engine.dtype"] == "float16"
    assert config["engine.speculative_config.model"] == "draft"
    assert config["engine.several"] == '["a",{"at":"b"}]'
    assert config["model"] == "toy"
    assert config["sampling.temperature"] == 0.0
    assert "/home/me" not in json.dumps(dict(config))
    assert all(isinstance(value, str | int | float) for value in config.values())


def test_a_curve_has_the_shared_config_and_leaves_damaged_runs_out(tmp_path, log_lines) -> None:
    sweep = sweep_of(tmp_path / "sweep", {200: full_rows(5), 100: full_rows(2)})
    publication = of(sweep)
    assert [point.step for point in publication.points] == [100, 200]
    assert "model" not in publication.config, "each checkpoint has another one"
    assert publication.config["backend"] == "vllm"
    assert publication.words[f"{HEADLINE}_is"] == "Overall (workbook)"
    (sweep / "run-step_100" / "summary.json").write_text("{}")
    log_lines.clear()
    assert [point.step for point in of(sweep).points] == [200]
    assert log_lines[0].startswith("step_100: not published: ")
    (sweep / "run-step_200" / "_SUCCESS").unlink()
    with pytest.raises(UserError, match="no run of the sweep can be published"):
        of(sweep)
    with pytest.raises(UserError, match="the run is not complete; complete the evaluation"):
        of(sweep / "run-step_200")


def test_a_foreign_sweep_names_no_folder_and_a_new_one_has_another_key(tmp_path: Path) -> None:
    sweep, keys = sweep_of(tmp_path / "sweep", {100: full_rows(2)}), set()
    manifest = json.loads((sweep / "sweep.json").read_text())
    for change in ({"sweep_id": "../../out"}, {"sweep_id": ""}, {"created_at": "2026-01-02"}):
        (sweep / "sweep.json").write_text(json.dumps(manifest | change))
        publication = of(sweep)
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", publication.group)
        assert re.fullmatch(r"[A-Za-z0-9._-]{9,120}", publication.key)
        assert ".." not in publication.key
        keys.add(publication.key)
    (sweep / "sweep.json").write_text(json.dumps(manifest))
    assert of(sweep).key not in keys


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (AWAY, "not published: ConnectionError: the tracker is away, api_key=***"),
        ("import os; os._exit(0)", "the process ended before it published anything"),
        ("import time; time.sleep(600)", "not published: timed out after 8 s"),
    ],
)
def test_a_failed_tracker_is_one_warning(config, tmp_path, monkeypatch, log_lines, code, words):
    run = complete_run(tmp_path / "run")
    package = tmp_path / "site" / "tensorboard"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setattr(publisher, "MOST_S", 8.0 if "sleep" in code else 120.0)
    publish_run(str(run), config)
    (warning,) = log_lines
    assert warning.startswith(f"warning: tensorboard: {words}")
    assert f"; to repeat: ace-ray publish {run} --to tensorboard --option " in warning


@pytest.mark.parametrize("level", ["info", "warning"])
def test_a_publication_is_logged(config, tmp_path, monkeypatch, log_lines, level) -> None:
    """The log level of the run does not hide the lines of the tracker's process from it."""
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("ACE_RAY_LOG_LEVEL", level)
    publish_run(str(complete_run(tmp_path / "run")), config)
    (line,) = log_lines
    assert "published to tensorboard: " in line


def test_evaluate_publishes_a_complete_run(invoke, config_file, tmp_path, monkeypatch) -> None:
    run = complete_run(tmp_path / "run")
    summary = {**json.loads((run / "summary.json").read_text()), "uri": str(run)}
    published: list[str] = []
    monkeypatch.setattr(publisher, "publish_run", lambda uri, *_: published.append(uri))
    for code in (75, 0):
        outcome = (code, summary)
        monkeypatch.setattr("ace_ray.pipeline.evaluate.evaluate", lambda *_, e=outcome, **__: e)
        assert invoke("evaluate", config_file()).code == code
        assert published == [str(run)] * (code == 0)


def test_a_watched_sweep_publishes_and_reports_when_a_run_has_ended(
    invoke, config_file, tmp_path, monkeypatch
) -> None:
    target = {"tracker": "tensorboard", "folder": str(tmp_path / "tb")}
    settings = {"checkpoints": str(tmp_path / "run"), "watch": True, "publish": [target]}
    config = config_file(model={}, sweep_id="s", **settings)
    folder, published = tmp_path / "out" / "s", list[str]()
    page = folder / "report" / "report.html"
    monkeypatch.setattr(publisher, "publish_run", lambda uri, *_: published.append(uri))

    def run(sweep: Sweep, noted: Callable[[], None]) -> int:
        noted()
        assert not published, "nothing is complete"
        sweep_of(folder, {100: full_rows(2)})
        sweep.cost_records = ledger_lines(sweep.store)
        noted()
        until(lambda: published and page.exists())
        assert "step_100" in page.read_text()
        return 75

    monkeypatch.setattr(Sweep, "run", run)
    assert invoke("sweep", config).code == 75
    assert published == [str(folder)] * 2, "when a run has ended, and at the end"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("tensorbord", {}, "'tensorbord' is not a known tracker; one of mlflow,"),
        ("tensorboard", {"folder": "s3://b/p"}, "should be a folder of this machine"),
        ("wandb", {"projekt": "x"}, "unknown key 'projekt'; did you mean 'project'"),
        ("wandb", {"api_key": "abcdef0123456789"}, "looks like a secret"),
        ("mlflow", {}, "pip install 'ace-ray.mlflow.'"),
    ],
    ids=["name", "remote folder", "key", "secret", "not installed"],
)
def test_wrong_trackers_and_options_are_refused(monkeypatch, name, options, words) -> None:
    monkeypatch.setattr("ace_ray.integrations.trackers.find_spec", lambda module: None)
    with pytest.raises(UserError, match=words) as error:
        make_publisher(name, options, "publish.0")
    assert "0123456789" not in str(error.value)


def test_publishing_is_checked_before_a_run_and_not_in_its_identity(config, config_file) -> None:
    plain, tracked_plan = plan_run(load_config(str(config_file()))), plan_run(config)
    assert (tracked_plan.run_id, tracked_plan.identity) == (plain.run_id, plain.identity)
    unknown = load_config(str(config_file(publish=[{"tracker": "nowhere"}])))
    with pytest.raises(UserError, match=r"^publish\.0: 'nowhere' is not a known tracker"):
        ace_ray.evaluate(unknown)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("tensorboard")
    return tmp_path / "tb"


def reader_of(folder: Path) -> tuple[str, Any]:
    """Return the name of the folder with event files, and TensorBoard's reader of it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (file,) = folder.rglob("*tfevents*")
    reader = EventAccumulator(str(file.parent), {"scalars": 0})
    reader.Reload()
    return str(file.parent.relative_to(folder)), reader


def sent(invoke: Any, run: Path, to: str, *options: object) -> str:
    flags = (flag for option in options for flag in ("--option", option))
    return str(invoke("publish", run, "--to", to, *flags).ok().stdout)


def test_tensorboard_has_each_point_of_a_sweep_once_with_interval_and_formula(
    invoke: Any, tmp_path: Path, folder: Path
) -> None:
    sweep = sweep_of(tmp_path / "sweep", {100: full_rows(2), 200: full_rows(5)})
    assert "train: published" in sent(invoke, sweep, "tensorboard", f"folder={folder}")
    # A late checkpoint, another verdict, and the same again.
    sweep_of(sweep, {50: full_rows(1), 100: full_rows(3), 200: full_rows(5)})
    for _ in range(2):
        sent(invoke, sweep, "tensorboard", f"folder={folder}")
    name, reader = reader_of(folder)
    assert name.startswith("train-1a2b/train-1a2b-train-")
    points = [(event.step, event.value) for event in reader.Scalars(HEADLINE)]
    assert [step for step, _ in points] == [50, 100, 200]
    assert points[0][1] < points[1][1] < points[2][1] == 100.0
    assert 80 < reader.Scalars(f"{HEADLINE}_low")[-1].value < 100
    assert "workbook" in reader.SummaryMetadata(HEADLINE).summary_description
    assert reader.SummaryMetadata("rows/declared").summary_description == ""


@pytest.mark.parametrize("kind", ["linked folder", "linked file", "file with two names"])
def test_nothing_is_written_behind_a_link(kind, invoke, tmp_path, folder) -> None:
    sweep = sweep_of(tmp_path / "sweep", {100: full_rows(2)})
    sent(invoke, sweep, "tensorboard", f"folder={folder}")
    (file,) = folder.rglob("*tfevents*")
    target = tmp_path / "kept"
    if kind == "file with two names":
        target.hardlink_to(file)
    else:
        location = file.parent if kind == "linked folder" else file
        location.rename(target)
        location.symlink_to(target)
    before = [path.read_bytes() for path in (*target.glob("*"), target) if path.is_file()]
    sweep_of(sweep, {100: full_rows(2), 200: full_rows(5)})
    result = invoke("publish", sweep, "--to", "tensorboard", "--option", f"folder={folder}")
    assert [path.read_bytes() for path in (*target.glob("*"), target) if path.is_file()] == before
    refused = "symbolic link, and files behind links are never changed" in result.stderr
    assert refused == (kind == "linked folder")
