"""Where results land: a local folder or an ``s3://bucket/prefix``, behind one small interface.

The only module that speaks S3. A `put` is atomic on both kinds: a reader sees the old object, or
the new one, never a part of it (local: temporary file, fsync, rename; S3: one PutObject). boto3
takes credentials from the platform's own chain; pyarrow reads Parquet with column projection.

A `put_if` writes only over what its caller has seen (S3: If-None-Match and If-Match; local: under
a lock on the folder), so that of two writers one is told.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from ace_ray.errors import UserError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError


class Unreachable(UserError):
    """The store does not answer now: that says nothing of what it holds."""


@dataclass(frozen=True, slots=True)
class Object:
    """One stored object. ``etag`` changes whenever the content does."""

    path: str
    size: int
    etag: str


class Store(Protocol):
    """Objects under one root, addressed by paths relative to it. Picklable."""

    @property
    def root(self) -> str: ...

    def put(self, path: str, data: bytes) -> None: ...

    def get(self, path: str) -> bytes | None:
        """The object's bytes, or None when there is no such object."""

    def tagged(self, path: str) -> tuple[bytes, str] | None:
        """The object's bytes and a tag for `put_if`, or None when there is no such object."""

    def put_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        """Write unless the object has changed since it had ``tag`` (None: since it did not exist).

        Returns the new tag, or None when somebody else was there first."""

    def list(self, prefix: str = "") -> list[Object]:
        """All objects whose path starts with ``prefix``, recursively, by path."""

    def delete(self, path: str) -> None: ...

    def open(self, path: str) -> Any:
        """A seekable ``pyarrow.NativeFile`` for reading."""

    def child(self, path: str) -> Store:
        """The store one level down."""

    def quick(self) -> Store:
        """The same store, giving up on an outage within 20 s."""

    def check_writable(self) -> None:
        """Find out, without leaving anything behind, that objects can be written and listed.

        Raises `UserError`, within 20 s."""


def is_relative(uri: str) -> bool:
    """Whether ``uri`` means another place in every working directory."""
    return "://" not in uri and not Path(uri).expanduser().is_absolute()


def open_store(uri: str, *, endpoint_url: str | None = None, region: str | None = None) -> Store:
    """The store at ``uri``: a local path or ``s3://bucket[/prefix]``. Raises `UserError`."""
    if uri.startswith("s3://"):
        return S3Store(uri.rstrip("/"), endpoint_url=endpoint_url, region=region)
    if "://" in uri:
        raise UserError(
            f"no store speaks {uri.split('://')[0]!r}",
            where=uri,
            fix="use a local folder or s3://bucket/prefix",
        )
    return LocalStore(str(Path(uri).expanduser().absolute()))


@dataclass(frozen=True)
class LocalStore:
    root: str

    def put(self, path: str, data: bytes) -> None:
        target = Path(self.root, path)
        with self._failures(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, scratch = tempfile.mkstemp(prefix=".tmp-", dir=target.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.chmod(scratch, 0o644)
                os.replace(scratch, target)
                _sync(target.parent)
            except BaseException:
                Path(scratch).unlink(missing_ok=True)
                raise

    def get(self, path: str) -> bytes | None:
        with self._failures(path, "read"):
            try:
                return Path(self.root, path).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def tagged(self, path: str) -> tuple[bytes, str] | None:
        data = self.get(path)
        return None if data is None else (data, hashlib.sha256(data).hexdigest())

    def put_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        folder = Path(self.root, path).parent
        with self._failures(path):
            if tag is None:
                folder.mkdir(parents=True, exist_ok=True)
            elif not folder.is_dir():
                return None
            with _locked(folder) as held:
                if not held:
                    return self.put_if(path, data, tag)
                found = self.tagged(path)
                if (found and found[1]) != tag:
                    return None
                self.put(path, data)
        return hashlib.sha256(data).hexdigest()

    def list(self, prefix: str = "") -> list[Object]:
        found = []
        # Everything up to the last slash is a folder; the rest is the start of names in it.
        top = Path(self.root, prefix.rpartition("/")[0])
        for base, _, names in os.walk(top, onerror=self._unless_gone):
            for name in names:
                file = Path(base, name)
                relative = file.relative_to(self.root).as_posix()
                if not relative.startswith(prefix) or name.startswith(".tmp-"):
                    continue
                # A file may go while the folder is walked; then it is not there.
                with suppress(FileNotFoundError):
                    stat = file.stat()
                    found.append(Object(relative, stat.st_size, f"{stat.st_mtime_ns}"))
        return sorted(found, key=lambda item: item.path)

    def delete(self, path: str) -> None:
        target = Path(self.root, path)
        with self._failures(path), suppress(NotADirectoryError):
            target.unlink(missing_ok=True)
        # An object store has no empty folders.
        with suppress(OSError):
            for folder in target.parents:
                if not folder.is_relative_to(self.root):
                    break
                # Not while a `put_if` looks at what is in it.
                with _locked(folder, wait=False):
                    folder.rmdir()

    def open(self, path: str) -> Any:
        import pyarrow as pa

        return pa.OSFile(str(Path(self.root, path)))

    def child(self, path: str) -> LocalStore:
        return LocalStore(str(Path(self.root, path)))

    def quick(self) -> LocalStore:
        return self

    def check_writable(self) -> None:
        # Nothing may be left behind: a refused run must not create its folder.
        with self._failures(""):
            folder = Path(self.root)
            while not folder.exists():
                folder = folder.parent
            if not folder.is_dir():
                raise NotADirectoryError(20, "is a file, not a folder", str(folder))
            with tempfile.TemporaryFile(dir=folder):
                pass
            free = shutil.disk_usage(folder).free
        if free < 64 << 20:
            raise UserError(
                f"only {free >> 20} MiB free on this disk", where=self.root, fix="free some space"
            )

    def _unless_gone(self, error: OSError) -> None:
        """A folder that cannot be read is not an empty one."""
        if not isinstance(error, FileNotFoundError):
            with self._failures("", "read"):
                raise error

    @contextmanager
    def _failures(self, path: str, doing: str = "write") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot {doing}: {error.strerror or error}",
                where=str(Path(self.root, path)),
                fix="choose an output folder that can be written and has space",
            ) from error


@dataclass(frozen=True)
class S3Store:
    root: str
    endpoint_url: str | None = None
    region: str | None = None
    patient: bool = True
    """Whether to sit out an outage of about a minute, as a running job should, or to give up
    within 20 s."""

    def __post_init__(self) -> None:
        if not self._bucket:
            raise UserError("names no bucket", where="s3://", fix="write s3://bucket/prefix")

    @property
    def _bucket(self) -> str:
        return urlsplit(self.root).netloc

    def _key(self, path: str) -> str:
        return "/".join(p for p in (urlsplit(self.root).path.strip("/"), path) if p)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_cached")}

    @property
    def _client(self) -> Any:
        client = self.__dict__.get("_cached_client")
        if client is None:
            from botocore.config import Config

            limits: dict[str, Any] = (
                {"connect_timeout": 10, "read_timeout": 60, "retries": {"total_max_attempts": 10}}
                if self.patient
                else {"connect_timeout": 4, "read_timeout": 6, "retries": {"total_max_attempts": 2}}
            )
            limits["retries"]["mode"] = "standard"
            client = self._session.client(
                "s3",
                endpoint_url=self.endpoint_url,
                region_name=self.region,
                config=Config(**limits),
            )
            self.__dict__["_cached_client"] = client
        return client

    @property
    def _session(self) -> Any:
        session = self.__dict__.get("_cached_session")
        if session is None:
            import boto3

            session = self.__dict__["_cached_session"] = boto3.Session()
        return session

    def put(self, path: str, data: bytes) -> None:
        kind = _CONTENT_TYPES.get(Path(path).suffix, "binary/octet-stream")
        with self._failures():
            self._client.put_object(
                Bucket=self._bucket, Key=self._key(path), Body=data, ContentType=kind
            )

    def get(self, path: str) -> bytes | None:
        found = self.tagged(path)
        return None if found is None else found[0]

    def tagged(self, path: str) -> tuple[bytes, str] | None:
        with self._failures():
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._key(path))
            except self._client.exceptions.NoSuchKey:
                return None
            return answer["Body"].read(), answer["ETag"]

    def put_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        from botocore.exceptions import ClientError

        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        with self._failures():
            try:
                answer = self._client.put_object(
                    Bucket=self._bucket, Key=self._key(path), Body=data, **condition
                )
            except ClientError as error:
                # 404: there is nothing left to match.
                if error.response.get("Error", {}).get("Code") in _CONFLICTS:
                    return None
                raise
            new: str = answer["ETag"]
            return new

    def list(self, prefix: str = "") -> list[Object]:
        base = self._key("")
        cut = len(base) + 1 if base else 0
        found: list[Object] = []
        with self._failures():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{base}/{prefix}" if base else prefix
            )
            for page in pages:
                found += [
                    Object(item["Key"][cut:], item["Size"], item["ETag"].strip('"'))
                    for item in page.get("Contents", [])
                    if not item["Key"].endswith(PROBE)
                ]
        return found

    def delete(self, path: str) -> None:
        with self._failures():
            self._client.delete_object(Bucket=self._bucket, Key=self._key(path))

    def open(self, path: str) -> Any:
        return self._filesystem.open_input_file(f"{self._bucket}/{self._key(path)}")

    def download(self, path: str, target: Path) -> None:
        """Copy one object to a local file."""
        with self._failures():
            self._client.download_file(self._bucket, self._key(path), str(target))

    def child(self, path: str) -> S3Store:
        return replace(self, root=f"{self.root}/{path.strip('/')}")

    def quick(self) -> S3Store:
        return replace(self, patient=False)

    def check_writable(self) -> None:
        quick = self.quick()
        with quick._failures():
            quick._client.list_objects_v2(Bucket=self._bucket, Prefix=self._key(""), MaxKeys=1)
        quick.put(PROBE, b"")
        # A key that may write but not delete can still run; `list` does not show the probe.
        with suppress(UserError):
            quick.delete(PROBE)

    @property
    def _filesystem(self) -> Any:
        import pyarrow.fs as pafs

        # Where the client went to, whichever setting or variable said so.
        split = urlsplit(self._client.meta.endpoint_url)
        options: dict[str, Any] = {}
        if not split.netloc.endswith((".amazonaws.com", ".amazonaws.com.cn")):
            options = {"endpoint_override": split.netloc, "scheme": split.scheme}
        region = self.region or self._session.region_name
        if region:
            options["region"] = region
        # Same credential chain as the writes, profiles and SSO included.
        credentials = self._session.get_credentials()
        if credentials is not None:
            frozen = credentials.get_frozen_credentials()
            options |= {
                "access_key": frozen.access_key,
                "secret_key": frozen.secret_key,
                "session_token": frozen.token,
            }
        return pafs.S3FileSystem(**options)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            what, fix = _S3_CAUSES.get(
                code, (f"S3 answered {code or error}", "see the store's own logs")
            )
            kind = Unreachable if _is_passing(error) else UserError
            raise kind(what.format(self._bucket), where=self.root, fix=fix) from error
        # boto3 answers a malformed endpoint address with a ValueError.
        except (BotoCoreError, Boto3Error, ValueError) as error:
            kind = UserError if isinstance(error, ValueError) else Unreachable
            raise kind(
                f"S3 cannot be reached: {error}",
                where=self.root,
                fix="check store.endpoint_url (or AWS_ENDPOINT_URL), region and credentials",
            ) from error


def _is_passing(error: ClientError) -> bool:
    """Whether the store would answer something else another time."""
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code in _PASSING or (code not in _S3_CAUSES and status >= 500)


@contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of ``folder``; false when the folder was replaced while waiting for it.

    Raises `OSError`: no such folder; or somebody holds it, for `LOCK_S` if asked to wait."""
    handle = os.open(folder, os.O_RDONLY)
    until = time.monotonic() + (LOCK_S if wait else 0.0)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > until:
                    said = "another process holds the folder's lock"
                    raise OSError(error.errno, said) from error
                time.sleep(0.01)
        try:
            same = os.path.samestat(os.fstat(handle), os.stat(folder))
        except FileNotFoundError:
            same = False
        yield same
    finally:
        os.close(handle)


def _sync(folder: Path) -> None:
    """Make a rename in ``folder`` outlast a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


LOCK_S = 60.0
"""A lock is held for a few milliseconds, unless its holder is stopped."""

PROBE = ".ace-ray-probe"
_CONTENT_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
"""What a browser shows instead of saving it; S3's own default for everything else."""
_CONFLICTS = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "404")
_PASSING = ("ExpiredToken", "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown")
_DENIED = "check the credentials and that they may list, read and write this prefix"
_S3_CAUSES = {
    "NoSuchBucket": ("bucket {} does not exist", "create it, or correct the output URI"),
    "AccessDenied": ("access to bucket {} is denied", _DENIED),
    "403": ("access to bucket {} is denied", _DENIED),
    "InvalidAccessKeyId": ("the access key is unknown to this store", _DENIED),
    "SignatureDoesNotMatch": ("the secret key does not match the access key", _DENIED),
    "ExpiredToken": ("the session token has expired", "renew the credentials"),
    "404": ("no S3 service answers at this address", "check store.endpoint_url"),
    "RequestTimeTooSkewed": ("this machine's clock is off", "set the clock"),
    "AuthorizationHeaderMalformed": ("bucket {} is in another region", "set store.region"),
    "NotImplemented": (
        "this store knows no conditional writes, which keep two drivers off one run",
        "use a store that honours If-Match and If-None-Match",
    ),
    "PermanentRedirect": ("bucket {} is in another region", "set store.region"),
}
