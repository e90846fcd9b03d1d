"""A report's page taken apart, and a browser to open it with."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ace_ray.reports.report import make_report

Shape = tuple[str, frozenset[str]]
"""A tag and the names of its attributes."""
VOID = {"meta", "wbr", "br", "img", "input", "link", "hr", "source", "base", "area", "embed"}
_OF_VIEW = re.compile(r"http://127\.0\.0\.1:8642/run/[\w.~%-]+/row/[\w.~%-]+", re.ASCII)
"""The only addresses that a page names."""
FOREIGN = {"line", "circle", "rect", "path", "use"}


class Page(HTMLParser):
    """Elements by shape, texts, attribute values, and what is in scripts and styles."""

    def __init__(self, content: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.shapes: Counter[Shape] = Counter()
        self.values: list[tuple[str, str, str]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.texts: list[str] = []
        self.open: list[str] = []
        self.odd: list[str] = []
        self.feed(content.decode())
        self.close()

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.shapes[tag, frozenset(name for name, _ in attributes)] += 1
        self.values += [(tag, name, value or "") for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.odd.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.raw:
            self.raw[self.open[-1]].append(data)
        else:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.odd.append(f"comment {data[:40]!r}")

    def handle_decl(self, decl: str) -> None:
        if decl != "doctype html":
            self.odd.append(f"declaration {decl!r}")

    def handle_pi(self, data: str) -> None:
        self.odd.append(f"instruction {data[:40]!r}")

    def unknown_decl(self, data: str) -> None:
        self.odd.append(f"section {data[:40]!r}")


def report_page(*uris: Path | str, out: Path, **changes: Any) -> bytes:
    """``report.html`` of the runs or sweep at ``uris``, written to ``out``."""
    asked = {"paper": False, "rules": "official", **changes}
    make_report([str(u) for u in uris], out=str(out), console=Console(file=StringIO()), **asked)
    return (out / "report.html").read_bytes()


def is_sound(page: Page) -> None:
    """Well-formed, one script and the style of ours, nothing that asks for anything."""
    assert page.odd == []
    assert page.open == []
    (policy,) = [value for _, name, value in page.values if value.startswith("default-src")]
    (script,) = ["".join(page.raw["script"])]
    wanted = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{wanted}'" in policy
    assert policy.startswith("default-src 'none'; ")
    counts = Counter(tag for tag, _ in page.shapes.elements())
    assert (counts["script"], counts["style"]) == (1, 1)
    assert not counts.keys() & {"img", "iframe", "object", "embed", "link", "base", "form", "image"}
    for tag, name, value in page.values:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "srcdoc", "action", "formaction", "data"), (tag, name)
        if name in ("href", "xlink:href"):
            assert value.startswith("#") or _OF_VIEW.fullmatch(value), value
        if name == "style":
            assert "url(" not in value.replace("url(#", ""), value
    style = "".join(page.raw["style"])
    assert not re.search(r"@import|url\(|expression", style)


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser of this machine; skips where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium on this machine")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
