"""Read untrusted JSON with limits on size, depth and number of values, and read the user's YAML.

`json_tree` returns plain values: finite numbers, strings of valid Unicode, and nothing cyclic."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, takewhile
from typing import Any

import yaml
from pydantic import ValidationError

from ace_ray.errors import UserError
from ace_ray.util.sanitizing import replace_surrogates

# Maximum bytes of a JSON file. A value takes up to about 70 bytes of memory.
MOST_BYTES = 8 << 20
MOST_VALUES = 1_000_000
MOST_DEPTH = 64
MOST_ROW_BYTES = 256 << 20
MOST_ROW_VALUES = 2_000_000
# Maximum depth of JSON in a row, since recursive functions build the pages that show it.
MOST_ROW_DEPTH = 200
# Maximum characters that are shown of one string, and of all strings in one JSON value.
SHOWN_CHARS = 1 << 20
# Maximum values that are shown of one JSON value. Each is a line or a card of a page.
SHOWN_VALUES = 20_000
_MOST_INTEGER = 1 << 64


class InvalidContent(ValueError):
    """The content is not valid, or exceeds a limit. The message is the reason in a few words."""


def json_tree(content: bytes | str) -> Any:
    """Parse ``content`` as JSON. Lone surrogates become U+FFFD. Raises `InvalidContent` if it is
    not JSON, or too large, too deep, or has a number that is not finite or exceeds 64 bits."""
    return to_plain_json(parse_limited_json(content, MOST_BYTES, MOST_VALUES), finite=True)


def parse_limited_json(content: bytes | str, most_bytes: int, most_values: int) -> Any:
    """Parse JSON of at most ``most_bytes`` bytes and ``most_values`` values. Raises
    `InvalidContent` if ``content`` is larger or is not JSON."""
    if len(content) > most_bytes:
        raise InvalidContent(f"is larger than {most_bytes >> 20} MiB")
    try:
        text = content if isinstance(content, str) else content.decode("utf-8", "surrogatepass")
        # Each value except the first follows one of these characters.
        if len(text) > most_values and sum(map(text.count, ",[{")) > most_values:
            raise InvalidContent(f"has more than {most_values} values")
        return json.loads(text.removeprefix("\ufeff"))
    except InvalidContent:
        raise
    except RecursionError as error:
        raise InvalidContent(_DEEP) from error
    except ValueError as error:
        raise InvalidContent("is not JSON") from error


def json_of_row(text: str | None) -> Any:
    """Parse a JSON column of a row. Unlike `json_tree`, keep infinite numbers and lone surrogates,
    since a model may have written them. Raises `InvalidContent` if it is not JSON or too large."""
    if not isinstance(text, str):
        raise InvalidContent("is not a string")
    tree = parse_limited_json(text, MOST_ROW_BYTES, MOST_ROW_VALUES)
    if text.count("[") + text.count("{") > MOST_ROW_DEPTH:
        check_depth(tree, MOST_ROW_DEPTH)
    return tree


def json_object(content: bytes | str, location: str) -> dict[str, Any]:
    """Parse the content of the file ``location`` as a JSON object. Raises `UserError` if it is not
    a valid object (`json_tree`)."""
    fix = "name an intact run"
    try:
        tree = json_tree(content)
    except InvalidContent as error:
        raise UserError(str(error), where=location, fix=fix) from error
    if not isinstance(tree, dict):
        raise UserError("is not a JSON object", where=location, fix=fix)
    return tree


def yaml_tree(text: str) -> Any:
    """Parse ``text`` as YAML or JSON. Raises `InvalidContent` if it is neither, or too large."""
    if text.lstrip()[:1] == "{":
        try:
            return json_tree(text)
        except InvalidContent:
            pass  # a YAML mapping may begin with a brace, too; errors of YAML are better
    try:
        # Infinite numbers are allowed here. The fields of a config check them and name the key.
        return to_plain_json(yaml.load(text, _Loader), finite=False)
    except InvalidContent:
        raise
    except RecursionError as error:
        raise InvalidContent(_DEEP) from error
    # PyYAML raises many kinds: a date may be out of range, a key unhashable, a tag may not fit.
    except Exception as error:
        raise InvalidContent(f"is not YAML{_yaml_problem(error)}") from error


def _yaml_problem(error: Exception) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or not problem:
        return f": {' '.join(str(error).split())[:300]}"
    if "'\\t'" in problem:
        problem = "a tab, but YAML is indented with spaces"
    return f" in line {mark.line + 1}, column {mark.column + 1}: {problem}"[:300]


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys, since PyYAML silently uses the last, and aliases
    that repeat too much text or contain themselves."""

    _repeated_chars = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        is_alias, before = self.check_event(yaml.AliasEvent), self._repeated_chars
        node: Any = super().compose_node(parent, index)
        if is_alias:  # an unfinished node contains this alias
            self._repeated_chars += getattr(node, "chars", MOST_VALUES + 1)
            if self._repeated_chars > MOST_VALUES:  # a value has a character or more
                raise InvalidContent(f"repeats more than {MOST_VALUES} characters by aliases")
        else:
            length = node.end_mark.index - node.start_mark.index
            node.chars = length + self._repeated_chars - before
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line, name = key.start_mark.line + 1, (key.tag, key.value)
                if name in first:
                    lines = f"in line {first[name]} and in line {line}"
                    raise InvalidContent(f"names {key.value[:80]!r} twice, {lines}")
                first[name] = line
        return node


def to_plain_json(value: Any, *, finite: bool, depth: int = 0) -> Any:
    """Convert a parsed ``value`` to plain JSON values. Raises `InvalidContent` if it is too deep,
    has an integer of more than 64 bits or, with ``finite``, a number that is not finite."""
    if depth > MOST_DEPTH:
        raise InvalidContent(_DEEP)
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, dict):
        return {
            replace_surrogates(key) if isinstance(key, str) else key: to_plain_json(
                child, finite=finite, depth=depth + 1
            )
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [to_plain_json(item, finite=finite, depth=depth + 1) for item in value]
    if finite and isinstance(value, float) and not math.isfinite(value):
        raise InvalidContent("contains a number that is not finite")
    if isinstance(value, int) and not -_MOST_INTEGER < value < _MOST_INTEGER:
        raise InvalidContent("contains a whole number of more than 64 bits")
    return value


def check_depth(value: Any, max_depth: int) -> None:
    """Raise `InvalidContent` if ``value`` is nested deeper than ``max_depth`` levels."""
    level: list[Any] = [[value]]
    for _ in range(max_depth + 2):
        children = (node.values() if isinstance(node, dict) else node for node in level)
        nodes = chain.from_iterable(children)
        level = [node for node in nodes if isinstance(node, dict | list)]
    if level:
        raise InvalidContent(f"is nested deeper than {max_depth} levels")


def shorten_json(value: Any, chars: int = SHOWN_CHARS, values: int = SHOWN_VALUES) -> Any:
    """Shorten a JSON ``value`` to at most ``values`` values, ``chars`` characters in total, and
    `SHOWN_CHARS` characters per string. Notes state how many characters and values are omitted."""
    return _DisplayBudget(values, chars).shorten_value(value)


@dataclass(slots=True)
class _DisplayBudget:
    """The number of values and characters that may still be shown."""

    values: int
    chars: int

    def shorten_value(self, value: Any) -> Any:
        self.values -= 1
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            items = [self.shorten_value(item) for item in takewhile(self.has_budget, value)]
            left_out = len(value) - len(items)
            return [*items, f"[{left_out:,} more values]"] if left_out else items
        if isinstance(value, dict):
            pairs = {
                self.text(key) if isinstance(key, str) else key: self.shorten_value(item)
                for key, item in takewhile(self.has_budget, value.items())
            }
            left_out = len(value) - len(pairs)
            return {**pairs, "...": f"[{left_out:,} more values]"} if left_out else pairs
        if isinstance(value, int) and value.bit_length() > 64:
            self.chars -= value.bit_length() // 3
        return value

    def text(self, text: str) -> str:
        head = text[: min(SHOWN_CHARS, max(0, self.chars))]
        self.chars -= len(head)
        left_out = len(text) - len(head)
        return f"{head} [{left_out:,} more characters]" if left_out else text

    def has_budget(self, _: Any) -> bool:
        return self.values > 0 and self.chars > 0


_DEEP = f"is nested deeper than {MOST_DEPTH} levels"


# 1980-01-01, in place of an unknown time in formats that require one, and 2999-12-31, in seconds.
# Other tools cannot read times before 1970 or after 2999.
_UNKNOWN_S, _LAST_S = 315_532_800.0, 32_503_593_600.0


def bounded_time(value: object, after_s: float = 0.0) -> datetime:
    """Return ``value``, a time or its ISO 8601 text, plus ``after_s`` seconds, in UTC. ``value``
    is limited to 1970..2999, ``after_s`` to ten years. An invalid ``value`` counts as 1980."""
    start_s = _UNKNOWN_S
    with suppress(ValueError):
        began = datetime.fromisoformat(value[:64]) if isinstance(value, str) else value
        if isinstance(began, datetime):
            start_s = began.replace(tzinfo=began.tzinfo or UTC).timestamp()
    start_s = min(max(0.0, start_s), _LAST_S)
    return datetime.fromtimestamp(start_s + min(max(0.0, after_s), 3653 * 86_400.0), UTC)


def first_problem(error: ValidationError) -> str:
    """Return the first problem of pydantic's ``error`` as ``key.path: problem``."""
    first = error.errors(include_input=False, include_url=False)[0]
    problem = "is not an object" if first["type"] == "model_type" else str(first["msg"]).lower()
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), problem)))
