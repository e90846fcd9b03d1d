"""Made-up answers, the same for the same call: for tests and the quickstart.

A published ``template_response`` gives the shape, with type names as leaves; arguments fill the
leaves of their own name, everything else comes from a seeded hash of API and arguments.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.stabletoolbench.apis.answers import Answered
from ace_ray.benchmarks.stabletoolbench.apis.values import Unusable, canonical_key, load
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.records import digest

MAX_LEAVES, MAX_ITEMS, MAX_LEVELS = 500, 3, 24
_MAX_TEMPLATE = 1 << 18
_LIST_OF = re.compile(r"list of (\w+) with length ([0-9]{1,9})")
_LENGTH = "_list_length"


def stub_answer(api: Api, arguments: Any, seed: int) -> Answered:
    """A deterministic answer in the shape of the API's template; a neutral one without."""
    template = api.template
    if isinstance(template, str):
        template = _mended(template)
    if template in (None, "", {}, []):
        return Answered("", {"status": "ok"}, "stub")
    names = [api.std_category, api.std_tool, api.std_api]
    stem = digest(seed, names, canonical_key(arguments))
    return Answered("", _Filler(stem, arguments).value(template, "", "", 0), "stub")


class _Filler:
    def __init__(self, stem: str, arguments: Any) -> None:
        self._stem, self._left = stem, MAX_LEAVES
        self._given = {
            _plain(name): value
            for name, value in (arguments.items() if isinstance(arguments, Mapping) else ())
            # Answers are stored as JSON, which has neither NaN nor infinities.
            if (isinstance(value, (str, int)) or (type(value) is float and math.isfinite(value)))
            and _plain(name)
        }

    def value(self, template: Any, name: str, path: str, level: int) -> Any:
        if level > MAX_LEVELS or self._left <= 0:
            return None
        if isinstance(template, dict):
            filled = {}
            for key, item in template.items():
                if key != _LENGTH and self._left > 0:
                    filled[key] = self.value(item, key, f"{path}/{key}", level + 1)
            return filled
        if isinstance(template, list):
            return self._list(template, name, path, level)
        self._left -= 1
        return self._leaf(template, name, path)

    def _list(self, template: list[Any], name: str, path: str, level: int) -> list[Any]:
        first = template[0] if template else None
        if len(template) == 1 and isinstance(first, dict) and isinstance(first.get(_LENGTH), int):
            template = [first] * max(0, min(first[_LENGTH], MAX_ITEMS))
        return [
            self.value(item, name, f"{path}/{index}", level + 1)
            for index, item in enumerate(template[:MAX_ITEMS])
        ]

    def _leaf(self, kind: Any, name: str, path: str) -> Any:
        if not isinstance(kind, str):
            return kind if isinstance(kind, (int, float)) else None
        if several := _LIST_OF.fullmatch(kind):
            count = min(int(several[2]), MAX_ITEMS)
            return [self._leaf(several[1], name, f"{path}/{index}") for index in range(count)]
        if kind in ("str", "int", "float", "bool") and _plain(name) in self._given:
            return self._given[_plain(name)]
        drawn = int(
            hashlib.sha256(f"{self._stem}{path}".encode("utf-8", "replace")).hexdigest(), 16
        )
        match kind:
            case "str":
                return f"{name or 'text'} {drawn % 16**6:06x}"[:80]
            case "int":
                return drawn % 10_000
            case "float":
                return drawn % 1_000_000 / 100
            case "bool":
                return drawn % 2 == 0
            case "list" | "empty list":
                return []
            case "dict" | "empty dict":
                return {}
            case "NoneType":
                return None
        return kind[:80]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def _mended(text: str) -> Any:
    """The value of a template's JSON text. Upstream cut those at 1,000 characters, so one that is
    cut counts up to its last whole value."""
    try:
        return load(text, _MAX_TEMPLATE)
    except Unusable:
        pass
    if len(text) > 4096:
        return None
    closers: list[str] = []
    ends: list[tuple[int, str]] = []
    for match in re.finditer(r'"(?:[^"\\]|\\.)*+"|[\[\]{},]', text, re.DOTALL):
        token = match[0]
        if token in "[{":
            closers.append("]" if token == "[" else "}")
        elif token in "]}":
            if not closers or closers.pop() != token:
                return None
            ends.append((match.end(), "".join(reversed(closers))))
        elif token == ",":
            ends.append((match.start(), "".join(reversed(closers))))
    for end, missing in reversed(ends[-8:]):
        try:
            return json.loads(text[:end] + missing)
        except (ValueError, RecursionError):
            continue
    return None
