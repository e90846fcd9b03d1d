"""Which hosts may be asked, and which addresses they may have.

A name's addresses are judged where the connection takes them from, so that a name cannot show one
address to a check and another to the connection.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from ace_ray.errors import UserError

_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")


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
        found = []
        for host in hosts:
            name = _ascii(host.removeprefix(".").removesuffix("."))
            if not _is_host(name) or (host.startswith(".") and "." not in name):
                raise UserError(
                    f"{host!r:.80} is no host",
                    where=where,
                    fix="write a name alone, as api.example.org, or .example.org for all below it",
                )
            found.append(f".{name}" if host.startswith(".") else name)
        if not found:
            raise UserError("names no host", where=where, fix="list the hosts that may be asked")
        return cls(tuple(found), allow_http)

    def check(self, url: str) -> str:
        """The host of ``url``. Raises `Refused`: not one of these, or not over HTTPS and the port
        that belongs to the scheme (any port over HTTP, where that is allowed at all)."""
        try:
            parts = urlsplit(url)
            port, host = parts.port, _ascii((parts.hostname or "").rstrip("."))
        except ValueError:
            raise Refused("it has no URL that can be asked") from None
        if parts.scheme != "https" and not (self.allow_http and parts.scheme == "http"):
            raise Refused("only https is asked")
        if "@" in parts.netloc or "\\" in url or not url.isprintable():
            raise Refused("it has no URL that can be asked")
        if port not in (None, 443) and not self.allow_http:
            raise Refused("only the port of https is asked")
        if not any(
            host.endswith(known) if known.startswith(".") else host == known for known in self.hosts
        ):
            raise Refused("its host is not on the list of hosts that may be asked")
        return host


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
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif found not in _GLOBAL_UNICAST or found.scope_id or found.sixtofour or found.teredo:
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def is_numeric(host: str) -> bool:
    """Whether a host is an address, in any spelling, that no name server is asked about."""
    last = host.rstrip(".").rpartition(".")[2]
    return ":" in host or last.isdigit() or last.startswith("0x")


def _is_host(name: str) -> bool:
    """Whether it is a name or an address and nothing more, such as a port."""
    try:
        return all(name.split(".")) and (":" not in name or bool(ipaddress.IPv6Address(name)))
    except ValueError:
        return False


def _ascii(host: str) -> str:
    """The host as it is looked up; "" for one that no name server knows."""
    try:
        name = host.lower() if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return ""
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789-._:")
    return name if name and set(name) <= allowed else ""
