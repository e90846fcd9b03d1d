"""Stores that refuse writes for a while, and disks that are full."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_a_folder_that_cannot_be_written_for_a_while(make_run):
    run = make_run(samples=3, engine={"delay_s": 0.3}, concurrency=2)
    driver = run.start()
    driver.until_stored(4)
    rows, aside = run.path / "rows", run.path / "aside"
    rows.rename(aside)
    rows.write_text("no folder")
    driver.until(lambda: "results cannot be stored yet" in driver.text)
    rows.unlink()
    aside.rename(rows)
    assert driver.wait() == 0, driver.text
    assert len(run.rows()) == 36
    assert {row["attempts"] for row in run.rows()} == {1}


def test_a_full_disk_ends_the_run_and_loses_nothing(make_run, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=66m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a disk of a size of its own takes the right to mount one")
    try:
        run = make_run(
            output=str(disk / "runs"),
            samples=3,
            engine={"delay_s": 0.3},
            concurrency=2,
            store_patience_s=3.0,
        )
        driver = run.start()
        driver.until_stored(4)
        filler = disk / "filler"
        fill(filler)
        assert driver.wait() == 75, driver.text
        assert "No space left on device" in driver.text
        filler.unlink()
        kept = {row["row_id"] for row in run.rows()}
        assert len(kept) >= 4
        again = run.to_the_end()
        assert again.code == 0, again.text
        assert f"{36 - len(kept)} to evaluate" in again.text
        assert len(run.rows()) == 36
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def fill(path: Path) -> None:
    """Write zeros until there is no space left."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))


PER_HOP = ("connection", "keep-alive", "transfer-encoding", "expect")


class Gateway(ThreadingHTTPServer):
    """Passes requests on to an S3 server, or refuses to."""

    def __init__(self, upstream: str) -> None:
        self.upstream, self.refuses, self.refused = upstream, False, 0
        super().__init__(("127.0.0.1", 0), _Passing)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        server = self.server
        assert isinstance(server, Gateway)
        body = self._body()
        if server.refuses and self.command == "PUT":
            server.refused += 1
            self._answer(503, [], b"<Error><Code>SlowDown</Code></Error>")
            return
        headers = {k: v for k, v in self.headers.items() if k.lower() not in PER_HOP}
        # Not urllib, which calls every body a form.
        onward = http.client.HTTPConnection(urlsplit(server.upstream).netloc, timeout=60)
        try:
            onward.request(self.command, self.path, body or None, headers)
            answer = onward.getresponse()
            self._answer(answer.status, answer.getheaders(), answer.read())
        finally:
            onward.close()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return found

    def _answer(self, code: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(code)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = dict((n.lower(), v) for n, v in headers).get("content-length", len(body))
        self.send_header("Content-Length", str(length if self.command == "HEAD" else len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def gateway(s3) -> Iterator[Gateway]:
    server = Gateway(s3.endpoint_url)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def test_an_object_store_that_refuses_writes_for_a_while(make_run, gateway, s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", gateway.url)
    run = make_run(
        output=f"s3://{s3.bucket}/refusing",
        samples=3,
        engine={"delay_s": 0.3},
        concurrency=2,
    )
    driver = run.start()
    driver.until_stored(4)
    gateway.refuses = True
    driver.until(lambda: gateway.refused > 3)
    time.sleep(40)  # beyond the lease's term: nobody else can write either
    gateway.refuses = False
    assert driver.wait() == 0, driver.text
    assert len(run.rows()) == 36
    assert {row["attempts"] for row in run.rows()} == {1}
