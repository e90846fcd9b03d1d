"""The app specifications: what is missing in it is named."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data.loader import MINI, load
from ace_ray.benchmarks.acebench.environment.environment import check_entry, load_app_specs
from ace_ray.errors import UserError
from tests.benchmarks.acebench.environment.mini_environments import mini

AGENT = ("agent_multi_turn", "agent_multi_step")
Edit = Callable[[dict[str, Any]], Any]


def written(folder: Path, text: str) -> Path:
    (folder / "upstream").mkdir()
    (folder / "upstream" / "worlds.json").write_text(text, encoding="utf-8")
    return folder


def test_the_full_app_specs_load_without_our_bank(shared_data: Path) -> None:
    app_specs = load_app_specs(shared_data)
    assert set(mini()["multi_turn"]["zh"]) - set(app_specs["multi_turn"]["zh"]) == {"Finance"}


@pytest.mark.parametrize("folder", ["mini", "shared"])
def test_every_shipped_entry_can_be_opened(folder: str, request: pytest.FixtureRequest) -> None:
    path = MINI if folder == "mini" else request.getfixturevalue("shared_data")
    app_specs = load_app_specs(path)
    entries = load(path, categories=AGENT)
    for entry in entries:
        check_entry(app_specs, entry)
    assert len(entries) == (16 if folder == "mini" else 100)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda w: w.pop("multi_step"), r"multi_step en BaseApi cannot be opened \(KeyError"),
        (lambda w: w["multi_turn"].update(en=None), "multi_turn en BaseApi cannot be opened"),
        (lambda w: w["multi_turn"]["en"].pop("Travel"), "multi_turn en Travel cannot be opened"),
        (
            lambda w: w["multi_turn"]["en"]["MessageApi"]["state"].pop("max_capacity"),
            r"en MessageApi cannot be opened \(KeyError: 'max_capacity'\)",
        ),
        (
            lambda w: w["multi_turn"]["en"]["MessageApi"]["state"]["inbox"].update(x={}),
            "en MessageApi cannot be opened",
        ),
        (
            lambda w: w["multi_turn"]["zh"]["FoodPlatform"]["methods"].pop("view_orders"),
            r"zh FoodPlatform cannot be opened \(KeyError: 'view_orders'\)",
        ),
        (
            lambda w: w["multi_turn"]["zh"]["Travel"]["methods"]["modify_flight"]["texts"].pop(),
            "zh Travel cannot be opened",
        ),
        (
            lambda w: w["multi_turn"]["zh"]["BaseApi"]["load_scenario"].pop("wifi"),
            "zh BaseApi cannot be opened",
        ),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, edit: Edit, message: str) -> None:
    app_specs = copy.deepcopy(mini())
    edit(app_specs)
    folder = written(tmp_path, json.dumps(app_specs))
    with pytest.raises(UserError, match=message) as caught:
        load_app_specs(folder)
    assert str(caught.value).startswith(str(folder / "upstream" / "worlds.json"))


@pytest.mark.parametrize("text", ["", "[", "[]", "null", '{"multi_turn": 1}', '{"a": NaN}', "\x00"])
def test_other_texts_are_no_app_specs(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"worlds\.json"):
        load_app_specs(tmp_path)
    with pytest.raises(UserError, match=r"worlds\.json"):
        load_app_specs(written(tmp_path, text))


def test_our_bank_is_unknown_to_the_official_app_specs(shared_data: Path) -> None:
    finance = next(
        entry
        for entry in load(MINI, categories=AGENT)
        if entry.data["involved_classes"] == ["Finance"]
    )
    with pytest.raises(UserError, match="unknown class 'Finance'"):
        check_entry(load_app_specs(shared_data), finance)
