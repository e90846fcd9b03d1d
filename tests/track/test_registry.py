"""Which publishers there are, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ace_ray.config import load_config
from ace_ray.errors import UserError
from ace_ray.publishers import registry
from ace_ray.publishers.registry import check_publishers, make_publisher, publisher_class
from ace_ray.run.doctor import examine
from ace_ray.run.evaluate import plan_run
from ace_ray.sweeps.config import SweepModel, _identity, load_sweep
from tests.track.third_party import install


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All trackers seem to be installed, and a publisher of a third party is."""
    monkeypatch.syspath_prepend(str(install(tmp_path / "site")))
    monkeypatch.setattr(registry, "_is_installed", lambda module: module != "missing")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("tensorbord", {}, "no publisher is called 'tensorbord'; installed: broken, mlflow,"),
        ("toy", {}, "'file' is missing"),
        ("tensorboard", {"folder": "s3://b/p"}, "is no folder of this machine"),
        ("wandb", {"projekt": "x"}, "unknown key 'projekt'; did you mean 'project'?"),
        ("wandb", {"project": 3}, "'project' is 3, it should be a valid string"),
        ("wandb", {"api_key": "abcdef0123456789"}, "looks like a secret"),
        ("mlflow", {"tracking_uri": "https://me:pw12345678@host"}, "a user name or a password"),
        ("broken", {}, "the publisher broken cannot be imported (AttributeError"),
        ("none", {}, "is no whole subclass of Publisher; see docs/trackers.md"),
        ("without", {}, "is no whole subclass of Publisher; see docs/trackers.md"),
        ("refuses", {"file": "x"}, "refuses cannot be made, ValueError: no such file, api_key=***"),
    ],
)
def test_what_is_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        make_publisher(name, options, "publish.0")
    assert words in str(error.value)
    assert "0123456789" not in str(error.value)
    assert "pw12345678" not in str(error.value)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_class("mlflow", ""), "needs", "missing")
    with pytest.raises(UserError, match=r"'missing', which is not .* 'ace-ray\[mlflow\]'"):
        make_publisher("mlflow", {}, "publish.0")


def test_a_publisher_of_another_package_is_found() -> None:
    assert type(make_publisher("toy", {"file": "x"}, "")).__name__ == "Toy"
    assert publisher_class("wandb", "").install == "ace-ray[wandb]"


def test_it_is_refused_before_a_run(config_file: Any) -> None:
    config = load_config(str(config_file(publish=[{"to": "toy"}])))
    with pytest.raises(UserError, match=r"^publish\.0: 'file' is missing"):
        plan_run(config)
    lines = {line.topic: line for line in examine(lambda: config)}
    assert lines["publish"].problem
    assert "'file' is missing" in lines["publish"].text
    asked = load_config(str(config_file(publish=[{"to": "toy", "file": "x"}])))
    fine = {line.topic: line for line in examine(lambda: asked)}["publish"]
    assert (fine.problem, fine.text) == (False, "toy")


def test_a_secret_in_a_config_is_refused(config_file: Any) -> None:
    path = config_file(publish=[{"to": "wandb", "api_key": "abcdef0123456789"}])
    with pytest.raises(UserError, match=r"publish\.0\.api_key: looks like a secret"):
        load_config(str(path))


@pytest.mark.parametrize(
    ("publish", "words"),
    [
        ([{"folder": "x"}], r"'publish\.0\.to' is missing"),
        ("wandb", r"'publish' is 'wandb', it should be a valid list"),
    ],
)
def test_the_shape_of_the_section(config_file: Any, publish: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_config(str(config_file(publish=publish)))


def test_publishing_is_no_part_of_what_a_run_is(config_file: Any) -> None:
    plain = plan_run(load_config(str(config_file())))
    asked = plan_run(load_config(str(config_file(publish=[{"to": "toy", "file": "x"}]))))
    assert (asked.run_id, asked.identity) == (plain.run_id, plain.identity)


def test_a_sweep_publishes_and_its_runs_do_not(config_file: Any) -> None:
    path = str(config_file(model={}, models=[{"source": "a"}]))
    plain = load_sweep(path)
    sweep = load_sweep(path, values={"publish": [{"to": "toy", "file": "x"}]})
    assert _identity(sweep) == _identity(plain)
    (asked,) = check_publishers(sweep.any_run.publish)
    assert asked.options.file == "x"
    assert sweep.run_of(SweepModel(source="a"), "out").publish == []
