"""Parse HTTP URLs, and accept only hosts that all libraries read in the same way.

Libraries read some hosts in different ways: non-ASCII names, addresses as plain numbers, names with
extra dots or percent signs. Here a host must be in ASCII and is converted to a canonical spelling.
Requests and API keys go to exactly this host."""

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
    """An absolute HTTP URL without a fragment. ``target`` is path and query."""

    scheme: str
    host: str
    port: int
    target: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.target}"


def http_url(text: str) -> HttpUrl:
    """Parse ``text``, and return the URL in canonical form.

    Raises `ValueError`: not an HTTP URL, a URL with a user name, or a host that `canonical_host`
    refuses. The error does not show the text."""
    if "\\" in text or not text.isprintable():
        raise ValueError("it contains characters that are not allowed in a URL")
    try:
        parts = urlsplit(text)
    except ValueError:  # its message shows the URL, which may hold a secret
        raise ValueError("it is not an http(s) URL") from None
    if "@" in parts.netloc:
        raise ValueError("it contains a user name or a password")
    place = _NETLOC.fullmatch(parts.netloc)
    if parts.scheme not in _PORTS or place is None:
        raise ValueError("it is not an http(s) URL")
    address, name, digits = place.groups()
    port = int(digits or _PORTS[parts.scheme])
    host = canonical_host(address or name)
    if not 0 < port < 1 << 16 or (":" in host) != bool(address):
        raise ValueError("it is not an http(s) URL")
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    return HttpUrl(parts.scheme, host, port, target)


def canonical_host(host: str) -> str:
    """Return a host in canonical form: a lower-case name, or an address in its usual notation.
    Raises `ValueError` if it is not valid, or not ASCII (IDNA versions convert it differently)."""
    if not host.isascii():
        raise ValueError("its host is not ASCII: write its xn-- form")
    name = host.lower().removesuffix(".")
    if ":" in name:
        return _address(IPv6Address, name)
    last = name.rstrip(".").rpartition(".")[2]
    if last.isdigit() or last.startswith("0x"):  # a resolver may read it as an address
        return _address(IPv4Address, name)
    if len(name) > _MAX_HOST or not all(map(_LABEL.fullmatch, name.split("."))):
        raise ValueError("its host is not a valid name")
    return name


def _address(kind: type[IPv4Address | IPv6Address], text: str) -> str:
    try:
        if "%" in text:
            raise ValueError
        return str(kind(text))
    except ValueError:
        raise ValueError("its host is not an address in the usual notation") from None
