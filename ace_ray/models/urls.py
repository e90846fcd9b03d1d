"""Which hosts may be asked, which addresses they may have, and the one spelling of a URL.

Two readers of a URL differ where it is spelled oddly: in which IDNA they know, in numbers that
stand for addresses, in dots and percent signs. Here a host is ASCII in one spelling, or refused; it
is the one that is checked, connected to and given a key. A name's addresses are judged where the
connection takes them from, so that a name cannot show one address to a check and another to the
connection.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

from ace_ray.errors import UserError

_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NETLOC = re.compile(r"(?:\[([^][]+)\]|([^][:]+))(?::([0-9]{0,5}))?")
_MAX_HOST = 253
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        (
            # All of IANA's special-purpose registries: not those alone that are unreachable from
            # afar, since none of these is a place where an API lives.
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24"),
            *("192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            # Multicast; reserved, and broadcast.
            *("224.0.0.0/4", "240.0.0.0/4"),
            # Azure's host agent, which hands out a machine's secrets. Other clouds have theirs in
            # ranges above.
            "168.63.129.16/32",
            # What of IPv6's registry lies in global unicast: Teredo and other protocols,
            # documentation, 6to4, AS112.
            *("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class HttpUrl:
    """An absolute HTTP URL; ``target`` is path and query. As text it has no fragment."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: two URLs are the same server's where these are equal."""
        return self.scheme, self.host, self.port

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


class Refused(Exception):
    """A request that may not be made; the message names no secret."""


@dataclass(frozen=True, slots=True)
class AllowList:
    """Hosts by name (``api.example.org``) or by suffix (``.example.org``: all below it).

    Raises `UserError` for an entry that is neither.
    """

    hosts: tuple[str, ...]
    allow_http: bool = False

    @classmethod
    def of(cls, hosts: Sequence[str], where: str, *, allow_http: bool = False) -> AllowList:
        names = []
        for host in hosts:
            below = host.startswith(".")
            try:
                name = canonical_host(host.removeprefix("."))
                if below and ("." not in name or is_numeric(name)):
                    raise ValueError("it is no domain")
            except ValueError as error:
                raise UserError(
                    f"{host!r:.80} is no host: {error}",
                    where=where,
                    fix="write a name alone, as api.example.org, or .example.org for all below it",
                ) from None
            names.append(f".{name}" if below else name)
        if not names:
            raise UserError("names no host", where=where, fix="list the hosts that may be asked")
        return cls(tuple(names), allow_http)

    def check(self, url: str) -> HttpUrl:
        """``url`` in its one spelling. Raises `Refused`: it has none, its host is not one of these,
        or it is not over HTTPS and the port that belongs to the scheme (any port over HTTP, where
        that is allowed at all)."""
        try:
            parsed = http_url(url)
        except ValueError as error:
            raise Refused(str(error)) from None
        if parsed.scheme != "https" and not self.allow_http:
            raise Refused("only https is asked")
        if parsed.port != 443 and not self.allow_http:
            raise Refused("only the port of https is asked")
        if not any(
            parsed.host.endswith(host) if host.startswith(".") else parsed.host == host
            for host in self.hosts
        ):
            raise Refused("its host is not on the list of hosts that may be asked")
        return parsed


def check_addresses(addresses: Sequence[str]) -> list[str]:
    """The addresses of a host, all public. Raises `Refused` when one is not, or there is none."""
    if not addresses:
        raise Refused("its host has no address")
    if not all(map(is_public, addresses)):
        raise Refused("its host has an address that is not public")
    return list(addresses)


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet's. IPv6 ways around an IPv4 address (NAT64,
    6to4, Teredo) are none, as they can lead to a private one."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip not in _GLOBAL_UNICAST or ip.scope_id:
            return False
    return not any(ip in network for network in _NOT_PUBLIC)
