"""HTTP requests to services that a config names, and what every client of ours has in common.

The other clients are `endpoint`, for models, and `public_http`, for public addresses only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies, proxy_bypass

from ace_ray.models.urls import HttpUrl, http_url

if TYPE_CHECKING:
    import aiohttp

CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """An HTTP session, opened by the first request. One per process and event loop; ``close`` it.

    It keeps no cookie, and unpacks nothing: a few compressed bytes could unpack to gigabytes.
    """

    _session: aiohttp.ClientSession | None = None

    def _connected(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session

    def _connector(self) -> aiohttp.TCPConnector:
        import aiohttp

        return aiohttp.TCPConnector(limit=0)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


class Http(Client):
    """Sends requests, and follows no redirect."""

    def __getstate__(self) -> dict[str, Any]:
        return {"_session": None}

    async def __call__(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str],
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
        max_bytes: int,
    ) -> Reply:
        """The answer, of whose body at most ``max_bytes`` are read. Raises `OSError`, which
        `TimeoutError` is, where there is none."""
        import aiohttp

        try:
            target = http_url(url)
        except ValueError as error:
            raise OSError(f"not asked: {error}") from None
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(CONNECT_S, timeout_s))
        try:
            async with self._connected().request(
                method,
                str(target),
                params=params or None,
                data=body,
                headers=dict(headers),
                timeout=timeout,
                proxy=proxy_of(target),
                allow_redirects=False,
            ) as response:
                content = await read_body(response, max_bytes)
                return Reply(response.status, dict(response.headers), content)
        except TimeoutError:
            raise
        except aiohttp.ClientError as error:
            raise OSError(str(error) or type(error).__name__) from error


def proxy_of(url: HttpUrl) -> str | None:
    """The proxy that the environment names for ``url``."""
    return None if proxy_bypass(url.host) else getproxies().get(url.scheme)


async def read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The first ``max_bytes`` of the body; the rest is not read."""
    found = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        found += chunk
        if len(found) >= max_bytes:
            response.close()
            return bytes(found[:max_bytes])
    return bytes(found)
