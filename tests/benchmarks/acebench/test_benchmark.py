"""ACEBench behind the protocol: what it says its numbers compare with, and its resolved section."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.data.loader import MINI
from ace_ray.benchmarks.dataset import imports_folder
from ace_ray.types import RULE_SETS, Verdict
from tests.benchmarks.scored_row import scored_row


def compares(**options: Any) -> str:
    return str(ACEBench.from_options(options).summarize([], 0.0)["comparable"])


@pytest.mark.nightly
@pytest.mark.parametrize("languages", [["en"], ["zh"], ["zh", "en"], ["en", "zh"]])
def test_the_official_data_with_the_official_prompts(
    shared_data: Path, languages: list[str]
) -> None:
    said = compares(data=str(shared_data), languages=languages)
    assert said.startswith("official data, prompts and protocol: the official rule set compares")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"categories": ["atom"]}, "not all categories"),
        ({"prompts": "own"}, "the prompts are not the official ones"),
        ({"mode": "native"}, "native tool calling compares with native tool calling only"),
        ({"variant": "minimal"}, "the variant of the prompt is minimal"),
        (
            {"categories": ["special"], "prompts": "own", "variant": "condensed"},
            "not all categories; the variant of the prompt is condensed; "
            "the prompts are not the official ones",
        ),
    ],
)
def test_what_is_not_comparable_and_why(
    shared_data: Path, options: dict[str, Any], reason: str
) -> None:
    said = compares(data=str(shared_data), languages=["en"], **options)
    assert said == f"not comparable with the leaderboard: {reason}"


@pytest.mark.nightly
def test_a_changed_copy_is_not_comparable(shared_data: Path, tmp_path: Path) -> None:
    for part in ("data_en", "upstream"):
        shutil.copytree(shared_data / part, tmp_path / part)
    prompts = tmp_path / "upstream" / "prompts.json"
    texts = json.loads(prompts.read_text())
    texts["USER_PROMPT_EN"] += " "
    prompts.write_text(json.dumps(texts))
    said = compares(data=str(tmp_path), languages=["en"])
    assert said.endswith(": the prompts are not the official ones")
    questions = tmp_path / "data_en" / "data_normal_atom_bool.json"
    questions.write_text(questions.read_text().replace("Please", "Kindly"))
    said = compares(data=str(tmp_path), languages=["en"])
    assert "the data is not the official one" in said
    assert "the prompts are not the official ones" in said


def test_the_mini_set_compares_with_nothing() -> None:
    assert "the mini set is ace_ray's own" in compares()


def test_a_repeated_language_counts_once() -> None:
    once = ACEBench.from_options({"languages": ["zh"]})
    twice = ACEBench.from_options({"languages": ["zh", "zh"]})
    assert twice.entries() == once.entries()
    assert twice.resolved()["languages"] == ["zh"]


def test_the_resolved_section_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    assert ACEBench.from_options({}).resolved() == {
        "data": "mini",
        "languages": ["en", "zh"],
        "categories": ["all"],
        "prompts": "own",
        "variant": "standard",
        "mode": "prompt",
        "max_messages": 40,
        "user": "same",
    }
    shutil.copytree(MINI, tmp_path / "rows")
    monkeypatch.chdir(tmp_path)
    assert ACEBench.from_options({"data": "rows"}).resolved()["data"] == str(tmp_path / "rows")
    version = imports_folder("acebench") / "0123456789ab"
    shutil.copytree(MINI, version)
    (version / "manifest.json").write_text("{}")
    resolved = ACEBench.from_options({"data": "imported"}).resolved()
    assert resolved["data"] == "imported:0123456789ab"
    assert ACEBench.from_options(resolved).resolved() == resolved


@pytest.mark.nightly
def test_official_prompts_stay_official(shared_data: Path) -> None:
    for variant in ("standard", "condensed"):
        options = {"data": str(shared_data), "languages": ["en"], "variant": variant}
        benchmark = ACEBench.from_options(options)
        resolved = benchmark.resolved()
        assert resolved["prompts"] == "official"
        assert ACEBench.from_options(resolved).identity() == benchmark.identity()


def test_several_samples_have_a_table_below_those_of_episodes() -> None:
    valid, invalid = (dict.fromkeys(RULE_SETS, Verdict(right)) for right in (True, False))
    one = [
        scored_row("special_incomplete", "a", valid, language=language) for language in ("en", "zh")
    ]
    two = [*one, *(replace(row, sample=1, verdicts=invalid) for row in one)]
    benchmark = ACEBench.from_options({"data": "mini"})
    endings = benchmark.summarize(one, 0.0)["further_tables"]
    assert [table["title"] for table in endings] == ["how agent episodes ended"]
    *others, samples = benchmark.summarize(two, 0.0)["further_tables"]
    assert others == endings
    assert [line[:4] for line in samples["lines"]] == [
        ["special_incomplete", rules, "2", k] for rules in RULE_SETS for k in "12"
    ]
    # Outputs made elsewhere are summarized without a benchmark's options.
    assert "further_tables" not in ACEBench.tables(ACEBench.statistics(one, 0.0))
    assert ACEBench.tables(ACEBench.statistics(two, 0.0))["further_tables"] == [samples]
