"""Where results land: a local folder or an ``s3://bucket/prefix``, behind one small interface.

The only module that speaks S3. A `put` is atomic on both kinds: a reader sees the old object, or
the new one, never a part of it (local: temporary file, fsync, rename; S3: one PutObject). boto3
takes credentials from the platform's own chain; pyarrow reads Parquet with column projection.

A `put_if` writes only over what its caller has seen (S3: If-None-Match and If-Match; local: under
a lock on the folder), so that of two writers one is told.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from ace_ray.errors import UserError
from ace_ray.local_files import (
    FOLDER,
    LARGE,
    MOST_BYTES,
    check_regular,
    closing,
    content,
    locked,
    opened,
    path_of,
)

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

    @property
    def endpoint(self) -> str:
        """The address of the service that requests are signed for, "" for none."""

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

    def check_unlinked(self, path: str) -> None:
        """Raise `UserError` when the folder ``path`` lies behind a symbolic link, or is one."""

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
    return "://" not in uri and not uri.startswith(("/", "~"))


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
    return LocalStore(str(path_of(uri, "the folder").absolute()))


@dataclass(frozen=True)
class LocalStore:
    root: str
    named: str = ""
    """The folder that the user named, where that is one above ``root``."""

    @property
    def endpoint(self) -> str:
        return ""

    def put(self, path: str, data: bytes) -> None:
        with self._failures(path), self._folder(path, make=True) as (folder, name):
            self._put(folder, name, data)

    def _put(self, folder: int, name: str, data: bytes) -> None:
        scratch = f".tmp-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        handle = os.open(scratch, flags, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), 0o644)
            os.replace(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
            # A rename outlasts a power cut once its folder is on the disk.
            os.fsync(folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(scratch, dir_fd=folder)
            raise

    def get(self, path: str) -> bytes | None:
        with self._failures(path, "read"):
            try:
                # A pipe would never end, and some devices neither.
                handle = os.open(Path(self.root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                return None
            return content(handle)

    def tagged(self, path: str) -> tuple[bytes, str] | None:
        data = self.get(path)
        return None if data is None else (data, hashlib.sha256(data).hexdigest())

    def put_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        with self._failures(path):
            try:
                with (
                    self._folder(path, make=tag is None) as (folder, name),
                    locked(folder, self._place(path).parent) as held,
                ):
                    if held:
                        found = self.tagged(path)
                        if (found and found[1]) != tag:
                            return None
                        self._put(folder, name, data)
                        return hashlib.sha256(data).hexdigest()
            except (FileNotFoundError, NotADirectoryError):
                if tag is None:
                    raise
                return None
        return self.put_if(path, data, tag)

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
                with suppress(FileNotFoundError), self._failures(relative, "read"):
                    about = file.stat()
                    found.append(Object(relative, about.st_size, f"{about.st_mtime_ns}"))
        return sorted(found, key=lambda item: item.path)

    def delete(self, path: str) -> None:
        gone = suppress(FileNotFoundError, NotADirectoryError)
        with self._failures(path), gone, self._folder(path) as (folder, name):
            os.unlink(name, dir_fd=folder)
        # An object store has no empty folders.
        with suppress(OSError):
            for one in self._place(path).parents:
                if not one.is_relative_to(self.root):
                    break
                with self._folder(self._within(one)) as (above, name):
                    handle = os.open(name, FOLDER, dir_fd=above)
                    # Not while a `put_if` looks at what is in it.
                    with closing(handle), locked(handle, one, wait=False):
                        os.rmdir(name, dir_fd=above)

    def check_unlinked(self, path: str) -> None:
        gone = suppress(FileNotFoundError, NotADirectoryError)
        with self._failures(path), gone, self._folder(f"{path}/-"):
            pass

    def open(self, path: str) -> Any:
        import pyarrow as pa

        handle = os.open(Path(self.root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            check_regular(handle)
            # By its number, so that what was looked at is what is read.
            return pa.OSFile(f"/proc/self/fd/{handle}")
        finally:
            os.close(handle)

    def child(self, path: str) -> LocalStore:
        return LocalStore(str(Path(self.root, path)), self.top)

    def quick(self) -> LocalStore:
        return self

    @property
    def top(self) -> str:
        """The folder that the user named: links on the way to it are the user's own."""
        return self.named or self.root

    def _place(self, path: str) -> Path:
        return Path(self.root, path)

    def _within(self, place: Path) -> str:
        return os.path.relpath(place, self.root)

    @contextmanager
    def _folder(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder that ``path`` is in, opened, and its name in there. No link below `top` is
        followed on the way: what is behind one is not ours to write or to remove.

        Raises `OSError`."""
        place = os.path.normpath(self._place(path))
        if place == os.path.normpath(self.top):  # the named folder itself, to be removed when empty
            parent, name = os.path.split(place)
            with closing(os.open(parent, FOLDER)) as folder:
                yield folder, name
            return
        *folders, name = os.path.relpath(place, self.top).split(os.sep)
        if os.pardir in folders or name == os.pardir:
            raise OSError(errno.EPERM, "leads out of the folder")
        if make:
            os.makedirs(self.top, exist_ok=True)
        folder = os.open(self.top, FOLDER)
        try:
            for one in folders:
                inner = opened(folder, one, make=make)
                os.close(folder)
                folder = inner
            yield folder, name
        finally:
            os.close(folder)

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
        try:
            named = self._bucket
        except ValueError as error:  # brackets that hold no address
            raise UserError(
                f"{self.root!r} is no address: {error}",
                where="s3://",
                fix="write s3://bucket/prefix",
            ) from error
        if not named:
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

    @property
    def endpoint(self) -> str:
        with self._failures():
            return str(self._client.meta.endpoint_url)

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
            if answer["ContentLength"] > MOST_BYTES:
                raise UserError(LARGE, where=f"{self.root}/{path}", fix="name an intact run")
            return answer["Body"].read(), answer["ETag"]

    def check_unlinked(self, path: str) -> None:
        """There are no links on S3."""

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
