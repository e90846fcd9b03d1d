"""The owner of a folder of recorded answers, and the client that episodes ask.

`CacheFolder` is plain and synchronous: one object in one process (an actor, in a run) that serves
one call at a time. Keys and answers are JSON text in its interface. `CacheClient` is what an
`ApiCaller` has in its own process.

A record that cannot be read (cut, of another shape, too large, a link) is neither a miss nor the
end of a run. `service.check_folder` names it before the run starts; where it breaks later, the
agent gets the error that the server cannot read its records, no other backend is asked in its
place, and the call counts as a failure. Such a file is never written over.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ace_ray.benchmarks.stabletoolbench.apis.answers import Answered
from ace_ray.benchmarks.stabletoolbench.apis.cache_file import (
    ANSWER_KEYS,
    MAX_ANSWER_CHARS,
    OWN,
    CacheFile,
    Names,
    own_key,
    read_cache_file,
    write_cache_file,
)
from ace_ray.benchmarks.stabletoolbench.apis.lock import FolderLock
from ace_ray.benchmarks.stabletoolbench.apis.values import (
    Unusable,
    canonical_key,
    load,
    upstream_key,
)
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.errors import RowError, UserError

Mode = Literal["read", "readwrite"]
Service = Callable[..., Awaitable[Any]]
"""``await service(method, *JSON values)``: a method of the `CacheFolder`, wherever it lives."""
MEMORY_BYTES = 256 << 20
EXAMPLES, EXAMPLE_CHARS = 5, 2048
FAILED = "failed simulator"
"""Origin of a record that a simulator gave no usable answer."""
UNREADABLE = "The API server cannot read its records."


class CacheFolder:
    """Recorded answers in ``folder``, ours and upstream's. One caller at a time.

    Args:
        mode: ``read`` changes nothing in the folder; ``readwrite`` makes it and locks it.
        recorded: where upstream's files lie, if not in ``folder`` itself.
        holder: who this owner works for (a run's id): started again, it takes its own lock over.

    Raises:
        UserError: the folder is missing (``read``), cannot be written, or has another writer.
    """

    def __init__(
        self,
        folder: str,
        mode: Mode,
        *,
        recorded: str = "",
        holder: str = "",
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._root, self._memory_bytes = Path(folder), memory_bytes
        self._recorded = Path(recorded or folder)
        self._lock: FolderLock | None = None
        self._files: OrderedDict[Names, CacheFile] = OrderedDict()
        self._held_bytes = 0
        self._counts: Counter[str] = Counter()
        self._problems: dict[str, None] = {}
        if mode == "readwrite":
            self._open(holder)
        for place in (self._root, self._recorded):
            if not place.is_dir():
                raise UserError(
                    "there is no such folder", where=str(place), fix="correct the path of the cache"
                )

    def get(
        self,
        category: str,
        tool: str,
        api: str,
        arguments: str,
        simulator_id: str = "",
        any_simulator: bool = False,
    ) -> str | None:
        """The answer on record, as JSON text: ``{"error", "response", "origin", "by"}``, or with
        ``corrupt``, why it cannot be read. None: there is none.

        ``arguments`` is a JSON text as Python writes it, in the order in which they were given. Of
        simulated answers ``simulator_id``'s count, and others' only with ``any_simulator``.
        """
        file = self._file((category, tool, api))
        if file.problem:
            self._counts["corrupt"] += 1
            return json.dumps({"corrupt": file.problem})
        given = json.loads(arguments)
        answer = file.find(canonical_key(given), upstream_key(given), simulator_id, any_simulator)
        self._counts["misses" if answer is None else "hits"] += 1
        return answer

    def put(self, category: str, tool: str, api: str, arguments: str, answer: str) -> str:
        """Record an answer, JSON text as `get` gives it; it is on disk when this returns. Of two
        for the same call and by the same simulator_id the first stays: its text is returned.

        Of one that cannot be recorded (a corrupt file, a full disk, a lock that was lost) it
        returns why: ``{"unrecorded"}``.
        """
        names = (category, tool, api)
        file = self._file(names)
        given = json.loads(arguments)
        key = canonical_key(given)
        if file.problem:
            return self._unrecorded(file.problem)
        if self._lock is None:
            return self._unrecorded("the cache is only read")
        try:
            tree = load(answer, MAX_ANSWER_CHARS)
        except Unusable as error:
            return self._unrecorded(f"it is {error}")
        if set(tree) != ANSWER_KEYS or "\n" in answer:
            raise ValueError("an answer of another shape would make the file unreadable")
        if (first := file.find(key, upstream_key(given), tree["by"])) is not None:
            return first
        key = own_key(tree["by"], key)
        try:
            if not self._lock.held():
                raise UserError("another run has taken the cache over", where=str(self._root))
            file.end = write_cache_file(self._root, names, {key: answer}, file.end, file.torn)
            file.torn = 0
        except (OSError, UserError) as error:
            self._problems.setdefault(str(error)[:300])
            return self._unrecorded(str(error))
        file.add(key, answer)
        file.size_bytes += len(key) + len(answer)
        self._make_room(len(key) + len(answer))
        self._counts["recorded"] += 1
        return answer

    def examples(self, category: str, tool: str, api: str) -> list[list[str]]:
        """Up to `EXAMPLES` of upstream's answers of an API, each [arguments, answer] as text, and
        fewer where they are longer than `EXAMPLE_CHARS` together.

        Never our own: which of those are there depends on the order in which episodes ran.
        """
        pairs = list(self._file((category, tool, api)).recorded.items())[:EXAMPLES]
        while len(pairs) > 1 and sum(len(key) + len(text) for key, text in pairs) > EXAMPLE_CHARS:
            pairs.pop()
        return [[key, text] for key, text in pairs if '"corrupt":' not in text[:12]]

    def check(self, names: Sequence[Sequence[str]]) -> list[str]:
        """What is wrong with the files of these APIs ([category, tool, api] each), a line each."""
        files = (self._file((category, tool, api)) for category, tool, api in names)
        return [file.problem for file in files if file.problem]

    def stats(self) -> dict[str, Any]:
        """``hits``, ``misses``, ``corrupt``, ``recorded``, ``not_recorded``, ``files_read`` since
        the start, and the first ``problems``."""
        names = ("hits", "misses", "corrupt", "recorded", "not_recorded", "files_read")
        counts = {name: self._counts[name] for name in names}
        return {**counts, "problems": list(self._problems)[:20]}

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _open(self, holder: str) -> None:
        own = self._root / OWN
        try:
            own.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot be made ({error.strerror})", where=str(own), fix="choose another folder"
            ) from error
        if own.is_symlink():
            raise UserError("is a symbolic link", where=str(own), fix="remove it")
        self._lock = FolderLock(own, holder)

    def _unrecorded(self, why: str) -> str:
        self._counts["not_recorded"] += 1
        return json.dumps({"unrecorded": why[:300]})

    def _file(self, names: Names) -> CacheFile:
        file = self._files.get(names)
        if file is not None:
            self._files.move_to_end(names)
            return file
        file = read_cache_file(self._recorded, self._root, names)
        self._counts["files_read"] += 1
        if file.problem:
            self._problems.setdefault(file.problem)
        self._files[names] = file
        self._make_room(file.size_bytes)
        return file

    def _make_room(self, more_bytes: int) -> None:
        """Account for what the file used last has grown by; it stays, the oldest go."""
        self._held_bytes += more_bytes
        while self._held_bytes > self._memory_bytes and len(self._files) > 1:
            _, oldest = self._files.popitem(last=False)
            self._held_bytes -= oldest.size_bytes


class CacheClient:
    """The cache as an `ApiCaller` sees it.

    Args:
        service: `local`, or an actor's.
        writes: whether new answers are recorded.
        simulator_id: the simulator that this run has (`Simulator.simulator_id`).
        any_simulator: whether an answer that another one made is used as well; its origin is then
            ``other simulator``, so that a run's counts show it.
    """

    def __init__(
        self, service: Service, *, writes: bool, simulator_id: str = "", any_simulator: bool = False
    ) -> None:
        self._service, self._writes = service, writes
        self._simulator_id, self._any_simulator = simulator_id, any_simulator

    async def get(self, api: Api, arguments: Any) -> Answered | None:
        """The answer on record, None without one."""
        text = json.dumps(arguments)
        answer = await self._service(
            "get", *_names(api), text, self._simulator_id, self._any_simulator
        )
        return None if answer is None else self._answered(answer)

    async def put(self, api: Api, arguments: Any, answered: Answered) -> Answered:
        """Record an answer, or that the simulator has none: replayed, it is a failure again, and
        to another simulator nothing. Returns what is on record: another's, if that was first."""
        if not self._writes:
            return answered
        if answered.failure and not self._simulator_id:
            return answered
        tree = {
            "error": answered.error,
            "response": answered.response,
            "origin": FAILED if answered.failure else answered.source,
            "by": self._simulator_id if answered.source == "simulator" else "",
        }
        mine = json.dumps(tree, separators=(",", ":"))
        kept = await self._service("put", *_names(api), json.dumps(arguments), mine)
        if kept == mine:
            return answered
        if why := json.loads(kept).get("unrecorded"):
            return replace(answered, unrecorded=str(why))
        return self._answered(kept) or answered

    async def examples(self, api: Api) -> list[tuple[str, str]]:
        """Recorded answers that show a simulator what the API says: (arguments, answer) texts."""
        pairs = await self._service("examples", *_names(api))
        return [(key, text) for key, text in pairs]

    def _answered(self, text: str) -> Answered | None:
        tree = json.loads(text)
        if "corrupt" in tree:
            return Answered(UNREADABLE, "", "none", failure="cache")
        origin = str(tree["origin"])
        if origin == FAILED:
            if tree["by"] != self._simulator_id:
                return None
            error, response = tree["error"], tree["response"]
            return Answered(error, response, "cache", origin="simulator", failure="simulator")
        if origin == "simulator" and tree["by"] != self._simulator_id:
            origin = f"other {origin}"
        return Answered(tree["error"], tree["response"], "cache", origin=origin)


def _names(api: Api) -> tuple[str, str, str]:
    return api.std_category, api.std_tool, api.std_api


class CacheService:
    """A benchmark's `Service`. Cheap to make: `open` opens and locks the folder, or the first call
    to a restarted owner.

    Arguments as of `CacheFolder`.
    """

    def __init__(self, folder: str, mode: Mode, *, recorded: str = "", holder: str = "") -> None:
        self._make = partial(CacheFolder, folder, mode, recorded=recorded, holder=holder)
        self._folder: CacheFolder | None = None

    def open(self) -> None:
        """Open the folder, if it is not. Raises `UserError`."""
        if self._folder is None:
            self._folder = self._make()

    def call(self, method: str, *values: Any) -> Any:
        """A method of the folder: get, put, examples, check or stats.

        Raises `RowError` when the folder cannot be opened: `check_folder` said nothing of it when
        the run began, so rows wait for it to be there again.
        """
        try:
            self.open()
        except UserError as error:
            raise RowError(str(error)) from error
        assert self._folder is not None  # it is open
        return _methods(self._folder)[method](*values)

    def close(self) -> None:
        """Give the folder's lock back."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None


def local(folder: CacheFolder) -> Service:
    """A `Service` for `CacheClient` whose owner lives in this process."""
    methods = _methods(folder)

    async def call(method: str, *values: Any) -> Any:
        return methods[method](*values)

    return call


def check_folder(
    folder: str, mode: Mode, names: Sequence[Sequence[str]], *, recorded: str = "", where: str
) -> None:
    """What can be known of a cache before a run; ``names`` are its APIs, [category, tool, api]
    each as normalised. Leaves an empty folder of our own behind in ``readwrite``.

    Raises:
        UserError: the folder is missing, cannot be written, has another writer, or holds a file of
            these APIs that cannot be read.
    """
    opened = CacheFolder(folder, mode, recorded=recorded)
    try:
        problems = opened.check(names)
    finally:
        opened.close()
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(
            f"{problems[0]}{more}",
            where=f"{where} {recorded or folder}",
            fix="restore the file, or move it away: its answers are then made again",
        )


def _methods(folder: CacheFolder) -> dict[str, Callable[..., Any]]:
    return {
        "get": folder.get,
        "put": folder.put,
        "examples": folder.examples,
        "check": folder.check,
        "stats": folder.stats,
    }
