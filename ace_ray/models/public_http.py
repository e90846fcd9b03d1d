"""HTTP to public addresses only, for hosts that a config allows; see also `http`.

The client resolves names itself, judges every address, and connects to those alone; it follows no
redirect, uses no proxy, keeps no cookie, and unpacks no compressed body.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ace_ray.models.addresses import Refused, check_addresses
from ace_ray.models.http import Client, read_body
from ace_ray.models.urls import HttpUrl, http_url, is_numeric

if TYPE_CHECKING:
    import aiohttp

Lookup = Callable[[str, int], Awaitable[list[str]]]
"""The IP addresses of a host."""
Judge = Callable[[list[str]], list[str]]
"""The addresses that may be connected to. Raises `Refused`."""
MAX_REQUESTS = 16
"""At a time; the others wait their turn, which their deadline does not count."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request to an allowed host; its addresses are the transport's to judge."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None
    timeout_s: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What came back; ``location`` is where a redirect points, "" elsewhere."""

    status: int
    body: bytes
    location: str = ""


class TransportFailed(Exception):
    """No reply. ``kind``: ``timeout``, ``too_large`` or ``failed``; no message has a secret."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


async def look_up(host: str, port: int) -> list[str]:
    """The host's addresses by the system's resolver. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class PublicHttp(Client):
    """A `Transport`.

    Args:
        lookup: how names become addresses.
        judge: which of them are connected to; replaced in tests, whose servers are local.
    """

    def __init__(self, lookup: Lookup = look_up, judge: Judge = check_addresses) -> None:
        self._lookup, self._judge = lookup, judge
        self._slots = asyncio.Semaphore(MAX_REQUESTS)

    async def fetch(self, request: HttpRequest) -> HttpReply:
        """The reply to ``request``. Raises `TransportFailed`, and `Refused` by the judge."""
        try:
            url = http_url(request.url)
        except ValueError as error:
            raise Refused(str(error)) from None
        if is_numeric(url.host):  # the client would connect without asking the resolver
            self._judge([url.host])
        async with self._slots:
            return await self._fetched(request, url)

    async def _fetched(self, request: HttpRequest, url: HttpUrl) -> HttpReply:
        import aiohttp
        from yarl import URL

        try:
            target = URL(str(url))
            # The client's reading decides where the connection goes.
            if (target.scheme, target.raw_host, target.port) != url.origin:
                raise Refused("its URL is read in two ways")
            async with self._connected().request(
                request.method,
                target,
                headers=dict(request.headers),
                data=request.body,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=request.timeout_s),
            ) as response:
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise TransportFailed("failed", "a compressed answer that nobody asked for")
                body = await read_body(response, request.max_bytes + 1)
                if len(body) > request.max_bytes:
                    raise TransportFailed(
                        "too_large", f"an answer of more than {request.max_bytes:,} bytes"
                    )
                location = response.headers.get("Location", "")
                return HttpReply(response.status, body, location)
        except TimeoutError:
            raise TransportFailed("timeout", "no end in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Not the client's message: it can name the URL, and with it an argument.
            raise TransportFailed("failed", f"no answer ({type(error).__name__})") from None

    def _connector(self) -> aiohttp.TCPConnector:
        import aiohttp
        from aiohttp.abc import AbstractResolver, ResolveResult

        lookup, judge = self._lookup, self._judge

        class Judged(AbstractResolver):
            async def resolve(
                self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
            ) -> list[ResolveResult]:
                return [
                    ResolveResult(
                        hostname=host,
                        host=address,
                        port=port,
                        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                        proto=0,
                        flags=socket.AI_NUMERICHOST,
                    )
                    for address in judge(await lookup(host, port))
                ]

            async def close(self) -> None:
                return

        return aiohttp.TCPConnector(limit=0, resolver=Judged(), use_dns_cache=False)
