"""What a GGUF file says about itself, in well under a second and without reading its weights.

The ``gguf`` package's own reader takes many seconds: it visits every tensor.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ace_ray.errors import UserError

_SCALARS = dict(enumerate(("B", "b", "H", "h", "I", "i", "f", "?"))) | {10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_LIMIT_BYTES = 1 << 28


def read_header(path: Path) -> dict[str, Any]:
    """The metadata of a GGUF file by key. Raises `UserError` when it cannot be read."""
    try:
        with path.open("rb") as file:
            magic, version, _, count = struct.unpack("<4sIQQ", file.read(24))
            if magic != b"GGUF" or version not in (2, 3):
                raise ValueError(f"version {version} is not known")
            return {_text(file): _value(file, _number(file, "I")) for _ in range(count)}
    except (OSError, ValueError, KeyError, struct.error, RecursionError) as error:
        raise UserError(
            f"its metadata cannot be read: {error}", where=str(path), fix="fetch the file again"
        ) from error


class FewestTokens:
    """The fewest tokens of a GGUF file's vocabulary that spell a text.

    A lower bound of what its tokenizer makes, a few percent below it, without building one: the
    rules for splitting a text before it is tokenized are not in the file. 0 for vocabularies of
    another kind than "gpt2" (spelled in bytes) and "llama" (spelled in characters).
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        self._kind = header.get("tokenizer.ggml.model")
        tokens = {token for token in header.get("tokenizer.ggml.tokens", []) if token}
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


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _TEXT:
        return _text(file)
    if kind == _ARRAY:
        inner, length = _number(file, "I"), _number(file, "Q")
        if inner in _SCALARS:
            form = f"<{length}{_SCALARS[inner]}"
            return list(struct.unpack(form, _bytes(file, struct.calcsize(form))))
        return [_value(file, inner) for _ in range(length)]
    return _number(file, _SCALARS[kind])


def _number(file: BinaryIO, form: str) -> Any:
    return struct.unpack(f"<{form}", _bytes(file, struct.calcsize(form)))[0]


def _text(file: BinaryIO) -> str:
    return _bytes(file, _number(file, "Q")).decode("utf-8", "replace")


def _bytes(file: BinaryIO, size: int) -> bytes:
    # A damaged length must not ask for all memory.
    raw = file.read(min(size, _LIMIT_BYTES))
    if len(raw) != size:
        raise ValueError("the file is cut off or damaged")
    return raw
