"""Compare values with gold's under ``strict``: wordings of what the user said, and values that
nobody asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ace_ray.types import Entry

# Maximum number of words that a value may have beyond gold's, and that a phrase of the user may.
_MORE_WORDS, _MORE_IN_PHRASE = 8, 20
# A word, or one character of a language that writes no blanks between words.
_WORD = re.compile(r"[a-z0-9]+|[^\W_]")
# Words in parameters' names that say nothing about the value.
_FILLERS = frozenset(["user", "include", "consider", "enable", "enabled", "is", "has", "offers"])
# Letters of words in parameters' names that occur in many texts: time, date, type, name.
_SHORT = 4
_NAME_PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
# A question, and a clause about a value that the user will tell later.
_NO_REQUEST = re.compile(
    r"(?i)\bshould (?:i|we)\b[^.?!]*\?"
    r"|(?:^|(?<=[.?!,;]))[^.?!,;]*\bi(?: wi|['’])ll (?:provide|give|send)\b[^.?!,;]*"
)
_PLACE = re.compile("location|destination|city|place", re.IGNORECASE)
_QUANTITY = re.compile(
    r" (one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half|both|dozen"
    r"|(?<!\d )(?:hundred|thousand|million|billion)|hours?|days?|daily|weeks?|weekly|months?"
    "|monthly|years?|decade|am|pm|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|january|february"
    "|march|april|june|july|august|september|october|november|december"
    "|[零一二两三四五六七八九十百千半年月周天日时]) "
)
_SCALES = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9}
_NEGATION = re.compile(
    " (no|not|don|doesn|isn|never|without|except|skip|avoid|only|neither|nor) | exclud|[不无没别]"
)
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d{1,20})?|\d{1,300}(?:\.\d{1,20})?")
_BLANK = re.compile(r"""[\s_'"]""")
_IGNORED = re.compile(r"[-.,/*^](?!\d)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# The first or last time of a day.
_DAY_BOUND = re.compile(r"t(?:00:00(?::00)?|23:59(?::59)?)$")
_ZONE = re.compile(r"(?<=\dt)(\d\d:\d\d(?::\d\d)?)(?:z|[+-]\d\d:\d\d)$")


class Conversation:
    """The messages that a normal row's answer is about.

    ACEBench's gold values are not the only right wording of what a user said, and some were said by
    nobody."""

    def __init__(self, entry: Entry) -> None:
        messages = str(entry.data.get("question"))
        users = re.sub(r"(?ms)^system:.*?(?=^user:|\Z)", " ", messages)
        self._user_words = _words(users)
        self._requests = _words(_NO_REQUEST.sub(" ", users))
        self._profile = str(entry.data.get("profile", "")).casefold()
        self._text = _words(messages) + _words(self._profile)
        digits = _NUMBER.findall(messages + self._profile)
        scales = [1.0, *(scale for word, scale in _SCALES.items() if f" {word} " in self._text)]
        self._numbers = {scale * float(n.replace(",", "")) for n in digits for scale in scales}
        self._starts = {word[:4] for word in self._text.split()}
        if " at least " in self._text:
            self._starts |= {"or", "more"}

    def asks_for(self, param: str, gold: Mapping[str, Any]) -> bool:
        """Return whether the user asks for an optional parameter of a gold call.

        The user's messages contain the value, which no other parameter has, or they mention the
        parameter, and the value is True or in the user's profile."""
        value = gold[param]
        words = [_words_of(leaf) for leaf in _leaves(value)]
        other_args = _words(str([arg for name, arg in gold.items() if name != param]))
        if all(w.strip() and w in self._user_words and w not in other_args for w in words):
            return True
        in_profile = value is True or all(self._in_profile(leaf) for leaf in _leaves(value))
        return in_profile and self.mentions(param)

    def mentions(self, param: str) -> bool:
        """Return whether the user names a parameter, but not in a question ("should I ...?"), and
        not as a value to come ("the email I will provide")."""
        name = {part.lower() for part in _NAME_PART.findall(param)} - _FILLERS
        return all(f" {part}" in self._requests for part in name)

    def declines(self, param: str) -> bool:
        """Return whether the user says a negation and a word of an option's name."""
        parts = [part.lower() for part in _NAME_PART.findall(param)]
        names = [part.removesuffix("s") for part in parts if len(part) >= _SHORT]
        has_name = any(f" {part}" in self._user_words for part in names)
        return has_name and _NEGATION.search(self._user_words) is not None

    def touches(self, names: Sequence[str]) -> bool:
        """Return whether a longer word of parameters' names begins a word of the user: "specific
        chapters" is about ``start_chapter``."""
        parts = {part.lower() for name in names for part in _NAME_PART.findall(name)}
        return any(len(part) > _SHORT and f" {part}" in self._user_words for part in parts)

    def _in_profile(self, value: Any) -> bool:
        """Return whether the user's profile has a string or a number, and not only in a longer
        one."""
        text = f"{value:.15g}" if is_number(value) else value
        if not (isinstance(text, str) and text):
            return False
        pattern = rf"(?<!\w){re.escape(text.casefold())}(?!\w)"
        return re.search(pattern, self._profile) is not None

    def tells(self, value: float) -> bool:
        """Return whether the text has a number in digits, in per cent or in words. "1200 million"
        tells 1200 and 1.2e9, but no other number."""
        told = value in self._numbers or round(100 * value, 9) in self._numbers
        return told or _QUANTITY.search(self._text) is not None

    def agrees(self, param: str, value: Any, gold: Any, schema: Any) -> bool:
        """Return whether a value of the type of ``gold`` is equal to ``gold``.

        Texts are equal without letter case, blanks and punctuation, unless the schema lists them as
        an enumeration. A text is also right if it has gold's words, and other words of the
        conversation, such as a unit; a place may have its country, and a date the first or last
        time of its day."""
        if isinstance(gold, dict):
            inner = mapping_at(schema, "properties")
            return value.keys() == gold.keys() and all(
                self.agrees(key, value[key], item, inner.get(key)) for key, item in gold.items()
            )
        if isinstance(gold, list):
            inner = mapping_at(schema, "items")
            return len(value) == len(gold) and all(
                self.agrees(param, *pair, inner) for pair in zip(value, gold, strict=True)
            )
        if value == gold:
            return True
        if not isinstance(gold, str) or gold in enumeration(schema):
            return False
        if _plain(value) == _plain(gold):
            return True
        if _DATE.fullmatch(gold) and _DAY_BOUND.sub("", _plain(value)) == gold:
            return True
        if _PLACE.search(param) and _plain(value.partition(",")[0]) == _plain(gold):
            return True
        words, gold_words = _words(value), _words(gold)
        if not gold_words.strip():
            return False
        # "reefs" has the word "reef", but "50" does not have "5".
        start = gold_words if gold_words[-2:-1].isdecimal() else gold_words.rstrip()
        before, overlap, after = words.partition(start)
        more = f"{before} {after}".split()
        return bool(
            overlap
            and _plain(gold) in _plain(value)
            and len(more) <= (_MORE_IN_PHRASE if words in self._user_words else _MORE_WORDS)
            and all(word[:4] in self._starts or len(word) == 1 for word in more)
        )


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the values nested in containers, without empty containers, null and False, which no
    user states."""
    if value and isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _words_of(value: Any) -> str:
    """Return the words of a string or number; none for other values and for long numbers."""
    if is_number(value):
        value = f"{value:.15g}" if abs(value) < 1e15 else ""
    return _words(value) if isinstance(value, str) else ""


def enumeration(schema: Any) -> Sequence[Any]:
    values = schema.get("enum") if isinstance(schema, dict) else None
    return values if isinstance(values, list) else ()


def _words(text: str) -> str:
    """Return the words of a text in lower case, with a blank before and after each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def _plain(text: str) -> str:
    return _ZONE.sub(r"\1", _IGNORED.sub("", _BLANK.sub("", text.casefold())))


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def mapping_at(schema: Any, key: str) -> Mapping[str, Any]:
    inner = schema.get(key) if isinstance(schema, dict) else None
    return inner if isinstance(inner, dict) else {}
