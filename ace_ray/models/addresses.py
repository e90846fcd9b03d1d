"""Which hosts may be asked, and which addresses they may have.

A name's addresses are judged where the connection takes them from, so that a name cannot show one
address to a check and another to the connection.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from ace_ray.errors import UserError
from ace_ray.models.urls import HttpUrl, canonical_host, http_url, is_numeric

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
            found.append(f".{name}" if below else name)
        if not found:
            raise UserError("names no host", where=where, fix="list the hosts that may be asked")
        return cls(tuple(found), allow_http)

    def check(self, url: str) -> HttpUrl:
        """``url`` in its one spelling. Raises `Refused`: it has none, its host is not one of these,
        or it is not over HTTPS and the port that belongs to the scheme (any port over HTTP, where
        that is allowed at all)."""
        try:
            found = http_url(url)
        except ValueError as error:
            raise Refused(str(error)) from None
        if found.scheme != "https" and not self.allow_http:
            raise Refused("only https is asked")
        if found.port != 443 and not self.allow_http:
            raise Refused("only the port of https is asked")
        if not any(
            found.host.endswith(known) if known.startswith(".") else found.host == known
            for known in self.hosts
        ):
            raise Refused("its host is not on the list of hosts that may be asked")
        return found


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
        elif found not in _GLOBAL_UNICAST or found.scope_id:
            return False
    return not any(found in network for network in _NOT_PUBLIC)
