"""Find secrets, to refuse them in a config and to mask them in a text.

Secrets belong in the environment or in the platform's credential chain. A name is secret if it
contains certain words. A value is secret if it has the format of a provider's keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import unquote_plus

MASK = "***"

_SECRET = re.compile(
    r"api_?key|secret|passw(or)?d|passphrase|authorization|auth_header|bearer|credential|cookie"
    r"|(account|access|license|private|subscription)_?key|conn(ection)?_?str(ing)?\Z"
    r"|(\A|_)(auth|creds|dsn|jwt|pat|pwd)\Z"
    r"|(access|api|auth|bot|deploy|github|gitlab|hf|hub|refresh|sas|security|session|slack|user|wandb)"
    r"_?token\Z|\A(token|key)\Z|_key\Z"
)
# Names of places that contain a secret (such as a file), and of keys that are not secret.
_NO_SECRET = re.compile(
    r"_(env|file|name|path|variable)\Z"
    r"|(answer|cache|first|foreign|group|index|partition|primary|public|row|sort)_?key\Z"
)
# Maximum number of words of a name. A longer name is other text, such as a prompt.
MOST_WORDS = 8

# Matched only at the beginning of a word.
_SHAPES = re.compile(
    r"\b(?:(?:sk|rk|pk)-[A-Za-z0-9_-]{16,200}"
    r"|(?:(?:sk|rk|pk)_(?:live|test)_|whsec_|tvly-|ya29\.|xapp-|dop_v1_)[A-Za-z0-9_-]{16,200}"
    r"|(?:npm_|r8_|hf_)[A-Za-z0-9]{20,200}"
    r"|(?:csk|pplx|xai)-[A-Za-z0-9]{32,200}|AGE-SECRET-KEY-[A-Z0-9-]{40,200}"
    r"|(?:pypi-|tgp_v1_|wandb_v1_)[A-Za-z0-9_-]{30,400}"
    # Mixed case and a maximum length: a name or a commit may follow these letters, too.
    r"|fw_(?=[a-z0-9]{0,28}[A-Z])(?=[A-Za-z]{0,28}[0-9])[A-Za-z0-9]{20,28}\b"
    # A key of W&B looks like a commit, so its name must be near.
    r"|(?i:(?<=wandb[=:])|(?<=wandb: )|(?<=wandb[. ]login[ =:])|(?<=wandb.login: )"
    r"|(?<=wandb.login\(['\"]))[0-9a-f]{40}\b"
    r"|hooks\.slack\.com/services/[A-Za-z0-9/]{16,200}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|(?:gh[oprsu]_|github_pat_|glpat-|xox[abprs]-|nvapi-|gsk_|AIza)[A-Za-z0-9_-]{16,200}"
    r"|eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{0,4000}"
    r"|(?:[Bb]earer|[Bb]asic) (?!realm)[A-Za-z0-9+/._~-]{12,4000}=*)"
    r"|-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
)
# A password may contain characters that would end the host in another part of a URL.
_USER = re.compile(
    r"(?<=[A-Za-z0-9]://)[^/?#\s@]{1,1000}@"
    r"|(?<=//)[^/?#\s@:]{0,100}:(?!\d{1,5}(?:[/?#\s]|\Z))[^\s@]{1,100}@"
)
_QUERY = re.compile(r"(?<=[?&;#])([^=&;#\s]{1,100})=([^&;#\s'\"]+)")
_ASSIGNED = re.compile(
    r"(?<![\w.-])([\w.-]{2,100})([\"']?\s{0,3}[=:][ \t]{0,3}[\"']?)([^\s\"',;&{}\[\]]+)"
)
_HEADER = re.compile(
    r"(?<![\w.-])((?:[a-z]{1,20}-){0,2}(?:authorization|cookie))([\"']?\s{0,3}[:=]\s{0,3}[\"']?)([^\r\n\"']+)",
    re.IGNORECASE,
)
_NO_VALUES = frozenset({"false", "none", "null", "true"})
# Code that reads a secret. Letters only, since secrets have digits.
_CODE = re.compile(r"[A-Za-z_]{1,40}(?:\.[A-Za-z_]{1,40}){0,4}[()]|(?:os|self)\.[a-z_]{1,40}\Z")
# Further names, in letters only, that are secret in the query of a URL.
_QUERY_NAMES = frozenset({"auth", "code", "key", "sig", "signature", "token", "xamzsignature"})


def is_secret_name(name: str) -> bool:
    """Return whether a value with this name is probably secret (``openai_api_key``, ``apiKey``)."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:200]).lower())
    plain = "_".join(words).removesuffix("_id")
    if len(words) > MOST_WORDS or _NO_SECRET.search(plain):
        return False
    return _SECRET.search(plain) is not None


def secrets_in(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key, description) for each value in the JSON ``node`` that looks like a secret."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            name = str(key)
            at = f"{path}.{mask_secrets(name)}" if path else mask_secrets(name)
            if value and not isinstance(value, bool) and is_secret_name(name):
                yield at, "looks like a secret"
            else:
                yield from secrets_in(name, at)
                yield from secrets_in(value, at)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from secrets_in(value, f"{path}.{index}")
    elif isinstance(node, str):
        assigned = _ASSIGNED.fullmatch(node)
        if _USER.search(node):
            yield path, "the URL contains a user name or a password"
        elif "://" in node and any(_is_secret_key(name) for name, _ in _QUERY.findall(node)):
            yield path, "the URL contains a key in its query"
        elif _SHAPES.search(f"{path}: {node}") or (assigned and _mask_value(assigned) != node):
            yield path, "looks like a secret"


def mask_secrets(text: str) -> str:
    """Return ``text`` with `MASK` in place of each part that looks like a secret."""
    text = _USER.sub(f"{MASK}@", text)
    text = _QUERY.sub(lambda m: f"{m[1]}={MASK}" if _is_secret_key(m[1]) else m[0], text)
    text = _HEADER.sub(rf"\1\2{MASK}", text)
    text = _ASSIGNED.sub(_mask_value, text)
    return _SHAPES.sub(MASK, text)


def mask_key(text: str, key: str | None) -> str:
    """Return ``text`` with `MASK` in place of each spelling of ``key``: as it is, or with any of
    its characters quoted as in a URL, in JSON or in HTML."""
    spellings = (
        rf"(?:\\{{0,3}}(?:{re.escape(sign)}|{re.escape(escape(sign))}|u(?i:{ord(sign):04x}))"
        rf"|%(?:25){{0,3}}(?i:{ord(sign):02x})|&#0*(?:{ord(sign)}|(?i:x0*{ord(sign):x}));)"
        for sign in key or ""
    )
    return re.sub("".join(spellings), MASK, text) if key else text


def _is_secret_key(name: str) -> bool:
    plain = unquote_plus(name)
    return is_secret_name(plain) or re.sub(r"[^a-z]", "", plain.lower()) in _QUERY_NAMES


def _mask_value(match: re.Match[str]) -> str:
    """Mask the value of an assignment if its name is secret. After a colon, or after a bare name
    such as ``key``, keep a word or short value: ``the key: see below``, ``KEY=VALUE``."""
    name, between, value = match.groups()
    name = name.rpartition(".")[2]
    bare = name.lower().strip("_") in ("auth", "key", "pat", "token")
    is_word = len(value) < 8 or re.fullmatch(r"[A-Za-z_]+[.!?]?", value)
    if (
        not is_secret_name(name)
        or value.lower().rstrip("):") in _NO_VALUES
        or ((bare or ":" in between) and is_word)
        or ((bare or between == " = ") and _CODE.match(value))
    ):
        return match[0]
    return f"{match[1]}{between}{MASK}"
