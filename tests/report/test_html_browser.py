"""The page in a browser, opened as a file: no requests, no foreign scripts, filters that work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.report.builders import (
    HOSTILE,
    block,
    chromium,
    hostile_rows,
    ledger_line,
    refused,
    report_page,
    row,
    utf8,
    write_sweep,
)

pytestmark = pytest.mark.nightly
KEYS = ("run", "language", "category", "types", "wrong")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the report of a sweep of two steps with a failed model and hostile texts."""
    folder = tmp_path_factory.mktemp("browser")
    text = utf8("".join(HOSTILE))
    rows = [
        *(item for lang in ("en", "zh") for item in block(lang, "special_incomplete", 1, 9)),
        *(row("en", "normal_atom_enum", i, official=i > 2, strict=i < 2) for i in range(5)),
        *(item for item in hostile_rows(text) if item["language"] == "en"),
    ]
    better = [*block("en", "special_incomplete", 9, 9), *rows[9:]]
    lines = [ledger_line("step_100", step=100), ledger_line("step_200", step=200, note=text)]
    lines.append(refused("bad", text) | {"label": text})
    folder = write_sweep(folder / "sweep", lines, {"step_100": rows, "step_200": better})
    report_page(folder, out=folder / "out")
    return folder / "out" / "report.html"


@dataclass
class Watched:
    """A page in the browser, with the requests and messages that it caused."""

    page: Any
    requests: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def visible_answers(self) -> int:
        count: int = self.page.evaluate(
            """Array.from(document.querySelectorAll('[data-answer]'))
                 .filter(one => one.checkVisibility()).length"""
        )
        return count


def watched(browser: Any, path: Path, **context: Any) -> Watched:
    """Open the page, and record requests, messages and violations of its policy."""
    found = Watched(browser.new_context(**context).new_page())
    found.page.set_default_timeout(30_000)
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.on("console", lambda message: found.said.append(message.text))
    found.page.on("pageerror", lambda error: found.said.append(str(error)))
    found.page.add_init_script(
        "window.violations = [];"
        "document.addEventListener('securitypolicyviolation',"
        " event => window.violations.push(event.violatedDirective));"
    )
    found.page.goto(path.as_uri())
    return found


def test_hostile_texts_are_shown_and_do_nothing(browser: Any, page_file: Path) -> None:
    found = watched(browser, page_file)
    page = found.page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    text = page.locator("main").inner_text()
    assert all(f"⟦U+{code}⟧" in text for code in ("202E", "0000", "001B", "200B"))
    assert "\u202e" not in page.content()
    assert page.locator(".figure svg").count() >= 1
    for link in page.query_selector_all("nav a"):
        assert page.query_selector(link.get_attribute("href")) is not None
    assert found.requests == [page_file.as_uri()]
    assert found.said == page.evaluate("window.violations") == []
    assert page.evaluate("typeof window.pwned") == "undefined"
    page.context.close()


def test_filters_show_the_answers_that_they_name(browser: Any, page_file: Path) -> None:
    found = watched(browser, page_file)
    page = found.page
    every = [
        {key: (one.get_attribute(f"data-{key}") or "").split("\n") for key in KEYS}
        for one in page.query_selector_all("[data-answer]")
    ]
    assert len(every) == found.visible_answers > 20
    for key in KEYS:
        select = page.locator(f"[data-filter={key}]")
        values = [
            o.get_attribute("value") or o.inner_text() for o in select.locator("option").all()
        ]
        wanted = [v for v in values[1:] if v != "all"]
        assert wanted, key
        for value in wanted:
            select.select_option(value=value)
            only = [value.removeprefix("only ")]
            fits = [one for one in every if value in one[key] or one[key] == only]
            assert found.visible_answers == len(fits), (key, value)
            shown = page.locator("[data-shown]").inner_text()
            assert shown == f"{len(fits)} of {len(every)} shown"
        page.click("[data-reset]")
        assert found.visible_answers == len(every)
    page.context.close()


def test_without_javascript_all_answers_are_shown(browser: Any, page_file: Path) -> None:
    found = watched(browser, page_file, java_script_enabled=False)
    assert not found.page.locator("[data-filters]").is_visible()
    answers = found.page.query_selector_all("[data-answer]")
    assert len(answers) > 20
    assert all(one.is_visible() for one in answers)
    answer = found.page.locator("[data-answer]").first
    answer.locator("summary").first.click()
    assert answer.locator("pre").first.is_visible()
    found.page.context.close()
