"""The policies grant what the store asks of S3, found by watching it, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pytest
import yaml

from ace_ray.errors import UserError
from ace_ray.models.sources import materialize, resolve
from ace_ray.storage.lease import Lease
from ace_ray.storage.object_store import open_store

ROOT = Path(__file__).resolve().parents[2]
AWS = ROOT / "infra" / "aws"
POLICIES = ["bucket-policy", "models-policy", "launcher-policy", "irsa-trust"]
PREFIX = "team/ace-ray"


@dataclass(frozen=True)
class Asked:
    """One request in the words of IAM."""

    action: str
    bucket: str
    key: str = ""
    prefix: str = ""


def statements(name: str, **values: str) -> list[dict[str, Any]]:
    text = (AWS / f"{name}.json").read_text()
    for word, value in values.items():
        text = re.sub(rf"\b{word}\b", value, text)
    tree = json.loads(text)
    assert tree["Version"] == "2012-10-17"
    return list(tree["Statement"])


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def like(pattern: str, text: str) -> bool:
    """IAM's wildcards, of which these policies use one."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


def allowed(policy: list[dict[str, Any]], asked: Asked) -> bool:
    arn = f"arn:aws:s3:::{asked.bucket}" + (f"/{asked.key}" if asked.key else "")
    for statement in policy:
        assert statement["Effect"] == "Allow"
        prefixes = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix", ["*"])
        if (
            asked.action in listed(statement["Action"])
            and any(like(pattern, arn) for pattern in listed(statement["Resource"]))
            and any(like(pattern, asked.prefix) for pattern in listed(prefixes))
        ):
            return True
    return False


def in_words_of_iam(method: str, target: str, headers: dict[str, str]) -> Asked:
    """What S3 checks for a request. Raises `AssertionError`: one that no policy here is about."""
    split = urlsplit(target)
    bucket, _, key = unquote(split.path).lstrip("/").partition("/")
    query = parse_qs(split.query, keep_blank_values=True)
    odd = {name for name in headers if name.startswith("x-amz-acl") or "tagging" in name}
    assert not odd, f"{odd} would ask for more"
    if not key:
        assert method == "GET"
        assert query.pop("list-type") == ["2"]
        return Asked("s3:ListBucket", bucket, prefix=query.get("prefix", [""])[0])
    known = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject"}
    assert not query.keys() & {"uploads", "uploadId", "acl", "tagging", "versionId"}, target
    return Asked(f"s3:{known[method]}", bucket, key)


@pytest.fixture
def requests(s3: Any, monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """Everything that reaches the S3 server, from boto3 and from pyarrow."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    seen: list[Asked] = []
    original = DomainDispatcherApplication.__call__

    def watched(self: Any, environ: dict[str, Any], start: Any) -> Any:
        headers = {
            key[5:].lower().replace("_", "-"): value
            for key, value in environ.items()
            if key.startswith("HTTP_")
        }
        target = environ["RAW_URI"] if "RAW_URI" in environ else environ["REQUEST_URI"]
        seen.append(in_words_of_iam(environ["REQUEST_METHOD"], target, headers))
        return original(self, environ, start)

    monkeypatch.setattr(DomainDispatcherApplication, "__call__", watched)
    return seen


def work(uri: str, tmp_path: Path) -> None:
    """All that a run, a rescoring and a report do with a store."""
    store = open_store(uri)
    store.check_writable()
    run = store.child("run-1")
    lease = Lease.acquire(run, print)
    lease.check()
    run.put("run.json", b"{}")
    assert run.get("run.json") == b"{}"
    assert run.get("nothing") is None
    assert run.put_if("run.json", b"[]", None) is None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("a", pa.int64())])):
        pass
    run.put("rows/p.parquet", sink.getvalue().to_pybytes())
    with run.open("rows/p.parquet") as file:
        assert file.read()
    assert [item.path for item in run.list("rows/")] == ["rows/p.parquet"]
    assert len(store.list()) == 3
    assert run.quick().list("nothing") == []
    run.delete("rows/p.parquet")
    run.delete("rows/p.parquet")
    lease.release()


@pytest.mark.nightly
def test_a_run_needs_all_of_the_policy_and_no_more(
    s3: Any, requests: list[Asked], tmp_path: Path
) -> None:
    work(f"s3://{s3.bucket}/{PREFIX}", tmp_path)
    policy = statements("bucket-policy", BUCKET=s3.bucket, PREFIX=PREFIX)
    for asked in requests:
        assert allowed(policy, asked), asked
    granted = {action for statement in policy for action in listed(statement["Action"])}
    assert {asked.action for asked in requests} == granted
    # pyarrow's reads are among them: they do not come through boto3.
    assert len({asked.key for asked in requests if asked.action == "s3:GetObject"}) >= 4


def test_another_prefix_or_bucket_is_out_of_reach(s3: Any) -> None:
    policy = statements("bucket-policy", BUCKET=s3.bucket, PREFIX=PREFIX)
    for key in (f"{PREFIX}-other/x", "team/x", PREFIX, "x"):
        for action in ("GetObject", "PutObject", "DeleteObject"):
            assert not allowed(policy, Asked(f"s3:{action}", s3.bucket, key))
    for prefix in ("", "team", f"{PREFIX}-other/"):
        assert not allowed(policy, Asked("s3:ListBucket", s3.bucket, prefix=prefix))
    assert not allowed(policy, Asked("s3:GetObject", "another", f"{PREFIX}/x"))
    assert allowed(policy, Asked("s3:GetObject", s3.bucket, f"{PREFIX}/x"))


def test_models_are_read_and_not_written(
    s3: Any, requests: list[Asked], tmp_path: Path, make_checkpoint: Callable[..., Path]
) -> None:
    for path in make_checkpoint(tmp_path / "m", 1.0).iterdir():
        s3.client.upload_file(str(path), s3.bucket, f"models/m/{path.name}")
    requests.clear()
    ref = resolve(f"s3://{s3.bucket}/models/m", None)
    assert (materialize(ref) / "config.json").is_file()
    with pytest.raises(UserError):
        resolve(f"s3://{s3.bucket}/models/none", None)
    policy = statements("models-policy", MODELS_BUCKET=s3.bucket, MODELS_PREFIX="models")
    for asked in requests:
        assert allowed(policy, asked), asked
    granted = {action for statement in policy for action in listed(statement["Action"])}
    assert {asked.action for asked in requests} == granted == {"s3:ListBucket", "s3:GetObject"}


@pytest.mark.parametrize("name", POLICIES)
def test_statements_are_named_and_narrow(name: str) -> None:
    policy = statements(name)
    assert len({statement["Sid"] for statement in policy}) == len(policy)
    for statement in policy:
        assert all("*" not in action for action in listed(statement["Action"]))
        if "s3:" in str(statement["Action"]):
            assert all(not arn.endswith(":::*") for arn in listed(statement["Resource"]))


def test_every_policy_is_listed() -> None:
    assert {file.stem for file in AWS.glob("*.json")} == set(POLICIES)


def test_the_trust_is_for_the_manifests_account() -> None:
    account = yaml.safe_load((ROOT / "infra/kuberay/base/serviceaccount.yaml").read_text())
    (statement,) = statements("irsa-trust", NAMESPACE="ns")
    subject = statement["Condition"]["StringEquals"]["OIDC_PROVIDER:sub"]
    assert subject == f"system:serviceaccount:ns:{account['metadata']['name']}"


def test_the_launcher_may_call_what_it_calls() -> None:
    """The calls of Ray's own AWS provider, read from its source."""
    import ray.autoscaler._private.aws.node_provider as provider

    assert provider.__file__ is not None
    source = Path(provider.__file__).read_text()
    calls = {
        "create_tags": "ec2:CreateTags",
        "create_instances": "ec2:RunInstances",
        "terminate": "ec2:TerminateInstances",
        "describe_images": "ec2:DescribeImages",
        "describe_instance_types": "ec2:DescribeInstanceTypes",
        "instances": "ec2:DescribeInstances",
    }
    for call in calls:
        assert re.search(rf"\.{call}\b", source), f"Ray calls {call} no more"
    policy = statements("launcher-policy")
    granted = {action for s in policy for action in listed(s["Action"]) if "ec2:" in action}
    assert granted == set(calls.values())
    config = yaml.safe_load((ROOT / "infra/ray/aws.yaml").read_text())
    ((end,),) = [
        listed(s["Condition"]["StringEquals"]["ec2:ResourceTag/ray-cluster-name"])
        for s in policy
        if s["Sid"] == "EndNodes"
    ]
    assert end == config["cluster_name"]
    from ray.autoscaler.tags import TAG_RAY_CLUSTER_NAME

    assert TAG_RAY_CLUSTER_NAME == "ray-cluster-name"
