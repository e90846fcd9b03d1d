"""``ace-ray view`` in a browser: lists, rows, keys, two runs, hostile texts, a run that goes on."""

from __future__ import annotations

import http.cookiejar
import json
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

import pyarrow as pa
import pytest
import uvicorn

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.pipeline.rescore import compact_run
from ace_ray.storage.object_store import LocalStore, open_store
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.types import Entry, Episode
from ace_ray.viewer.server import application, listener_at
from ace_ray.viewer.table import RunTable
from tests.pipeline.made_run import written_run
from tests.report.builders import HOSTILE, block, row, utf8, write_run
from tests.report.pages import chromium

TOKEN = "the-token-of-this-test"
EVIL = utf8("".join(HOSTILE))
LONG = "word " * 2_000


def answered(number: int, entry: Entry) -> Episode:
    calls = [{"id": "1", "function": {"name": EVIL, "arguments": json.dumps({"a": EVIL})}}]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": LONG},
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": "", "tool_calls": calls, "reasoning": EVIL},
        {"role": "tool", "tool_call_id": "1", "content": f"observed {EVIL}"},
        {"role": EVIL, "content": EVIL},
    ]
    tools = [{"function": {"name": EVIL, "description": EVIL, "parameters": {EVIL: EVIL}}}]
    answer = render_gold(entry) if number else EVIL
    return Episode(messages, answer, model_calls=1, tools=tools)


@contextmanager
def served(*folders: Path) -> Iterator[str]:
    """The address of a server over the runs in ``folders``."""
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


def cookie(address: str) -> tuple[str, str]:
    """Name and value of what lets a browser in that has been there before."""
    return f"ace_ray_view_{urlsplit(address).port}", TOKEN


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run ``evil`` of hostile texts, and ``one`` and ``two`` of which two rows differ."""
    folder = tmp_path_factory.mktemp("view")
    written_run(folder / "evil", answered)
    for name, right in (("one", 130), ("two", 128)):
        write_run(folder / name, block("en", "normal_atom_bool", right, 140))
    with served(folder / "evil", folder / "one", folder / "two") as address:
        yield address


@pytest.fixture
def page(browser: Any, site: str) -> Iterator[Any]:
    """Fails where a page asks another host, says anything, breaks its policy or runs a script that
    is not its own."""
    context = browser.new_context()
    name, value = cookie(site)
    context.add_cookies([{"name": name, "value": value, "url": site}])
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    asked: list[str] = []
    said: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.add_init_script(
        "window.violations = [];"
        "document.addEventListener('securitypolicyviolation',"
        " event => window.violations.push(event.violatedDirective));"
    )
    yield opened
    assert {urlsplit(url).hostname for url in asked} <= {"127.0.0.1"}
    # The browser asks for an icon of its own accord.
    assert [line for line in said if "404" not in line] == []
    assert opened.evaluate("window.violations") == []
    assert opened.evaluate("typeof window.pwned") == "undefined"
    opened.context.close()


def entries(page: Any) -> list[str]:
    found: list[str] = page.locator("[data-row] th a").all_text_contents()
    return found


def shown(page: Any, entry: str) -> None:
    """Waits until the page of ``entry`` is there with its scripts: it hears no key before."""
    page.get_by_role("heading", name=entry).wait_for()
    page.wait_for_load_state("load")


@pytest.mark.nightly
def test_runs_are_listed_and_opened(page: Any, site: str) -> None:
    page.goto(site)
    names = page.locator("[data-row] a").all_text_contents()
    assert names[1:] == ["one", "two"]
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/one/")
    assert page.locator("[data-count]").text_content() == "140 of 140 rows"


@pytest.mark.nightly
def test_filters_search_and_pages(page: Any, site: str) -> None:
    page.goto(f"{site}/run/one/")
    assert len(entries(page)) == 100
    page.get_by_role("link", name="next", exact=True).click()
    page.wait_for_url("**page=2**")
    assert len(entries(page)) == 40
    page.keyboard.press("[")
    page.wait_for_url("**page=1**")
    page.get_by_label("Verdict").select_option("wrong")
    page.wait_for_url("**verdict=wrong**")
    assert page.locator("[data-count]").text_content() == "10 of 140 rows"
    assert entries(page)[0] == "normal_atom_bool_130"
    page.keyboard.press("/")
    page.keyboard.type("bool_13")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=bool_13**")
    assert len(entries(page)) == 10
    page.get_by_role("link", name="all rows").click()
    page.wait_for_url("**/run/one/?")
    assert page.locator("[data-count]").text_content() == "140 of 140 rows"


@pytest.mark.nightly
def test_rows_have_addresses_and_neighbours(page: Any, site: str) -> None:
    page.goto(f"{site}/run/one/?verdict=wrong")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/row/**")
    address = page.url
    assert page.locator("h1").text_content() == "normal_atom_bool_130"
    assert "1 of 10" in page.locator(".turn").text_content()
    page.keyboard.press("j")
    shown(page, "normal_atom_bool_131")
    page.keyboard.press("k")
    shown(page, "normal_atom_bool_130")
    assert page.url == address
    page.keyboard.press("u")
    page.wait_for_url("**/run/one/?verdict=wrong**")
    page.goto(address.split("?")[0])
    assert page.locator("h1").text_content() == "normal_atom_bool_130"


@pytest.mark.nightly
def test_two_runs_on_the_same_entry(page: Any, site: str) -> None:
    page.goto(f"{site}/run/one/?verdict=changed&against=two")
    assert entries(page) == ["normal_atom_bool_128", "normal_atom_bool_129"]
    page.locator("[data-row] a").first.click()
    page.get_by_role("link", name="beside two").click()
    page.wait_for_url("**/against/two**")
    assert page.locator(".side h2").all_text_contents() == ["one", "two"]
    verdicts = page.locator(".side .verdict").all_text_contents()
    assert verdicts == ["right", "right", "value_error:string", "param_value"]
    page.keyboard.press("j")
    shown(page, "normal_atom_bool_129")
    assert page.locator(".side").count() == 2


@pytest.mark.nightly
def test_hostile_texts_are_texts(page: Any, site: str) -> None:
    """All of them are there, as they were written, and none does anything."""
    page.goto(site)
    page.locator("[data-row] a").first.click()
    page.wait_for_url("**/run/**")
    address = page.url
    ids = page.locator("[data-row] a").evaluate_all("links => links.map(link => link.href)")
    page.goto(ids[0])
    folded = page.locator("details.fold[open]")
    assert folded.count() == 0
    page.keyboard.press("e")
    assert folded.count() == page.locator("details.fold").count() > 1
    tools = page.locator("section.role-user + details.tools")
    assert tools.count() == 1, "after what was asked"
    assert EVIL[:3] in tools.locator("pre").text_content()
    text = page.locator(".side").text_content()
    for one in HOSTILE[:10]:
        assert text.count(one) >= 5, one
    assert "U+202E" in text
    assert text.count(LONG.strip()) >= 1, "long texts are whole"
    assert page.locator(".step .call").count() == 1
    assert page.locator("h1").count() == 1
    page.keyboard.press("?")
    assert page.locator("[data-keys]").evaluate("dialog => dialog.open")
    page.goto(f"{address}?text=</script><script>pwned=1</script>&category=%22%3E<img src=x>")
    assert page.locator("[data-row]").count() == 0


@pytest.mark.nightly
def test_a_run_that_goes_on(browser: Any, tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run", block("en", "normal_atom_bool", 2, 4), missing=1, finished=False
    )
    with served(folder) as address:
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{address}/run/run/?token={TOKEN}")
        assert page.url == f"{address}/run/run/"
        assert page.locator("[data-count]").text_content() == "4 of 4 rows; 5 are declared"
        more = [{**row("en", "normal_atom_bool", 9), "run_id": "run"}]
        store = LocalStore(str(folder))
        write_parts(store, "1-a", pa.Table.from_pylist(more, schema=ROWS))
        page.locator("[data-row]").nth(4).wait_for()
        page.close()


def ask(address: str, **headers: str) -> tuple[int, Any, str]:
    known = {"Cookie": "=".join(cookie(address))}
    request = urllib.request.Request(address, headers={**known, **headers})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def test_only_this_machine_and_its_pages(site: str) -> None:
    status, headers, _ = ask(site)
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert ask(site, Host="evil.example")[0] == 400
    known = {"Cookie": "=".join(cookie(site))}
    request = urllib.request.Request(site, method="POST", data=b"x", headers=known)
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request)


@pytest.mark.parametrize("path", ["/", "/run/one/", "/run/one/state", "/nothing"])
@pytest.mark.parametrize("token", ["", "?token=", "?token=wrong", f"?token={TOKEN}x", "?token=%ff"])
def test_who_has_no_token_is_told_where_it_is(site: str, path: str, token: str) -> None:
    status, headers, text = ask(f"{site}{path}{token}", Cookie="ace_ray_view=x")
    assert status == 403
    assert "open the URL that it printed" in text
    assert "set-cookie" not in headers


def test_the_first_visit_lets_links_work(site: str) -> None:
    jar = http.cookiejar.CookieJar()
    visit = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar)).open
    with visit(f"{site}/run/one/?verdict=wrong&token={TOKEN}") as answer:
        assert answer.url == f"{site}/run/one/?verdict=wrong"
    with visit(f"{site}/run/two/") as answer:
        assert answer.status == 200
    (kept,) = jar
    assert kept.has_nonstandard_attr("HttpOnly")
    assert kept.get_nonstandard_attr("SameSite") == "lax"


def test_the_printed_address_lets_in(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", block("en", "normal_atom_bool", 1, 2))
    command = [sys.executable, "-m", "ace_ray.cli.main", "view", str(folder), "--port", "0"]
    view = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert view.stdout is not None
        address = view.stdout.readline().split()[1]
        jar = urllib.request.HTTPCookieProcessor()
        with urllib.request.build_opener(jar).open(address) as answer:
            assert "token" not in answer.url
            assert "run/run/" in answer.read().decode()
    finally:
        view.kill()
        view.wait()


@pytest.mark.parametrize(
    "path",
    [
        *("/run/none/", "/run/one/row/none", "/run/one/row/none/against/two", "/assets/../cli.py"),
        *("/assets/pages.py", "/nothing", "/run/one/row/%2e%2e%2f"),
    ],
)
def test_addresses_that_name_nothing(site: str, path: str) -> None:
    status, _, text = ask(f"{site}{path}")
    assert status == 404
    assert "Traceback" not in text
    assert "ace_ray view" in text


def test_a_run_that_is_merged_while_it_is_looked_at(tmp_path: Path) -> None:
    rows = block("en", "normal_atom_bool", 1, 2)
    folder = write_run(tmp_path / "run", rows)
    with served(folder) as address:
        assert ask(f"{address}/run/run/")[0] == 200
        compact_run(str(folder), lambda line: None, open_store)
        status, _, text = ask(f"{address}/run/run/row/{rows[1]['row_id']}")
    assert status == 200
    assert "<h1>normal_<wbr>atom_<wbr>bool_<wbr>1</h1>" in text


def test_a_port_that_is_taken(here: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", block("en", "normal_atom_bool", 1, 2))
    listener = listener_at(0)
    listener.listen()
    port = listener.getsockname()[1]
    ended = here("view", folder, "--port", port)
    listener.close()
    assert ended.code == 2
    assert f"--port {port}: cannot listen on this port; name another port" in ended.stderr
