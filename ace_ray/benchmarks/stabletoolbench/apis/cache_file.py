"""The files of recorded answers: upstream's, which are only read, and our own.

Upstream's layout is ``<category>/<tool>_for_<category>/<api>.json``, one object whose keys are
Python's text of the arguments. Our own files lie under ``ace_ray/answers`` in the same folder, one
per API, ``<category>/<tool>/<api>.jsonl``, names as normalised. The first line is ``{"format": 2,
"category", "tool", "api"}``; every other one is a key, a tab, and ``{"error", "response", "origin",
"by"}``. A key is the simulator's id (``by``, "" for a real API) and the canonical arguments, so
that an answer is kept for each simulator; of two with the same key the first counts.

Lines are appended. One without its end was cut off while it was written: readers pass over it, and
the next answer of the API takes its place. All else that is no such line makes the file corrupt.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.dataset import read_inside
from ace_ray.benchmarks.stabletoolbench.apis.values import Unusable, canonical_of_upstream, load
from ace_ray.errors import UserError
from ace_ray.records import digest

OWN = "ace_ray"
ANSWERS = f"{OWN}/answers"
FORMAT = 2
MAX_FILE_BYTES = 32 << 20
MAX_ANSWER_CHARS = 1 << 20
MAX_ALIKE = 64
"""Most keys of one file that are compared with a call's by value."""
ANSWER_KEYS = frozenset(("error", "response", "origin", "by"))
_SAFE = re.compile(r"[\w^%&+(][\w^%&+()., -]*")
_MAX_NAME_BYTES = 200

Names = tuple[str, str, str]
"""Category, tool and API, as normalised."""


@dataclass(slots=True)
class CacheFile:
    """The recorded answers of one API: upstream key, or `own_key`, to an answer's JSON text.

    ``first`` is the first of our own keys of canonical arguments, whoever made the answer. ``end``
    is how many bytes of our own file are whole lines, ``torn`` how many come behind them.
    ``problem`` says why its files cannot be used, naming the file relative to the cache.
    """

    recorded: dict[str, str] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    end: int = 0
    torn: int = 0
    problem: str = ""
    size_bytes: int = 1024
    _alike: dict[int, list[str]] | None = None

    def add(self, key: str, answer: str) -> None:
        """An answer of our own, unless there is one with its key."""
        self.own.setdefault(key, answer)
        self.first.setdefault(key[key.index("{") :], key)

    def find(
        self, key: str, upstream: str, simulator_id: str, any_simulator: bool = False
    ) -> str | None:
        """Upstream's answer under its exact key, else under one of equal value, else one that
        ``simulator_id`` or a real API gave, else (``any_simulator``) another simulator's.

        Upstream's come first because a run's identity holds them and none of ours: what a run has
        recorded must not change what the next one is answered."""
        answer = self._of_upstream(key, upstream)
        answer = answer or self.own.get(own_key(simulator_id, key)) or self.own.get(key)
        if answer is None and any_simulator and key in self.first:
            return self.own[self.first[key]]
        return answer

    def _of_upstream(self, key: str, upstream: str) -> str | None:
        answer = self.recorded.get(upstream)
        if answer is not None or not self.recorded:
            return answer
        # Python's texts of equal dicts are made of the same characters, in another order.
        if self._alike is None:
            self._alike = {}
            for text in self.recorded:
                alike = self._alike.setdefault(_signature(text), [])
                if len(alike) < MAX_ALIKE:
                    alike.append(text)
        for text in self._alike.get(_signature(upstream), ()):
            if canonical_of_upstream(text) == key:
                return self.recorded[text]
        return None


def own_key(simulator_id: str, arguments: str) -> str:
    """The key of an answer: its simulator_id ("" for a real API), then the canonical arguments."""
    return simulator_id + arguments


def recorded_sha256(root: Path, names: Iterable[Names]) -> str | None:
    """SHA-256 (hex) over upstream's files of these APIs, None without any. One that cannot be read
    counts as absent: `CacheFolder.check` names it."""
    hashes = []
    for place in sorted(filter(None, map(recorded_file, names))):
        with contextlib.suppress(UserError, OSError):
            if (raw := _read(root, place)) is not None:
                hashes.append([place, hashlib.sha256(raw).hexdigest()])
    return digest(hashes) if hashes else None


def recorded_file(names: Names) -> str | None:
    """Where upstream keeps an API's answers; None for names that no file of it can have."""
    category, tool, api = names
    if not all(map(_is_safe, names)):
        return None
    return f"{category}/{tool}_for_{category}/{api}.json" if category != OWN else None


def own_file(names: Names) -> str:
    """Where our own answers of an API lie. Total: names unfit for a file become a digest."""
    category, tool, api = (name if _is_safe(name) else f"_{digest(name)[:24]}" for name in names)
    return f"{ANSWERS}/{category}/{tool}/{api}.jsonl"


def read_cache_file(recorded: Path, own: Path, names: Names) -> CacheFile:
    """All that is on record for an API. Never raises: what is wrong is the file's `problem`."""
    cache_file = CacheFile()
    place = recorded_file(names)
    try:
        if place and (raw := _read(recorded, place)) is not None:
            cache_file.recorded = _recorded(raw, place)
            cache_file.size_bytes += len(raw)
        place = own_file(names)
        if (raw := _read(own, place)) is not None:
            cache_file.end = raw.rfind(b"\n") + 1
            cache_file.torn = len(raw) - cache_file.end
            for key, answer in _own(raw, place, names).items():
                cache_file.add(key, answer)
            cache_file.size_bytes += len(raw)
    except (UserError, OSError) as error:
        what = error.what if isinstance(error, UserError) else error.strerror
        return CacheFile(problem=f"{place}: {what}")
    return cache_file


def write_cache_file(
    root: Path, names: Names, answers: Mapping[str, str], end: int = 0, torn: int = 0
) -> int:
    """Append answers to our own file of an API, durably, in place of the ``torn`` bytes behind its
    first ``end``; both 0: it is made. Returns its new end.

    Raises `OSError`, with the file as it was up to ``end``, and `UserError` for a link, a file that
    would be too large, or one that another process has written.
    """
    place = own_file(names)
    lines = "".join(f"{key}\t{answer}\n" for key, answer in answers.items())
    raw = (lines if end else _head(names) + lines).encode("ascii")
    if end + len(raw) > MAX_FILE_BYTES:
        raise UserError(f"would have more than {MAX_FILE_BYTES:,} bytes", where=place)
    target = _made(root, place)
    file = os.open(target, os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        if os.fstat(file).st_size not in (end, end + torn):
            raise UserError("has been written by another process", where=place)
        try:
            os.ftruncate(file, end)
            left = memoryview(raw)
            while left:
                left = left[os.pwrite(file, left, end + len(raw) - len(left)) :]
            os.fsync(file)
            if not end:
                _sync(target.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(file, end)
            raise
    finally:
        os.close(file)
    return end + len(raw)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _is_safe(name: str) -> bool:
    fits = len(name.encode("utf-8", "replace")) <= _MAX_NAME_BYTES
    return fits and _SAFE.fullmatch(name) is not None and name == name.strip()


def _read(root: Path, place: str) -> bytes | None:
    if not os.path.lexists(root / place):
        return None
    return read_inside(root, place, MAX_FILE_BYTES)


def _made(root: Path, place: str) -> Path:
    """``root/place`` with its folders made; nothing on the way is a link."""
    path = root
    *folders, name = place.split("/")
    for part in folders:
        path = path / part
        path.mkdir(exist_ok=True)
        if path.is_symlink():
            raise UserError("is a symbolic link", where=place)
    return path / name


def _recorded(raw: bytes, place: str) -> dict[str, str]:
    try:
        tree = load(raw.decode("utf-8"), MAX_FILE_BYTES, unique=True)
    except (Unusable, UnicodeDecodeError) as error:
        raise UserError(f"is not JSON that can be used: {error}", where=place) from None
    if not isinstance(tree, dict):
        raise UserError(f"holds a {type(tree).__name__}, not an object", where=place)
    made = {"origin": "recorded", "by": ""}
    return {key: _text({**_answer(value), **made}) for key, value in tree.items()}


def _head(names: Names) -> str:
    category, tool, api = names
    line = {"format": FORMAT, "category": category, "tool": tool, "api": api}
    return f"{json.dumps(line)}\n"


def _own(raw: bytes, place: str, names: Names) -> dict[str, str]:
    head = _head(names).encode()
    if head.startswith(raw):  # it was cut off when it was made
        return {}
    if not raw.startswith(head):
        raise UserError(f"is no file of this API's answers in format {FORMAT}", where=place)
    answers: dict[str, str] = {}
    *lines, _ = raw[len(head) :].split(b"\n")
    for number, line in enumerate(lines, start=2):
        try:
            key, answer = _line(line.decode())
        except (Unusable, UnicodeDecodeError) as error:
            raise UserError(f"line {number} is no answer: {error}", where=place) from None
        answers.setdefault(key, answer)
    return answers


def _line(line: str) -> tuple[str, str]:
    key, _, answer = line.partition("\t")
    value = load(answer, MAX_ANSWER_CHARS, unique=True)
    if "{" not in key or not isinstance(value, dict) or set(value) != ANSWER_KEYS:
        raise Unusable("it is none of ace_ray's")
    return key, _text(value)


def _answer(value: Any) -> dict[str, Any]:
    """One of upstream's answers. It stores whatever a simulator wrote, so each is judged alone."""
    if not isinstance(value, dict) or "error" not in value or "response" not in value:
        return {"corrupt": "an answer without error and response"}
    error = value["error"]
    text = "" if error is None else error if isinstance(error, str) else _text(error)
    return {"error": text, "response": value["response"]}


def _signature(key: str) -> int:
    return hash("".join(sorted(key)))


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
