"""Store the log lines of a session in the run folder (``logs/``), and read the stored logs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from ace_ray.errors import UserError, first_line
from ace_ray.storage.object_store import Store
from ace_ray.storage.run_files import LOGS
from ace_ray.util import log
from ace_ray.util.safe_loading import json_object

# Time between two writes of a log that has new lines.
WRITE_S = 60.0
JOIN_S = 10.0


@contextmanager
def store_log(
    store: Store, began: float, is_listed: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Write the log lines of this process since ``began`` (`time.monotonic`) to a new file in
    ``store``: once a minute in the context, and at its end. An error that ends the context is the
    last line. Write nothing while ``is_listed`` returns false."""
    name = f"{LOGS}{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{os.urandom(3).hex()}.jsonl"
    over, stored, store = threading.Event(), [""], store.with_short_timeout()

    def write() -> None:
        lines = log.lines_since(began)
        if lines and lines[-1] != stored[0] and is_listed():
            if len(lines) == log.MOST_LINES:
                lines.insert(0, json.dumps({"message": "earlier lines are not stored"}))
            store.put(name, "".join(f"{line}\n" for line in lines).encode())
            stored[0] = lines[-1]

    def write_repeatedly() -> None:
        while not over.wait(WRITE_S):
            try:
                write()
            except Exception:  # noqa: BLE001 - the next write contains the same lines
                continue

    thread = threading.Thread(target=write_repeatedly, name="session log", daemon=True)
    thread.start()
    try:
        yield
    except BaseException as error:
        log.note(f"{type(error).__name__}: {first_line(error, 'the command was interrupted')}")
        raise
    finally:
        over.set()
        thread.join(JOIN_S)  # the store may not answer
        try:
            write()
        except (UserError, OSError) as error:
            log.warning(f"the session's log is not stored: {error}")


def read_logs(store: Store) -> Iterator[str]:
    """Yield the stored log lines of a run or sweep, session by session, as JSON objects.

    Raises `UserError` if no log is stored."""
    names = sorted(file.path for file in store.list(LOGS) if file.path.endswith(".jsonl"))
    if not names:
        fix = "name a run or sweep that this version of ace_ray has evaluated"
        raise UserError("has no stored log", where=store.root, fix=fix)
    for name in names:
        yield from (store.get(name) or b"").decode(errors="replace").split("\n")[:-1]


def log_text(line: str) -> Iterator[str]:
    """Yield ``line`` of a stored log as text: time, level and message, then indented the traceback
    and the last lines of an engine."""
    try:
        tree = json_object(line, LOGS)
    except UserError:  # another program may have written the file
        tree = {"message": line}
    yield " ".join(str(tree[key]) for key in ("time", "level", "message") if key in tree)
    for lines in (str(tree.get("traceback", "")).splitlines(), tree.get("engine_log")):
        yield from (f"    {text}" for text in (lines if isinstance(lines, list) else ()))
