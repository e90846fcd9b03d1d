"""Run calls on upstream's tool classes: the environment of one episode, as a `Scenario`."""

from __future__ import annotations

import copy
import inspect
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import localcontext
from functools import cache, wraps
from typing import Any

from ace_ray.benchmarks.bfcl.categories import COMPOSITE
from ace_ray.benchmarks.bfcl.tools.evaluate import CallRefused, evaluate, strings_in
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources, load_class
from ace_ray.benchmarks.bfcl.tools.standins import use_vectors
from ace_ray.sandbox.protocol import Observation
from ace_ray.sandbox.tools import unknown_tool
from ace_ray.types import Entry

# The published documentation of each class's functions.
Docs = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class InitialState:
    """The classes of an environment, with their initial configuration; picklable. ``names`` maps
    each class to all its documented methods. Upstream executes calls of all methods, even while an
    entry does not yet offer a method to the model."""

    names: Mapping[str, tuple[str, ...]]
    initial_config: Mapping[str, Any] = field(default_factory=dict)
    long_context: bool = False

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.names)


def initial_state_of(entry: Entry, docs: Docs) -> InitialState:
    """Return the initial state of a multi-turn or memory entry."""
    return InitialState(
        {
            name: tuple(str(doc["name"]) for doc in docs[name])
            for name in entry.data["involved_classes"]
        },
        entry.data.get("initial_config", {}),
        "long_context" in entry.category or entry.category == COMPOSITE,
    )


MAX_CALL_CHARS = 100_000
MAX_RESULT_CHARS = 2_000_000
# Maximum CPU time of all calls of an environment. The limited process bounds each single call.
MAX_CPU_S = 6.0
# CPU time that is charged for a call that exceeded a limit of its process.
BROKEN_CPU_S = 2.0

_STATELESS = frozenset(["MathAPI"])
# Attributes that contain objects of upstream's modules in long_context entries.
_SHARED = {"TravelAPI": ("credit_card_list", "booking_record")}
# Attributes of a memory that its snapshot contains.
_SNAPSHOT = ("core_memory", "archival_memory", "memory")

# Memo of `copy.deepcopy` for the objects that upstream's instances in one process share: mutable
# default arguments, and records of long contexts.
Shared = dict[int, Any]


class Environment:
    """The tools of one episode: new instances of an entry's classes. `call` accepts these names:

    - ``step`` {"texts": [one call, ...]}: run the calls. Return their results as a model sees them.
    - ``dump``: return the part of the memory that a prompt shows, as a string.
    - ``snapshot``: return the memory as JSON values. ``restore`` {"snapshot": ...}: load a memory.
    - ``texts`` {"texts": [one call, ...]}: return the strings whose embeddings the calls may need.
    - ``vectors`` {"vectors": {text: [float, ...]}}: provide embeddings (vector memory only).

    Results are formatted as upstream does (``multi_turn_utils.execute_multi_turn_func_call``): a
    dict as JSON, other values with ``str()``, and an error as ``Error during execution: ...``."""

    def __init__(self, instances: Mapping[str, Any], tools: Mapping[str, Callable[..., Any]]):
        self.instances = instances
        self._tools = tools
        self._cpu_s = MAX_CPU_S
        self._vectors: dict[str, Sequence[float]] = {}

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        if name == "step":
            return Observation(self.step([str(text) for text in arguments.get("texts", ())]))
        if name == "dump":
            return Observation(str(self._memory()._dump_core_memory_to_context()))
        if name == "snapshot":
            return Observation(self._snapshot())
        if name == "restore":
            self._restore(arguments.get("snapshot") or {})
            return Observation(None)
        if name == "texts":
            texts = (str(text) for text in arguments.get("texts", ()))
            literals = dict.fromkeys(literal for text in texts for literal in strings_in(text))
            return Observation([text for text in literals if text not in self._vectors])
        if name == "vectors":
            self._vectors.update(arguments.get("vectors", {}))
            return Observation(None)
        return unknown_tool(name)

    def state(self) -> Any:
        """Return ``{class: {public attribute: value}}`` as JSON values, shortened by `to_json`."""
        return to_json(
            {
                name: {k: v for k, v in vars(instance).items() if not k.startswith("_")}
                for name, instance in self.instances.items()
            }
        )

    def step(self, texts: Sequence[str]) -> list[str]:
        """Run the calls of one step, and return their results."""
        return [self.execute(text) for text in texts]

    def execute(self, text: str) -> str:
        """Run one call, and return its result as a model sees it. Raises only `MemoryError`."""
        began = time.process_time()
        try:
            if len(text) > MAX_CALL_CHARS:
                raise CallRefused(f"a call of more than {MAX_CALL_CHARS} characters")
            if self._cpu_s <= 0:
                raise CallRefused("the calls of this conversation have used up their budget")
            # `localcontext` undoes a decimal precision that a method sets.
            with use_vectors(self._vectors), localcontext():
                # Copy the result of a nested call, unlike upstream. Otherwise a model could build
                # a few dozen objects that contain each other, which take forever to print.
                result = _text_of(evaluate(text, self._tools, copy.deepcopy))
            if len(result) > MAX_RESULT_CHARS:
                raise CallRefused("the result is too large")
        except MemoryError:  # the state may be half changed
            raise
        except Exception as error:  # noqa: BLE001  # the model sees any error of a tool
            result = _error(error)
        self._cpu_s -= time.process_time() - began
        return result

    def charge_call(self) -> None:
        """Reduce the remaining CPU time after a call that exceeded a limit of its process."""
        self._cpu_s -= BROKEN_CPU_S

    def _memory(self) -> Any:
        return next(iter(self.instances.values()))

    def _snapshot(self) -> Any:
        memories = {}
        for key in _SNAPSHOT:
            if key in vars(self._memory()):
                value = getattr(self._memory(), key)
                exported = value.export() if hasattr(value, "export") else value
                memories[key] = to_json(exported, MAX_MEMORY_CHARS)
        return memories

    def _restore(self, snapshot: Mapping[str, Any]) -> None:
        memory = self._memory()
        with use_vectors(self._vectors):
            for key in _SNAPSHOT:
                if key in snapshot and key in vars(memory):
                    value = getattr(memory, key)
                    if hasattr(value, "load_from_snapshot"):
                        value.load_from_snapshot(snapshot[key])
                    else:
                        setattr(memory, key, copy.deepcopy(snapshot[key]))


def open_environment(
    sources: ToolSources, initial_state: InitialState, shared: Shared | None = None
) -> Environment:
    """Create an environment: instances of the classes, loaded with their initial configuration.

    ``shared`` has the objects that upstream's instances in one process share. Environments with the
    same ``shared`` use the same objects. By default, an environment uses its own copies.

    Raises:
        UserError: a class is missing, does not load, or lacks a documented method."""
    memo: Shared = {} if shared is None else shared
    instances: dict[str, Any] = {}
    tools: dict[str, Callable[..., Any]] = {}
    for class_name, names in initial_state.names.items():
        instance = load_class(sources, class_name)()
        # Upstream loads memories from files; here `restore` loads them.
        if class_name not in _STATELESS and not class_name.startswith("MemoryAPI_"):
            config = copy.deepcopy(initial_state.initial_config.get(class_name, {}))
            instance._load_scenario(config, long_context=initial_state.long_context)
        if initial_state.long_context:
            for key in _SHARED.get(class_name, ()):
                preset = initial_state.initial_config.get(class_name, {}).get(key, {})
                records = getattr(instance, key)
                added = {k: copy.deepcopy(v, memo) for k, v in records.items() if k not in preset}
                setattr(instance, key, records | added)
        for name in names:
            tools[name] = _copy_defaults(getattr(instance, name), memo)
        instances[class_name] = instance
    return Environment(instances, tools)


def _copy_defaults(method: Callable[..., Any], memo: Shared) -> Callable[..., Any]:
    """Return ``method`` with copies, kept in ``memo``, of its mutable default arguments. Upstream's
    methods change their defaults; without copies, one conversation would affect the next."""
    changeable = _mutable_defaults(method.__func__)  # type: ignore[attr-defined]
    if not changeable:
        return method
    signature = inspect.signature(method)

    @wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return method(*args, **kwargs)  # raises Python's own error
        missing = {k: v for k, v in changeable.items() if k not in arguments}
        return method(*args, **kwargs, **{k: copy.deepcopy(v, memo) for k, v in missing.items()})

    return wrapper


@cache
def _mutable_defaults(function: Callable[..., Any]) -> Mapping[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if isinstance(p.default, (list, dict, set))}


def _text_of(result: Any) -> str:
    if type(result) is dict:
        with suppress(Exception):  # upstream catches everything here
            return json.dumps(result)
    return str(result)


def _error(error: Exception) -> str:
    try:
        return f"Error during execution: {str(error)[:MAX_CALL_CHARS]}"
    except Exception:  # noqa: BLE001  # the error cannot be printed
        return f"Error during execution: {type(error).__name__}"


def has_shared_changes(shared: Shared) -> bool:
    """Return whether calls have changed an object that environments share."""
    originals = {id(item): item for item in shared.get(id(shared), ())}
    return any(originals[key] != clone for key, clone in shared.items() if key in originals)


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return ``Class.attribute``, the first public attribute in which the instances of two
    environments differ, or "".

    ``theirs`` has the instances after the gold calls. Attributes that only ``ours`` has are not
    compared, to bound the cost. If a comparison raises (a crash in upstream), the values differ."""
    for name, instance in theirs.items():
        for key, value in vars(instance).items():
            if not key.startswith("_") and not _is_equal(vars(ours[name]), key, value):
                return f"{name}.{key}"
    return ""


def _is_equal(attributes: Mapping[str, Any], key: str, value: Any) -> bool:
    try:
        return key in attributes and bool(attributes[key] == value)
    except Exception:  # noqa: BLE001  # e.g. endless recursion in a directory that contains itself
        return False


# The recorded state is bounded because a list or directory can occur in several places: a value
# that is small in memory can be endless as JSON.
# Maximum characters of a recorded state. The largest initial state has 20,000 as JSON.
MAX_STATE_CHARS = 256 << 10
# Maximum characters of a snapshot of a memory.
MAX_MEMORY_CHARS = 4 << 20
MAX_STATE_DEPTH = 100
# Characters that each value counts for, in addition to its text.
_CHARS_PER_VALUE = 8


def to_json(value: Any, max_chars: int = MAX_STATE_CHARS) -> Any:
    """Convert ``value`` to JSON values; parts beyond the bounds become "...". Directories and files
    become JSON objects, sets become sorted lists, and other objects become ``<class name>``."""
    return _Writer(max_chars).write(value, 0)


class _Writer:
    def __init__(self, chars: int) -> None:
        self.chars = chars

    def write(self, value: Any, depth: int) -> Any:
        self.chars -= _CHARS_PER_VALUE + (len(value) if isinstance(value, str) else 0)
        if self.chars < 0 or depth > MAX_STATE_DEPTH:
            return "..."
        if type(value) is int:
            return value if value.bit_length() < 64 else f"{value:#x}"[:100]
        if isinstance(value, float) and not math.isfinite(value):
            return repr(float(value))  # JSON cannot express NaN or infinity
        if value is None or isinstance(value, (str, int, float)):
            return value
        if isinstance(value, Mapping):
            return self._object(value, depth + 1)
        if isinstance(value, (set, frozenset)):
            value = sorted(value, key=repr)
        if isinstance(value, (list, tuple)):
            return self._list(value, depth + 1)
        if hasattr(value, "contents"):
            return {"type": "directory", "contents": self.write(value.contents, depth + 1)}
        if hasattr(value, "content"):
            return {"type": "file", "content": self.write(value.content, depth + 1)}
        return f"<{type(value).__name__}>"

    def _object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for key, item in value.items():
            text = key if isinstance(key, str) else repr(key)[:100]
            self.chars -= len(text)
            if self.chars < 0:
                return {**written, "...": "..."}
            written[text] = self.write(item, depth)
        return written

    def _list(self, value: Sequence[Any], depth: int) -> list[Any]:
        written: list[Any] = []
        for item in value:
            if self.chars < 0:
                return [*written, "..."]
            written.append(self.write(item, depth))
        return written
