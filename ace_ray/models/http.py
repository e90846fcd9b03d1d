"""Send HTTP requests with limits on time and on the size of answers.

`Http` is for services that a config names; models use `ace_ray.models.endpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult
from urllib.request import getproxies, proxy_bypass

from ace_ray.models.urls import http_url

if TYPE_CHECKING:
    import aiohttp

CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None
    timeout_s: float
    max_bytes: int
    """Maximum bytes of the answer's body that are read."""
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends one request, without following redirects."""

    async def fetch(self, request: HttpRequest) -> Reply: ...


class Client:
    """An HTTP session. Create one per process and event loop, and `close` it at the end.

    Redirects are not followed, since they could send a key to an unknown host. Cookies are not
    kept. Answers are not decompressed, since a few bytes could expand to gigabytes."""

    _session: aiohttp.ClientSession | None = None

    async def _send(self, request: HttpRequest, *, proxy: str | None) -> Reply:
        """Send a request and return the reply, cut at ``max_bytes``. Raises aiohttp's errors."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
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
            timeout=aiohttp.ClientTimeout(total=total_s, sock_connect=min(CONNECT_S, total_s)),
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
        """Send a request and return the reply, cut at ``max_bytes``. Raises `OSError` if there is
        no reply; after a timeout, its subclass `TimeoutError`."""
        import aiohttp

        try:
            url = http_url(request.url)
        except ValueError as error:
            raise OSError(f"the request was not sent: {error}") from None
        try:
            return await self._send(request, proxy=proxy_of(url))
        except TimeoutError:
            raise
        except aiohttp.ClientError as error:
            raise OSError(str(error) or type(error).__name__) from error


def proxy_of(url: SplitResult) -> str | None:
    """Return the proxy that the environment sets for ``url``, or None."""
    return None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)
