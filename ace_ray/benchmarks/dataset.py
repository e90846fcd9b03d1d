"""A benchmark's data: located, imported into the cache, read, joined, checked and hashed.

Files that others wrote are read within bounds, and must be plain files. A version in the cache
lands whole, and is named by its content.
"""

from __future__ import annotations

import ast
import hashlib
import json
import stat
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ace_ray.config.schema import cache_root
from ace_ray.config.suggestions import did_you_mean
from ace_ray.errors import UserError
from ace_ray.types import Entry, digest
from ace_ray.util.local_files import path_of, without_bom

DATA_LIMIT_BYTES = 64 << 20
SOURCE_LIMIT_BYTES = 2 << 20

# Contents by path relative to the version's folder.
Files = Mapping[str, bytes]
Row = dict[str, Any]
# By id: where the row stands (file:line) and the row without its id.
Rows = dict[str, tuple[str, Row]]
_Model = TypeVar("_Model", bound=BaseModel)


def locate(
    name: str, benchmark: str, *, mini: Path, get_data: str, check: Callable[[Path], object]
) -> Path:
    """Find the folder that a config's ``data:`` names: ``mini``, ``imported`` (the only import),
    ``imported:<version>``, or the path of a folder, which ``check`` judges.

    ``get_data`` says how to get data. Raises `UserError`."""
    if name == "mini":
        return mini
    if place := imported(name, benchmark, get_data):
        return place
    folder = folder_of(name, ["mini", "imported"], get_data)
    check(folder)
    return folder


def folder_of(name: str, words: Sequence[str], get_data: str) -> Path:
    """Return ``name`` as the path of a folder. Raises `UserError`: ``data:`` names neither a folder
    nor one of ``words``, the last of which is "imported"."""
    folder = path_of(name, "data")
    if not name or not folder.is_dir():
        raise UserError(
            f"{name!r} is neither {', '.join(words)}, imported:<version> nor a folder",
            where="data",
            fix=did_you_mean(name, words, get_data),
        )
    return folder


def imported(name: str, benchmark: str, get_data: str) -> Path | None:
    """Return the folder of the import ``name``, None if it names something else.

    Raises `UserError` without an import, without that version, or for several without a version."""
    kind, _, version = name.partition(":")
    if kind != "imported":
        return None
    home = imports_folder(benchmark)
    have = sorted(path.parent.name for path in home.glob("[!.]*/manifest.json"))
    if not have:
        raise UserError(f"nothing is imported in {home}", where="data", fix=get_data)
    if version in have:
        return home / version
    if not version and len(have) == 1:
        return home / have[0]
    what = f"version {version} is not imported" if version else "several versions are imported"
    choices = " or ".join(f"imported:{one}" for one in have)
    raise UserError(what, where="data", fix=f"write {choices}")


def pinned(data: str, folder: Path) -> str:
    """Return the option that finds ``folder`` again from anywhere: ``data`` itself if mini."""
    if data.partition(":")[0] == "imported":
        return f"imported:{folder.name}"
    return data if data == "mini" else str(folder.absolute())


def imports_folder(benchmark: str, cache: Path | None = None) -> Path:
    """Return the folder that holds one folder per imported version."""
    return (cache or cache_root()) / "data" / benchmark


def not_writable(cache: Path, error: OSError) -> UserError:
    """Return the error of a cache folder that cannot be written."""
    return UserError(
        f"cannot be written ({error.strerror})",
        where=str(cache),
        fix="set ACE_RAY_CACHE to a folder you can write to",
    )


def keep(
    files: Files,
    benchmark: str,
    *,
    cache: Path | None = None,
    counted: str,
    say: Callable[[str], object],
    **facts: Any,
) -> Path:
    """Keep ``files`` as a version in the cache, and say so; returns the version's folder.

    ``manifest.json`` beside them holds ``facts``, the hashes and the version, which is the first
    twelve digits of `files_hash`. The same content again changes nothing. ``counted`` says how much
    it is. Raises `UserError`, leaving nothing behind.
    """
    home, content = imports_folder(benchmark, cache), files_hash(files)
    target = home / content[:12]
    manifest = {
        "benchmark": benchmark,
        "version": target.name,
        "content_sha256": content,
        **facts,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": _sha256s(files),
    }
    try:
        new = not target.exists() and _land(files, manifest, target)
    except OSError as error:
        raise not_writable(home, error) from error
    done = "imported" if new else "already imported, nothing to do"
    say(f"{done}: {counted}, version {target.name} in {target}")
    return target


def manifest_value(folder: Path, key: str) -> Any:
    """Return the value of ``key`` in the manifest of an import. Raises `UserError`."""
    try:
        return json_value(read_inside(folder, "manifest.json"), folder)[key]
    except (UserError, KeyError, TypeError) as error:
        raise UserError(
            "has no readable manifest.json",
            where=str(folder),
            fix="remove the folder and import again",
        ) from error


def data_hash(entries: Iterable[Entry]) -> str:
    """Compute the SHA-256 (hex) of the entries' contents, gold included, in any order."""
    return digest(sorted(entry.content_hash() for entry in entries))


def files_hash(files: Files) -> str:
    """Compute the SHA-256 (hex) of names and contents of files."""
    return digest(sorted(_sha256s(files).items()))


def rows_by_id(raw: bytes, path: str | Path) -> Rows:
    """Read the rows of a JSON-lines file ``path``. Each has a text as id, used once.

    Raises `UserError` naming the line."""
    rows: Rows = {}
    for where, row in json_lines(raw, path):
        row_id = row.pop("id", None)
        if not isinstance(row_id, str) or not row_id:
            raise UserError('"id" is missing or not a text', where=where)
        if row_id in rows:
            raise UserError(f"id {row_id!r} is already used in {rows[row_id][0]}", where=where)
        rows[row_id] = (where, row)
    return rows


def check_joined(
    questions: Rows, question_file: str | Path, answers: Rows, answer_file: str | Path
) -> None:
    """Raise `UserError` naming the line unless questions and answers have the same ids."""
    for rows, others, other_file in (
        (questions, answers, answer_file),
        (answers, questions, question_file),
    ):
        for row_id, (where, _) in rows.items():
            if row_id not in others:
                raise UserError(
                    f"id {row_id!r} is not in {other_file}",
                    where=where,
                    fix="every id needs one question and one answer",
                )


class Part(BaseModel):
    """An object of upstream's files; further keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


def shaped(model: type[_Model], tree: Any, where: str | Path, fix: str = "") -> _Model:
    """Return ``tree`` as an object of ``model``. Raises `UserError` naming the wrong key."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise UserError(first_problem(error), where=str(where), fix=fix) from error


def first_problem(error: ValidationError) -> str:
    """Return the key at which an object is wrong, and how."""
    first = error.errors(include_input=False, include_url=False)[0]
    what = "is no object" if first["type"] == "model_type" else str(first["msg"]).lower()
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), what)))


def is_texts(value: Any) -> bool:
    """Tell whether ``value`` is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def read_bounded(path: Path, limit_bytes: int = DATA_LIMIT_BYTES) -> bytes:
    """Return the bytes of a text file, without a byte order mark.

    Raises `UserError` when the file is missing, not a plain file, too large, or in UTF-16.
    """
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise UserError("is not a plain file", where=str(path))
        if info.st_size > limit_bytes:
            raise UserError(
                f"has {info.st_size:,} bytes, more than the {limit_bytes:,} that are read",
                where=str(path),
            )
        with path.open("rb") as file:
            return without_bom(file.read(limit_bytes), path)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=str(path)) from error


def read_inside(root: Path, relative: str, limit_bytes: int = DATA_LIMIT_BYTES) -> bytes:
    """Read the bytes of ``root/relative``; nothing below ``root`` may be a symbolic link.

    A checkout from elsewhere could otherwise pull any file of this machine into the cache.
    """
    path = root
    for part in relative.split("/"):
        path = path / part
        if path.is_symlink():
            raise UserError(
                "is a symbolic link", where=str(path), fix="import a folder with the files in it"
            )
    return read_bounded(path, limit_bytes)


def json_value(raw: bytes, where: str | Path, fix: str = "") -> Any:
    """Parse all of a file or line ``where`` as one JSON value. Raises `UserError`."""
    try:
        # Models emit lone surrogates, and some writers do not escape them.
        return json.loads(raw.decode("utf-8", "surrogatepass"), object_pairs_hook=_unique)
    except RecursionError:
        problem = "it is nested too deeply"
    except ValueError as error:
        problem = str(error)
    raise UserError(f"is not valid JSON ({problem})", where=str(where), fix=fix)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object. Raises `ValueError` if a key appears twice: one value would be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"the key {twice!r} appears twice in one object")
    return found


def json_lines(lines: bytes | Iterable[bytes], path: str | Path) -> Iterator[tuple[str, Row]]:
    """Yield (file:line, object) of each line of ``path``. Blank lines may stand at the end only."""
    if isinstance(lines, bytes):
        if not lines.strip():
            raise UserError("is empty", where=str(path))
        # bytes are split at \n: str.splitlines would also cut at U+2028 inside a text
        lines = lines.split(b"\n")
    blank = ""
    for number, line in enumerate(lines, start=1):
        where, fix = f"{path}:{number}", "write one JSON object per line"
        # files that were joined have a mark in the middle
        line = without_bom(line, where)
        if not line.strip():
            blank = blank or where
            continue
        if blank:
            raise UserError("the line is blank", where=blank, fix=fix)
        row = json_value(line, where, fix)
        if not isinstance(row, dict):
            raise UserError(f"holds a {type(row).__name__}", where=where, fix=fix)
        yield where, row


def python_source(root: Path, relative: str, fix: str = "") -> ast.Module:
    """Parse the Python source ``root/relative``. Raises `UserError`."""
    raw = read_inside(root, relative, SOURCE_LIMIT_BYTES)
    try:
        return python_tree(raw)
    except ValueError as error:
        raise UserError(
            f"is not Python source that can be read ({error})",
            where=str(root / relative),
            fix=fix,
        ) from error


def assigned_text(tree: ast.Module, name: str) -> str | None:
    """Return the text that a module assigns to ``name`` as a constant, or None."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            named = any(isinstance(to, ast.Name) and to.id == name for to in node.targets)
            if named and isinstance(node.value.value, str):
                return node.value.value
    return None


def python_tree(raw: bytes) -> ast.Module:
    """Parse Python source that is not ours. Raises ValueError with one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its odd escapes are not our user's business
            return ast.parse(raw.decode("utf-8"))
    # what hostile source makes ast raise, besides plain syntax errors
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error


def _land(files: Files, manifest: Mapping[str, Any], target: Path) -> bool:
    """Write a version; False when another process was first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".import-", dir=target.parent) as scratch:
        folder = Path(scratch) / target.name
        for name, raw in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(raw)
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        try:
            folder.rename(target)
        except OSError:
            if not target.exists():
                raise
            return False
    return True


def _sha256s(files: Files) -> dict[str, str]:
    return {name: _sha256(raw) for name, raw in sorted(files.items())}


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
