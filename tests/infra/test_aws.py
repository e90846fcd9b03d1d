"""The IAM policies grant the requests that ace_ray sends, and no more."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from ace_ray.storage.lease import Lease
from ace_ray.storage.object_store import open_store

ROOT = Path(__file__).resolve().parents[2]
AWS = ROOT / "infra" / "aws"
PREFIX = "team/ace-ray"
Asked = tuple[str, str, str, str]
"""Action, bucket, key and prefix of a request."""
ACTIONS = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject"}


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def like(pattern: str, text: str) -> bool:
    """Match as IAM does; `*` is the only wildcard of these policies."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


def allowed(policy: list[dict[str, Any]], asked: Asked) -> bool:
    action, bucket, key, prefix = asked
    arn = f"arn:aws:s3:::{bucket}" + (f"/{key}" if key else "")
    for statement in policy:
        assert statement["Effect"] == "Allow"
        prefixes = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix", ["*"])
        if (
            action in listed(statement["Action"])
            and any(like(pattern, arn) for pattern in listed(statement["Resource"]))
            and any(like(pattern, prefix) for pattern in listed(prefixes))
        ):
            return True
    return False


@pytest.fixture
def requests(s3: Any, monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """Every request that reaches the S3 server, from boto3 and from pyarrow."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    seen: list[Asked] = []
    original = DomainDispatcherApplication.__call__

    def watched(self: Any, environ: dict[str, Any], start: Any) -> Any:
        split = urlsplit(environ["RAW_URI"] if "RAW_URI" in environ else environ["REQUEST_URI"])
        bucket, _, key = unquote(split.path).lstrip("/").partition("/")
        query = parse_qs(split.query, keep_blank_values=True)
        assert not query.keys() & {"uploads", "uploadId", "acl", "tagging", "versionId"}
        if key:
            seen.append((f"s3:{ACTIONS[environ['REQUEST_METHOD']]}", bucket, key, ""))
        else:
            assert query["list-type"] == ["2"]
            seen.append(("s3:ListBucket", bucket, "", query.get("prefix", [""])[0]))
        return original(self, environ, start)

    monkeypatch.setattr(DomainDispatcherApplication, "__call__", watched)
    return seen


def test_a_run_needs_every_action_of_the_bucket_policy(s3: Any, requests: list[Asked]) -> None:
    store = open_store(f"s3://{s3.bucket}/{PREFIX}")
    store.check_writable()
    run = store.child("run-1")
    lease = Lease.acquire(run, print)
    lease.check()
    run.put("rows/p.parquet", b"rows")
    assert run.get("nothing") is None
    with run.open("rows/p.parquet") as file:
        assert file.read() == b"rows"
    assert [item.path for item in run.list("rows/")] == ["rows/p.parquet"]
    run.delete("rows/p.parquet")
    lease.release()
    text = (AWS / "bucket-policy.json").read_text()
    policy = json.loads(text.replace("BUCKET", s3.bucket).replace("PREFIX", PREFIX))["Statement"]
    for asked in requests:
        assert allowed(policy, asked), asked
    granted = {action for statement in policy for action in listed(statement["Action"])}
    assert {action for action, *_ in requests} == granted
    for other in ("", "team", f"{PREFIX}-other/"):
        assert not allowed(policy, ("s3:ListBucket", s3.bucket, "", other))
    for action in ("GetObject", "PutObject", "DeleteObject"):
        assert not allowed(policy, (f"s3:{action}", s3.bucket, f"{PREFIX}-other/x", ""))
        assert not allowed(policy, (f"s3:{action}", "another", f"{PREFIX}/x", ""))
