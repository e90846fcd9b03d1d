"""The APIs themselves, over HTTP. Off unless the config names hosts that may be asked.

Two ways: each API at its own URL, which a tool directory gives, or all of them behind one service
(ToolBench's own, or one with its protocol). A request goes to an allowed host with public
addresses, with a deadline and a bound on the answer; a redirect is followed on the same host only.
The key comes from the environment, goes to the allowed hosts, and is struck out of what they say. A
host has one spelling (`urls`): the one that is checked is connected to.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any
from urllib.parse import quote, quote_plus, urlencode, urljoin, urlsplit

from pydantic import Field

from ace_ray.benchmarks.stabletoolbench.apis.answers import TIMEOUT, Answered
from ace_ray.benchmarks.stabletoolbench.apis.values import Unusable, load
from ace_ray.benchmarks.stabletoolbench.names import api_name
from ace_ray.benchmarks.stabletoolbench.tools import Api, Rules
from ace_ray.config import Section
from ace_ray.errors import UserError
from ace_ray.models.http import HttpRequest, Reply, Transport, TransportFailed
from ace_ray.models.urls import AllowList, Refused

MAX_REDIRECTS = 3
FAILED = "request invalid, data error"
_FIELD = re.compile(r"\{(\w{1,80})\}")
_MAX_URL = 8192


class RealConfig(Section):
    """The config's ``real`` section."""

    hosts: list[str] = Field(
        min_length=1, description="who may be asked: api.example.org, .example.org for all below"
    )
    service_url: str | None = Field(
        None, description="one service for all APIs; null: each API's own URL"
    )
    key_env: str | None = Field(
        None, min_length=1, description="environment variable that holds the key"
    )
    key_header: str = Field(
        "X-RapidAPI-Key", pattern=r"^[A-Za-z0-9-]{1,80}$", description="the header it is sent in"
    )
    timeout_s: float = Field(15.0, gt=0, le=600, description="until the whole answer is here")
    max_bytes: int = Field(1 << 20, ge=1, le=16 << 20, description="the longest answer")
    allow_http: bool = Field(False, description="ask over plain HTTP and on other ports too")


class RealApis:
    """Asks real APIs.

    Args:
        transport: connects to public addresses only. Raises `TransportFailed` and `Refused`.

    Raises:
        UserError: as `check_real`.
    """

    def __init__(
        self,
        config: RealConfig,
        transport: Transport,
        rules: Rules,
        where: str = "real",
    ) -> None:
        self._config, self._transport, self._rules = config, transport, rules
        self._allowed = check_real(config, where)
        self._where = where

    @cached_property
    def _key(self) -> str:
        return read_key(self._config, self._where)

    async def answer(self, api: Api, arguments: Any) -> Answered:
        """The API's answer; ``failure`` is ``real`` where it was refused, failed, or gave none that
        the rules accept. Never raises for anything that a server does."""
        try:
            request = self._request(api, arguments)
            reply = await self._followed(request)
        except Refused as error:
            return _failed(f"{FAILED}: {error}")
        except TransportFailed as error:
            return _failed(TIMEOUT if error.kind == "timeout" else f"{FAILED}: {error}")
        error_text, response = self._read(reply)
        failure = "" if accepts(reply.status, error_text, response, self._rules) else "real"
        return Answered(error_text, response, "real", origin="real", failure=failure)

    def _request(self, api: Api, arguments: Any) -> HttpRequest:
        """Raises `Refused` when this call cannot be put as a request to an allowed host."""
        config = self._config
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if config.service_url is not None:
            method, url = "POST", config.service_url
            tree = {
                "category": api.std_category,
                "tool_name": api.std_tool.split("_for_")[0],
                "api_name": api.std_api,
                "tool_input": arguments,
                "strip": "",
                "toolbench_key": self._key,
            }
            if self._key:
                headers["toolbench_key"] = self._key
        else:
            method = api.method.upper()
            if not isinstance(arguments, Mapping):
                raise Refused("its arguments are not an object")
            if method not in ("GET", "POST"):
                raise Refused("only GET and POST are asked")
            url, tree = self._placed(api, arguments)
            if self._key:
                host = self._allowed.check(url).host
                headers |= {config.key_header: self._key, "X-RapidAPI-Host": host}
        body = None
        if method == "POST":
            headers["Content-Type"] = "application/json"
            body = json.dumps(tree).encode()
        elif tree:
            url += ("&" if urlsplit(url).query else "?") + urlencode(tree, errors="replace")
        if len(url) > _MAX_URL:
            raise Refused("its URL is too long")
        url = str(self._allowed.check(url))
        return HttpRequest(method, url, headers, body, config.timeout_s, config.max_bytes)

    def _placed(self, api: Api, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The URL with its fields filled in, and the other arguments under published names."""
        published = {
            api_name(str(p["name"])): str(p["name"]) for p in (*api.required, *api.optional)
        }
        given = {published.get(name, name): value for name, value in arguments.items()}

        def fill(match: re.Match[str]) -> str:
            if match[1] not in given:
                raise Refused("an argument that its URL needs is missing")
            value = _text(given.pop(match[1]))
            if value in (".", ".."):
                raise Refused("an argument would change its path")
            return quote(value, safe="", errors="replace")

        self._allowed.check(api.url)  # no field is part of a host: braces are none of its letters
        url = _FIELD.sub(fill, api.url)
        if api.method.upper() == "GET":
            given = {name: _text(value) for name, value in given.items()}
        return url, given

    async def _followed(self, request: HttpRequest) -> Reply:
        for _ in range(MAX_REDIRECTS + 1):
            reply = await self._transport.fetch(request)
            location = reply.headers.get("Location", "")
            if not (300 <= reply.status < 400 and location):
                return reply
            if request.method != "GET":
                raise Refused("it redirects a request that is no GET")
            request = replace(request, url=self._redirected(request.url, location))
        raise Refused("it redirects again and again")

    def _redirected(self, url: str, location: str) -> str:
        """Where a redirect leads: the same server, or from plain HTTP the same host over https."""
        try:
            target = urljoin(url, location)
        except ValueError:
            raise Refused("it redirects to no URL") from None
        here, there = self._allowed.check(url), self._allowed.check(target)
        secured = here.scheme == "http" and there.origin == ("https", here.host, 443)
        if here.origin != there.origin and not secured:
            raise Refused("it redirects to another host")
        return str(there)

    def _read(self, reply: Reply) -> tuple[str, Any]:
        """(error, response) of a reply, the key struck out."""
        text = reply.body.decode("utf-8", "replace")
        error = error_of_status(reply.status)
        try:
            value = self._without_key(load(text, self._config.max_bytes))
        except Unusable:
            if self._config.service_url is not None:
                return error or FAILED, ""
            return error, self._without_key(text)
        if self._config.service_url is None:
            return error, value
        if not isinstance(value, dict) or not isinstance(value.get("error"), str):
            return error or FAILED, ""
        return error or value["error"], value.get("response", "")

    def _without_key(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._without_key(key): self._without_key(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._without_key(item) for item in value]
        if isinstance(value, str) and self._key:
            spellings = (str, quote, quote_plus, lambda key: json.dumps(key)[1:-1])
            for spelled in spellings:
                value = value.replace(spelled(self._key), "***")
        return value


def check_real(config: RealConfig, where: str) -> AllowList:
    """Who may be asked. Raises `UserError`, which does not show the URL: a host or the service's
    URL is malformed, or that URL holds what may be a secret."""
    allowed = AllowList.of(config.hosts, f"{where}.hosts", allow_http=config.allow_http)
    if config.service_url is not None:
        fix = "write https://HOST/PATH, the host being one of real.hosts"
        try:
            allowed.check(config.service_url)
        except Refused as error:
            what = f"is not asked: {error}"
            raise UserError(what, where=f"{where}.service_url", fix=fix) from None
        parts = urlsplit(config.service_url)
        if parts.query or parts.fragment:
            raise UserError(
                "the URL holds a query or a fragment",
                where=f"{where}.service_url",
                fix=f"{fix}; a key belongs in the environment variable that key_env names",
            )
    return allowed


def read_key(config: RealConfig, where: str) -> str:
    """The key that is sent, "" for none. Raises `UserError`: the environment does not hold it."""
    name = config.key_env
    if name is None:
        return ""
    key = os.environ.get(name, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise UserError(
            f"the environment variable {name!r} holds no key",
            where=f"{where}.key_env",
            fix="export it",
        )
    return key


def _text(value: Any) -> str:
    """An argument as it goes into a URL."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)


def _failed(error: str) -> Answered:
    return Answered(error, "", "real", origin="real", failure="real")


_ACCEPTED = "got an unexpected keyword argument"
_REFUSED = (
    "rate limit",
    "time out",
    "timed out",
    "does not exist",
    "404",
    "504",
    "500",
    "internal error",
    "authoriz",
    "authenticat",
    "unsubscribe",
    "blocked",
    "401",
    "403",
    "credential",
    "disabled for your subscription",
    "invalid consumer key",
    "parameter",
    "parse",
    "is not defined",
)
"""In any case. "API doesn't exists" is looked for by upstream too, in text made lower-case, where
only its last comparison (below) can find it."""
_REFUSED_AS_IS = ("Service Not Found", "ACCESS_DENIED", "status_code=50", "status_code=429")
_NO_API = "{'message': \"API doesn't exists\"}"
_ABOUT_ARGUMENTS = (400, 422)
_BY_STATUS = {
    401: "Unauthorized error...",
    402: "Unsubscribed error...",
    403: "Unauthorized error...",
    404: "API not working error...",
    408: TIMEOUT,
    429: "Too many requests error...",
    504: TIMEOUT,
}


def accepts(status: int, error: str, response: Any, rules: Rules) -> bool:
    """Whether an answer is used; otherwise the next backend is asked.

    ``fixed`` takes success, and what an API says of the arguments (400, 422).
    """
    if rules == "fixed":
        return status in _ABOUT_ARGUMENTS or not error
    if error:
        return False
    text = str(response)
    lower = text.lower()
    if _ACCEPTED in lower:
        return True
    if any(part in lower for part in _REFUSED) or any(part in text for part in _REFUSED_AS_IS):
        return False
    return bool(text) and text != _NO_API


def error_of_status(status: int) -> str:
    """The error text, in upstream's words, for an HTTP status; "" for success."""
    if 200 <= status < 300:
        return ""
    return _BY_STATUS.get(status, "Message error...")
