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
)
_OF_KEYS = frozenset((
    "account", "admin", "anthropic", "auth", "aws", "azure", "client", "cloud", "deploy",
    "encryption", "gemini", "google", "hf", "host", "jwt", "master", "mistral", "openai",
    "openrouter", "provider", "service", "signing", "ssh", "storage", "subscription",
    "together", "user",
))  # fmt: skip
"""A name that ends in "key" behind one of these is one of a lock."""
_OF_TEXTS = frozenset((
    "a", "added", "and", "audio", "begin", "bos", "by", "cls", "end", "eos", "first", "image",
    "last", "mask", "max", "min", "next", "num", "of", "one", "or", "pad", "per", "sep",
    "special", "start", "stop", "the", "think", "tool", "unk", "video",
))  # fmt: skip
"""A name that ends in "token" behind one of these is one of a tokenizer."""
_PLACES = frozenset({"env", "file", "name", "path", "variable"})
"""A name that ends in one of these says where a secret is, not what."""

_SHAPES = re.compile(
    r"\b(?:sk|rk|pk)-[A-Za-z0-9_-]{16,200}"
    r"|\bhf_[A-Za-z0-9]{20,200}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\b(?:gh[oprsu]_|github_pat_|glpat-|xox[abprs]-|nvapi-|gsk_|AIza)[A-Za-z0-9_-]{16,200}"
    r"|\beyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{0,4000}"
    r"|\b(?:[Bb]earer|[Bb]asic) (?!realm)[A-Za-z0-9+/._~-]{12,4000}=*"
    r"|-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY-----"
)
_USER = re.compile(r"(?<=[A-Za-z0-9]://)[^/?#\s@]{1,1000}@")
_QUERY = re.compile(r"(?<=[?&;#])([^=&;#\s]{1,100})=([^&;#\s'\"]+)")
_FRAGMENT = re.compile(r"(?<![A-Za-z])(https?://[^\s#]{1,4000})#[^\s'\"]+", re.IGNORECASE)
_GIVEN = re.compile(
    r"(?<![\w.-])([\w.-]{2,100})(\s{0,3}=\s{0,3}[\"']?|[\"']\s{0,3}:\s{0,3}[\"'])([^\s\"',;&}]+)"
)
_OF_QUERIES = frozenset({"auth", "code", "key", "sig", "signature", "token", "xamzsignature"})


def is_secret_name(name: str) -> bool:
    """Whether what bears this name is likely a secret: ``openai_api_key``, ``apiKey``."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:200]).lower())
    if not words or words[-1] in _PLACES:
        return False
    if _SECRET.search("".join(words)):
        return True
    *before, last = words[:-1] if words[-1] == "id" and words[-2:-1] == ["key"] else words
    if last == "key":
        return not before or before[-1] in {"access", "api", "private", *_OF_KEYS}
    if last == "token":
        return not before or before[-1] not in _OF_TEXTS
    return words == ["auth"]


def secrets_in(node: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """(key, what it is) of all that looks like a secret in the JSON value ``node``."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            at = f"{where}.{key}" if where else str(key)
            given = bool(value) and not isinstance(value, Mapping | bool)
            if given and is_secret_name(str(key)):
                yield at, "looks like a secret"
            else:
                yield from secrets_in(value, at)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from secrets_in(value, f"{where}.{index}")
    elif isinstance(node, str):
        if _USER.search(node):
            yield where, "the address holds a user name or a password"
        elif _in_query(node):
            yield where, "the address holds a key in its query"
        elif _FRAGMENT.fullmatch(node.strip()):
            yield where, "the address holds a fragment, which no server is sent"
        elif _SHAPES.search(node):
            yield where, "looks like a secret"


def masked(text: str) -> str:
    """``text`` without what looks like a secret in it."""
    text = _USER.sub(f"{MASK}@", text)
    text = _FRAGMENT.sub(rf"\1#{MASK}", text)
    text = _QUERY.sub(_masked_query, text)
    text = _GIVEN.sub(_masked_value, text)
    return _SHAPES.sub(MASK, text)


def _in_query(text: str) -> bool:
    return "://" in text and any(_names_secret(name) for name, _ in _QUERY.findall(text))


def _names_secret(name: str) -> bool:
    plain = unquote_plus(name)
    return is_secret_name(plain) or re.sub(r"[^a-z]", "", plain.lower()) in _OF_QUERIES


def _masked_query(found: re.Match[str]) -> str:
    return f"{found[1]}={MASK}" if _names_secret(found[1]) else found[0]


def _masked_value(found: re.Match[str]) -> str:
    name = found[1].rpartition(".")[2]
    # Prose has short words behind such a name: KEY=VALUE.
    certain = len(found[3]) >= 8 or name.lower() not in ("key", "token", "auth")
    return f"{found[1]}{found[2]}{MASK}" if certain and is_secret_name(name) else found[0]
