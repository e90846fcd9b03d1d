"""What a GGUF file says about itself, in well under a second and without reading its weights.

The ``gguf`` package's own reader takes many seconds: it visits every tensor.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ace_ray.errors import UserError
from ace_ray.models.size_names import parameters_named

T = TypeVar("T")

_SCALARS = dict(enumerate(("B", "b", "H", "h", "I", "i", "f", "?"))) | {10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
VOCABULARY = "tokenizer.ggml.tokens"
SIZE_LABEL = "general.size_label"
MOST_PARAMETERS = 1 << 53
MOST_KEYS = 1 << 16
MOST_TEXTS = 4_000_000
"""Texts in the header, those that are passed over included: each takes a step of its own."""
MOST_TOKENS = 1 << 20
MOST_TEXT_BYTES = 1 << 24
MOST_VOCABULARY_BYTES = 1 << 26
MOST_HELD_BYTES = 1 << 27
"""Of all texts that are kept, the keys included."""
MOST_TOKEN_CHARS = 1024
MOST_TENSORS = 1 << 16
MOST_DIMENSIONS = 4
MOST_LENGTHS = 512
"""Of tokens that end alike; more would make `FewestTokens.count` slow."""


def read_header(path: Path, keep: Sequence[str] = (VOCABULARY,)) -> dict[str, Any]:
    """The metadata of a GGUF file by key; of arrays only those named in ``keep``.

    Takes no more memory than a large vocabulary does, whatever the file says of itself. Raises
    `UserError` when it cannot be read.
    """
    return _read(path, keep, lambda header: header.values())


def read_parameters(path: Path) -> tuple[int | None, str]:
    """How many parameters a GGUF file has, and the size label in it, "" for none.

    The number is that of its tensors, an output matrix that repeats the embedding included where
    the file holds both: so many numbers are loaded. Of a file that holds a part of the tensors only
    it is what the metadata says, else what the label or the file's name does; None where no one
    says. Raises `UserError` when it cannot be read.
    """
    values, elements = _read(path, (), lambda header: (header.values(), header.elements()))
    label, stated = values.get(SIZE_LABEL), values.get("general.parameter_count")
    label = label if isinstance(label, str) else ""
    in_parts = values.get("split.count", 1) != 1
    if elements and not in_parts:
        return elements, label
    if isinstance(stated, int) and 0 < stated <= MOST_PARAMETERS:
        return stated, label
    return parameters_named(label) or parameters_named(path.stem), label


def check_whole(path: Path) -> None:
    """Raise `UserError` when the GGUF file at ``path`` cannot be read or ends before its tensors
    do."""
    _read(path, (), lambda header: (header.values(), header.elements()))


def _read(path: Path, keep: Sequence[str], get: Callable[[_Header], T]) -> T:
    try:
        with path.open("rb") as file:
            return get(_Header(file, keep))
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise UserError(
            f"its metadata cannot be read: {error}", where=str(path), fix="fetch the file again"
        ) from error


class _Header:
    """Read from front to back: `values`, then `elements`."""

    def __init__(self, file: BinaryIO, keep: Sequence[str]) -> None:
        self._file, self._keep = file, keep
        self._size = os.fstat(file.fileno()).st_size
        self._texts = self._held = self._tensors = 0

    def values(self) -> dict[str, Any]:
        magic, version, self._tensors, count = struct.unpack("<4sIQQ", self._bytes(24))
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"version {version} is not known")
        if count > MOST_KEYS:
            raise ValueError(f"it has more than {MOST_KEYS} keys")
        values: dict[str, Any] = {}
        for _ in range(count):
            key, kind = self._text(), self._number("I")
            value = self._array(key) if kind == _ARRAY else self._scalar(kind)
            if value is not None:
                values[key] = value
        return values

    def elements(self) -> int:
        """Count the numbers of all tensors. Raises `ValueError`: the file ends before they do."""
        if self._tensors > MOST_TENSORS:
            raise ValueError(f"it has more than {MOST_TENSORS} tensors")
        total = data = 0
        for _ in range(self._tensors):
            self._skip(self._number("Q"))  # its name
            dimensions = self._number("I")
            if dimensions > MOST_DIMENSIONS:
                raise ValueError(f"a tensor has more than {MOST_DIMENSIONS} dimensions")
            count = math.prod(struct.unpack(f"<{dimensions}Q", self._bytes(8 * dimensions)))
            total += count
            self._skip(4)  # its type: none has less than one bit a number
            data = max(data, self._number("Q") + count // 8)
        if total > MOST_PARAMETERS:
            raise ValueError(f"it has more than {MOST_PARAMETERS} parameters")
        if data > self._size - self._file.tell():
            raise ValueError(_CUT)
        return total

    def _scalar(self, kind: int) -> Any:
        return self._text() if kind == _TEXT else self._number(_SCALARS[kind])

    def _array(self, key: str) -> list[Any] | None:
        kind, length = self._number("I"), self._number("Q")
        kept = key in self._keep
        if kept and length > MOST_TOKENS:
            raise ValueError(f"{key} has more than {MOST_TOKENS} items")
        if kind == _TEXT:
            return self._texts_of(key, length, kept)
        form = _SCALARS[kind]
        if kept:
            # No bytes are asked for that the file does not have.
            raw = self._bytes(length * struct.calcsize(f"<{form}"))
            return list(struct.unpack(f"<{length}{form}", raw))
        self._skip(length * struct.calcsize(f"<{form}"))
        return None

    def _texts_of(self, key: str, length: int, kept: bool) -> list[str] | None:
        self._count(length)
        if not kept:
            for _ in range(length):
                self._skip(self._number("Q"))
            return None
        texts, total = [], 0
        for _ in range(length):
            text = self._text(counted=True)
            total += len(text)
            if total > MOST_VOCABULARY_BYTES:
                raise ValueError(f"{key} has more than {MOST_VOCABULARY_BYTES >> 20} MiB")
            texts.append(text)
        return texts

    def _count(self, texts: int) -> None:
        self._texts += texts
        if self._texts > MOST_TEXTS:
            raise ValueError(f"it has more than {MOST_TEXTS} texts")

    def _number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self._bytes(struct.calcsize(f"<{form}")))[0]

    def _text(self, *, counted: bool = False) -> str:
        if not counted:
            self._count(1)
        size = self._number("Q")
        if size > MOST_TEXT_BYTES:
            raise ValueError(f"it has a text of more than {MOST_TEXT_BYTES >> 20} MiB")
        self._held += size
        if self._held > MOST_HELD_BYTES:
            raise ValueError(f"its texts have more than {MOST_HELD_BYTES >> 20} MiB")
        return self._bytes(size).decode("utf-8", "replace")

    def _bytes(self, size: int) -> bytes:
        if size > self._size - self._file.tell():
            raise ValueError(_CUT)
        raw = self._file.read(size)
        if len(raw) != size:
            raise ValueError(_CUT)
        return raw

    def _skip(self, size: int) -> None:
        if size > self._size - self._file.tell():
            raise ValueError(_CUT)
        self._file.seek(size, os.SEEK_CUR)


_CUT = "the file is cut off or damaged"


class FewestTokens:
    """The fewest tokens of a GGUF file's vocabulary that spell a text.

    A lower bound of what its tokenizer makes, a few percent below it, without building one: the
    rules for splitting a text before it is tokenized are not in the file. 0 for vocabularies of
    another kind than "gpt2" (spelled in bytes) and "llama" (spelled in characters).
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        self._kind = header.get("tokenizer.ggml.model")
        listed = header.get(VOCABULARY)
        tokens = {
            token
            for token in (listed if isinstance(listed, list) else ())
            if isinstance(token, str)
        } - {""}
        if self._kind == "gpt2":
            # Added tokens stand in the file as plain text.
            tokens |= {self._spelled(token) for token in tokens if "<" in token}
        else:
            # A space may be put before a text, and before each piece of it.
            tokens |= {token[1:] for token in tokens if token.startswith(_SPACE)}
        self._tokens = tokens
        self._longest = max(map(len, tokens), default=1)
        self._lengths: dict[str, set[int]] = {}
        for token in tokens:
            self._lengths.setdefault(token[-1:], set()).add(len(token))
        if self._longest > MOST_TOKEN_CHARS or any(
            len(lengths) > MOST_LENGTHS for lengths in self._lengths.values()
        ):
            self._kind = None  # of no vocabulary that is known

    def count(self, text: str, limit: int) -> int:
        """The fewest tokens that spell ``text``; ``limit`` if there are at least as many."""
        if self._kind not in ("gpt2", "llama"):
            return 0
        spelled = self._spelled(text)
        fewest = [0]
        for end in range(1, len(spelled) + 1):
            # One step a character is always possible: unknown ones become at least one token.
            best = fewest[end - 1]
            for length in self._lengths.get(spelled[end - 1], ()):
                start = end - length
                if start >= 0 and fewest[start] < best and spelled[start:end] in self._tokens:
                    best = fewest[start]
            fewest.append(best + 1)
            if end % 64 == 0 and min(fewest[-self._longest :]) >= limit:
                return limit
        return min(fewest[-1], limit)

    def _spelled(self, text: str) -> str:
        if self._kind != "gpt2":
            return text.replace(" ", _SPACE)
        safe = text.encode("utf-8", "replace")
        return "".join(map(_BYTES.__getitem__, safe))


def _byte_alphabet() -> list[str]:
    """GPT-2's character for every byte: itself where it is printable, else one from 256 on."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]


_BYTES = _byte_alphabet()
_SPACE = "\u2581"
