import gzip
import hashlib
import io
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data import importer
from ace_ray.errors import UserError
from tests.benchmarks.acebench.synthetic_checkout import left_in, write_checkout


class Server(BaseHTTPRequestHandler):
    """Answer any path with the body. ``declared``: further bytes, None for no length at all."""

    status, body, silence_s = 200, b"", 0.0
    declared: int | None = 0

    def do_GET(self):
        self.send_response(self.status)
        if self.declared is not None:
            self.send_header("Content-Length", str(len(self.body) + self.declared))
        self.end_headers()
        self.wfile.write(self.body)
        self.wfile.flush()
        time.sleep(self.silence_s)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    handler: Any = type("Handler", (Server,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.daemon_threads = True
        handler.url = f"http://127.0.0.1:{running.server_port}/archive"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield handler
        running.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Pack the synthetic checkout as a tar.gz with one folder around it."""
    root = write_checkout(tmp_path_factory.mktemp("src") / "ACEBench-0123")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.add(root, arcname=root.name)
    return buffer.getvalue()


def sha(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def refused(server, cache, message, *, sha256=None):
    with pytest.raises(UserError, match=message) as caught:
        importer.pull(url=server.url, sha256=sha256 or sha(server.body), cache=cache)
    assert "\n" not in str(caught.value)
    assert left_in(cache) == []


@pytest.mark.parametrize("declared", [0, None])
def test_a_pull_imports_the_archive(server, cache, packed, declared):
    server.body, server.declared = packed, declared
    said: list[str] = []
    folder = importer.pull(url=server.url, sha256=sha(packed).upper(), cache=cache, say=said.append)
    assert left_in(cache) == [folder.name]
    manifest = (folder / "manifest.json").read_text()
    assert sha(packed) in manifest
    assert server.url in manifest
    assert said[0].startswith("imported: 38 rows")


def test_contents_are_pinned(server, cache, packed, monkeypatch):
    server.body = packed
    refused(server, cache, f"the archive has sha256 {sha(packed)}, not aa", sha256="aa")
    with pytest.raises(UserError, match=r"archive: its contents have the hash \w+, not the expec"):
        importer.pull(url=server.url, cache=cache)
    assert importer.OFFICIAL_URL.endswith(importer.OFFICIAL_COMMIT)
    monkeypatch.setattr(importer, "OFFICIAL_URL", server.url)
    refused(server, cache, "not the expected")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"status": 404},
            r"/archive: the download failed \(HTTPError: HTTP Error 404: Not Found\)",
        ),
        ({"declared": 100}, r"the download broke off after [\d,]+ of [\d,]+ bytes"),
        ({"declared": 100, "silence_s": 1.0}, r"the download failed \(TimeoutError: timed out\)"),
        ({"declared": 10**12}, "the archive is larger than 67,108,864 bytes"),
    ],
)
def test_a_download_that_fails_is_one_line(server, cache, packed, monkeypatch, changes, message):
    if "silence_s" in changes:
        monkeypatch.setattr(importer, "SILENCE_TIMEOUT_S", 0.2)
    server.body = packed
    for name, value in changes.items():
        setattr(server, name, value)
    refused(server, cache, message)


def test_an_endless_download_is_cut_by_time_and_size(server, cache, packed, monkeypatch):
    server.body, server.declared = packed, None
    monkeypatch.setattr(importer, "ARCHIVE_LIMIT_BYTES", len(packed) - 1)
    refused(server, cache, "the archive is larger than")
    monkeypatch.setattr(importer, "ARCHIVE_LIMIT_BYTES", len(packed))
    monkeypatch.setattr(importer, "TOTAL_TIMEOUT_S", -1.0)
    refused(server, cache, "the download took over")


def test_addresses_that_cannot_be_pulled(server, cache):
    server.url = "http://127.0.0.1:1/archive"
    refused(server, cache, r"the download failed .*; check network and proxy, or run `ace-ray data")
    server.url = "file:///etc/passwd"
    refused(server, cache, r"--url: 'file:///etc/passwd' is not an http\(s\) address")


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("a/../../escaped", tarfile.REGTYPE, "a path that leads outside: 'a/../../escaped'"),
        ("/tmp/escaped", tarfile.REGTYPE, "a path that leads outside"),
        ("..", tarfile.DIRTYPE, "a path that leads outside"),
        ("a", tarfile.SYMTYPE, "a link or device: 'a'"),
        ("a", tarfile.LNKTYPE, "a link or device"),
        ("a", tarfile.FIFOTYPE, "a link or device"),
        (".", tarfile.REGTYPE, "is damaged or not a tar.gz"),
    ],
)
def test_hostile_archives_are_refused(server, cache, tmp_path, name, kind, message):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("top/a"))
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    server.body = buffer.getvalue()
    refused(server, cache, message)
    assert not list(tmp_path.rglob("escaped"))


def test_a_bomb_is_not_unpacked(server, cache, monkeypatch):
    monkeypatch.setattr(importer, "UNPACKED_LIMIT_BYTES", 1_000)
    server.body = gzip.compress(bytes(1_001))
    refused(server, cache, "unpacks to more than 1,000 bytes")


def test_damaged_archives_are_refused(server, cache, packed):
    plain = gzip.decompress(packed)
    half = gzip.compress(plain[: len(plain) // 2 + 7])
    for body in (b"<html>Sign in</html>", packed[: len(packed) // 2], half):
        server.body = body
        refused(server, cache, r"is damaged or not a tar.gz .*; download it again")


def test_an_interrupted_pull_leaves_nothing(server, cache, packed, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    server.body = packed
    monkeypatch.setattr(importer, "import_checkout", interrupt)
    with pytest.raises(KeyboardInterrupt):
        importer.pull(url=server.url, sha256=sha(packed), cache=cache)
    assert left_in(cache) == []


def test_a_cache_that_cannot_be_written(server, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"cannot be written .*; set ACE_RAY_CACHE"):
        importer.pull(url=server.url, cache=tmp_path / "cache")
