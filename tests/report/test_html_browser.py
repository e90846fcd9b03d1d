"""The page in a browser, opened as a file: no requests, no foreign scripts, filters that work."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.nightly
def test_hostile_texts_do_nothing_and_filters_work(tmp_path: Path) -> None:
    text = utf8("".join(HOSTILE))
    rows = [
        *(item for lang in ("en", "zh") for item in block(lang, "special_incomplete", 1, 9)),
        *(row("en", "normal_atom_enum", i, official=i > 2, strict=i < 2) for i in range(5)),
        *(item for item in hostile_rows(text) if item["language"] == "en"),
    ]
    lines = [ledger_line(f"step_{n}", step=n, note=text) for n in (100, 200)]
    runs = {"step_100": rows, "step_200": rows[9:]}
    folder = write_sweep(tmp_path / "sweep", [*lines, refused("bad", text)], runs)
    report_page(folder, out=tmp_path / "out")
    address = (tmp_path / "out" / "report.html").as_uri()
    with chromium() as browser:
        page = browser.new_page()
        requests: list[str] = []
        said: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.add_init_script(
            "window.violations = [];"
            "document.addEventListener('securitypolicyviolation',"
            " event => window.violations.push(event.violatedDirective));"
        )
        page.goto(address)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        text = page.locator("main").inner_text()
        assert all(f"⟦U+{code}⟧" in text for code in ("202E", "0000", "001B", "200B"))
        assert page.locator(".figure svg").count() >= 1
        answers = page.query_selector_all("[data-answer]")
        assert len(answers) > 20
        for key, value in (("category", "normal_atom_enum"), ("wrong", "only strict")):
            page.select_option(f"[data-filter={key}]", value=value)
            wanted = value.removeprefix("only ")
            fits = [one for one in answers if one.get_attribute(f"data-{key}") == wanted]
            assert [one for one in answers if one.is_visible()] == fits != []
            shown = page.locator("[data-shown]").inner_text()
            assert shown == f"{len(fits)} of {len(answers)} shown"
            page.click("[data-reset]")
        assert all(one.is_visible() for one in answers)
        assert requests == [address]
        assert said == page.evaluate("window.violations") == []
        assert page.evaluate("typeof window.pwned") == "undefined"
        page = browser.new_context(java_script_enabled=False).new_page()
        page.goto(address)
        assert not page.locator("[data-filters]").is_visible()
        assert all(one.is_visible() for one in page.query_selector_all("[data-answer]"))
