"""Object store in an S3 bucket or under a prefix of a bucket."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ace_ray.errors import UserError
from ace_ray.storage.object_store.interface import (
    LARGE,
    MOST_BYTES,
    Object,
    Store,
    UnreachableStore,
)

if TYPE_CHECKING:
    from botocore.exceptions import ClientError


@dataclass(frozen=True)
class S3Store(Store):
    root: str
    endpoint_url: str | None = None
    region: str | None = None
    patient: bool = True
    """Whether to retry for about a minute in an outage. If False, requests fail within 20 s."""

    def __post_init__(self) -> None:
        try:
            bucket = self._bucket
        except ValueError:  # brackets without an IP address
            bucket = ""
        if not bucket:
            fix = "write s3://bucket/prefix"
            raise UserError(f"{self.root[:200]!r} names no bucket", where="s3://", fix=fix)

    @property
    def _bucket(self) -> str:
        return urlsplit(self.root).netloc

    def _key(self, path: str) -> str:
        return "/".join(p for p in (urlsplit(self.root).path.strip("/"), path) if p)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _client(self) -> Any:
        from botocore.config import Config

        limits: dict[str, Any] = (
            {"connect_timeout": 10, "read_timeout": 60, "retries": {"total_max_attempts": 10}}
            if self.patient
            else {"connect_timeout": 4, "read_timeout": 6, "retries": {"total_max_attempts": 2}}
        )
        limits["retries"]["mode"] = "standard"
        client = self._session.client(
            "s3", endpoint_url=self.endpoint_url, region_name=self.region, config=Config(**limits)
        )
        address = client.meta.endpoint_url
        # Run before botocore's handler of "s3.*", which changes some statuses from 200 to 500.
        client.meta.events.register_first(
            "before-parse.*.*", lambda **answer: _check_answer(self.root, address, **answer)
        )
        return client

    @cached_property
    def _session(self) -> Any:
        import boto3

        return boto3.Session()

    def put(self, path: str, data: bytes) -> None:
        with self._failures():
            kind = _CONTENT_TYPES.get(Path(path).suffix, "binary/octet-stream")
            key = self._key(path)
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data, ContentType=kind)

    def get_tagged(self, path: str) -> tuple[bytes, str] | None:
        with self._failures():
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._key(path))
            except self._client.exceptions.NoSuchKey:
                return None
            if answer["ContentLength"] > MOST_BYTES:
                raise UserError(LARGE, where=f"{self.root}/{path}", fix="name an intact run")
            return answer["Body"].read(), answer["ETag"]

    def put_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        from botocore.exceptions import ClientError

        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        with self._failures(condition="If-None-Match" if tag is None else "If-Match"):
            try:
                place = {"Bucket": self._bucket, "Key": self._key(path)}
                answer = self._client.put_object(**place, Body=data, **condition)
            except ClientError as error:
                # 404: the object was deleted.
                if error.response.get("Error", {}).get("Code") in _CONFLICTS:
                    return None
                raise
            new: str = answer["ETag"]
            return new

    def list(self, prefix: str = "") -> list[Object]:
        base = self._key("")
        cut = len(base) + 1 if base else 0
        objects: list[Object] = []
        with self._failures():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{base}/{prefix}" if base else prefix
            )
            for page in pages:
                objects += [
                    Object(item["Key"][cut:], item["Size"], item["ETag"].strip('"'))
                    for item in page.get("Contents", [])
                    if not item["Key"].endswith(PROBE)
                ]
        return objects

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

    def with_short_timeout(self) -> S3Store:
        return replace(self, patient=False)

    def check_writable(self) -> None:
        quick = self.with_short_timeout()
        with quick._failures():
            quick._client.list_objects_v2(Bucket=self._bucket, Prefix=self._key(""), MaxKeys=1)
        quick.put(PROBE, b"")
        # The permission to delete is not required: `list` omits a probe that is left.
        with suppress(UserError):
            quick.delete(PROBE)

    def check_conditions(self) -> None:
        # The name is unique, since two drivers may check the same folder at once.
        path = f"{secrets.token_hex(8)}{PROBE}"
        try:
            # None although the object exists: boto3 has repeated a request that had succeeded.
            tag = self.put_if(path, b"", None) or (self.get_tagged(path) or (b"", ""))[1]
            wrong = {"If-None-Match": None, "If-Match": f'"{"0" * 32}"'}
            ignored = [header for header in wrong if self.put_if(path, b"", wrong[header])]
            works = not ignored and tag and self.put_if(path, b"", tag)
        finally:
            with suppress(UserError):
                self.delete(path)
        if not works:
            headers = " and ".join(ignored or wrong)
            problem = _UNCONDITIONAL.format("ignores" if ignored else "refuses", headers)
            raise UserError(problem, where=self.root, fix=_CONDITIONAL)

    @property
    def _filesystem(self) -> Any:
        import pyarrow.fs as pafs

        # Use the client's endpoint: a setting or an environment variable may have set it.
        split = urlsplit(self._client.meta.endpoint_url)
        options: dict[str, Any] = {}
        if not split.netloc.endswith((".amazonaws.com", ".amazonaws.com.cn")):
            options = {"endpoint_override": split.netloc, "scheme": split.scheme}
        region = self.region or self._session.region_name
        if region:
            options["region"] = region
        # Use the same credentials as for writes; they may come from a profile or SSO.
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
    def _failures(self, condition: str = "") -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            problem, fix = _cause(error, self._bucket, condition)
            kind = UnreachableStore if _is_temporary(error) else UserError
            raise kind(problem, where=self.root, fix=fix) from error
        # boto3 raises ValueError for a malformed endpoint address.
        except (BotoCoreError, Boto3Error, ValueError) as error:
            kind = UserError if isinstance(error, ValueError) else UnreachableStore
            fix = "check store.endpoint_url (or AWS_ENDPOINT_URL), region and credentials"
            if "WRONG_VERSION_NUMBER" in str(error):  # the server does not use TLS
                fix = "write store.endpoint_url with http://"
            raise kind(f"S3 cannot be reached: {error}", where=self.root, fix=fix) from error


def _check_answer(
    root: str, address: str, *, response_dict: Mapping[str, Any], operation_model: Any, **_: object
) -> None:
    """Raise `UserError` if an answer from ``address`` does not come from an S3 service.

    Called before botocore parses the answer. botocore would treat every redirect as a redirect
    between regions. It would repeat the request forever, and could send a signature to a host that
    the user did not name. Outages (status 408, 429, 5xx) pass, since botocore retries them."""
    status, headers, body = (response_dict[key] for key in ("status_code", "headers", "body"))
    operation = operation_model.name
    page = headers.get("content-type", "").startswith("text/html")
    if 300 <= status < 400 and status != 304:
        is_s3 = "x-amz-bucket-region" in headers  # S3's own redirects name the bucket's region
    elif status < 300 and operation in _TAGGED:
        # A web server may send an ETag with an HTML page. Only S3 adds x-amz headers.
        has_amz_header = any(name.lower().startswith("x-amz") for name in headers)
        is_s3 = "etag" in headers and (has_amz_header or not page)
    elif operation in _WITH_XML and status < 500 and status not in _PASSED_ON:
        is_s3 = not page and any(mark in body for mark in _MARKS)
    else:
        is_s3 = True
    if not is_s3:
        raise UserError(
            f"{address} is not an S3 service: it answered with status {status}",
            where=root,
            fix="set store.endpoint_url (--endpoint-url, AWS_ENDPOINT_URL) to the URL "
            "of the store's S3 service; a web console, such as MinIO's, has "
            "another port",
        )


def _cause(error: ClientError, bucket: str, condition: str) -> tuple[str, str]:
    """Return the problem, with the store's own message, and what to do about it."""
    answer = error.response.get("Error", {})
    # The error page of a gateway has a status, but not an S3 error code.
    code = answer.get("Code") or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    message = str(answer.get("Message") or "")[:400]
    unknown = f"S3 answered {code}", "see the documentation of the store"
    problem, fix = _S3_CAUSES.get(code, unknown)
    refused = code in ("NotImplemented", "501") and error.operation_name == "PutObject"
    if _CHECKSUM.search(message) or (refused and not condition):
        fix = "set AWS_REQUEST_CHECKSUM_CALCULATION=when_required on all nodes"
    elif refused or (condition and condition.lower() in message.lower()):
        problem, fix = _UNCONDITIONAL.format("refuses", condition), _CONDITIONAL
    return problem.replace("{}", bucket) + f" ({message})" * bool(message), fix


def _is_temporary(error: ClientError) -> bool:
    """Return whether the error is temporary, so that a retry may succeed."""
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code in _TEMPORARY or (code not in _S3_CAUSES and status >= 500 and status != 501)


PROBE = ".ace-ray-probe"
# Operations that return an ETag when they succeed.
_TAGGED = ("GetObject", "HeadObject", "PutObject", "UploadPart")
# Operations whose errors, or whose results, are XML.
_WITH_XML = ("GetObject", "ListObjectsV2", "PutObject")
_MARKS = (b"<Error", b"<ListBucketResult")
# Status codes that botocore or `put_if` handles without XML.
_PASSED_ON = (408, 412, 429)
# Content types of files that a browser shows. All other files have S3's default type.
_CONTENT_TYPES = {
    ".csv": "text/csv; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
_UNCONDITIONAL = "this store {} {} in conditional writes, so two drivers could write one run"
_CONDITIONAL = "use a store that supports If-Match and If-None-Match"
# Messages about the checksum that boto3 adds to every write since version 1.36.
_CHECKSUM = re.compile(
    "x-amz-(sdk-)?checksum|x-amz-trailer|x-amz-content-sha256|aws-chunked|streaming-", re.IGNORECASE
)
_CONFLICTS = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "404")
_TEMPORARY = ("ExpiredToken", "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown")
_DENIED = "check the credentials and that they may list, read and write this prefix"
_S3_CAUSES = {
    "NoSuchBucket": ("bucket {} does not exist", "create it, or correct the output URI"),
    "AccessDenied": ("access to bucket {} is denied", _DENIED),
    "403": ("access to bucket {} is denied", _DENIED),
    "InvalidAccessKeyId": ("the access key is unknown to this store", _DENIED),
    "SignatureDoesNotMatch": ("the secret key does not match the access key", _DENIED),
    "ExpiredToken": ("the session token has expired", "renew the credentials"),
    "404": ("no S3 service answers at this address", "check store.endpoint_url"),
    "RequestTimeTooSkewed": ("this machine's clock is wrong", "set the clock"),
    "AuthorizationHeaderMalformed": ("bucket {} is in another region", "set store.region"),
    "PermanentRedirect": ("bucket {} is in another region", "set store.region"),
}
