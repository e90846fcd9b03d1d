"""Cache of API answers in one SQLite file, which one process owns and episodes call.

The key of an answer is the API, the arguments and the maker: a simulator's id, "" for the real API,
or `RECORDED` for imported JSON files (see `json_files`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from ace_ray.benchmarks.stabletoolbench.apis.answers import ApiAnswer
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.config.schema import cache_root
from ace_ray.errors import RowError, UserError
from ace_ray.types import canonical_json
from ace_ray.util.local_files import local_folder

Mode = Literal["read", "readwrite"]
# A recorded answer: its JSON text, its maker, and 1 if the maker failed to answer.
Record = list[Any]
FILE = "answers.sqlite3"
RECORDED = "recorded"
EXAMPLES, EXAMPLE_CHARS = 5, 2048
# Timeout of a write that waits for another run's write.
BUSY_S = 30.0
_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    api TEXT,        -- `cache_key`
    arguments TEXT,  -- canonical JSON; of recorded answers `recorded_key`
    maker TEXT,
    given TEXT,      -- the arguments in upstream's form, as JSON text
    answer TEXT,     -- {"error", "response"}, as JSON text
    failed INTEGER,
    PRIMARY KEY (api, arguments, maker)
)"""
_log = logging.getLogger(__name__)


def cache_folder(folder: str | None, location: str) -> Path:
    """Return the folder of recorded answers that a user names; by default one in `cache_root`."""
    if folder:
        return local_folder(folder, location).absolute()
    return cache_root() / "stabletoolbench" / "answers"


def cache_key(api: Api) -> str:
    return names_key(api.std_category, api.std_tool, api.std_api)


class AnswerCache:
    """A benchmark's `Service` that owns the answers in ``folder``. Calls come one at a time.

    Before `open`, the object can be sent to another process. SQLite's locks separate the writes of
    several runs. The mode ``read`` changes nothing. The mode ``readwrite`` creates the folder and
    records new answers."""

    def __init__(self, folder: str, mode: Mode) -> None:
        self._folder, self._mode = folder, mode
        self._database: sqlite3.Connection | None = None
        self._is_writable = True

    def open(self) -> None:
        """Open the file if it is not open. Raises `UserError` if it is missing (in mode ``read``),
        cannot be written (``readwrite``), or is not a cache."""
        if self._database is None:
            self._database = open_database(Path(self._folder), self._mode)

    def call(self, method: str, *values: Any) -> Any:
        """Call `get`, `put` or `examples`.

        Raises `RowError` if the file can no longer be read; the row is then retried."""
        try:
            self.open()
            methods: dict[str, Any] = {"get": self.get, "put": self.put, "examples": self.examples}
            return methods[method](*values)
        except (UserError, sqlite3.Error) as error:
            raise RowError(f"the cache in {self._folder}: {error}") from error

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def get(self, api: str, arguments: str, simulator_id: str) -> Record | None:
        """Return the answer that is recorded for a call, or None.

        ``arguments`` is JSON text that keeps the given order of keys, on which only the keys of
        imported answers depend, as in upstream's server. Imported answers take precedence: they
        belong to a run's identity, so answers that a run records must not replace imported answers
        in the next run."""
        value = json.loads(arguments)
        makers = (RECORDED, simulator_id, "")
        rows = self._connection.execute(
            "SELECT answer, maker, failed FROM answers WHERE api = ? AND arguments IN (?, ?) "
            "AND maker IN (?, ?, ?)",
            (api, canonical_json(value), recorded_key(str(value)), *makers),
        )
        by_maker = {row[1]: list(row) for row in rows}
        return next((by_maker[maker] for maker in makers if maker in by_maker), None)

    def put(
        self, api: str, arguments: str, simulator_id: str, answer: str, failed: int
    ) -> Record | None:
        """Record an answer, unless the call has an answer with this ``simulator_id``. Return the
        result of `get`, which may be None if recording failed; such a failure is logged."""
        value = json.loads(arguments)
        text = json.dumps(str(value))
        row = (api, canonical_json(value), simulator_id, text, answer, failed)
        try:
            with self._connection as connection:
                connection.execute("INSERT OR IGNORE INTO answers VALUES (?,?,?,?,?,?)", row)
        except sqlite3.Error as error:
            if self._is_writable:
                _log.warning("%s: answers cannot be recorded: %s", self._folder, error)
            self._is_writable = False
        return self.get(api, arguments, simulator_id)

    def examples(self, api: str) -> list[list[str]]:
        """Return up to `EXAMPLES` imported answers of an API as texts: [arguments, answer] each.

        The last are left out until all texts have at most `EXAMPLE_CHARS` characters in total.
        Answers that runs record are not used, since they depend on the order of episodes."""
        rows = self._connection.execute(
            "SELECT given, answer FROM answers WHERE api = ? AND maker = ? ORDER BY rowid LIMIT ?",
            (api, RECORDED, EXAMPLES),
        )
        pairs = [[json.loads(request), answer] for request, answer in rows]
        while len(pairs) > 1 and sum(len(key) + len(text) for key, text in pairs) > EXAMPLE_CHARS:
            pairs.pop()
        return pairs

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._database is not None  # `call` opens it
        return self._database


def answer_of(record: Record) -> ApiAnswer:
    """Convert a recorded answer to an `ApiAnswer` whose source is the cache."""
    text, maker, failed = record
    tree = json.loads(text)
    origin = RECORDED if maker == RECORDED else "simulator" if maker else "real"
    failure = "simulator" if failed else ""
    return ApiAnswer(tree["error"], tree["response"], "cache", origin=origin, failure=failure)


def recorded_sha256(folder: Path, apis: Iterable[str]) -> str | None:
    """Return the SHA-256 (hex) of the imported answers of ``apis`` (`cache_key`); None if there are
    no such answers. Raises `UserError` if the file is not a cache."""
    if not (folder / FILE).exists():
        return None
    with closing(open_database(folder, "read")) as database:
        query = "SELECT arguments, answer FROM answers WHERE api = ? AND maker = ?"
        total, rows = hashlib.sha256(), 0
        for api in sorted(set(apis)):
            for row in database.execute(f"{query} ORDER BY arguments", (api, RECORDED)):
                total.update(json.dumps([api, *row]).encode())
                rows += 1
    return total.hexdigest() if rows else None


def open_database(folder: Path, mode: Mode) -> sqlite3.Connection:
    """Open the file of answers in ``folder``. Raises `UserError` if it is missing (in mode
    ``read``), cannot be written (``readwrite``), or is not a cache."""
    path = folder / FILE
    fix = "correct the path of the cache, or move the file away"
    try:
        if mode == "readwrite":
            folder.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            raise UserError("there is no such cache", where=str(path), fix=fix)
        access = "ro" if mode == "read" else "rwc"
        database = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={access}",
            uri=True,
            timeout=BUSY_S,
            check_same_thread=False,  # calls come one at a time, but from any thread
        )
        if mode == "readwrite":
            with database:
                database.execute("BEGIN IMMEDIATE")  # fails if the file cannot be written
                database.execute(_TABLE)
        database.execute("SELECT api, arguments, maker, given, answer, failed FROM answers LIMIT 1")
    except (OSError, sqlite3.Error) as error:
        raise UserError(f"cannot be used as a cache: {error}", where=str(path), fix=fix) from error
    return database


def names_key(category: str, tool: str, api: str) -> str:
    """Return the key of an API from its standard names, in ASCII."""
    return json.dumps([category, tool, api])


def recorded_key(key: str) -> str:
    """Return the cache's key for a key of an imported file: the arguments as Python prints them.
    It begins with the word ``key``, so it differs from the keys that are JSON text."""
    return f"key {json.dumps(key)}"
