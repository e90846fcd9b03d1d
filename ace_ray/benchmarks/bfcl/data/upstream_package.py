"""Where the user's copy of ``bfcl-eval`` is, which of its files are read, and reading
them. Nothing of it is imported.

The paths are upstream's (``constants/eval_config.py``, ``constants/executable_backend_config.py``).
"""

from __future__ import annotations

import importlib.util
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from importlib import metadata
from pathlib import Path

from ace_ray.benchmarks.bfcl.categories import (
    MEMORY,
    MULTI_TURN,
    RELEVANCE,
    SINGLE_TURN,
    WEB_SEARCH,
)
from ace_ray.benchmarks.dataset import (
    DATA_LIMIT_BYTES,
    files_hash,
    imported,
    manifest_value,
    read_bounded,
    read_inside,
)
from ace_ray.errors import UserError
from ace_ray.local_files import folder_of

SCENARIOS = ("student", "customer", "finance", "healthcare", "notetaker")
"""Of the memory categories, in upstream's order."""

FORMAT_IDS = "data/BFCL_v4_format_sensitivity.json"
PROMPT_SOURCE = "constants/default_prompts.py"
HINT_SOURCE = "utils.py"
NATIVE_SOURCE = "model_handler/utils.py"

DOC_FILES = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "MathAPI": "math_api.json",
    "MessageAPI": "message_api.json",
    "TwitterAPI": "posting_api.json",
    "TicketAPI": "ticket_api.json",
    "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json",
    "VehicleControlAPI": "vehicle_control.json",
    "WebSearchAPI": "web_search.json",
    "MemoryAPI_kv": "memory_kv.json",
    "MemoryAPI_vector": "memory_vector.json",
    "MemoryAPI_rec_sum": "memory_rec_sum.json",
}
"""The file with the functions' docs, by the class that has the functions."""
MINI_DOC_FILES = {
    "Bakery": "bakery.json",
    **{
        name: file
        for name, file in DOC_FILES.items()
        if name == "WebSearchAPI" or name.startswith("MemoryAPI_")
    },
}

TOOL_MODULES: Mapping[str, str] = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
    "MemoryAPI_kv": "memory_kv",
    "MemoryAPI_rec_sum": "memory_rec_sum",
    "MemoryAPI_vector": "memory_vector",
}
"""The module of each class (upstream ``constants/executable_backend_config.py``)."""
SHARED_TOOL_MODULES = ("long_context", "memory_api_metaclass")
TOOL_FOLDER = "eval_checker/multi_turn_eval/func_source_code"
TOOL_SOURCES = tuple(
    f"{TOOL_FOLDER}/{module}.py"
    for module in (*TOOL_MODULES.values(), *SHARED_TOOL_MODULES, "web_search")
)


def question_file(category: str) -> str:
    """The file with a category's questions; several categories may share one."""
    return f"data/BFCL_v4_{_published(category)}.json"


def answer_file(category: str) -> str | None:
    """The file with a category's answers, None where there are none."""
    if category in RELEVANCE:
        return None
    return f"data/possible_answer/BFCL_v4_{_published(category)}.json"


def doc_file(name: str) -> str:
    """The path of a file of functions' docs."""
    return f"data/multi_turn_func_doc/{name}"


def prerequisite_file(scenario: str) -> str:
    """The conversations that come before a memory scenario's questions."""
    return f"data/memory_prereq_conversation/memory_{scenario}.json"


def _published(category: str) -> str:
    """The name under which a category's questions are published."""
    if category in WEB_SEARCH:
        return "web_search"
    return "memory" if category in MEMORY else category


def data_files() -> tuple[str, ...]:
    """The files of questions, answers, docs and conversations."""
    files = [FORMAT_IDS]
    for category in (*SINGLE_TURN, *MULTI_TURN, WEB_SEARCH[0], MEMORY[0]):
        answers = answer_file(category)
        files += [question_file(category)] + ([answers] if answers else [])
    files += [prerequisite_file(scenario) for scenario in SCENARIOS]
    files += [doc_file(name) for name in DOC_FILES.values()]
    return tuple(files)


def all_files() -> tuple[str, ...]:
    """Every file that an import keeps."""
    return (*data_files(), PROMPT_SOURCE, HINT_SOURCE, NATIVE_SOURCE, *TOOL_SOURCES)


BENCHMARK = "bfcl"
VERSION = "2026.3.23"
PACKAGE = "bfcl_eval"
INSTALL = f"run `pip install --no-deps bfcl-eval=={VERSION}`"
GET_DATA = f"{INSTALL} and write `data: installed`, or run `ace-ray data import bfcl PATH`"
OFFICIAL_DATA_SHA256 = "3124a2f9dffa71f8ca933a897702b6f0b87bdc5eafe14262ced1f57e530acacd"
"""What `data_sha256` gives for that version."""
MINI = Path(__file__).parents[1] / "mini"

_METADATA_LIMIT_BYTES = 1 << 20
_WHEEL_LIMIT_BYTES = 256 << 20
_MEMBER_LIMIT = 20_000
_BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # zip compression unknown here
    RuntimeError,  # zip with a password
    ValueError,
    OSError,
)


@dataclass(frozen=True, slots=True)
class UpstreamPackage:
    """A copy of the package: a folder or a wheel file. Picklable, and cheap to make.

    ``name`` finds it again from any folder; ``root`` is the package folder or the wheel.
    ``version`` is upstream's, "mini", or "unknown" for a folder that does not say and whose data
    are not those of `VERSION`.
    """

    name: str
    root: Path
    version: str

    @classmethod
    def locate(cls, spec: str) -> UpstreamPackage:
        """The copy that a config's ``data:`` names: ``mini``, ``installed``, ``imported`` (the only
        import), ``imported:<version>``, a folder that is or holds ``bfcl_eval``, or a wheel file.

        Raises `UserError`, in particular for another version than `VERSION`."""
        if spec == "mini":
            return cls("mini", MINI, "mini")
        if spec == "installed":
            return _installed()
        if root := imported(spec, BENCHMARK, GET_DATA):
            version = str(manifest_value(root, "upstream_version"))
            return cls(f"imported:{root.name}", root, version)
        path = folder_of(spec, "data")
        if spec and path.is_file():
            return _wheel(path.resolve())
        if spec and path.is_dir():
            return _folder(path.resolve())
        raise UserError(
            f"{spec!r} is neither mini, installed, imported, imported:<version>, a folder"
            " nor a wheel file",
            where="data",
            fix=GET_DATA,
        )

    @property
    def is_mini(self) -> bool:
        return self.name == "mini"

    def read(self, path: str) -> bytes:
        """The bytes of the file at ``path``, relative to the package. Raises `UserError`."""
        if self.root.is_file():
            return _member(self.root, f"{PACKAGE}/{path}", DATA_LIMIT_BYTES)
        if not (self.root / path).exists():
            raise UserError("no such file", where=self.where(path), fix=GET_DATA)
        if self.name == "installed":  # installers may link, and this code could be imported anyway
            return read_bounded(self.root / path)
        return read_inside(self.root, path)

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        if self.root.is_file():
            with _opened(self.root) as wheel:
                return f"{PACKAGE}/{path}" in wheel.namelist()
        return (self.root / path).is_file()

    def where(self, path: str) -> str:
        """How an error names the file."""
        return str(self.root / (f"{PACKAGE}/{path}" if self.root.is_file() else path))


def data_sha256(package: UpstreamPackage) -> str:
    """SHA-256 (hex) over names and contents of the data files. Raises `UserError`."""
    return files_hash({path: package.read(path) for path in data_files()})


def _installed() -> UpstreamPackage:
    spec = importlib.util.find_spec(PACKAGE)  # of a top-level name: runs nothing of the package
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise UserError("bfcl-eval is not installed", where="data", fix=INSTALL)
    root = Path(folders[0])
    try:
        version = metadata.version("bfcl-eval")
    except metadata.PackageNotFoundError:
        version = _version_beside(root) or _version_of_contents("installed", root)
    _check_version(version, str(root))
    return UpstreamPackage("installed", root, version)


def _folder(path: Path) -> UpstreamPackage:
    root = next(
        (root for root in (path, path / PACKAGE) if (root / "data" / "possible_answer").is_dir()),
        None,
    )
    if root is None:
        raise UserError(
            f"has no {PACKAGE}/data in it",
            where=str(path),
            fix=f"give the folder that holds {PACKAGE}, or {GET_DATA}",
        )
    version = _version_beside(root) or _version_of_contents(str(root), root)
    _check_version(version, str(root))
    return UpstreamPackage(str(root), root, version)


def _wheel(path: Path) -> UpstreamPackage:
    with _opened(path) as wheel:
        names = wheel.namelist()
    metadata_files = [n for n in names if n.endswith(".dist-info/METADATA") and n.count("/") == 1]
    if len(metadata_files) != 1 or not any(name.startswith(f"{PACKAGE}/data/") for name in names):
        raise UserError("is no wheel of bfcl-eval", where=str(path), fix=GET_DATA)
    version = _metadata_version(_member(path, metadata_files[0], _METADATA_LIMIT_BYTES))
    _check_version(version or "none", str(path))
    return UpstreamPackage(str(path), path, version)


def _version_beside(root: Path) -> str:
    """What the metadata of an installation or an unpacked wheel says; "" where there is none."""
    for folder in sorted(root.parent.glob(f"{PACKAGE}-*.dist-info")):
        if (folder / "METADATA").is_file():
            return _metadata_version(read_bounded(folder / "METADATA", _METADATA_LIMIT_BYTES))
    return ""


def _version_of_contents(name: str, root: Path) -> str:
    same = data_sha256(UpstreamPackage(name, root, "")) == OFFICIAL_DATA_SHA256
    return VERSION if same else "unknown"


def _metadata_version(raw: bytes) -> str:
    return str(BytesHeaderParser().parsebytes(raw).get("Version", "")).strip()


def _check_version(version: str, where: str) -> None:
    if version not in (VERSION, "unknown"):
        raise UserError(
            f"is version {version} of bfcl-eval, and only {VERSION} is known here",
            where=where,
            fix=INSTALL,
        )


def _opened(path: Path) -> zipfile.ZipFile:
    if path.stat().st_size > _WHEEL_LIMIT_BYTES:
        raise UserError("is too large for a wheel of bfcl-eval", where=str(path), fix=GET_DATA)
    try:
        wheel = zipfile.ZipFile(path)
    except _BROKEN_ZIP as error:
        raise UserError(
            f"is damaged or no wheel ({error})", where=str(path), fix="download it again"
        ) from error
    if len(wheel.namelist()) > _MEMBER_LIMIT:
        wheel.close()
        raise UserError(f"holds more than {_MEMBER_LIMIT:,} files", where=str(path))
    return wheel


def _member(path: Path, name: str, limit_bytes: int) -> bytes:
    where = str(path / name)
    with _opened(path) as wheel:
        if name not in wheel.namelist():
            raise UserError("no such file in the wheel", where=where, fix="download it again")
        try:
            with wheel.open(name) as file:
                raw = file.read(limit_bytes + 1)
        except _BROKEN_ZIP as error:
            raise UserError(
                f"is damaged ({error})", where=where, fix="download the wheel again"
            ) from error
    if len(raw) > limit_bytes:
        raise UserError(f"has more than {limit_bytes:,} bytes", where=where)
    return raw
