"""Find and fetch the weights of a model. A string names its source, and a revision pins it.

`resolve` runs on the driver, without an engine. It determines the kind of the source and its
current revision (commit or content hash). `materialize` runs on the node of a worker, and creates
a local folder that vLLM can serve."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from ace_ray.config.schema import cache_root
from ace_ray.errors import UserError, first_line
from ace_ray.models import weights_cache
from ace_ray.models.checkpoints import ADAPTER_CONFIG, check_gguf, check_whole, suggest_fix
from ace_ray.models.engine_args import INSTALL
from ace_ray.storage.object_store import Object, S3Store
from ace_ray.util.local_files import path_of
from ace_ray.util.safe_loading import MOST_BYTES, MOST_VALUES, parse_limited_json
from ace_ray.util.subprocesses import run_module

Kind = Literal["hub", "folder", "s3", "gguf", "endpoint", "fake"]

_WEIGHTS = (".safetensors", ".json", ".jinja", ".model", ".txt", ".bin", ".tiktoken", ".py")
_KINDS = {"config.json": "a transformers model", ADAPTER_CONFIG: "a PEFT adapter's"}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class ModelRef:
    """A pinned model: ``revision`` changes if the weights or the tokenizer change. A model behind
    an endpoint cannot be pinned; its revision consists of the model's name and the host."""

    source: str
    kind: Kind
    location: str
    revision: str
    endpoint_url: str | None = None
    region: str | None = None
    adapter: Adapter | None = None

    @property
    def known_revision(self) -> str | None:
        """Revision for manifests; None for a model behind an endpoint."""
        return None if self.kind == "endpoint" else self.revision

    @property
    def name(self) -> str:
        """Short name for run ids and tables."""
        stem = self.location.rstrip("/").rsplit("/", 1)[-1]
        base = stem.removesuffix(".gguf") if self.kind == "gguf" else stem
        return base + (f"+{self.adapter.ref.name}" if self.adapter else "")

    @property
    def label(self) -> str:
        """Source as the user named it. It differs between models that have the same `name`."""
        return self.source + (f"+{self.adapter.ref.source}" if self.adapter else "")

    @property
    def base_note(self) -> str:
        """Warning if the adapter names another base than this model, else "". A different name is
        not an error, since folders may be renamed."""
        base = self.adapter.base if self.adapter else ""
        names = {name.rstrip("/").rsplit("/", 1)[-1].lower() for name in (self.source, base)}
        if not base or len(names) == 1:
            return ""
        return f"the adapter names {base} as its base, but is used on {self.source}"


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter on a model (`ace_ray.models.adapters`)."""

    ref: ModelRef
    rank: int
    """Largest rank in the adapter."""
    base: str
    """Name of the base model in the adapter's configuration; "" if unknown."""
    experts: bool = False
    """Whether one tensor covers all experts of a layer (PEFT's ``target_parameters``)."""


def resolve(
    source: str,
    revision: str | None,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    adapter: bool = False,
    weights: bool = True,
) -> ModelRef:
    """Find ``source`` and pin its revision. ``endpoint_url`` and ``region`` are for S3.
    ``adapter``: the source is a LoRA adapter. ``weights``: check that the weights are complete.

    Raises `UserError` if the model does not exist, cannot be reached, or has incomplete files."""
    marker = ADAPTER_CONFIG if adapter else "config.json"
    is_hub_id = _HUB_ID.fullmatch(source) and not source.startswith((".", "/", "~"))
    if is_hub_id and not source.endswith(".gguf") and not Path(source).exists():
        return _resolve_hub(source, revision)
    if revision is not None:
        raise UserError(
            "revision applies only to Hugging Face ids",
            where="model.revision",
            fix=f"remove it; {source!r} is identified by its content",
        )
    try:
        if not source.startswith("s3://"):
            return _resolve_path(source, marker, weights=weights)
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror or error}",
            where=str(error.filename or source),
            fix="check the permissions of the model's files",
        ) from error
    return _resolve_s3(source, endpoint_url, region, marker, weights=weights)


def _resolve_path(source: str, marker: str, *, weights: bool) -> ModelRef:
    kind, key = ("adapter", "adapter") if marker == ADAPTER_CONFIG else ("model", "source")
    is_package = source.startswith("package:")
    path = _package_path(source) if is_package else path_of(source, f"model.{key}")
    if not path.exists():
        fix = "name a Hugging Face id (org/name), a folder, a .gguf file, s3:// or package:"
        raise UserError(f"{kind} {source!r} does not exist", where=f"model.{key}", fix=fix)
    path = path.absolute()
    if path.is_dir():
        if not (path / marker).is_file():
            raise UserError(
                f"the folder contains no {marker}",
                where=str(path),
                fix="it is an adapter: name it as model.adapter, and its base as model.source"
                if (path / ADAPTER_CONFIG).is_file()
                else suggest_fix(path) or f"name {_KINDS[marker]} folder",
            )
        if weights:  # before the hash, which reads all files completely
            check_whole(path)
        files = sorted(p for p in path.iterdir() if p.suffix in _WEIGHTS and p.is_file())
        return ModelRef(source, "folder", str(path), "sha256:" + _content_hash(files))
    if path.suffix != ".gguf" or marker == ADAPTER_CONFIG:
        gguf = " or a .gguf file" * (marker != ADAPTER_CONFIG)
        problem = "is neither a folder nor a .gguf file" if gguf else "is not a folder"
        raise UserError(problem, where=str(path), fix=f"name {_KINDS[marker]} folder{gguf}")
    check_gguf(path)
    return ModelRef(source, "gguf", str(path), "sha256:" + _content_hash([path]))


def materialize(ref: ModelRef) -> Path:
    """Return a local folder with the model's config, tokenizer and weights; cached by revision.

    A folder from S3 is locked by this process until `release`. Raises `UserError` if the model
    cannot be fetched or cached, and `NoRoom` if the disk is full."""
    if ref.kind in ("fake", "endpoint"):
        return Path(ref.location)
    if ref.kind == "folder":
        folder = Path(ref.location)
        if not folder.is_dir():
            fix = "use a folder that all nodes share, or an s3:// prefix"
            raise UserError("the model folder is missing on this node", where=ref.location, fix=fix)
        return folder
    if ref.kind == "hub":
        return _hub_snapshot(ref, weights=True)
    folder = _cache_path(ref)
    if ref.kind == "gguf":
        weights_cache.make_once(folder, lambda: _convert(Path(ref.location), folder))
    else:
        weights_cache.make_once(folder, lambda: _download_s3(ref, folder, _WEIGHTS), locked=True)
    return folder


def release(ref: ModelRef) -> None:
    """Unlock the folder that `materialize` returned, so that it may be removed for space."""
    if ref.kind == "s3":
        weights_cache.release(_cache_path(ref))


def check_unchanged(ref: ModelRef, *, adapter: bool = False) -> None:
    """Raise `UserError` if local files have changed since ``ref`` was pinned. Hub commits do not
    change, and files from S3 are compared when they are downloaded."""
    if ref.adapter:
        check_unchanged(ref.adapter.ref, adapter=True)
    if ref.kind not in ("folder", "gguf"):
        return
    if resolve(ref.location, None, adapter=adapter, weights=False).revision != ref.revision:
        raise _change_error(ref)


def _change_error(ref: ModelRef) -> UserError:
    fix = "start the run again when the model is complete"
    return UserError("has changed since the run was planned", where=ref.location, fix=fix)


def tokenizer_folder(ref: ModelRef) -> Path:
    """Return a local folder with config and tokenizer, without downloading the weights."""
    if ref.kind == "hub":
        return _hub_snapshot(ref, weights=False)
    if ref.kind == "s3" and not _cache_path(ref).is_dir():
        folder = _cache_path(ref).with_name(_cache_path(ref).name + "-tokenizer")
        light = tuple(ending for ending in _WEIGHTS if ending not in (".safetensors", ".bin"))
        weights_cache.make_once(folder, lambda: _download_s3(ref, folder, light))
        return folder
    return materialize(ref)


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a small file of a model or an adapter. Raises `UserError` if the file
    cannot be read or has no JSON object."""
    try:
        with path.open("rb") as file:
            # Configurations may contain Infinity.
            tree = parse_limited_json(file.read(MOST_BYTES + 1), MOST_BYTES, MOST_VALUES)
        if not isinstance(tree, dict):
            raise ValueError("is not a JSON object")
    except (OSError, ValueError) as error:
        fix = "save or download the model again"
        raise UserError(f"cannot be read: {error}", where=str(path), fix=fix) from error
    return tree


def file_sizes(ref: ModelRef) -> dict[str, int]:
    """Return the bytes of each file of a model; {} if unknown. Raises `UserError` if S3 fails."""
    if ref.kind == "folder":
        return {path.name: path.stat().st_size for path in Path(ref.location).iterdir()}
    if ref.kind == "s3":
        store = S3Store(ref.location, ref.endpoint_url, ref.region, patient=False)
        return {item.path: item.size for item in _objects(store)}
    return _hub_sizes(ref) if ref.kind == "hub" else {}


def _cache_path(ref: ModelRef) -> Path:
    return cache_root() / "models" / ref.revision.replace(":", "-")[:40]


def _convert(gguf: Path, folder: Path) -> None:
    # A separate process frees torch's memory at its end. The driver never imports torch.
    proc = run_module("ace_ray.models.gguf", str(gguf), str(folder))
    if proc.returncode != 0:
        lines = proc.stderr.strip().splitlines() or ["the converter ended without an error message"]
        raise UserError(
            f"cannot be converted: {lines[-1]}",
            where=str(gguf),
            fix="check that it is an intact GGUF file of an architecture that "
            "transformers supports, and that ace_ray is installed with an engine",
        )


def _package_path(source: str) -> Path:
    package, _, inside = source.removeprefix("package:").partition("/")
    # find_spec does not import a top-level package, so its code does not run here.
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        problem = f"package {package!r} is not installed"
        raise UserError(problem, where="model.source", fix="install it with pip")
    return Path(next(iter(spec.submodule_search_locations)), inside)


def _content_hash(files: Sequence[Path]) -> str:
    """Return the SHA-256 of the names and contents of ``files``. Hashes of files are cached."""
    memory = cache_root() / "file-hashes.json"
    try:
        hashes: dict[str, str] = json.loads(memory.read_text())
    except (OSError, ValueError):
        hashes = {}
    total, fresh = hashlib.sha256(), False
    for file in files:
        stat = file.stat()
        key = f"{file}|{stat.st_size}|{stat.st_mtime_ns}"
        if key not in hashes:
            with file.open("rb") as stream:
                hashes[key] = hashlib.file_digest(stream, "sha256").hexdigest()
            fresh = True
        total.update(f"{file.name}\0{hashes[key]}\n".encode())
    # The cache only saves time, so a read-only cache is not an error.
    with suppress(OSError):
        if fresh:
            memory.parent.mkdir(parents=True, exist_ok=True)
            scratch = memory.with_suffix(f".{os.getpid()}")
            scratch.write_text(json.dumps(hashes))
            scratch.replace(memory)
    return total.hexdigest()


def _resolve_s3(
    source: str, endpoint_url: str | None, region: str | None, marker: str, *, weights: bool
) -> ModelRef:
    store = S3Store(source.rstrip("/"), endpoint_url, region, patient=False)
    objects = _objects(store)
    revision = _listing_hash(objects)
    if not any(o.path == marker for o in objects):
        fix = suggest_fix(store) or f"name the prefix of {_KINDS[marker]} folder"
        raise UserError(f"{marker} is missing under this prefix", where=source, fix=fix)
    if weights:
        check_whole(store)
    return ModelRef(source, "s3", store.root, revision, endpoint_url, region)


def _objects(store: S3Store) -> list[Object]:
    """List the files of the model at ``store``, without files in subfolders: so no file's key can
    lead out of the cache's folder."""
    return [o for o in store.list() if o.path.endswith(_WEIGHTS) and "/" not in o.path]


def _listing_hash(objects: Sequence[Object]) -> str:
    listing = "".join(f"{o.path}\0{o.etag}\0{o.size}\n" for o in objects)
    return "etags:" + hashlib.sha256(listing.encode()).hexdigest()


def _download_s3(ref: ModelRef, folder: Path, endings: tuple[str, ...]) -> None:
    store = S3Store(ref.location, ref.endpoint_url, ref.region)
    objects = _objects(store)
    # Checked before and after the download, so that files of two versions are not mixed.
    if _listing_hash(objects) != ref.revision:
        raise _change_error(ref)
    files = [item for item in objects if item.path.endswith(endings)]
    weights_cache.make_room(folder, sum(item.size for item in files))
    with weights_cache.scratch_of(folder) as scratch:
        for item in files:
            store.download(item.path, scratch / item.path)
        if _listing_hash(_objects(store)) != ref.revision:
            raise _change_error(ref)


def _resolve_hub(source: str, revision: str | None) -> ModelRef:
    try:
        from huggingface_hub import HfApi, constants, scan_cache_dir
        from huggingface_hub.errors import CacheNotFound
    except ImportError as error:
        problem = "Hugging Face ids need huggingface_hub"
        raise UserError(problem, where="model.source", fix=INSTALL) from error
    revision = revision or "main"
    if constants.HF_HUB_OFFLINE:
        try:
            repos = scan_cache_dir().repos
        except (CacheNotFound, OSError):
            repos = frozenset()
        stored = chain.from_iterable(repo.revisions for repo in repos if repo.repo_id == source)
        for commit in stored:
            if revision in commit.refs or commit.commit_hash.startswith(revision):
                return ModelRef(source, "hub", source, commit.commit_hash)
        raise UserError(
            f"model {source!r} at {revision!r} is not in the local Hugging Face cache",
            where="model.source",
            fix="unset HF_HUB_OFFLINE to download it, or name a local folder",
        )
    try:
        commit = HfApi().model_info(source, revision=revision, timeout=20).sha
    # The exceptions depend on the HTTP library of the installed huggingface_hub version.
    except Exception as error:
        raise UserError(
            f"model {source!r} at {revision!r} was not found: {first_line(error)}",
            where="model.source",
            fix="check the id, the revision, HF_TOKEN and the network, or name a local folder",
        ) from error
    return ModelRef(source, "hub", source, str(commit))


def _hub_sizes(ref: ModelRef) -> dict[str, int]:
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        return {}
    try:
        info = HfApi().model_info(
            ref.location, revision=ref.revision, files_metadata=True, timeout=20
        )
    # Any exception, as in `_resolve_hub`. A size is only used for estimates.
    except Exception:  # noqa: BLE001
        return {}
    return {file.rfilename: file.size or 0 for file in info.siblings or ()}


def _hub_snapshot(ref: ModelRef, *, weights: bool) -> Path:
    from huggingface_hub import snapshot_download

    heavy = ["*.safetensors", "*.bin", "*.gguf", "*.pt", "*.pth"]
    ignore = heavy[2:] if weights else heavy
    try:
        return Path(snapshot_download(ref.location, revision=ref.revision, ignore_patterns=ignore))
    except Exception as error:
        raise UserError(
            f"model {ref.source!r} cannot be downloaded: {first_line(error)}",
            where="model.source",
            fix="check the network, HF_TOKEN and the disk, or name a local folder",
        ) from error
