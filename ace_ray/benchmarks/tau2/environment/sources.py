"""Load tool classes and databases from the user's copy of tau2-bench.

Sources become private modules (`ace_ray.sandbox.private_modules`), which can import only each other
and the names in `_NAMES` and `_STAND_INS`. They run only if their hash is known (`KNOWN_SHA256`),
or if the user named the copy in the command."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import warnings
import zlib
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from types import ModuleType
from typing import Any

from ace_ray.benchmarks.tau2.options import NVIDIA
from ace_ray.benchmarks.tau2.tasks import databases
from ace_ray.benchmarks.tau2.upstream_package import (
    UpstreamPackage,
    read_text,
    source_file,
    tool_modules,
)
from ace_ray.errors import UserError
from ace_ray.parsing.constant_folding import Refusal, operate
from ace_ray.sandbox.private_modules import PrivateModules, make_module
from ace_ray.types import digest

_FIX = "give a complete copy of tau2-bench"


@dataclass(frozen=True, slots=True)
class ToolSources:
    """Sources and databases of one domain; picklable.

    ``texts`` (source by module) and ``data`` (database by side) are compressed JSON.
    ``is_trusted``: whether the user named the copy in this command, not only a stored run."""

    domain: str
    texts: bytes
    data: bytes
    copy_name: str
    """Name of the copy, for errors."""
    sha256: str
    """Hash of the source texts."""
    data_sha256: str
    release: str = NVIDIA
    """Version of tau2-bench (`UpstreamPackage.release`)."""
    knowledge: str = ""
    """The agent's documents in banking_knowledge (`options.KNOWLEDGE`)."""
    is_trusted: bool = False

    @property
    def is_published(self) -> bool:
        """Whether the sources equal those of the published version."""
        return self.sha256 in KNOWN_SHA256

    def source_texts(self) -> dict[str, str]:
        texts: dict[str, str] = json.loads(zlib.decompress(self.texts))
        return texts

    def database_texts(self) -> dict[str, str]:
        """Return the database of each side as JSON text."""
        texts: dict[str, str] = json.loads(zlib.decompress(self.data))
        return texts


def tool_sources(package: UpstreamPackage, domain: str, knowledge: str = "grep") -> ToolSources:
    """Read the sources and databases of a domain. Raises `UserError` if a file cannot be read."""
    modules = tool_modules(domain, package.release)
    texts = {module: read_text(package, source_file(module)) for module in modules}
    data = json.dumps(databases(package, domain)).encode()
    compressed = zlib.compress(json.dumps(texts).encode()), zlib.compress(data, 1)
    hashes = digest(sorted(texts.items())), hashlib.sha256(data).hexdigest()
    return ToolSources(domain, *compressed, package.name, *hashes, package.release, knowledge)


def require_allowed(sources: ToolSources) -> None:
    """Raise `UserError` if ``sources`` must not run: their hash is unknown, and the user did not
    name the copy in the command."""
    if not (sources.is_trusted or sources.is_published):
        problem = (
            f"the classes of {sources.domain} differ from {sources.release} of tau2-bench, and only"
            " the stored run names this copy, so ace_ray does not run the classes"
        )
        fix = "score the run with --data and a copy that you trust"
        raise UserError(problem, where=sources.copy_name, fix=fix)


def private_modules(
    texts: Mapping[str, str], copy_name: str, new_id: Callable[[], str]
) -> PrivateModules:
    """Return ``texts`` as private modules; ``new_id`` replaces ``uuid.uuid4().hex``."""
    return PrivateModules(
        texts,
        place=lambda module: f"{copy_name}: {source_file(module)}",
        package="inspect_evals.tau2." if "banking.tools" in texts else "tau2.",
        names=_NAMES,
        stand_ins={**_STAND_INS, "uuid": lambda: _uuid(new_id)},
        prefix="tau2_tools",
        fix=_FIX,
        # Only upstream's `calculate` calls `eval`; it also passes globals and locals.
        extra={"eval": lambda expression, *_: evaluate(expression)},
    )


# Maximum characters of an expression.
MAX_CHARS = 1_000


def evaluate(text: Any) -> Any:
    """Evaluate a model's arithmetic expression with the same result as Python, without ``eval``.

    Upstream passes the text to ``eval`` if it has only digits, ``+-*/().`` and spaces. The result
    of such a text is a number, an empty tuple, or an error.

    Raises the errors that Python raises, and `ValueError` for an expression that is too long, too
    deeply nested or too costly."""
    if not isinstance(text, str):
        raise TypeError("eval() arg 1 must be a string, bytes or code object")
    if len(text) > MAX_CHARS:
        raise ValueError(f"the expression has more than {MAX_CHARS:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "'int' object is not callable; perhaps ..."
            tree = ast.parse(text.lstrip(" \t"), "<string>", "eval")
        return _evaluate(tree.body)
    except Refusal as error:
        raise ValueError(str(error)) from None
    except (MemoryError, RecursionError):
        raise ValueError("the expression is nested too deeply") from None


def _evaluate(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        operand = _evaluate(node.operand)
        return -operand if isinstance(node.op, ast.USub) else +operand
    if isinstance(node, ast.BinOp):
        return operate(type(node.op), _evaluate(node.left), _evaluate(node.right))
    if isinstance(node, ast.Call):
        called = _evaluate(node.func)
        for argument in node.args:
            _evaluate(argument)
        raise TypeError(f"{type(called).__name__!r} object is not callable")
    if isinstance(node, ast.Tuple) and not node.elts:
        return ()
    raise SyntaxError("invalid syntax")


def dict_hash(value: Mapping[str, Any]) -> str:
    """Return upstream's hash of a database (``utils/utils.get_dict_hash``)."""
    return hashlib.sha256(hash_text(value).encode()).hexdigest()


def hash_text(value: Any) -> str:
    """Return the text that upstream hashes for a value."""
    return json.dumps(value, sort_keys=True, default=str)


def update(model: Any, changes: Mapping[str, Any]) -> Any:
    """Merge ``changes`` into ``model`` and validate it (upstream
    ``update_pydantic_model_with_dict``). Mappings are merged, and other values are replaced."""
    return type(model).model_validate(_merge(model.model_dump(), changes))


def _merge(old: dict[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(old.get(key), dict):
            old[key] = _merge(old[key], value)
        else:
            old[key] = value
    return old


class _Logger:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def _refuse_file(*_: Any, **__: Any) -> Any:
    raise RuntimeError("databases are not read from files here")


def _utils() -> ModuleType:
    return make_module(
        "tau2.utils",
        DATA_DIR=PurePath("data"),
        TAU2_DATA_DIR=PurePath("data"),
        dump_file=_refuse_file,
        load_file=_refuse_file,
        get_dict_hash=dict_hash,
        get_pydantic_hash=lambda model: dict_hash(model.model_dump()),
        update_pydantic_model_with_dict=update,
    )


def _pydantic_utils() -> ModuleType:
    from pydantic import BaseModel, ConfigDict

    class BaseModelNoExtra(BaseModel):
        model_config = ConfigDict(extra="forbid")

    return make_module(
        "tau2.utils.pydantic_utils",
        BaseModelNoExtra=BaseModelNoExtra,
        update_pydantic_model_with_dict=update,
    )


def _uuid(new_id: Callable[[], str]) -> ModuleType:
    class Id:
        @property
        def hex(self) -> str:
            return new_id()

    return make_module("uuid", uuid4=Id)


_NAMES: Mapping[str, Sequence[str]] = {
    # `strftime` and `strptime` import these with the caller's importer, and take nothing from it.
    "_strptime": (),
    "time": (),
    "abc": ("ABC", "abstractmethod"),
    "collections": ("defaultdict",),
    "copy": ("copy", "deepcopy"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "docstring_parser": ("parse",),
    "enum": ("Enum",),
    "functools": ("lru_cache",),
    "hashlib": ("sha256",),
    "inspect": ("Parameter", "Signature", "getdoc", "signature"),
    "json": ("JSONDecodeError", "dumps", "loads"),
    "math": tuple(name for name in vars(math) if not name.startswith("_")),
    "operator": ("eq", "ge", "gt", "le", "lt", "ne"),
    "pydantic": (
        *("BaseModel", "ConfigDict", "Field", "ValidationError", "create_model"),
        *("field_serializer", "field_validator", "model_validator"),
    ),
    "re": (
        *("IGNORECASE", "MULTILINE", "compile", "error", "escape", "findall", "fullmatch"),
        *("match", "search", "split", "sub"),
    ),
    "typing": (
        *("Annotated", "Any", "Callable", "Dict", "Generic", "List", "Literal", "Optional"),
        *("Set", "TYPE_CHECKING", "Tuple", "Type", "TypeVar", "Union", "cast", "get_args"),
    ),
    "typing_extensions": ("Annotated", "override"),
}
_STAND_INS: Mapping[str, Callable[[], ModuleType]] = {
    "gzip": lambda: make_module("gzip", open=_refuse_file),
    "inspect_ai.tool": lambda: make_module("inspect_ai.tool", Tool=Any, tool=lambda make: make),
    "inspect_ai.util": lambda: make_module(
        "inspect_ai.util", StoreModel=import_module("pydantic").BaseModel, store_as=None
    ),
    "inspect_evals.tau2.utils": _utils,
    "pathlib": lambda: make_module("pathlib", Path=PurePath, PurePath=PurePath),
    "loguru": lambda: make_module("loguru", logger=_Logger()),
    "tau2.utils": _utils,
    "tau2.utils.pydantic_utils": _pydantic_utils,
    "tau2.utils.utils": _utils,
}
# `ToolSources.sha256`: airline, retail, telecom, mock of 26.3; airline, retail, telecom,
# banking_knowledge of 1.0.1; inspect-evals.
KNOWN_SHA256 = (
    "0274f72cc67b8ec80f1157041bfadb9d4c315313e0ca45801c9c091e743153eb",
    "dfa046bf89d211a878594e4b54360499b244e11b73f98c59c228726c512c2348",
    "c9bb03613a17091862f43b38f74438e200dc7b1cd84c6b5d25ad9b5b98213bdf",
    "f6cb817531f95a824b24cc40f89af5914f4ef5140644ea8bd5fc06264847c163",
    "7601c3545ebeb94fc1f30984c93e86b743310f226e4243ca0efc6390f79c8680",
    "bba345c9770abc8b4d57e15382470e1dd79ff328bfaa13e2e2ebf32482406ee1",
    "28eef5b624f097bf020598bd9e2c08ceda46b4a43b6f624d0e8dd25ec4373f45",
    "042cdc0f6899ffdeee383a9a73c9dbdc46942b134d24ce53d508a682c8c25532",
    "206d5713c12f110724d502cbf040749865321d611795c10d2592cccad1bc550d",
)


class Overlay(UserDict[str, Any]):
    """View of ``base``, a mapping of records that episodes share. Changes do not reach the base.

    While ``copies`` is true, a record is copied when it is first read. Otherwise the record of
    ``base`` is returned; tools that only read need no copy."""

    def __init__(self, base: dict[str, Any]) -> None:
        super().__init__()
        self.data = dict(base)
        self.base, self.copies = base, True

    def __getitem__(self, key: str) -> Any:
        record = self.data[key]
        if self.copies and key in self.base and record is self.base[key]:
            self.data[key] = record = record.model_copy(deep=True)
        return record

    def text_changes(self) -> dict[str, tuple[str | None, str | None]]:
        """Return {key: (before, after)} for records that differ from the base. ``before`` and
        ``after`` are the texts that upstream hashes, or None if the record does not exist."""
        keys = dict.fromkeys((*self.base, *self.data))
        pairs = {key: (self.base.get(key), self.data.get(key)) for key in keys}
        texts = {k: (_text(old), _text(new)) for k, (old, new) in pairs.items() if old is not new}
        return {key: pair for key, pair in texts.items() if pair[0] != pair[1]}


def _text(record: Any) -> str | None:
    return None if record is None else hash_text(record.model_dump())
