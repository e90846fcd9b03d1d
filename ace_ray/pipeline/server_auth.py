"""Middleware for vLLM's OpenAI server that checks the key of a role's server.

vLLM's own middleware requires a key for ``/v1`` and a few other prefixes, but not for
``/invocations``, ``/tokenize``, ``/metrics`` or ``/scale_elastic_ep``. This middleware requires the
key for every request except ``GET`` of `HEALTH`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

KEY_ENV = "VLLM_API_KEY"
HEALTH = "/health"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


class RequireKey:
    """ASGI middleware that refuses requests without ``Authorization: Bearer KEY``.

    Raises `RuntimeError` if the environment has no key, since such a server must not start."""

    def __init__(self, app: Asgi) -> None:
        key = os.environ.get(KEY_ENV, "")
        if not key:
            raise RuntimeError(f"{KEY_ENV} is not set: a role's server needs a key")
        self._app, self._key = app, _digest(key.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._may_pass(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            # Sent before the handshake, so the server answers with status 403.
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body"})

    def _may_pass(self, scope: Scope) -> bool:
        if scope["type"] == "http" and (scope["method"], scope["path"]) == ("GET", HEALTH):
            return True
        return self._has_key(scope["headers"])

    def _has_key(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        given = [value for name, value in headers if name.lower() == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, key = given[0].partition(b" ")
        # Compare digests, so that the time does not depend on the first difference or the length.
        return hmac.compare_digest(_digest(key), self._key) and scheme.lower() == b"bearer"


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
