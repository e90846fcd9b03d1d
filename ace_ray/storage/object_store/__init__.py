"""Object stores: a local folder or an S3 prefix, with the same interface (`Store`).

Only this package uses S3. `Store.put` is atomic: readers see the old object or the new object. A
local store writes a temporary file and renames it; S3 uses one PutObject. boto3 finds credentials
in its usual places.

`Store.put_if` writes only if the object is unchanged since the caller read it. If two writers try,
one fails. S3 uses If-None-Match and If-Match; a local store uses a lock on the folder."""

from __future__ import annotations

from ace_ray.errors import UserError
from ace_ray.storage.object_store.interface import Object, Store, UnreachableStore
from ace_ray.storage.object_store.local import LocalStore
from ace_ray.storage.object_store.s3 import S3Store
from ace_ray.util.local_files import path_of

__all__ = [
    "LocalStore",
    "Object",
    "S3Store",
    "Store",
    "UnreachableStore",
    "is_relative",
    "open_store",
]


def is_relative(uri: str) -> bool:
    """Return whether ``uri`` depends on the working directory."""
    return "://" not in uri and not uri.startswith(("/", "~"))


def open_store(uri: str, *, endpoint_url: str | None = None, region: str | None = None) -> Store:
    """Return the store at ``uri``: a local path or ``s3://bucket[/prefix]``. Raises `UserError` if
    ``uri`` has another form."""
    if uri.startswith("s3://"):
        return S3Store(uri.rstrip("/"), endpoint_url=endpoint_url, region=region)
    if "://" in uri:
        fix = "use a local folder or s3://bucket/prefix"
        raise UserError(f"{uri.split('://')[0]!r} is not a supported store", where=uri, fix=fix)
    if uri.lower().startswith("s3:"):
        raise UserError(
            "is neither an s3:// address nor, probably, a folder",
            where=uri,
            fix="write s3://bucket/prefix, or put ./ before a folder of that name",
        )
    return LocalStore(str(path_of(uri, "the folder").absolute()))
