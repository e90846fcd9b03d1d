"""Client of a model behind an OpenAI-compatible URL, with the interface of `Model`.

The client uses aiohttp, since the ``openai`` package reads answers of any size into memory, and
retries without ace_ray's rate limit and circuit breaker."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ace_ray.config.schema import CandidateEndpoint, EndpointConfig
from ace_ray.errors import PromptTooLong, RowError
from ace_ray.models.completions import Interruption, Replay, completion_of, request_body
from ace_ray.models.http import Client, HttpRequest, proxy_of
from ace_ray.models.pacing import (
    MAX_RETRY_AFTER_S,
    RETRIED,
    Breaker,
    Pacer,
    backoff_s,
    retry_after_s,
)
from ace_ray.models.urls import endpoint_access, host_of
from ace_ray.types import Completion, Messages, Sampling, Tools
from ace_ray.util.secrets import mask_key

MAX_ANSWER_BYTES = 4 << 20
MAX_MESSAGE_CHARS = 300
# A shorter key, such as EMPTY, may be a word of an answer.
MIN_KEY_CHARS = 16
# Phrases in errors of OpenAI and vLLM about a prompt that is too long.
_TOO_LONG = ("context_length_exceeded", "maximum context length", "max_model_len")
_OF_SCHEMAS = re.compile(r"response[ _-]?format|schema|structured[ _-]?output")


class EndpointDown(RowError):
    """The endpoint gave no usable answer after all retries. Resuming the run retries the row."""


class EndpointRefused(RowError):
    """The endpoint rejected the request (4xx), so it was not retried."""


class SchemaRefused(EndpointRefused):
    """The endpoint rejected the JSON schema of the request."""


class Filtered(EndpointRefused):
    """A filter of the endpoint withheld the answer, or a part of it."""


class _Failure(Exception):
    """An attempt failed, and a retry may succeed.

    ``down``: whether the server seems to be down. It is False if the server requests a pause."""

    def __init__(self, cause: str, *, down: bool = True, retry_after_s: float = 0.0) -> None:
        super().__init__(cause)
        self.down, self.retry_after_s = down, retry_after_s


class EndpointModel(Client):
    """Sends chat requests over HTTP. Create one per process and event loop, so that all requests
    share the rate limit, the concurrency limit and the circuit breaker.

    ``split_reasoning``: whether ``<think>`` blocks in an answer are reasoning. ``location`` is the
    endpoint's config key. Raises `UserError` if the URL is malformed or the API key is missing."""

    def __init__(
        self,
        config: EndpointConfig,
        *,
        split_reasoning: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
        location: str = "endpoint",
    ) -> None:
        self._config = config
        url, self._key = endpoint_access(config, location)
        self._url = config.url.rstrip("/") + "/chat/completions"
        self._host = host_of(config.url)
        self._proxy = proxy_of(url)
        self._split_reasoning = split_reasoning
        self._template_kwargs = template_kwargs
        self._replay = Replay() if isinstance(config, CandidateEndpoint) else None
        # Whether the last finished request was answered. A refusal is an answer.
        self.answering = True
        self._slots = asyncio.Semaphore(config.max_concurrency)
        self._pacer = Pacer(config.requests_per_minute)
        self._breaker = Breaker()
        # Reason for not sending schemas (the config, or the endpoint's refusal), or "".
        self._takes_no_schema = ""
        if isinstance(config, CandidateEndpoint) and "response_format" in config.extra_body:
            self._takes_no_schema = f"{location}.extra_body removes response_format"

    async def chat(self, messages: Messages, sampling: Sampling, tools: Tools = None) -> Completion:
        """Request an answer. If the endpoint rejects a request with a schema, send it again without
        the schema. After an error about the schema, later requests have no schema either. Raises
        `EndpointDown`, `EndpointRefused` or `PromptTooLong` if there is no answer."""
        if not sampling.schema:
            return await self._answer(messages, sampling, tools)
        why, of_schemas = self._takes_no_schema, False
        if not why:
            try:
                return await self._answer(messages, sampling, tools)
            except Filtered:
                raise
            except EndpointRefused as error:
                why, of_schemas = str(error), isinstance(error, SchemaRefused)
        completion = await self._answer(messages, sampling.with_schema(None), tools)
        if of_schemas:
            self._takes_no_schema = why
        completion.schema_refused = why
        return completion

    async def _answer(self, messages: Messages, sampling: Sampling, tools: Tools) -> Completion:
        """Request an answer. If the endpoint refuses the token limit as too high for the context,
        retry with a lower limit. (`VLLMEngine` lowers such a limit without an error.)"""
        chat = (self._config, messages, sampling, tools)
        body_of = partial(
            request_body, *chat, template_kwargs=self._template_kwargs, replay=self._replay
        )
        body = body_of()
        try:
            return await self._ask_with_retries(body, tools)
        except PromptTooLong as error:
            room = _room(str(error))
            shorter = body_of(max_tokens=room)
            if room <= 0 or shorter == body:
                raise
            return await self._ask_with_retries(shorter, tools)

    async def _ask_with_retries(self, body: bytes, tools: Tools) -> Completion:
        if self._breaker.is_open:
            line = "the request was not sent, because earlier requests failed"
            raise EndpointDown(f"{self._host}: {line}")
        attempts = 1 if self._breaker.is_on_trial else 1 + self._config.max_retries
        waited_s = 0.0
        for attempt in range(1, attempts + 1):
            try:
                async with self._slots:
                    turn_s = self._pacer.reserve(time.monotonic())
                    waited_s += turn_s
                    await asyncio.sleep(turn_s)
                    completion = await self._ask(body, tools)
            except _Failure as error:
                failure = error
                self.answering = False
            except (EndpointRefused, PromptTooLong):
                self._note_answer()
                raise
            else:
                self._note_answer()
                assert completion.endpoint is not None  # set by `completion_of`
                facts = replace(completion.endpoint, attempts=attempt, waited_s=waited_s)
                completion.endpoint = facts
                return completion
            wait_s = failure.retry_after_s
            if attempt == attempts or wait_s > MAX_RETRY_AFTER_S or self._breaker.is_open:
                break
            self._pacer.delay(time.monotonic(), wait_s)
            wait_s = max(wait_s, backoff_s(attempt))
            waited_s += wait_s
            await asyncio.sleep(wait_s)
        if failure.down:
            self._breaker.note_failure()
        tried = f"{attempt} attempt{'s' * (attempt > 1)}"
        raise EndpointDown(f"{self._host} gave no answer in {tried}: {failure}") from failure

    def _note_answer(self) -> None:
        self._breaker.note_answer()
        self.answering = True

    async def _ask(self, body: bytes, tools: Tools) -> Completion:
        import aiohttp

        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        total_s = self._config.timeout_s
        request = HttpRequest("POST", self._url, headers, body, total_s, MAX_ANSWER_BYTES + 1)
        start = time.perf_counter()
        try:
            reply = await self._send(request, proxy=self._proxy)
        except TimeoutError as error:
            raise _Failure(f"timed out after {total_s:g} s (timeout_s)") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Failure(self._clip(str(error) or type(error).__name__)) from error
        raw = reply.body
        if len(raw) > MAX_ANSWER_BYTES:
            raise _Failure(f"the answer has more than {MAX_ANSWER_BYTES >> 20} MiB")
        if len(self._key or "") >= MIN_KEY_CHARS:  # Latin-1 keeps every byte
            raw = mask_key(raw.decode("latin-1"), self._key).encode("latin-1")
        if reply.status != 200:
            raise self._refusal(reply.status, reply.headers, raw)
        try:
            completion, reasoning = completion_of(
                json.loads(raw), tools, split_reasoning=self._split_reasoning
            )
        except Interruption as error:
            if error.filtered:
                raise Filtered(f"{self._host} withheld the answer: {error}") from error
            # The server is up and may answer a retry.
            raise _Failure(str(error), down=False) from error
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            raise _Failure(f"not a chat completion: {self._error_text(raw)}") from error
        completion.seconds = time.perf_counter() - start
        if self._replay is not None and reasoning is not None:
            self._replay.remember(reasoning, completion)
        return completion

    def _refusal(self, status: int, headers: Mapping[str, str], raw: bytes) -> Exception:
        answer = f"HTTP {status}: {self._error_text(raw)}"
        if status in RETRIED or status >= 500:
            pause_s = retry_after_s(headers.get("Retry-After", ""), time.time())
            return _Failure(answer, down=status >= 500, retry_after_s=pause_s)
        if status in (401, 403):
            name = self._config.api_key_env
            key = f"the key in {name}" if name else "requests without a key"
            return EndpointRefused(f"{self._host} does not accept {key}: {answer}")
        if any(phrase in _head(raw).lower() for phrase in _TOO_LONG):
            return PromptTooLong(f"{self._host}: {answer}")
        of_schemas = status in (400, 422) and _OF_SCHEMAS.search(_head(raw).lower())
        kind = SchemaRefused if of_schemas else EndpointRefused
        return kind(f"{self._host} rejects the request: {answer}")

    def _error_text(self, raw: bytes) -> str:
        """Return the error message in a response body, on one line and without the API key."""
        try:
            tree = json.loads(raw)
        except (ValueError, RecursionError):
            tree = raw.decode("utf-8", "replace")
        for name in ("error", "message", "detail"):
            if isinstance(tree, dict) and tree.get(name):
                tree = tree[name]
        return self._clip(tree if isinstance(tree, str) else _head(raw)) or "(no message)"

    def _clip(self, text: str) -> str:
        text = mask_key(text, self._key)
        return " ".join(text[: 4 * MAX_MESSAGE_CHARS].split())[:MAX_MESSAGE_CHARS]


def _room(refusal: str) -> int:
    """Compute the tokens left for an answer from numbers in a server's refusal; 0 if unknown."""
    context = re.search(r"maximum context length is (\d{1,9}) tokens", refusal)
    prompt = re.search(r"\b(\d{1,9}) (?:tokens? )?(?:in the messages|input tokens)", refusal)
    return int(context[1]) - int(prompt[1]) if context and prompt else 0


def _head(raw: bytes) -> str:
    return raw[: 4 * MAX_MESSAGE_CHARS].decode("utf-8", "replace")
