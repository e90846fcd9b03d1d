"""The documentation builds, every link leads, and what is made from code is as the code is."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.models.fake import FakeEngine
from ace_ray.records import Sampling

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_configuration_page_is_that_of_the_models(generate: ModuleType) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == generate.page(), "run make docs"


def test_every_key_says_what_it_means(generate: ModuleType) -> None:
    bare = [
        f"{title}: {name}"
        for title, _, model in generate.SECTIONS
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert bare == []


def test_the_site_builds_and_links_lead(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "getting-started.html").read_text(encoding="utf-8")
    assert "Getting started" in page


def test_the_example_of_a_benchmark_is_one() -> None:
    text = (ROOT / "docs" / "adding-a-benchmark.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    space: dict[str, Any] = {}
    exec(compile(block[1], "adding-a-benchmark.md", "exec"), space)  # noqa: S102 - our own page
    mine = space["Mine"].from_options({})
    right, wrong = mine.entries()
    context = EpisodeContext(candidate=RoleModel(FakeEngine({"default": right.gold}), Sampling()))
    for entry, valid in ((right, True), (wrong, False)):
        episode = asyncio.run(mine.run(entry, context))
        assert {v.valid for v in mine.check(entry, episode).values()} == {valid}
    assert mine.identity()
    assert mine.resolved() == {}
