"""The documentation builds, every link leads, and what is made from code is as the code is."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return script("generate")


def test_the_configuration_page_is_that_of_the_models(generate: ModuleType) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == generate.page(), "run make docs"


def test_the_tables_of_the_reference_runs_are_those_of_their_summaries() -> None:
    runs = script("reference_runs")
    assert runs.stored_runs()
    text = runs.PAGE.read_text(encoding="utf-8")
    assert "<!-- table results -->" in text
    assert text == runs.page(), "run python docs/reference_runs.py"


def test_every_key_says_what_it_means(generate: ModuleType) -> None:
    bare = [
        f"{title}: {name}"
        for title, _, model in generate.SECTIONS
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert bare == []


@pytest.mark.nightly
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


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "adding-a-benchmark.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert block is not None
    assert block[1] == (ROOT / "examples" / "arith.py").read_text(encoding="utf-8")
