"""Clients of HTTP services for search, web pages and embeddings; used only if configured."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ace_ray.benchmarks.bfcl.options import EmbeddingsConfig, ServiceConfig
from ace_ray.errors import RowError
from ace_ray.models.http import HttpRequest, Reply, Transport
from ace_ray.models.pacing import MAX_RETRY_AFTER_S, RETRIED, backoff_s, retry_after_s
from ace_ray.models.urls import check_url, read_key
from ace_ray.util.secrets import mask_key

# Timeout of one attempt.
TIMEOUT_S = 30.0
MAX_RETRIES = 4
# Maximum bytes that are read of one reply.
MAX_BYTES = 2 << 20
# Maximum texts in one request for embeddings.
MAX_BATCH = 64


class ServiceFailed(RowError):
    """A service returned no usable reply after all retries. Resuming the run retries the row."""


def check_service(config: ServiceConfig, location: str) -> None:
    """Check the config of a service without sending a request. Raises `UserError` if the URL is
    malformed or contains a secret, or the key is not in the environment."""
    check_url(config.url, f"{location}.url", fix="write http(s)://host/path, without query")
    fix = "set it to the service's key, or leave api_key_env out"
    read_key(config.api_key_env, f"{location}.api_key_env", fix)


class Service:
    """Client of a service. ``transport`` raises `OSError` without a reply; ``pause`` sleeps."""

    def __init__(
        self, config: ServiceConfig, transport: Transport, *, pause: Any = asyncio.sleep
    ) -> None:
        self._config, self._transport, self._pause = config, transport, pause
        self._host = urlsplit(config.url).hostname or config.url

    async def get(self, params: Mapping[str, str]) -> Reply:
        """Send a GET request, and retry it after failures. Return the first reply that needs no
        retry.

        Raises `ServiceFailed` if all attempts fail."""
        return await self._ask("GET", params, None)

    async def post(self, value: Any) -> Reply:
        """Send ``value`` as JSON in a POST request. Returns and raises as `get`."""
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return await self._ask("POST", {}, body)

    async def _ask(self, method: str, params: Mapping[str, str], body: bytes | None) -> Reply:
        name = self._config.api_key_env
        key = os.environ.get(name, "").strip() if name else ""
        headers = {"Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = HttpRequest(method, self._config.url, headers, body, TIMEOUT_S, MAX_BYTES, params)
        attempts = 1 + MAX_RETRIES
        for attempt in range(1, attempts + 1):
            wait_s = 0.0
            try:
                reply = await self._transport.fetch(request)
            except OSError as error:
                text = f"{type(error).__name__}: {error}"
                cause = " ".join(mask_key(text, key)[:300].split())
            else:
                if reply.status not in RETRIED and reply.status < 500:
                    return reply
                cause = f"HTTP {reply.status}"
                wait_s = retry_after_s(reply.headers.get("Retry-After", ""), time.time())
            if attempt == attempts or wait_s > MAX_RETRY_AFTER_S:
                break
            await self._pause(max(wait_s, backoff_s(attempt)))
        raise ServiceFailed(f"{self._host} gave no answer in {attempt} attempts: {cause}")


class Embeddings:
    """Client of an OpenAI-compatible embedding endpoint; requests each text once per process."""

    def __init__(self, config: EmbeddingsConfig, service: Service) -> None:
        self._model, self._service = config.model, service
        self._vectors: dict[str, list[float]] = {}

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text. Raises `ServiceFailed` if the endpoint returns none."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        for start in range(0, len(missing), MAX_BATCH):
            batch = missing[start : start + MAX_BATCH]
            reply = await self._service.post({"model": self._model, "input": batch})
            self._vectors.update(zip(batch, _vectors(reply, len(batch)), strict=True))
        return [self._vectors[text] for text in texts]


def _vectors(reply: Reply, count: int) -> list[list[float]]:
    try:
        if reply.status != 200:
            raise ValueError(f"HTTP {reply.status}")
        rows = sorted(json.loads(reply.body)["data"], key=lambda row: row["index"])
        vectors = [[float(number) for number in row["embedding"]] for row in rows]
        if len(vectors) != count or len({len(row) for row in vectors}) != 1 or not vectors[0]:
            raise ValueError("not one vector per text")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ServiceFailed(f"no embeddings: {type(error).__name__}: {error}"[:300]) from error
    return vectors
