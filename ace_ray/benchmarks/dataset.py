"""Find a benchmark's data, import data into the cache; read, join, check and hash data files.

External files must be plain files, and only a limited number of bytes is read. An import creates a
version in the cache atomically, named by the hash of its content.
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
from ace_ray.errors import UserError
from ace_ray.types import Entry, digest
from ace_ray.util import log
from ace_ray.util.local_files import path_of, strip_bom
from ace_ray.util.safe_loading import first_problem
from ace_ray.util.suggestions import did_you_mean

DATA_LIMIT_BYTES = 64 << 20
SOURCE_LIMIT_BYTES = 2 << 20

# Contents of files, by path relative to the version's folder.
Files = Mapping[str, bytes]
Row = dict[str, Any]
# Rows by id: the row's location (file:line), and the row without its id.
Rows = dict[str, tuple[str, Row]]
_Model = TypeVar("_Model", bound=BaseModel)


def locate(
    name: str, benchmark: str, *, mini: Path, get_data: str, check: Callable[[Path], object]
) -> Path:
    """Return the folder that ``name``, the value of the config key ``data``, stands for: ``mini``,
    ``imported`` (if there is one import), ``imported:<version>``, or the path of a folder.

    Raises `UserError`, with the fix ``get_data``, if there is none or ``check`` rejects it."""
    if name == "mini":
        return mini
    if import_folder := find_import(name, benchmark, get_data):
        return import_folder
    folder = folder_of(name, ["mini", "imported"], get_data)
    check(folder)
    return folder


def folder_of(name: str, words: Sequence[str], get_data: str) -> Path:
    """Return the path of the folder ``name``. Raises `UserError` if there is no such folder.

    The error suggests similar ``words``: valid names that are not paths, "imported" last."""
    folder = path_of(name, "data")
    if not name or not folder.is_dir():
        problem = f"{name!r} is neither {', '.join(words)}, imported:<version> nor a folder"
        raise UserError(problem, where="data", fix=did_you_mean(name, words, get_data))
    return folder


def find_import(name: str, benchmark: str, get_data: str) -> Path | None:
    """Return the folder of the import ``name``: ``imported[:<version>]``; None for other names.

    Raises `UserError` if there is no such import, or several and ``name`` lacks a version."""
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
    problem = f"version {version} is not imported" if version else "several versions are imported"
    choices = " or ".join(f"imported:{v}" for v in have)
    raise UserError(problem, where="data", fix=f"write {choices}")


def pin_data(data: str, folder: Path) -> str:
    """Return ``data`` with the absolute path ``folder``, for a config that is read elsewhere."""
    if data.partition(":")[0] == "imported":
        return f"imported:{folder.name}"
    return data if data == "mini" else str(folder.absolute())


def imports_folder(benchmark: str) -> Path:
    """Return the cache folder of a benchmark, which has a subfolder per imported version."""
    return cache_root() / "data" / benchmark


def not_writable(cache: Path, error: OSError) -> UserError:
    """Return the error for a cache folder that cannot be written."""
    fix = "set ACE_RAY_CACHE to a folder you can write to"
    return UserError(f"cannot be written ({error.strerror})", where=str(cache), fix=fix)


def store_version(files: Files, benchmark: str, *, counted: str, **facts: Any) -> Path:
    """Store ``files`` as a version in the cache, print a line about it, and return its folder.

    The version is the first twelve digits of `files_hash`. The folder also gets a ``manifest.json``
    with the version, the files' hashes, and ``facts``. If the version exists, nothing changes. The
    printed line contains ``counted``, such as "765 queries". Raises `UserError` if the cache cannot
    be written."""
    home, content = imports_folder(benchmark), files_hash(files)
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
    outcome = "imported" if new else "already imported, nothing to do"
    log.info(f"{outcome}: {counted}, version {target.name} in {target}")
    return target


def manifest_value(folder: Path, key: str) -> Any:
    """Return ``key`` of an import's ``manifest.json``. Raises `UserError` if it is unreadable."""
    try:
        return json_value(read_inside(folder, "manifest.json"), folder)[key]
    except (UserError, KeyError, TypeError) as error:
        fix = "remove the folder and import again"
        raise UserError("has no readable manifest.json", where=str(folder), fix=fix) from error


def data_hash(entries: Iterable[Entry]) -> str:
    """Compute a SHA-256 (hex) of entries and their gold answers. The order has no effect."""
    return digest(sorted(entry.content_hash() for entry in entries))


def files_hash(files: Files) -> str:
    """Compute the SHA-256 (hex) of the names and contents of files."""
    return digest(sorted(_sha256s(files).items()))


def rows_by_id(raw: bytes, path: str | Path) -> Rows:
    """Return the rows in ``raw``, the content of the JSON-lines file ``path``, by id (see `Rows`).

    Raises `UserError` at a line that is not an object, lacks an id, or repeats an id."""
    rows: Rows = {}
    for location, row in json_lines(raw, path):
        row_id = row.pop("id", None)
        if not isinstance(row_id, str) or not row_id:
            raise UserError('"id" is missing or not a string', where=location)
        if row_id in rows:
            raise UserError(f"id {row_id!r} is already used in {rows[row_id][0]}", where=location)
        rows[row_id] = (location, row)
    return rows


def check_joined(
    questions: Rows, question_file: str | Path, answers: Rows, answer_file: str | Path
) -> None:
    """Raise `UserError` for an id that only the questions or only the answers have."""
    for rows, partners, other_file in (
        (questions, answers, answer_file),
        (answers, questions, question_file),
    ):
        for row_id, (location, _) in rows.items():
            if row_id not in partners:
                fix = "every id needs one question and one answer"
                raise UserError(f"id {row_id!r} is not in {other_file}", where=location, fix=fix)


class PartialModel(BaseModel):
    """Base class for objects in upstream's files. Unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


def parse_tree(model: type[_Model], tree: Any, location: str | Path, fix: str = "") -> _Model:
    """Convert ``tree``, a JSON value, to ``model``. Raises `UserError` naming an invalid key."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise UserError(first_problem(error), where=str(location), fix=fix) from error


def is_texts(value: Any) -> bool:
    """Tell whether ``value`` is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def read_bounded(path: Path, limit_bytes: int = DATA_LIMIT_BYTES) -> bytes:
    """Return the bytes of a text file, without a byte order mark.

    Raises `UserError` if it is missing, no plain file, larger than the limit, or in UTF-16."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise UserError("is not a plain file", where=str(path))
        if info.st_size > limit_bytes:
            problem = f"has {info.st_size:,} bytes, more than the limit of {limit_bytes:,}"
            raise UserError(problem, where=str(path))
        with path.open("rb") as file:
            return strip_bom(file.read(limit_bytes), path)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=str(path)) from error


def read_inside(root: Path, relative: str, limit_bytes: int = DATA_LIMIT_BYTES) -> bytes:
    """Return the bytes of ``root/relative``. Raises `UserError` as `read_bounded` does, and for
    symbolic links below ``root``: with links, a downloaded checkout could copy any file of this
    machine into the cache."""
    path = root
    for part in relative.split("/"):
        path = path / part
        if path.is_symlink():
            fix = "import a folder with the files in it"
            raise UserError("is a symbolic link", where=str(path), fix=fix)
    return read_bounded(path, limit_bytes)


def json_value(raw: bytes, location: str | Path, fix: str = "") -> Any:
    """Parse ``raw`` as one JSON value. Raises `UserError` at ``location`` if it is not JSON."""
    try:
        # Models emit lone surrogates, and some writers do not escape them.
        return json.loads(raw.decode("utf-8", "surrogatepass"), object_pairs_hook=_unique_dict)
    except RecursionError:
        problem = "it is nested too deeply"
    except ValueError as error:
        problem = str(error)
    raise UserError(f"is not valid JSON ({problem})", where=str(location), fix=fix)


def _unique_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object. Raises `ValueError` if a key appears twice, since a value would be lost."""
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"the key {twice!r} appears twice in one object")
    return members


def json_lines(lines: bytes | Iterable[bytes], path: str | Path) -> Iterator[tuple[str, Row]]:
    """Yield (``file:line``, object) for each line of ``path``. Raises `UserError` if a line is not
    a JSON object, or is blank and not at the end."""
    if isinstance(lines, bytes):
        if not lines.strip():
            raise UserError("is empty", where=str(path))
        # Split bytes at \n: str.splitlines would also split at U+2028 inside a string.
        lines = lines.split(b"\n")
    blank = ""
    for number, line in enumerate(lines, start=1):
        location, fix = f"{path}:{number}", "write one JSON object per line"
        # Concatenated files can have a byte order mark in the middle.
        line = strip_bom(line, location)
        if not line.strip():
            blank = blank or location
            continue
        if blank:
            raise UserError("the line is blank", where=blank, fix=fix)
        row = json_value(line, location, fix)
        if not isinstance(row, dict):
            raise UserError(f"holds a {type(row).__name__}", where=location, fix=fix)
        yield location, row


def parse_python(root: Path, relative: str, fix: str = "") -> ast.Module:
    """Return the tree of the source file ``root/relative``. Raises `UserError` if it is invalid."""
    raw = read_inside(root, relative, SOURCE_LIMIT_BYTES)
    try:
        return python_tree(raw)
    except ValueError as error:
        problem = f"is not Python source that can be read ({error})"
        raise UserError(problem, where=str(root / relative), fix=fix) from error


def assigned_text(tree: ast.Module, name: str) -> str | None:
    """Return the constant string that a module assigns to ``name``, or None."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            is_target = any(isinstance(to, ast.Name) and to.id == name for to in node.targets)
            if is_target and isinstance(node.value.value, str):
                return node.value.value
    return None


def python_tree(raw: bytes) -> ast.Module:
    """Return the syntax tree of untrusted Python source. Raises `ValueError` if it is invalid."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # users cannot fix invalid escapes in this source
            return ast.parse(raw.decode("utf-8"))
    # ast raises these for hostile source, in addition to syntax errors.
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error


def _land(files: Files, manifest: Mapping[str, Any], target: Path) -> bool:
    """Write a version to the folder ``target``. Return False if another process wrote it first."""
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
    return {name: hashlib.sha256(raw).hexdigest() for name, raw in sorted(files.items())}
