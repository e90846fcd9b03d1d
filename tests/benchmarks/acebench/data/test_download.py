import gzip
import hashlib
import io
import os
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data import importer
from ace_ray.benchmarks.dataset import imports_folder
from ace_ray.errors import UserError
from tests.benchmarks.acebench.synthetic_checkout import write_checkout


class Server(BaseHTTPRequestHandler):
    """Answers any path with the body, in the manner set on the class."""

    protocol_version = "HTTP/1.1"
    body = b""
    manner = ""

    def do_GET(self):
        if self.manner == "404":
            return self.send_error(404)
        if self.manner == "hang up":
            self.close_connection = True
            return None
        self.send_response(200)
        length = len(self.body)
        if self.manner == "chunked" or self.manner == "truncated chunks":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n" % (length, self.body))
            if self.manner == "chunked":
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True
            return None
        claimed = length + 100 if self.manner in ("truncated", "stall") else length
        claimed = 10**12 if self.manner == "claims a terabyte" else claimed
        self.send_header("Content-Length", str(claimed))
        self.end_headers()
        self.wfile.write(self.body)
        self.close_connection = claimed != length
        if self.manner == "stall":
            self.wfile.flush()
            time.sleep(1.0)
        return None

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
    """The synthetic checkout as a tar.gz with one folder around it."""
    root = write_checkout(tmp_path_factory.mktemp("src") / "ACEBench-0123")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.add(root, arcname=root.name)
    return buffer.getvalue()


def sha(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def left_in(cache: Path) -> list[str]:
    home = imports_folder("acebench", cache)
    return sorted(os.listdir(home)) if home.exists() else []


def refused(server, cache, message, *, sha256=None):
    with pytest.raises(UserError, match=message) as caught:
        importer.pull(url=server.url, sha256=sha256 or sha(server.body), cache=cache)
    assert "\n" not in str(caught.value)
    assert left_in(cache) == []


def tar_of(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


@pytest.mark.parametrize("manner", ["", "chunked"])
def test_pull(server, cache, packed, manner):
    server.body, server.manner = packed, manner
    said: list[str] = []
    folder = importer.pull(url=server.url, sha256=sha(packed).upper(), cache=cache, say=said.append)
    assert left_in(cache) == [folder.name]
    manifest = (folder / "manifest.json").read_text()
    assert sha(packed) in manifest
    assert server.url in manifest
    assert said[0].startswith("imported: 38 rows")


def test_contents_are_pinned_without_a_hash(server, cache, packed):
    server.body = packed
    with pytest.raises(UserError, match=r"archive: its contents have the hash \w+, not the expec"):
        importer.pull(url=server.url, cache=cache)
    assert left_in(cache) == []


def test_official_address_is_pinned_even_with_a_hash(server, cache, packed, monkeypatch):
    server.body = packed
    monkeypatch.setattr(importer, "OFFICIAL_URL", server.url)
    refused(server, cache, "not the expected")


def test_official_url_names_the_commit():
    assert importer.OFFICIAL_URL.startswith("https://")
    assert importer.OFFICIAL_URL.endswith(importer.OFFICIAL_COMMIT)


def test_wrong_hash(server, cache, packed):
    server.body = packed
    refused(server, cache, f"the archive has sha256 {sha(packed)}, not aa", sha256="aa")


def test_404(server, cache):
    server.manner = "404"
    refused(
        server, cache, r"/archive: the download failed \(HTTPError: HTTP Error 404: Not Found\)"
    )


@pytest.mark.parametrize("manner", ["truncated", "truncated chunks", "hang up"])
def test_broken_off(server, cache, packed, manner):
    server.body, server.manner = packed, manner
    refused(server, cache, r"the download (broke off|failed) .*")


def test_silent_server(server, cache, packed, monkeypatch):
    monkeypatch.setattr(importer, "SILENCE_TIMEOUT_S", 0.2)
    server.body, server.manner = packed, "stall"
    refused(server, cache, r"the download failed \(TimeoutError: timed out\)")


def test_endless_download(server, cache, packed, monkeypatch):
    monkeypatch.setattr(importer, "TOTAL_TIMEOUT_S", -1.0)
    server.body = packed
    refused(server, cache, "the download took over")


def test_no_network(server, cache):
    server.url = "http://127.0.0.1:1/archive"
    refused(server, cache, r"the download failed .*; check network and proxy, or run `ace-ray data")


def test_other_schemes(server, cache):
    server.url = "file:///etc/passwd"
    refused(server, cache, r"--url: 'file:///etc/passwd' is not an http\(s\) address")


def test_archive_too_large(server, cache, packed, monkeypatch):
    server.body, server.manner = packed, "claims a terabyte"
    refused(server, cache, "the archive is larger than 67,108,864 bytes")
    monkeypatch.setattr(importer, "ARCHIVE_LIMIT_BYTES", len(packed) - 1)
    server.manner = "chunked"  # claims nothing
    refused(server, cache, "the archive is larger than")


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (member("../../escaped", size=3), "a path that leads outside: '../../escaped'"),
        (member("a/../../escaped", size=3), "a path that leads outside"),
        (member("/tmp/escaped", size=3), "a path that leads outside"),
        (member("..", tarfile.DIRTYPE), "a path that leads outside"),
        (member("a", tarfile.SYMTYPE, "/etc"), "a link or device: 'a'"),
        (member("a", tarfile.LNKTYPE, "/etc/passwd"), "a link or device"),
        (member("a", tarfile.FIFOTYPE), "a link or device"),
        (member("a", tarfile.CHRTYPE), "a link or device"),
        (member("."), "is damaged or not a tar.gz"),
    ],
)
def test_hostile_tar(server, cache, tmp_path, info, message):
    server.body = tar_of(member("top/a", size=5), info)
    refused(server, cache, message)
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.nightly
def test_a_bomb(server, cache):
    server.body = gzip.compress(bytes(importer.UNPACKED_LIMIT_BYTES + 1), 1)
    refused(server, cache, "unpacks to more than 268,435,456 bytes")


@pytest.mark.parametrize("cut", ["text", "gzip", "tar"])
def test_damaged_archive(server, cache, packed, cut):
    plain = gzip.decompress(packed)
    server.body = {
        "text": b"<html>Sign in</html>",
        "gzip": packed[: len(packed) // 2],
        "tar": gzip.compress(plain[: len(plain) // 2 + 7]),
    }[cut]
    refused(server, cache, r"is damaged or not a tar.gz .*; download it again")


def test_interrupted_pull_leaves_nothing(server, cache, packed, monkeypatch):
    server.body = packed

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    for step in ("_download", "_unpack", "import_checkout"):
        with monkeypatch.context() as patch:
            patch.setattr(importer, step, interrupt)
            with pytest.raises(KeyboardInterrupt):
                importer.pull(url=server.url, sha256=sha(packed), cache=cache)
        assert left_in(cache) == []


def test_cache_that_cannot_be_written(server, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"cannot be written .*; set ACE_RAY_CACHE"):
        importer.pull(url=server.url, cache=tmp_path / "cache")
