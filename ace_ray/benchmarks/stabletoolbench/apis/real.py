"""Call real APIs over HTTP, through a service with ToolBench's protocol.

Real APIs are off unless the config names the service: ToolBench's, or one that takes the same
requests. Its address comes only from the config, never from data or models. A request has a
timeout, and its answer a maximum size; redirects are not followed. The service's key comes from the
environment, and is removed from replies.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import Field

from ace_ray.benchmarks.stabletoolbench.apis.answers import (
    TIMEOUT,
    ApiAnswer,
    UnusableJson,
    parse_json,
)
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.config.schema import Section
from ace_ray.models.http import HttpRequest, Reply, Transport
from ace_ray.util.secrets import mask_key

# Maximum bytes of an answer; a longer one is a failure.
MAX_BYTES = 1 << 20
# Timeout of a real API's whole answer.
TIMEOUT_S = 15.0
FAILED = "request invalid, data error"


class RealConfig(Section):
    """The config's ``real`` section."""

    service_url: str
    """URL of the service that calls the APIs, in ToolBench's protocol"""
    key_env: str | None = Field(None, min_length=1)
    """environment variable with the key"""


class RealApis:
    """Calls real APIs. ``transport`` raises `OSError` on failure. An empty ``key`` is not sent."""

    def __init__(self, config: RealConfig, transport: Transport, key: str) -> None:
        self._config, self._transport, self._key = config, transport, key

    async def answer(self, api: Api, arguments: Any) -> ApiAnswer:
        """Return the API's answer. ``failure`` is ``real`` if the request was refused or failed, or
        if the answer is not `is_usable`. Errors of the network or a server are not raised."""
        try:
            reply = await self._transport.fetch(self._request(api, arguments))
        except OSError as error:
            # The client's message is not used, since it can contain the address.
            why = TIMEOUT if isinstance(error, TimeoutError) else FAILED
            return ApiAnswer(why, "", "real", origin="real", failure="real")
        error_text, response = self._read(reply)
        failure = "" if is_usable(error_text, response) else "real"
        return ApiAnswer(error_text, response, "real", origin="real", failure=failure)

    def _request(self, api: Api, arguments: Any) -> HttpRequest:
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        if self._key:
            headers["toolbench_key"] = self._key
        tree = {
            "category": api.std_category,
            "tool_name": api.std_tool.split("_for_")[0],
            "api_name": api.std_api,
            "tool_input": arguments,
            "strip": "",
            "toolbench_key": self._key,
        }
        config, body = self._config, json.dumps(tree).encode()
        return HttpRequest("POST", config.service_url, headers, body, TIMEOUT_S, MAX_BYTES)

    def _read(self, reply: Reply) -> tuple[str, Any]:
        """Return (error, response) of a reply, without the key."""
        error = ""
        if not 200 <= reply.status < 300:
            error = _BY_STATUS.get(reply.status, "Message error...")
        text = mask_key(reply.body.decode("utf-8", "replace"), self._key)
        try:
            value = parse_json(text, MAX_BYTES)
        except UnusableJson:
            value = None
        if not isinstance(value, dict) or not isinstance(value.get("error"), str):
            return error or FAILED, ""
        return error or value["error"], value.get("response", "")


_ACCEPTED = "got an unexpected keyword argument"
# Compared in lower case. Upstream also searches for "API doesn't exists" in lower-case text, but
# only its last comparison (`_NO_API`) can find it.
_REFUSED = re.compile(
    "rate limit|time out|timed out|does not exist|404|504|500|internal error|authoriz|authenticat"
    "|unsubscribe|blocked|401|403|credential|disabled for your subscription|invalid consumer key"
    "|parameter|parse|is not defined"
)
_REFUSED_AS_IS = re.compile("Service Not Found|ACCESS_DENIED|status_code=50|status_code=429")
_NO_API = "{'message': \"API doesn't exists\"}"
_BY_STATUS = {
    401: "Unauthorized error...",
    402: "Unsubscribed error...",
    403: "Unauthorized error...",
    404: "API not working error...",
    408: TIMEOUT,
    429: "Too many requests error...",
    504: TIMEOUT,
}


def is_usable(error: str, response: Any) -> bool:
    """Return whether upstream's rule accepts an answer. If not, the next backend is tried."""
    if error:
        return False
    text = str(response)
    lower = text.lower()
    if _ACCEPTED in lower:
        return True
    is_refused = _REFUSED.search(lower) or _REFUSED_AS_IS.search(text)
    return not is_refused and bool(text) and text != _NO_API
