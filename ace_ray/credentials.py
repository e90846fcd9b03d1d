"""What looks like a secret: refused in a config, masked in a text.

A secret belongs in the environment, or in the platform's own chain of credentials. Names are judged
by their words, values by the shapes that providers give their keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_plus

MASK = "***"

_SECRET = re.compile(
    r"apikey|secret|passw(?:or)?d|passphrase|pwd\Z|authorization|bearer|credential|cookie"
    r"|accesskey|privatekey|authtoken|accesstoken|securitytoken|sessiontoken|refreshtoken"
    r"|authheader"
)
_ALONE = frozenset({"cred", "creds", "jwt", "otp", "pat", "pw", "sas"})
"""Last words that mean a secret whatever is before them."""
_PUBLIC_KEYS = frozenset((
    "a", "an", "and", "answer", "any", "arrow", "bad", "cache", "column", "composite", "config",
    "correct", "data", "dict", "down", "duplicate", "each", "empty", "enter", "every", "extra",
    "first", "foreign", "function", "gold", "group", "hash", "idempotency", "index", "input",
    "is", "join", "json", "known", "last", "left", "lookup", "map", "message", "meta", "missing",
    "name", "natural", "new", "next", "no", "object", "of", "old", "one", "option", "or", "order",
    "other", "output", "parent", "partition", "press", "prompt", "public", "primary", "question",
    "required", "response", "result", "right", "routing", "row", "score", "shard", "sort", "sorted",
    "state", "surrogate", "text", "that", "the", "this", "tool", "unexpected", "unique", "unknown",
    "up", "which", "wrong", "yaml",
))  # fmt: skip
"""A name that ends in "key" is one of a lock, but behind one of these."""
_WORDS_IN_KEY = frozenset(
    ("donkey", "hockey", "hotkey", "jockey", "keykey", "monkey", "turkey", "whiskey")
)
_OF_TEXTS = frozenset((
    "a", "added", "and", "audio", "begin", "bos", "by", "cls", "end", "eos", "first", "image",
    "last", "mask", "max", "min", "next", "num", "of", "one", "or", "pad", "per", "sep",
    "special", "start", "stop", "the", "think", "tool", "unk", "video",
))  # fmt: skip
"""A name that ends in "token" behind one of these is one of a tokenizer."""
MOST_WORDS = 8
"""Words of a name at most; what has more is a text, such as a prompt that replies are found by."""
_PLACES = frozenset({"env", "file", "name", "path", "variable"})
"""A name that ends in one of these says where a secret is, not what."""

# Tried at the beginnings of words alone: a checkout that is sent has millions of characters.
_SHAPES = re.compile(
    r"\b(?:(?:sk|rk|pk)-[A-Za-z0-9_-]{16,200}"
    r"|(?:(?:sk|rk|pk)_(?:live|test)_|whsec_|tvly-|ya29\.|xapp-|dop_v1_)[A-Za-z0-9_-]{16,200}"
    r"|(?:npm_|r8_)[A-Za-z0-9]{30,200}"
    r"|pypi-[A-Za-z0-9_-]{30,400}"
    r"|SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}"
    r"|hooks\.slack\.com/services/[A-Za-z0-9/]{16,200}"
    r"|hf_[A-Za-z0-9]{20,200}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|(?:gh[oprsu]_|github_pat_|glpat-|xox[abprs]-|nvapi-|gsk_|AIza)[A-Za-z0-9_-]{16,200}"
    r"|eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{0,4000}"
    r"|(?:[Bb]earer|[Bb]asic) (?!realm)[A-Za-z0-9+/._~-]{12,4000}=*)"
    r"|-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
)
# A port ends an address's host; a password may hold what ends one elsewhere.
_USER = re.compile(
    r"(?<=[A-Za-z0-9]://)"
    r"(?:[^/?#\s@]{1,1000}@|[^/?#\s@:]{0,100}:(?!\d{1,5}(?:[/?#\s]|\Z))[^\s@]{1,100}@)"
)
_QUERY = re.compile(r"(?<=[?&;#])([^=&;#\s]{1,100})=([^&;#\s'\"]+)")
_FRAGMENT = re.compile(r"(?<![A-Za-z])(https?://[^\s#]{1,500})#[^\s'\"]+", re.IGNORECASE)
_GIVEN = re.compile(
    r"(?<![\w.-])([\w.-]{2,100})(\s{0,3}=\s{0,3}[\"']?|[\"']\s{0,3}:\s{0,3}[\"'])([^\s\"',;&}]+)"
)
# A header or a line of YAML; behind a dot it is a key of ours in a message.
_COLON = re.compile(
    r"(?<![\w.-])([A-Za-z][\w-]{1,100})(\s{0,3}:[ \t]{1,3}[\"']?)([^\s\"',;&{}\[\]]+)"
)
_FLAG = re.compile(r"(?<!\S)--?([A-Za-z][\w-]{1,100})([ \t]{1,3})([^\s-]\S*)")
_LINE = re.compile(
    r"(?<![\w.-])((?:[a-z]{1,20}-){0,2}(?:authorization|cookie))([\"']?\s{0,3}[:=]\s{0,3}[\"']?)([^\r\n\"']+)",
    re.IGNORECASE,
)
_OF_NOBODY = frozenset({"false", "http", "none", "null", "true"})
"""Values that are no secret's whatever is before them: ``HTTP 401`` follows the name of a variable
in messages of ours."""
_OF_QUERIES = frozenset({"auth", "code", "key", "sig", "signature", "token", "xamzsignature"})


def is_secret_name(name: str) -> bool:
    """Whether what bears this name is likely a secret: ``openai_api_key``, ``apiKey``."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:200]).lower())
    if not words or len(words) > MOST_WORDS or words[-1] in _PLACES:
        return False
    if _SECRET.search("".join(words)):
        return True
    *before, last = words[:-1] if words[-1] == "id" and words[-2:-1] == ["key"] else words
    if last in _ALONE:
        return True
    if last == "key":
        return not before or before[-1] not in _PUBLIC_KEYS
    if last.endswith("key"):
        return last not in _WORDS_IN_KEY and last[:-3] not in _PUBLIC_KEYS
    if last == "token":
        return not before or before[-1] not in _OF_TEXTS
    return words == ["auth"]


def secrets_in(node: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """(key, what it is) of all that looks like a secret in the JSON value ``node``."""
    if isinstance(node, Mapping):
        if _pairs(node.get("name", node.get("key", node.get("header"))), node.get("value")):
            yield where, "looks like a secret"
        for key, value in node.items():
            name = str(key)
            at = f"{where}.{masked(name)}" if where else masked(name)
            if _pairs(name, value):
                yield at, "looks like a secret"
            else:
                yield from secrets_in(name, at)
                yield from secrets_in(value, at)
    elif isinstance(node, list | tuple):
        if len(node) == 2 and _pairs(*node):
            yield where, "looks like a secret"
        for index, value in enumerate(node):
            yield from secrets_in(value, f"{where}.{index}")
    elif isinstance(node, str):
        if _USER.search(node):
            yield where, "the address holds a user name or a password"
        elif _in_query(node):
            yield where, "the address holds a key in its query"
        elif _FRAGMENT.fullmatch(node.strip()):
            yield where, "the address holds a fragment, which no server is sent"
        elif _SHAPES.search(node) or _given(node):
            yield where, "looks like a secret"


def _pairs(name: Any, value: Any) -> bool:
    """Whether ``value``, of any kind, is given to a secret's name."""
    given = bool(value) and not isinstance(value, bool)
    return given and isinstance(name, str) and is_secret_name(name)


def _given(text: str) -> bool:
    """Whether all of ``text`` gives a value to a secret's name: ``X-Api-Key: abc``."""
    match = _COLON.fullmatch(text) or _FLAG.fullmatch(text) or _GIVEN.fullmatch(text)
    return match is not None and _is_no_word(match[3]) and is_secret_name(match[1])


def holds_shape(text: str) -> bool:
    """Whether what has the shape of a provider's key is anywhere in ``text``."""
    return _SHAPES.search(text) is not None


def masked(text: str) -> str:
    """``text`` without what looks like a secret in it."""
    text = _USER.sub(f"{MASK}@", text)
    text = _FRAGMENT.sub(rf"\1#{MASK}", text)
    text = _QUERY.sub(_masked_query, text)
    text = _LINE.sub(rf"\1\2{MASK}", text)
    for pattern in (_GIVEN, _COLON):
        text = pattern.sub(_masked_value, text)
    text = _FLAG.sub(_masked_flag, text)
    return _SHAPES.sub(MASK, text)


def _in_query(text: str) -> bool:
    return "://" in text and any(_names_secret(name) for name, _ in _QUERY.findall(text))


def _names_secret(name: str) -> bool:
    plain = unquote_plus(name)
    return is_secret_name(plain) or re.sub(r"[^a-z]", "", plain.lower()) in _OF_QUERIES


def _masked_query(match: re.Match[str]) -> str:
    return f"{match[1]}={MASK}" if _names_secret(match[1]) else match[0]


def _masked_value(match: re.Match[str]) -> str:
    if match[3].rstrip(".:!?)").lower() in _OF_NOBODY:
        return match[0]
    name = match[1].rpartition(".")[2]
    # Prose has short words behind such a name: KEY=VALUE.
    certain = len(match[3]) >= 8 or name.lower() not in ("key", "token", "auth")
    if match.re is _COLON:
        bare = name.lower() in ("key", "token", "auth")
        certain = bool(
            len(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)) > 1
            or (_is_no_word(match[3]) and not bare)
            # As an environment variable: PASSWORD, MYKEY.
            or (name.isupper() and re.search(r"[A-Za-z]", match[3]) and re.search(r"\d", match[3]))
            or (len(match[3]) >= 16 and any(map(str.isdigit, match[3])))
        )
    return f"{match[1]}{match[2]}{MASK}" if certain and is_secret_name(name) else match[0]


def _masked_flag(match: re.Match[str]) -> str:
    flag = match[0].removesuffix(match[3])
    return f"{flag}{MASK}" if is_secret_name(match[1]) else match[0]


def _is_no_word(text: str) -> bool:
    return len(text) >= 8 and re.fullmatch(r"[A-Za-z]+[.!?]?", text) is None
