"""The one spelling of a URL.

Two readers of a URL differ where it is spelled oddly: in which IDNA they know, in numbers that
stand for addresses, in dots and percent signs. Here a host is ASCII in one spelling, or refused; it
is the one that is connected to and given a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NETLOC = re.compile(r"(?:\[([^][]+)\]|([^][:]+))(?::([0-9]{0,5}))?")
_MAX_HOST = 253


@dataclass(frozen=True, slots=True)
class HttpUrl:
    """An absolute HTTP URL; ``target`` is path and query. As text it has no fragment."""

    scheme: str
    host: str
    port: int
    target: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.target}"


def http_url(text: str) -> HttpUrl:
    """``text`` in its one spelling. Raises `ValueError`, whose message does not show it: it is no
    HTTP URL, holds a user name, or `canonical_host` refuses its host."""
    if "\\" in text or not text.isprintable():
        raise ValueError("it holds characters that no URL has")
    try:
        parts = urlsplit(text)
    except ValueError:  # whose message shows the URL, and with it what may be a secret
        raise ValueError("it is no http(s) URL") from None
    if "@" in parts.netloc:
        raise ValueError("it holds a user name or a password")
    place = _NETLOC.fullmatch(parts.netloc)
    if parts.scheme not in _PORTS or place is None:
        raise ValueError("it is no http(s) URL")
    address, name, digits = place.groups()
    port = int(digits or _PORTS[parts.scheme])
    host = canonical_host(address or name)
    if not 0 < port < 1 << 16 or (":" in host) != bool(address):
        raise ValueError("it is no http(s) URL")
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    return HttpUrl(parts.scheme, host, port, target)


def canonical_host(host: str) -> str:
    """The one spelling of a host: a lower-case name, or an address in its usual notation.

    Raises:
        ValueError: it is none, or not ASCII: each IDNA version makes another name of such a host.
    """
    if not host.isascii():
        raise ValueError("its host is not ASCII: write its xn-- form")
    name = host.lower().removesuffix(".")
    if ":" in name:
        return _address(IPv6Address, name)
    if is_numeric(name):
        return _address(IPv4Address, name)
    if len(name) > _MAX_HOST or not all(map(_LABEL.fullmatch, name.split("."))):
        raise ValueError("its host is no name")
    return name


def is_numeric(host: str) -> bool:
    """Whether a host is an address, in any spelling, that no name server is asked about."""
    last = host.rstrip(".").rpartition(".")[2]
    return ":" in host or last.isdigit() or last.startswith("0x")


def _address(kind: type[IPv4Address | IPv6Address], text: str) -> str:
    try:
        if "%" in text:
            raise ValueError
        return str(kind(text))
    except ValueError:
        raise ValueError("its host is no address in its usual notation") from None
