"""Pages that are made from the code and from results are up to date."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from ace_ray.storage.rows import ROWS

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("name", "page", "function"),
    [
        ("generate", "configuration.md", "page"),
        ("generate", "serving-variants.md", "hazards"),
        ("reference_runs", "reference-runs/index.md", "page"),
        ("published", "reference-runs/published.md", "page"),
    ],
)
def test_a_generated_page_is_up_to_date(
    name: str, page: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, script)
    spec.loader.exec_module(script)
    made = getattr(script, function)()
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == made, "run make docs"
    for title, _, model in getattr(script, "SECTIONS", ()):
        for key, meaning in script.meanings(model).items():
            assert meaning, f"{title}: {key}"


def test_every_column_of_the_rows_is_documented() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert [name for name in ROWS.names if f"`{name}`" not in page] == []
