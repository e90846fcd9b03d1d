"""``ace-ray view``: lists, rows, two runs, keys, hostile texts, and requests without the token."""

import html
import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn

from ace_ray.reports.explain import Explanation, explain
from ace_ray.storage.object_store import open_store
from ace_ray.types import Entry, Episode
from ace_ray.viewer.server import application, listener_at
from ace_ray.viewer.table import RunTable
from tests.pipeline.made_run import written_run
from tests.report.builders import HOSTILE, block, utf8, write_run

TOKEN = "the-token-of-this-test"
EVIL = utf8("".join(HOSTILE))
LONG = "word " * 2_000


def answered(number: int, entry: Entry) -> Episode:
    calls = [{"id": "1", "function": {"name": EVIL, "arguments": json.dumps({"a": EVIL})}}]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": LONG},
        {"role": "assistant", "content": "", "tool_calls": calls, "reasoning": EVIL},
        {"role": "tool", "tool_call_id": "1", "content": f"observed {EVIL}"},
        {"role": EVIL, "content": EVIL},
    ]
    tools = [{"function": {"name": EVIL, "description": EVIL, "parameters": {EVIL: EVIL}}}]
    return Episode(messages, EVIL, model_calls=1, tools=tools)


@contextmanager
def served(*folders: Path) -> Iterator[str]:
    """Serve the runs in ``folders``; yields the address."""
    listener = listener_at(0)
    runs = [RunTable(open_store(str(folder))) for folder in folders]
    server = uvicorn.Server(uvicorn.Config(application(runs, TOKEN), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a run of hostile texts, and runs ``one`` and ``two`` that differ in two rows."""
    folder = tmp_path_factory.mktemp("view")
    written_run(folder / "evil", answered)
    for name, right in (("one", 130), ("two", 128)):
        write_run(folder / name, block("en", "normal_atom_bool", right, 140))
    with served(folder / "evil", folder / "one", folder / "two") as address:
        yield address


def cookie(address: str) -> dict[str, str]:
    return {"Cookie": f"ace_ray_view_{urlsplit(address).port}={TOKEN}"}


class Unfollowed(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, so that a test sees this answer and not that of the next page."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask(address: str, **headers: str) -> tuple[int, Any, str]:
    request = urllib.request.Request(address, headers={**cookie(address), **headers})
    try:
        with urllib.request.build_opener(Unfollowed).open(request) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def page_at(address: str) -> str:
    status, _, text = ask(address)
    assert status == 200
    return text.replace("<wbr>", "")


def link(site: str, page: str, mark: str) -> str:
    """Return the address of the first link with ``mark``."""
    (target, *_) = re.findall(rf'href="([^"]*)"{mark}', page)
    return f"{site}{html.unescape(target)}"


def listed(page: str) -> tuple[str, list[str]]:
    """Return the count of a list, and its entries."""
    (count,) = re.findall(r"data-count>([^<]*)<", page)
    return count, re.findall(r"data-open>([^<]*)<", page)


def test_a_slow_filter_by_cause_does_not_stop_other_pages(site, monkeypatch) -> None:
    start, stop = threading.Event(), threading.Event()

    def slow(*runs: Any) -> Explanation:
        start.set()
        stop.wait(600)
        return explain(*runs)

    monkeypatch.setattr("ace_ray.viewer.table.explain", slow)
    filtered = f"{site}/run/one/?cause=prompt&against=two"
    waiting = threading.Thread(target=ask, args=(filtered,), daemon=True)
    waiting.start()
    assert start.wait(60)
    try:
        for page in ("/", "/run/one/", "/run/two/"):
            request = urllib.request.Request(f"{site}{page}", headers=cookie(site))
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert answer.status == 200
    finally:
        stop.set()
        waiting.join()


def test_lists_have_pages_filters_and_search(site: str) -> None:
    names = re.findall(r"data-open>([^<]*)<", page_at(site))
    assert names[1:] == ["one", "two"]
    first = page_at(f"{site}/run/one/")
    count, entries = listed(first)
    assert (count, len(entries)) == ("140 of 140 rows", 100)
    assert len(listed(page_at(link(site, first, " data-next-page")))[1]) == 40
    count, entries = listed(page_at(f"{site}/run/one/?verdict=wrong&text=BOOL_13"))
    assert (count, entries[0]) == ("10 of 140 rows", "normal_atom_bool_130")


def test_rows_link_to_their_neighbours_and_to_the_list(site: str) -> None:
    address = link(site, page_at(f"{site}/run/one/?verdict=wrong"), " data-open")
    page = page_at(address)
    assert "<h1>normal_atom_bool_130</h1>" in page
    assert "1 of 10" in page
    following = page_at(link(site, page, " data-next"))
    assert "<h1>normal_atom_bool_131</h1>" in following
    assert link(site, following, " data-previous") == address
    assert listed(page_at(link(site, page, " data-back")))[0] == "10 of 140 rows"
    assert "<h1>normal_atom_bool_130</h1>" in page_at(address.split("?")[0])


def test_two_runs_are_shown_side_by_side(site: str) -> None:
    changed = page_at(f"{site}/run/one/?verdict=changed&against=two")
    assert listed(changed)[1] == ["normal_atom_bool_128", "normal_atom_bool_129"]
    assert listed(page_at(f"{site}/run/one/?cause=checker&against=two")) == listed(changed)
    assert listed(page_at(f"{site}/run/one/?cause=tokens&against=two"))[1] == []
    page = page_at(link(site, page_at(link(site, changed, " data-open")), ">beside two"))
    assert re.findall("<h2>(one|two)</h2>", page) == ["one", "two"]
    verdicts = re.findall(r'class="verdict \w+">([^<]*)<', page)
    assert verdicts == ["right", "right", "value_error:string", "param_value"]


@pytest.mark.nightly
def test_keys_work_and_hostile_texts_do_nothing(site: str) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium on this machine")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        urls: list[str] = []
        messages: list[str] = []
        page.on("request", lambda request: urls.append(request.url))
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.add_init_script(
            "window.violations = [];"
            "document.addEventListener('securitypolicyviolation',"
            " event => window.violations.push(event.violatedDirective));"
        )
        page.goto(f"{site}/?token={TOKEN}")
        for pattern in ("**/run/**", "**/row/**"):
            page.keyboard.press("j")
            page.keyboard.press("Enter")
            page.wait_for_url(pattern)
        folded = page.locator("details.fold[open]")
        assert folded.count() == 0
        page.keyboard.press("e")
        assert folded.count() == page.locator("details.fold").count() > 1
        text = page.locator(".side").text_content()
        for hostile_text in HOSTILE[:10]:
            assert text.count(hostile_text) >= 5, hostile_text
        assert "U+202E" in text
        assert text.count(LONG.strip()) >= 1, "long texts are whole"
        page.keyboard.press("u")
        page.wait_for_url("**/run/*/")
        assert {urlsplit(url).hostname for url in urls} <= {"127.0.0.1"}
        # The browser asks for an icon of its own accord.
        assert [line for line in messages if "404" not in line] == []
        assert page.evaluate("window.violations") == []
        assert page.evaluate("typeof window.pwned") == "undefined"
        browser.close()


def test_only_get_requests_to_this_host_are_answered(site: str) -> None:
    policy = ask(site)[1]["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert ask(site, Host="evil.example")[0] == 400
    request = urllib.request.Request(site, data=b"x", headers=cookie(site))
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request)


@pytest.mark.parametrize("token", ["", "%ff", TOKEN[:-1], f"{TOKEN}x"])
def test_a_wrong_token_is_refused_and_sets_no_cookie(site: str, token: str) -> None:
    for path in ("/", "/run/one/state", "/nothing"):
        for query, value in ((f"?token={token}", "x"), ("", token)):
            name = f"ace_ray_view_{urlsplit(site).port}"
            status, headers, text = ask(f"{site}{path}{query}", Cookie=f"{name}={value}")
            assert status == 403
            assert "open the URL that it printed" in text
            assert "set-cookie" not in headers


def test_a_right_token_becomes_a_cookie_of_this_host(site: str) -> None:
    status, headers, _ = ask(f"{site}//evil.example/?token={TOKEN}&page=2", Cookie="")
    assert (status, headers["location"]) == (303, "/evil.example/?page=2")
    pair = cookie(site)["Cookie"]
    assert headers["set-cookie"].split("; ") == [pair, "HttpOnly", "Path=/", "SameSite=lax"]


def test_the_printed_address_lets_in(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", block("en", "normal_atom_bool", 1, 2))
    command = [sys.executable, "-m", "ace_ray.cli.main", "view", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as view:
        try:
            assert view.stdout is not None
            address = view.stdout.readline().split()[1]
            jar = urllib.request.HTTPCookieProcessor()
            with urllib.request.build_opener(jar).open(address) as answer:
                assert "token" not in answer.url
                assert "run/run/" in answer.read().decode()
        finally:
            view.kill()


def test_a_port_in_use_is_refused(invoke: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", block("en", "normal_atom_bool", 1, 2))
    with listener_at(0) as listener:
        host, port = listener.getsockname()
        result = invoke("view", folder, "--port", port)
    assert host == "127.0.0.1", "other machines do not reach it"
    result.refused(f"--port {port}: cannot listen on this port; name another port")
