"""The page in a browser, opened as a file: quiet, asking for nothing, usable, within its width."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.report.pages import chromium, report_page

from tests.report.builders import (
    HOSTILE,
    Row,
    block,
    hostile_rows,
    ledger_line,
    refused,
    row,
    utf8,
    write_sweep,
)

WIDTHS = (390, 1280)
ENDLESS = "a-name-without-an-end" * 20


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of three steps with failed models, hostile and endless texts."""
    folder = tmp_path_factory.mktemp("browser")
    text = utf8("".join(HOSTILE)) + ENDLESS
    rows: list[Row] = []
    for language in ("en", "zh"):
        rows += block(language, "normal_atom_bool", 2, 9)
        rows += block(language, "special_incomplete", 1, 9)
    rows += [
        {**row("en", "normal_atom_enum", i, official=i > 2, strict=i < 2), "output": text}
        for i in range(5)
    ]
    rows += [r for r in hostile_rows(text) if r["language"] == "en"]
    better = [r if r["category"] != "special_incomplete" else good(r) for r in rows]
    lines = [
        ledger_line("step_100", step=100),
        ledger_line("step_200", step=200, note=text),
        ledger_line("step_300", step=300) | {"label": f"step_300 {ENDLESS}"},
        refused("bad", text),
    ]
    runs = {"step_100": rows, "step_200": better, "step_300": better}
    report_page(write_sweep(folder / "sweep", lines, runs), out=folder / "out")
    return folder / "out" / "report.html"


def good(found: Row) -> Row:
    return row(found["language"], found["category"], int(found["id"].rsplit("_", 1)[1]))


@dataclass
class Watched:
    """A page in the browser, and what it did beside being shown."""

    page: Any
    requests: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def opened(self, path: Path) -> Watched:
        self.page.goto(path.as_uri())
        return self

    def is_quiet(self, path: Path) -> None:
        """Nothing was asked for but the page, and nothing was said."""
        assert self.requests == [path.as_uri()]
        assert self.said == []
        assert self.page.evaluate("window.violations") == []
        assert self.page.evaluate("typeof window.pwned") == "undefined"

    @property
    def visible_answers(self) -> int:
        """How many there are to be seen."""
        count: int = self.page.evaluate(
            """Array.from(document.querySelectorAll('[data-answer]'))
                 .filter(one => one.checkVisibility()).length"""
        )
        return count


def watched(browser: Any, **context: Any) -> Watched:
    opened = browser.new_context(**context)
    found = Watched(opened.new_page())
    found.page.set_default_timeout(30_000)

    def only_files(route: Any) -> None:
        found.requests.append(route.request.url)
        route.continue_() if route.request.url.startswith("file:") else route.abort()

    found.page.route("**/*", only_files)
    found.page.on("console", lambda message: found.said.append(message.text))
    found.page.on("pageerror", lambda error: found.said.append(str(error)))

    def dismissed(dialog: Any) -> None:
        found.said.append(dialog.message)
        dialog.dismiss()

    found.page.on("dialog", dismissed)
    found.page.add_init_script(
        "window.violations = [];"
        "document.addEventListener('securitypolicyviolation',"
        " event => window.violations.push(event.violatedDirective));"
    )
    return found


@pytest.fixture
def desktop(browser: Any) -> Iterator[Watched]:
    found = watched(browser, viewport={"width": 1280, "height": 900})
    yield found
    found.page.context.close()


def open_all(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_quiet_and_no_wider_than_its_window(
    browser: Any, page_file: Path, width: int, scheme: str
) -> None:
    found = watched(browser, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = found.opened(page_file).page
    for opened in (False, True):
        if opened:
            open_all(page)
        wide, window = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= window == width
        outside = page.evaluate(
            """() => Array.from(document.querySelectorAll('main *')).filter(one =>
                 !one.closest('.scroll, pre, svg') &&
                 one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML)"""
        )
        assert outside == []
    found.is_quiet(page_file)
    page.context.close()


@pytest.mark.nightly
def test_what_a_page_may_not_do_is_noticed(
    desktop: Watched, page_file: Path, tmp_path: Path
) -> None:
    """The guard of the tests above: script, handler, image and style from elsewhere are refused."""
    bad = (
        '<script>window.pwned = 1</script><img src="https://example.invalid/x.png">'
        '<b onclick="window.pwned = 1">x</b><link rel="stylesheet" href="https://example.invalid/c">'
        '<iframe src="https://example.invalid/f"></iframe>'
    )
    spoiled = tmp_path / "spoiled.html"
    spoiled.write_text(page_file.read_text().replace("<main>", f"<main>{bad}"))
    page = desktop.opened(spoiled).page
    page.click("b")
    assert page.evaluate("typeof window.pwned") == "undefined"
    refused = set(page.evaluate("window.violations"))
    assert {
        "script-src-elem",
        "script-src-attr",
        "img-src",
        "style-src-elem",
        "frame-src",
    } <= refused
    assert desktop.requests == [spoiled.as_uri()]
    with pytest.raises(AssertionError):
        desktop.is_quiet(spoiled)


@pytest.mark.nightly
def test_figures_are_drawn_in_the_page_s_ink(browser: Any, page_file: Path) -> None:
    inks = {}
    for scheme in ("light", "dark"):
        found = watched(browser, color_scheme=scheme, viewport={"width": 1280, "height": 900})
        page = found.opened(page_file).page
        assert page.locator(".figure svg").count() >= 1
        inks[scheme] = page.evaluate(
            "getComputedStyle(document.querySelector('.figure svg text')).fill"
        )
        assert page.evaluate("getComputedStyle(document.body).color") == inks[scheme]
        page.context.close()
    assert inks["light"] != inks["dark"]


@pytest.mark.nightly
def test_ids_are_the_document_s_own(desktop: Watched, page_file: Path) -> None:
    page = desktop.opened(page_file).page
    twice = page.evaluate(
        """() => { const ids = Array.from(document.querySelectorAll('[id]')).map(one => one.id);
                   return ids.filter((id, at) => ids.indexOf(id) !== at); }"""
    )
    assert twice == []
    for link in page.query_selector_all("nav a"):
        assert page.query_selector(link.get_attribute("href")) is not None


@pytest.mark.nightly
def test_filters_show_what_they_say(desktop: Watched, page_file: Path) -> None:
    page = desktop.opened(page_file).page
    every = [
        {key: (one.get_attribute(f"data-{key}") or "").split("\n") for key in KEYS}
        for one in page.query_selector_all("[data-answer]")
    ]
    assert len(every) == desktop.visible_answers > 20
    status = page.locator("[data-shown]")
    for key in KEYS:
        select = page.locator(f"[data-filter={key}]")
        values = [
            o.get_attribute("value") or o.inner_text() for o in select.locator("option").all()
        ]
        wanted = [v for v in values[1:] if v != "all"]
        assert wanted, key
        for value in wanted:
            select.select_option(value=value)
            expected = [one for one in every if fits(one, key, value)]
            assert desktop.visible_answers == len(expected), (key, value)
            assert status.inner_text() == f"{len(expected)} of {len(every)} shown"
        page.click("[data-reset]")
        assert desktop.visible_answers == len(every)
    page.select_option("[data-filter=category]", value="normal_atom_enum")
    page.select_option("[data-filter=wrong]", value="only official")
    both = [
        one
        for one in every
        if one["category"] == ["normal_atom_enum"] and one["wrong"] == ["official"]
    ]
    assert desktop.visible_answers == len(both) > 0
    desktop.is_quiet(page_file)


KEYS = ("run", "language", "category", "types", "wrong")


def fits(answer: dict[str, list[str]], key: str, value: str) -> bool:
    if key == "wrong" and value.startswith("only "):
        return answer["wrong"] == [value.removeprefix("only ")]
    return value in answer[key]


@pytest.mark.nightly
def test_without_javascript_all_is_there_and_opens(browser: Any, page_file: Path) -> None:
    found = watched(browser, java_script_enabled=False, viewport={"width": 1280, "height": 900})
    page = found.opened(page_file).page
    assert not page.locator("[data-filters]").is_visible()
    answers = page.query_selector_all("[data-answer]")
    assert len(answers) > 20
    assert all(one.is_visible() for one in answers)
    answer = page.locator("[data-answer]").first
    answer.locator("summary").first.click()
    assert answer.locator("pre").first.is_visible()
    assert found.requests == [page_file.as_uri()]
    page.context.close()


@pytest.mark.nightly
def test_invisible_signs_are_seen(desktop: Watched, page_file: Path) -> None:
    page = desktop.opened(page_file).page
    open_all(page)
    text = page.locator("main").inner_text()
    assert all(f"⟦U+{code}⟧" in text for code in ("202E", "0000", "001B", "200B"))
    assert "\u202e" not in page.content()
