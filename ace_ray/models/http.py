"""HTTP within bounds: of time, and of how much of an answer is read.

`Http` asks services that a config names, `PublicHttp` hosts that a config allows, at public
addresses only, and `endpoint` models.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol
from urllib.request import getproxies, proxy_bypass

from ace_ray.models.urls import HttpUrl, Refused, check_addresses, http_url, is_numeric

if TYPE_CHECKING:
    import aiohttp

CONNECT_S = 10.0
MAX_REQUESTS = 16
"""Of a `PublicHttp` at a time; the others wait their turn, which their deadline does not count."""
Lookup = Callable[[str, int], Awaitable[list[str]]]
"""The IP addresses of a host."""
Judge = Callable[[list[str]], list[str]]
"""The addresses that may be connected to. Raises `Refused`."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None
    timeout_s: float
    max_bytes: int
    """Of the answer's body; no more is read."""
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends one request, without following redirects."""

    async def fetch(self, request: HttpRequest) -> Reply: ...


class TransportFailed(Exception):
    """No reply. ``kind``: ``timeout``, ``too_large`` or ``failed``; no message has a secret."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


class Client:
    """An HTTP session, opened by the first request. One per process and event loop; ``close`` it.

    It follows no redirect, which would carry a key to a place that nobody named, keeps no cookie,
    and unpacks nothing: a few compressed bytes could unpack to gigabytes.
    """

    _session: aiohttp.ClientSession | None = None

    async def _sent(
        self, request: HttpRequest, *, proxy: str | None, connect_s: float = CONNECT_S
    ) -> Reply:
        """The reply, its body cut at ``max_bytes``. Raises as aiohttp does."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        total_s = request.timeout_s
        async with self._session.request(
            request.method,
            request.url,
            params=request.params or None,
            data=request.body,
            headers=dict(request.headers),
            timeout=aiohttp.ClientTimeout(total=total_s, sock_connect=min(connect_s, total_s)),
            proxy=proxy,
            allow_redirects=False,
        ) as response:
            body = bytearray()
            async for chunk in response.content.iter_chunked(1 << 16):
                body += chunk
                if len(body) >= request.max_bytes:
                    response.close()
                    break
            return Reply(response.status, response.headers, bytes(body[: request.max_bytes]))

    def _connector(self) -> aiohttp.TCPConnector:
        import aiohttp

        return aiohttp.TCPConnector(limit=0)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


class Http(Client):
    """A `Transport` for services that a config names."""

    def __getstate__(self) -> dict[str, Any]:
        return {"_session": None}

    async def fetch(self, request: HttpRequest) -> Reply:
        """The answer, of whose body at most ``max_bytes`` are read. Raises `OSError`, which
        `TimeoutError` is, where there is none."""
        import aiohttp

        try:
            url = http_url(request.url)
        except ValueError as error:
            raise OSError(f"not asked: {error}") from None
        try:
            return await self._sent(replace(request, url=str(url)), proxy=proxy_of(url))
        except TimeoutError:
            raise
        except aiohttp.ClientError as error:
            raise OSError(str(error) or type(error).__name__) from error


def proxy_of(url: HttpUrl) -> str | None:
    """The proxy that the environment names for ``url``."""
    return None if proxy_bypass(url.host) else getproxies().get(url.scheme)


async def look_up(host: str, port: int) -> list[str]:
    """The host's addresses by the system's resolver. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in addresses))


class PublicHttp(Client):
    """A `Transport` to public addresses: it resolves names itself, judges every address, connects
    to those alone, and uses no proxy.

    Args:
        lookup: how names become addresses.
        judge: which of them are connected to; replaced in tests, whose servers are local.
    """

    def __init__(self, lookup: Lookup = look_up, judge: Judge = check_addresses) -> None:
        self._lookup, self._judge = lookup, judge
        self._slots = asyncio.Semaphore(MAX_REQUESTS)

    async def fetch(self, request: HttpRequest) -> Reply:
        """The reply to ``request``. Raises `TransportFailed`, and `Refused` by the judge."""
        import aiohttp
        from yarl import URL

        try:
            url = http_url(request.url)
        except ValueError as error:
            raise Refused(str(error)) from None
        if is_numeric(url.host):  # the client would connect without asking the resolver
            self._judge([url.host])
        try:
            async with self._slots:
                target = URL(str(url))
                # The client's reading decides where the connection goes.
                if (target.scheme, target.raw_host, target.port) != url.origin:
                    raise Refused("its URL is read in two ways")
                asked = replace(request, url=str(url), max_bytes=request.max_bytes + 1)
                reply = await self._sent(asked, proxy=None, connect_s=request.timeout_s)
        except TimeoutError:
            raise TransportFailed("timeout", "no end in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Not the client's message: it can name the URL, and with it an argument.
            raise TransportFailed("failed", f"no answer ({type(error).__name__})") from None
        if reply.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise TransportFailed("failed", "an answer that is compressed without being asked to")
        if len(reply.body) > request.max_bytes:
            raise TransportFailed(
                "too_large", f"an answer of more than {request.max_bytes:,} bytes"
            )
        return reply

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
