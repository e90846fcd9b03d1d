"""What can be asked of a sweep, and what is said of what cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.sweep.config import SweepModel, SweepOptions, load_sweep

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A sweep's YAML file: one benchmark, one model, plus ``changes``; None drops a key."""

    def make(**changes: Any) -> str:
        tree: dict[str, Any] = {"benchmarks": ["acebench"], "models": [{"source": "org/a"}]}
        tree |= changes
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({k: v for k, v in tree.items() if v != "drop"}))
        return str(path)

    return make


def refused(path: str, match: str, **arguments: Any) -> UserError:
    with pytest.raises(UserError, match=match) as error:
        load_sweep(path, **arguments)
    line = str(error.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    assert error.value.fix
    return error.value


def test_everything_that_it_takes(write: Write) -> None:
    asked = {
        "checkpoints": "s3://bucket/run",
        "pattern": "step_*",
        "every": 2,
        "from": 100,
        "to": 900,
        "swap": False,
        "watch": True,
        "settle_s": 5,
        "stop_file": "stop",
        "price_per_hour": 2.5,
        "sweep_id": "mine",
    }
    options = load_sweep(write(**asked)).options
    assert options.model_dump(by_alias=True, exclude={"models"}) == asked


class TestRuns:
    def test_a_model_wins_over_the_sweep(self, write: Write) -> None:
        sweep = load_sweep(
            write(
                engine={"dtype": "bfloat16", "max_model_len": 4096},
                model={"tool_parser": "hermes", "chat_template_kwargs": {"a": 1}},
                sampling={"max_tokens": 7},
                limit=3,
            )
        )
        own = SweepModel.model_validate(
            {
                "source": "org/b",
                "revision": "v2",
                "label": "the big one",
                "engine": {"max_model_len": 128, "tensor_parallel_size": 2},
                "reasoning_parser": "none",
                "chat_template_kwargs": {"b": 2},
            }
        )
        config = sweep.run_of(own, "elsewhere")
        assert isinstance(config, RunConfig)
        assert config.engine == {
            "dtype": "bfloat16",
            "max_model_len": 128,
            "tensor_parallel_size": 2,
        }
        assert config.model.model_dump(exclude_none=True) == {
            "source": "org/b",
            "revision": "v2",
            "tool_parser": "hermes",
            "reasoning_parser": "none",
            "chat_template_kwargs": {"b": 2},
            "plugins": [],
        }
        assert (config.sampling.max_tokens, config.limit, config.output) == (7, 3, "elsewhere")

    def test_values_and_overrides_reach_both(self, write: Write) -> None:
        path = write(checkpoints="ckpt")
        sweep = load_sweep(
            path, ("every=4", "sampling.seed=9", "from=3"), {"limit": 2, "output": "there"}
        )
        assert (sweep.options.every, sweep.options.from_step, sweep.output) == (4, 3, "there")
        config = sweep.run_of(SweepModel(source="a"), sweep.output)
        assert (config.sampling.seed, config.limit, config.output) == (9, 2, "there")

    @pytest.mark.parametrize("key", ["model", "engine", "sampling", "store"])
    def test_an_empty_section_is_refused_as_in_a_run(self, write: Write, key: str) -> None:
        """``engine:`` with nothing under it, as YAML has it."""
        refused(write(**{key: None}), f"'{key}' is None")


class TestRefused:
    @pytest.mark.nightly
    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"models": "drop"}, "names no models; add checkpoints"),
            ({"chekpoints": "x"}, "unknown key 'chekpoints'; did you mean 'checkpoints'"),
            ({"run_id": "x"}, "'run_id' is for one run; name the sweep with sweep_id"),
            ({"watch": True}, "'watch' without checkpoints"),
            ({"model": {"source": "x"}}, "'model.source' is set by the sweep; list it under mod"),
            ({"models": [{}]}, "'models.0.source' is missing"),
            ({"models": [{"source": "a", "labell": "b"}]}, "unknown key 'models.0.labell'"),
            ({"sweep_id": "../out"}, "'sweep_id' is '../out'"),
        ],
    )
    def test_one_line_that_says_where(
        self, write: Write, changes: dict[str, Any], match: str
    ) -> None:
        refused(write(**changes), match)

    def test_from_after_to(self, write: Write) -> None:
        path = write(**{"checkpoints": "ckpt", "from": 9, "to": 3})
        refused(path, "'from' is 9 and 'to' is 3")

    def test_workers_of_a_lane_do_not_come_and_go(self, write: Write) -> None:
        refused(write(workers={"max": 8}), "elastic workers are not supported in sweeps")

    @pytest.mark.parametrize(
        "key",
        ["pattern", "from", "stop_file"],
    )
    def test_what_is_about_checkpoints_needs_some(self, write: Write, key: str) -> None:
        value: Any = "x" if key in ("pattern", "stop_file") else 3
        refused(write(**{key: value}), f"'{key}' needs checkpoints")

    def test_every_key_is_known_to_one_side_only(self) -> None:
        mine = {field.alias or name for name, field in SweepOptions.model_fields.items()}
        assert not mine & set(RunConfig.model_fields)


class TestAdapters:
    def test_the_base_is_the_sweep_s(self, write: Write) -> None:
        sweep = load_sweep(write(models=[{"adapter": "a"}], model={"source": "base"}))
        config = sweep.run_of(sweep.options.models[0], "out")
        assert (config.model.source, config.model.adapter) == ("base", "a")
        sweep = load_sweep(write(checkpoints="loras", model={"source": "base"}))
        assert sweep.base == "base"

    @pytest.mark.parametrize(
        ("tree", "said"),
        [
            ({"models": [{"adapter": "a"}]}, "'models.0.source' is missing"),
            (
                {"models": [{"label": "a"}], "model": {"source": "b"}},
                "'models.0.source' is missing",
            ),
            ({"models": [{"source": "a"}], "model": {"source": "b"}}, "'model.source' is set by"),
        ],
    )
    def test_what_has_no_weights(self, write: Write, tree: dict[str, Any], said: str) -> None:
        with pytest.raises(UserError, match=said):
            load_sweep(write(**tree))


@pytest.mark.nightly
def test_models_at_one_endpoint_and_at_others(tmp_path: Path) -> None:
    tree = {
        "model": {"endpoint": {"url": "http://h/v1", "api_key_env": None}},
        "models": [
            {"endpoint": {"model": "a"}},
            {"endpoint": {"model": "b", "url": "http://other/v1"}},
        ],
        "benchmarks": ["acebench"],
    }
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(tree))
    sweep = load_sweep(str(path))
    endpoints = [sweep.run_of(model, "out").model.endpoint for model in sweep.options.models]
    assert [(e.url, e.model, e.api_key_env) for e in endpoints if e] == [
        ("http://h/v1", "a", None),
        ("http://other/v1", "b", None),
    ]
    path.write_text(yaml.safe_dump({**tree, "models": [{"endpoint": {"modell": "a"}}]}))
    with pytest.raises(UserError, match=r"model\.endpoint\.modell"):
        load_sweep(str(path))
    checkpoints = {**tree, "models": [], "checkpoints": str(tmp_path)}
    path.write_text(yaml.safe_dump(checkpoints))
    with pytest.raises(UserError, match="checkpoints need an engine"):
        load_sweep(str(path))
