"""The files of recorded answers: upstream's, which are only read, and our own.

Upstream's layout is ``<category>/<tool>_for_<category>/<api>.json``, one object whose keys are
Python's text of the arguments. Our own files lie under ``ace_ray/answers`` in the same folder, one
per API: ``{"format": 1, "category", "tool", "api", "answers": {key: {"error", "response", "origin",
"by"}}}``, names as normalised; a key is the maker (``by``) and the canonical arguments, so that an
answer is kept for each simulator. A file is replaced as a whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.files import read_inside
from ace_ray.benchmarks.stabletoolbench.apis.values import Unusable, canonical_of_upstream, load
from ace_ray.errors import UserError
from ace_ray.records import digest

OWN = "ace_ray"
ANSWERS = f"{OWN}/answers"
TEMPORARY = f"{OWN}/tmp"
FORMAT = 1
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
class Shelf:
    """The recorded answers of one API: upstream key, or `own_key`, to an answer's JSON text.

    ``first`` is the first of our own keys of canonical arguments, whoever made the answer.
    ``problem`` says why its files cannot be used, naming the file relative to the cache.
    """

    recorded: dict[str, str] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    size_bytes: int = 1024
    _alike: dict[int, list[str]] | None = None

    def add(self, key: str, answer: str) -> None:
        """An answer of our own."""
        self.own[key] = answer
        self.first.setdefault(key[key.index("{") :], key)

    def find(self, key: str, upstream: str, maker: str, any_maker: bool = False) -> str | None:
        """An answer that ``maker`` or a real API gave, else upstream's under its exact key, else
        under one of equal value, else (``any_maker``) another maker's."""
        found = self.own.get(own_key(maker, key)) or self.own.get(key)
        found = found or self._of_upstream(key, upstream)
        if found is None and any_maker and key in self.first:
            return self.own[self.first[key]]
        return found

    def _of_upstream(self, key: str, upstream: str) -> str | None:
        found = self.recorded.get(upstream)
        if found is not None or not self.recorded:
            return found
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


def own_key(maker: str, arguments: str) -> str:
    """The key of an answer: its maker ("" for a real API), then the canonical arguments."""
    return maker + arguments


def recorded_sha256(root: Path, names: Iterable[Names]) -> str | None:
    """SHA-256 (hex) over upstream's files of these APIs, None without any. One that cannot be read
    counts as absent: `CacheFolder.check` names it."""
    found = []
    for place in sorted(filter(None, map(recorded_file, names))):
        with contextlib.suppress(UserError, OSError):
            if (raw := _read(root, place)) is not None:
                found.append([place, hashlib.sha256(raw).hexdigest()])
    return digest(found) if found else None


def recorded_file(names: Names) -> str | None:
    """Where upstream keeps an API's answers; None for names that no file of it can have."""
    category, tool, api = names
    if not all(map(_is_safe, names)):
        return None
    return f"{category}/{tool}_for_{category}/{api}.json" if category != OWN else None


def own_file(names: Names) -> str:
    """Where our own answers of an API lie. Total: names unfit for a file become a digest."""
    category, tool, api = (name if _is_safe(name) else f"_{digest(name)[:24]}" for name in names)
    return f"{ANSWERS}/{category}/{tool}/{api}.json"


def read_shelf(recorded: Path, own: Path, names: Names) -> Shelf:
    """All that is on record for an API. Never raises: what is wrong is the shelf's `problem`."""
    shelf = Shelf()
    place = recorded_file(names)
    try:
        if place and (raw := _read(recorded, place)) is not None:
            shelf.recorded = _recorded(raw, place)
            shelf.size_bytes += len(raw)
        place = own_file(names)
        if (raw := _read(own, place)) is not None:
            for key, answer in _own(raw, place, names).items():
                shelf.add(key, answer)
            shelf.size_bytes += len(raw)
    except (UserError, OSError) as error:
        what = error.what if isinstance(error, UserError) else error.strerror
        return Shelf(problem=f"{place}: {what}")
    return shelf


def write_shelf(root: Path, names: Names, answers: dict[str, str]) -> None:
    """Replace our own file of an API, durably. Raises `OSError`, and `UserError` for a link."""
    place = own_file(names)
    head = json.dumps(
        {"format": FORMAT, "category": names[0], "tool": names[1], "api": names[2]}, indent=0
    )
    body = ",\n".join(f"{json.dumps(key)}: {answer}" for key, answer in answers.items())
    text = f'{head[:-2]},\n"answers": {{\n{body}\n}}}}\n'
    if len(text) > MAX_FILE_BYTES:
        raise UserError(f"would have more than {MAX_FILE_BYTES:,} bytes", where=place)
    target = _made(root, place)
    temporary = _made(root, f"{TEMPORARY}/{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        with open(os.open(temporary, flags, 0o666), "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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
    tree = _object(raw, place)
    made = {"origin": "recorded", "by": ""}
    return {key: _text({**_answer(value), **made}) for key, value in tree.items()}


def _own(raw: bytes, place: str, names: Names) -> dict[str, str]:
    tree = _object(raw, place)
    answers = tree.get("answers")
    if tree.get("format") != FORMAT or not isinstance(answers, dict):
        raise UserError(f"is no file of answers in format {FORMAT}", where=place)
    if (tree.get("category"), tree.get("tool"), tree.get("api")) != names:
        raise UserError("holds the answers of another API", where=place)
    for value in answers.values():
        if not isinstance(value, dict) or set(value) != ANSWER_KEYS:
            raise UserError("holds an answer that is none of ace_ray's", where=place)
    if not all("{" in key for key in answers):
        raise UserError("holds an answer to no arguments", where=place)
    # A key without its maker is that of an earlier version.
    return {
        key if key[0] != "{" else own_key(str(value["by"]), key): _text(value)
        for key, value in answers.items()
    }


def _object(raw: bytes, place: str) -> dict[str, Any]:
    try:
        tree = load(raw.decode("utf-8"), MAX_FILE_BYTES, unique=True)
    except (Unusable, UnicodeDecodeError) as error:
        raise UserError(f"is not JSON that can be used: {error}", where=place) from None
    if not isinstance(tree, dict):
        raise UserError(f"holds a {type(tree).__name__}, not an object", where=place)
    return tree


def _answer(value: Any) -> dict[str, Any]:
    """One of upstream's answers. It stores whatever a simulator wrote, so each is judged alone."""
    if not isinstance(value, dict) or "error" not in value or "response" not in value:
        return {"corrupt": "an answer without error and response"}
    error = value["error"]
    said = "" if error is None else error if isinstance(error, str) else _text(error)
    return {"error": said, "response": value["response"]}


def _signature(key: str) -> int:
    return hash("".join(sorted(key)))


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
