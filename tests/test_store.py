"""Stores on a disk and on S3 behave alike; S3 is a real server."""

import errno
import io
import os
import pickle
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ace_ray.errors import UserError
from ace_ray.storage.object_store import LocalStore, S3Store, Store, UnreachableStore, open_store
from tests.scripted_endpoint import web_server


def paths(store: Store, prefix: str = "") -> list[str]:
    return [item.path for item in store.list(prefix)]


def test_objects_are_put_listed_read_and_deleted(store: Store) -> None:
    store.check_writable()
    assert store.list() == []
    if isinstance(store, LocalStore):
        assert not Path(store.root).exists(), "the check leaves nothing"
    assert store.get("a/b") is None
    for path in ("rows/b", "rows/a", "rowsaurus", "top", "deep/er/x"):
        store.put(path, path.encode())
    assert paths(store) == ["deep/er/x", "rows/a", "rows/b", "rowsaurus", "top"]
    assert paths(store, "rows/") == ["rows/a", "rows/b"]
    assert paths(store, "rows") == ["rows/a", "rows/b", "rowsaurus"]
    assert paths(store, "deep/e") == ["deep/er/x"]
    assert paths(store, "nothing/") == []
    assert store.get("rows/a") == b"rows/a"
    child = store.child("rows")
    assert paths(child) == ["a", "b"]
    assert child.child("a").get("below") is None
    (before,) = store.list("top")
    store.put("top", b"22")
    (after,) = store.list("top")
    assert before.etag != after.etag
    assert (before.size, after.size) == (3, 2)
    for _ in range(2):
        store.delete("rows/a")
    assert store.get("rows/a") is None
    assert paths(store, "rows/") == ["rows/b"]


def test_a_store_can_be_pickled_and_reads_columns(store: Store) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), sink)
    store.put("rows/p.parquet", sink.getvalue())
    copy = pickle.loads(pickle.dumps(store))
    assert copy == store
    with copy.open("rows/p.parquet") as file:
        assert pq.read_table(file, columns=["b"]).to_pydict() == {"b": ["x", "y"]}


def test_a_conditional_put_needs_the_tag_of_the_present_content(store: Store) -> None:
    assert store.get_tagged("a") is None
    first = store.put_if("a", b"1", None)
    assert first
    assert store.get_tagged("a") == (b"1", first)
    assert store.put_if("a", b"2", None) is None, "there is an object now"
    assert store.put_if("a", b"2", '"0123456789abcdef0123456789abcdef"') is None
    second = store.put_if("a", b"2", first)
    assert second
    assert second != first
    assert store.put_if("a", b"3", first) is None, "the tag is old"
    store.put("a", b"4")
    assert store.put_if("a", b"5", second) is None
    store.delete("a")
    assert store.put_if("a", b"5", second) is None, "there is no object"
    assert store.get("a") is None
    assert store.put_if("deep/er/a", b"6", None)
    assert paths(store) == ["deep/er/a"]
    assert store.with_short_timeout().get_tagged("deep/er/a") == store.get_tagged("deep/er/a")


def test_a_failed_write_keeps_the_old_object(tmp_path, monkeypatch) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    message = "a: cannot write: No space left on device; check the permissions and the free space"
    with pytest.raises(UserError, match=message):
        store.put("a", b"new")
    assert store.get("a") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_pipes_and_large_files_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", (256 << 20) + 1)
    for name, problem in (("pipe", "is not a regular file"), ("large", "is larger than 256 MiB")):
        with pytest.raises(UserError, match=f"{name}: cannot read: {problem}"):
            LocalStore(str(tmp_path)).get(name)


HTML = {"Content-Type": "text/html"}


def short(address: str) -> S3Store:
    """Return the store s3://b/p of a service that is not waited for."""
    return S3Store("s3://b/p", address, "us-east-1").with_short_timeout()


def errors_of(code: str, status: int, message: str = "") -> list[UserError]:
    """Return the errors of a read, a write and a conditional write that S3 answers with one."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    errors = []
    with web_server(status, {"Content-Type": "application/xml"}, body) as (address, _):
        for method, *values in (("get",), ("put", b""), ("put_if", b"", None)):
            with pytest.raises(UserError) as caught:
                getattr(short(address), method)("a", *values)
            errors.append(caught.value)
    return errors


@pytest.mark.parametrize(
    ("code", "status", "part", "passing"),
    [
        ("AccessDenied", 403, "access to bucket b is denied", False),
        ("SignatureDoesNotMatch", 403, "the secret key does not match", False),
        ("NoSuchBucket", 404, "bucket b does not exist", False),
        ("ExpiredToken", 400, "token has expired", True),
        ("SlowDown", 503, "S3 answered SlowDown", True),
        ("Odd", 502, "S3 answered Odd", True),
    ],
    ids=["access", "signature", "bucket", "token", "load", "other"],
)
def test_errors_of_s3_are_explained_and_outages_may_pass(s3, code, status, part, passing) -> None:
    for error in errors_of(code, status):
        assert part in str(error)
        assert error.fix
        assert isinstance(error, UnreachableStore) is passing


CHECKSUM = "; set AWS_REQUEST_CHECKSUM_CALCULATION=when_required on all nodes"
REFUSED = "this store refuses If-None-Match in conditional writes, so two drivers"


@pytest.mark.parametrize(
    ("code", "message", "plain", "conditional"),
    [
        ("NotImplemented", "A header is not implemented", CHECKSUM, REFUSED),
        ("NotImplemented", "Header 'x-amz-checksum-crc32' not implemented", CHECKSUM, CHECKSUM),
        ("InvalidArgument", "Unsupported header 'x-amz-sdk-checksum-", CHECKSUM, CHECKSUM),
        ("InvalidArgument", "Bad If-None-Match", "S3 answered InvalidArgument", REFUSED),
        ("Odd", "Use {virtual} hosted style.", "S3 answered Odd", "S3 answered Odd"),
        ("AccessDenied", "no s3:PutObject", "bucket b is denied", "bucket b is denied"),
    ],
    ids=["no header named", "R2", "B2", "condition named", "unknown code", "known code"],
)
def test_an_error_has_the_stores_message_and_only_conditions_are_called_conditional(
    s3: Any, code: str, message: str, plain: str, conditional: str
) -> None:
    _, *of_writes = errors_of(code, 400, message)
    for error, part in zip(of_writes, (plain, conditional), strict=True):
        assert f"({message}); " in str(error)
        assert part in str(error)


@pytest.mark.parametrize(
    ("ignored", "words"),
    [
        (["If-Match"], "ignores If-Match in"),
        (["If-None-Match"], "ignores If-None-Match in"),
        (["If-Match", "If-None-Match"], "ignores If-None-Match and If-Match in"),
        (None, "refuses If-None-Match and If-Match in"),
    ],
    ids=["If-Match", "If-None-Match", "both", "If-Match is always 412"],
)
def test_a_store_without_one_of_the_conditions_is_refused(
    s3: Any, tmp_path: Path, monkeypatch: Any, ignored: list[str] | None, words: str
) -> None:
    store, put_if = S3Store(f"s3://{s3.bucket}/{tmp_path.name}"), S3Store.put_if

    def half(store: S3Store, path: str, data: bytes, tag: str | None) -> str | None:
        if ignored is None and tag is not None:
            return None
        if ("If-None-Match" if tag is None else "If-Match") not in (ignored or ()):
            return put_if(store, path, data, tag)
        store.put(path, data)
        return "a tag"

    store.check_conditions()
    monkeypatch.setattr(S3Store, "put_if", half)
    with pytest.raises(UserError, match=f"this store {words} conditional writes"):
        store.check_conditions()
    listed = s3.client.list_objects_v2(Bucket=s3.bucket, Prefix=f"{tmp_path.name}/")
    assert "Contents" not in listed, "the check leaves nothing"


def test_a_store_that_does_not_answer_may_come_back(s3: Any) -> None:
    with pytest.raises(UnreachableStore, match="S3 cannot be reached"):
        short("http://127.0.0.1:9").get("a")
    with pytest.raises(UserError) as caught:
        short("not a valid address").get("a")
    assert not isinstance(caught.value, UnreachableStore)
    with (
        web_server(502, HTML, b"<html>Bad Gateway") as (address, signatures),
        pytest.raises(UnreachableStore, match=r"S3 answered 502 \(Bad Gateway\); "),
    ):
        short(address).get("a")
    assert len(signatures) == 2, "it is retried"


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (302, {"Location": "https://u:p@login.example/?t=1"}, b""),
        (200, HTML, b"<!doctype html><title>Console</title>"),
        (200, {**HTML, "ETag": '"1"'}, b"<html>"),
        (200, {}, b""),
        (403, HTML, b"<html><title>Forbidden</title>"),
    ],
)
def test_an_address_that_is_not_an_s3_service_is_named(s3, status, headers, body) -> None:
    with web_server(status, headers, body) as (address, _):
        store = short(address)
        for ask in (lambda: store.get("a"), store.list, lambda: store.put("a", b"1")):
            with pytest.raises(UserError) as caught:
                ask()
            message = str(caught.value)
            assert message.startswith(f"s3://b/p: {address} is not an S3 service: it answered ")
            assert f"status {status}" in message
            assert "u:p@" not in message


def test_no_signature_follows_a_redirect(s3: Any) -> None:
    body = b"<Error><Code>PermanentRedirect</Code><Endpoint>elsewhere</Endpoint></Error>"
    with web_server(200, {"ETag": '"1"'}, b"") as (elsewhere, stolen):
        away = {"Location": f"{elsewhere}/b/p/a"}
        for headers in (away, {**away, "x-amz-bucket-region": "eu-west-9"}):
            with (
                web_server(307, headers, body) as (address, signatures),
                pytest.raises(UserError),
            ):
                short(address).get("a")
            regions = set(re.findall(r"/(\w+-\w+-\d)/s3/", " ".join(signatures)))
            # S3's header may change the region of a signature, on the same host.
            assert regions == {"us-east-1"} | ({"eu-west-9"} if len(headers) > 1 else set())
        assert not stolen
        with (
            web_server(307, away, body) as (address, signatures),
            suppress(UserError, OSError),
            S3Store("s3://b", address, "us-east-1").open("a") as file,
        ):
            file.read()
        assert any(signatures)
        assert not any(stolen), "pyarrow follows the redirect without the signature"


@pytest.mark.parametrize("uri", ["s3://", "s3:///x", "s3:/b/x", "S3:b", "gs://b/x", "http://x/y"])
def test_a_uri_that_names_no_store_is_refused(uri: str) -> None:
    with pytest.raises(UserError):
        open_store(uri)
