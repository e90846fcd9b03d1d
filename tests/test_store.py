"""Both kinds of store keep the same promises; the S3 one speaks to a real server."""

from __future__ import annotations

import errno
import io
import os
import pickle
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ace_ray.errors import UserError
from ace_ray.storage.object_store import LocalStore, S3Store, Store, Unreachable, open_store


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store(str(tmp_path / "root"))
    s3 = request.getfixturevalue("s3")
    return open_store(f"s3://{s3.bucket}/{tmp_path.name}/root")


def paths(store: Store, prefix: str = "") -> list[str]:
    return [item.path for item in store.list(prefix)]


def test_put_get_list_delete(store: Store) -> None:
    assert store.list() == []
    assert store.get("a") is None
    assert store.get("a/b") is None
    for path in ("rows/b", "rows/a", "rowsaurus", "top", "deep/er/x"):
        store.put(path, path.encode())
    assert paths(store) == ["deep/er/x", "rows/a", "rows/b", "rowsaurus", "top"]
    assert paths(store, "rows/") == ["rows/a", "rows/b"]
    assert paths(store, "rows") == ["rows/a", "rows/b", "rowsaurus"]
    assert paths(store, "deep/e") == ["deep/er/x"]
    assert paths(store, "nothing/") == []
    assert store.get("rows/a") == b"rows/a"
    store.delete("rows/a")
    store.delete("rows/a")
    assert store.get("rows/a") is None
    assert paths(store, "rows/") == ["rows/b"]


def test_an_etag_changes_with_the_content(store: Store) -> None:
    store.put("a", b"1")
    (before,) = store.list()
    store.put("a", b"22")
    (after,) = store.list()
    assert before.etag != after.etag
    assert (before.size, after.size) == (1, 2)


@pytest.mark.nightly
def test_children_see_their_part_only(store: Store) -> None:
    child, sibling = store.child("run-1"), store.child("run-10")
    child.put("x", b"x")
    sibling.put("y", b"y")
    assert paths(child) == ["x"]
    assert paths(sibling) == ["y"]
    assert paths(store) == ["run-1/x", "run-10/y"]
    assert child.child("x").get("below") is None


def test_a_store_can_be_pickled_after_use(store: Store) -> None:
    store.put("a", b"1")
    copy = pickle.loads(pickle.dumps(store))
    assert copy == store
    assert copy.get("a") == b"1"


def test_parquet_is_read_by_column(store: Store) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), sink)
    store.put("rows/p.parquet", sink.getvalue())
    with store.open("rows/p.parquet") as file:
        assert pq.read_table(file, columns=["b"]).to_pydict() == {"b": ["x", "y"]}


def test_checking_leaves_nothing_behind(store: Store) -> None:
    store.check_writable()
    assert store.list() == []
    if isinstance(store, LocalStore):
        assert not Path(store.root).exists()


@pytest.mark.nightly
def test_readers_see_whole_objects_only(store: Store) -> None:
    sizes = [1 << 18, 1 << 16]
    store.put("a", b"0" * sizes[0])
    stop = threading.Event()
    seen: set[int] = set()

    def read() -> None:
        while not stop.is_set():
            data = store.get("a")
            assert data is not None
            seen.add(len(data))

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(20):
        store.put("a", b"0" * sizes[i % 2])
    stop.set()
    reader.join()
    assert seen <= set(sizes)


def test_a_failed_write_leaves_the_old_object_and_no_scrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        store.put("a", b"new")
    assert store.get("a") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("umask", [0o002, 0o077])
def test_others_may_read_what_the_umask_says(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = LocalStore(str(tmp_path / "root"))
        store.put("folder/a", b"x")
        assert store.put_if("b", b"x", None)
    finally:
        os.umask(before)
    for path in (tmp_path / "root", *(tmp_path / "root").rglob("*")):
        most = 0o777 if path.is_dir() else 0o666
        assert stat.S_IMODE(path.stat().st_mode) == most & ~umask, path


def test_a_conditional_put_writes_over_what_was_seen(store: Store) -> None:
    assert store.tagged("a") is None
    first = store.put_if("a", b"1", None)
    assert first
    assert store.tagged("a") == (b"1", first)
    assert store.put_if("a", b"2", None) is None, "it is there by now"
    assert store.put_if("a", b"2", '"0123456789abcdef0123456789abcdef"') is None
    second = store.put_if("a", b"2", first)
    assert second
    assert second != first
    assert store.put_if("a", b"3", first) is None, "a tag is good once"
    assert store.tagged("a") == (b"2", second)
    store.put("a", b"4")
    assert store.put_if("a", b"5", second) is None
    store.delete("a")
    assert store.put_if("a", b"5", second) is None, "nothing is there to write over"
    assert store.get("a") is None
    assert store.put_if("deep/er/a", b"6", None)
    assert paths(store) == ["deep/er/a"]
    assert store.quick().tagged("deep/er/a") == store.tagged("deep/er/a")


@pytest.mark.nightly
def test_of_many_writers_each_sees_the_last(store: Store) -> None:
    """A counter that every thread adds to: a lost update would be missing at the end."""
    store.put("count", b"0")
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def add() -> None:
        try:
            start.wait(30)
            for _ in range(5):
                while True:
                    found = store.tagged("count")
                    assert found is not None
                    if store.put_if("count", b"%d" % (int(found[0]) + 1), found[1]):
                        break
        except BaseException as error:  # noqa: BLE001 - raised by the test
            failures.append(error)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert store.get("count") == b"40"


def test_a_delete_leaves_no_empty_folder(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "root"))
    for path in ("a/b/c", "a/b/d", "a/e"):
        store.put(path, b"")
    store.delete("a/b/c")
    assert (tmp_path / "root/a/b").is_dir()
    store.delete("a/b/d")
    assert not (tmp_path / "root/a/b").exists()
    store.delete("a/nothing/here")
    store.delete("a/e/below a file")
    assert store.get("a/e") == b""
    store.delete("a/e")
    assert list(tmp_path.iterdir()) == [], "nothing above the root is touched"
    assert tmp_path.is_dir()
    store.delete("a/e")
    store.put("a/e", b"again")
    assert paths(store) == ["a/e"]


def test_a_conditional_put_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "root"))
    assert store.put_if("a", b"1", "a tag of something that has gone") is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_goes_meanwhile_does_not_let_two_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that ends removes its folder while two others come."""
    store = LocalStore(str(tmp_path / "root"))
    tagged, main = LocalStore.tagged, threading.current_thread()
    third: list[str | None] = []

    def come() -> None:
        store.delete("lease")
        third.append(store.put_if("lease", b"third", None))

    thread = threading.Thread(target=come)

    def slowly(self: LocalStore, path: str) -> tuple[bytes, str] | None:
        found = tagged(self, path)
        if threading.current_thread() is main and thread.ident is None:
            thread.start()
            thread.join(0.5)
        return found

    monkeypatch.setattr(LocalStore, "tagged", slowly)
    second = store.put_if("lease", b"second", None)
    thread.join(30)
    assert [bool(second), bool(third[0])].count(True) == 1


def test_local_failures_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    store = LocalStore(str(tmp_path))
    with pytest.raises(UserError, match="file/below"):
        store.put("file/below", b"")
    with pytest.raises(UserError, match=r"folder: cannot read"):
        store.get("folder")


def test_a_probe_that_cannot_be_deleted_is_not_listed(s3: Any) -> None:
    store = S3Store(f"s3://{s3.bucket}/probed")
    s3.client.put_object(Bucket=s3.bucket, Key="probed/.ace-ray-probe", Body=b"")
    assert store.list() == []


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("AccessDenied", "access to bucket b is denied"),
        ("ExpiredToken", "token has expired"),
        ("SignatureDoesNotMatch", "secret key"),
        ("PermanentRedirect", "another region"),
        ("NoSuchBucket", "bucket b does not exist"),
        ("NotImplemented", "does not support conditional writes"),
        ("SlowDown", "SlowDown"),
    ],
)
def test_answers_of_the_store_are_explained(s3: Any, code: str, part: str) -> None:
    from botocore.stub import Stubber

    store = S3Store("s3://b/p")
    with Stubber(store._client) as stub:
        stub.add_client_error("put_object", service_error_code=code)
        with pytest.raises(UserError, match=part) as caught:
            store.put("a", b"")
    assert caught.value.fix
    with Stubber(store._client) as stub:
        stub.add_client_error("put_object", service_error_code=code)
        with pytest.raises(UserError, match=part):
            store.put_if("a", b"", None)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("code", "status", "passing"),
    [
        ("SlowDown", 503, True),
        ("RequestTimeout", 400, True),
        ("ExpiredToken", 400, True),
        ("Odd", 502, True),
        ("Odd", 400, False),
        ("NotImplemented", 501, False),
        ("AccessDenied", 403, False),
        ("NoSuchBucket", 404, False),
    ],
)
def test_what_passes_is_told_from_what_does_not(
    s3: Any, code: str, status: int, passing: bool
) -> None:
    from botocore.stub import Stubber

    store = S3Store("s3://b/p")
    with Stubber(store._client) as stub:
        stub.add_client_error("get_object", service_error_code=code, http_status_code=status)
        with pytest.raises(UserError) as caught:
            store.get("a")
    assert isinstance(caught.value, Unreachable) is passing


def test_a_store_that_nobody_answers_for(s3: Any) -> None:
    with pytest.raises(Unreachable, match="S3 cannot be reached"):
        S3Store("s3://b/p", "http://127.0.0.1:9", "us-east-1").quick().get("a")
    with pytest.raises(UserError) as caught:
        S3Store("s3://b/p", "not a valid address", "us-east-1").quick().get("a")
    assert not isinstance(caught.value, Unreachable)


@contextmanager
def web_server(
    status: int, headers: dict[str, str], body: bytes
) -> Iterator[tuple[str, list[str]]]:
    """A server with one answer to everything; its address, and the paths it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


HTML = {"Content-Type": "text/html"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("status", "headers", "body", "part"),
    [
        (302, {"Location": "https://u:p@login.example/?t=1"}, b"", "it answered with status 302"),
        (200, HTML, b"<!doctype html><title>Console</title>", "it answered with status 200"),
        (200, {**HTML, "ETag": '"1"'}, b"<html>", "it answered with status 200"),
        (200, {}, b"", "it answered with status 200"),
        (403, HTML, b"<html><title>Forbidden</title>", "it answered with status 403"),
    ],
)
def test_an_address_that_is_no_s3_service_is_named(
    s3: Any, status: int, headers: dict[str, str], body: bytes, part: str
) -> None:
    with web_server(status, headers, body) as (address, _):
        store = S3Store("s3://b/p", address, "us-east-1").quick()
        for ask in (lambda: store.get("a"), store.list, lambda: store.put("a", b"1")):
            with pytest.raises(UserError) as caught:
                ask()
            said = str(caught.value)
            assert said.startswith(f"s3://b/p: {address} ")
            assert part in said
            assert "u:p@" not in said


def test_no_request_follows_a_redirect(s3: Any) -> None:
    body = b"<Error><Code>PermanentRedirect</Code><Endpoint>elsewhere</Endpoint></Error>"
    with (
        web_server(200, {"ETag": '"1"'}, b"") as (elsewhere, stolen),
        web_server(307, {"Location": f"{elsewhere}/b/a"}, body) as (address, asked),
    ):
        store = S3Store("s3://b", address, "us-east-1").quick()
        for ask in (lambda: store.get("a"), lambda: store.open("a")):
            with pytest.raises((UserError, OSError)):
                ask()
    assert asked
    assert not stolen


def test_an_outage_behind_a_proxy_passes(s3: Any) -> None:
    with (
        web_server(502, HTML, b"<html>Bad Gateway") as (address, asked),
        pytest.raises(Unreachable, match="S3 answered 502;"),
    ):
        S3Store("s3://b", address, "us-east-1").quick().get("a")
    assert len(asked) == 2  # it is tried again


@pytest.mark.parametrize("uri", ["s3://", "s3:///x", "s3:/b/x", "S3:b", "gs://b/x", "http://x/y"])
def test_uris_that_name_no_store(uri: str) -> None:
    with pytest.raises(UserError):
        open_store(uri)


@pytest.mark.parametrize(
    ("number", "doing", "advice"),
    [
        (errno.EACCES, "read", "check the permissions and the disk"),
        (errno.ENOSPC, "write", "check the permissions and the free space"),
    ],
)
def test_an_error_says_what_helps_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, doing: str, advice: str
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    store = LocalStore(str(tmp_path))
    monkeypatch.setattr("os.open", fails)
    work: dict[str, Callable[[], object]] = {
        "read": lambda: store.get("a"),
        "write": lambda: store.put("a", b"x"),
    }
    with pytest.raises(UserError) as caught:
        work[doing]()
    line = str(caught.value)
    assert f"cannot {doing}: {os.strerror(number)}; {advice}" in line
    assert ("output folder" in line) <= (doing == "write")
