"""Parse HTTP URLs, and accept only hosts that all libraries read in the same way. Read API keys.

Libraries read some hosts in different ways: non-ASCII names, addresses as plain numbers, names with
extra dots or percent signs. Here a host must be in ASCII and is converted to a canonical spelling.
Requests and API keys go to exactly this host."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from ace_ray.config.schema import CandidateEndpoint, EndpointConfig
from ace_ray.errors import UserError
from ace_ray.types import digest

_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_MAX_HOST = 253


@dataclass(frozen=True, slots=True)
class HttpUrl:
    """An absolute HTTP URL without a fragment. ``target`` is path and query."""

    scheme: str
    host: str
    port: int
    target: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.target}"


def http_url(text: str) -> HttpUrl:
    """Parse ``text``, and return the URL in canonical form.

    Raises `ValueError` if ``text`` is not an HTTP URL, has a user name, or has a host that
    libraries read in different ways. The error does not show the text."""
    if "\\" in text or not text.isprintable():
        raise ValueError("it contains characters that are not allowed in a URL")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:  # its message shows the URL, which may hold a secret
        raise ValueError("it is not an http(s) URL") from None
    if "@" in parts.netloc:
        raise ValueError("it contains a user name or a password")
    if parts.scheme not in _PORTS or not host or port == 0:
        raise ValueError("it is not an http(s) URL")
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    return HttpUrl(parts.scheme, _canonical(host), port or _PORTS[parts.scheme], target)


def _canonical(host: str) -> str:
    """Return a lower-case name, or an address in its usual notation. Raises `ValueError` if
    ``host`` is not valid, or not ASCII (IDNA versions convert it differently)."""
    if not host.isascii():
        raise ValueError("its host is not ASCII: write its xn-- form")
    name = host.removesuffix(".")
    last = name.rstrip(".").rpartition(".")[2]
    if ":" in name or last.isdigit() or last.startswith("0x"):  # a resolver may read an address
        try:
            if "%" in name:  # a zone
                raise ValueError
            return str(ip_address(name))
        except ValueError:
            raise ValueError("its host is not an address in the usual notation") from None
    if len(name) > _MAX_HOST or not all(map(_LABEL.fullmatch, name.split("."))):
        raise ValueError("its host is not a valid name")
    return name


def check_url(url: str, location: str, *, fix: str, key: str = "api_key_env") -> HttpUrl:
    """Parse the URL of a service. ``key``: config key that names the variable with its API key.

    Raises `UserError` if the URL is malformed or may contain a secret. The error does not show the
    URL."""
    # Not checked by a pattern of the config field: its error would show the URL and a key in it.
    if "@" in url.partition("//")[2].partition("/")[0] or "?" in url or "#" in url:
        raise UserError(
            "the URL contains a user name, a password, a query or a fragment",
            where=location,
            fix=f"{fix}; a key belongs in the environment variable that {key} names",
        )
    try:
        parsed = http_url(url)
        if not url.isascii() or " " in url:
            raise ValueError("it contains characters that are not allowed in a URL")
    except ValueError as error:
        raise UserError(f"is not a valid URL: {error}", where=location, fix=fix) from None
    return parsed


def endpoint_access(endpoint: EndpointConfig, location: str) -> tuple[HttpUrl, str | None]:
    """Return the base URL and the API key of an endpoint; None if it takes no key. ``location``:
    config key of the endpoint. Raises `UserError` as `check_url` and `read_key`."""
    where, fix = f"{location}.url", "write the base URL, e.g. https://api.openai.com/v1"
    url = check_url(endpoint.url, where, fix=fix)
    if url.target.rstrip("/").endswith("/completions"):
        problem = "ends in /completions, a path that ace_ray adds itself"
        raise UserError(problem, where=where, fix=fix)
    return url, read_key(endpoint.api_key_env, f"{location}.api_key_env")


_KEY_FIX = "set it to the endpoint's key, or write api_key_env: null if it takes none"


def read_key(name: str | None, location: str, fix: str = _KEY_FIX) -> str | None:
    """Return the API key in the environment variable ``name``; None for an endpoint without a key.

    ``location``: config key that names the variable. Raises `UserError` if the variable is unset,
    or its value is not valid in an HTTP header."""
    if name is None:
        return None
    # Keys from files and secrets often end with a newline.
    key = os.environ.get(name, "").strip()
    problem = "" if key else "is not set"
    if not (key.isascii() and key.isprintable()):
        problem = "does not contain a key: one line of ASCII is needed"
    if problem:
        raise UserError(f"the environment variable {name} {problem}", where=location, fix=fix)
    return key


def host_of(url: str) -> str:
    """Return ``host`` or ``host:port`` of a URL, without user names, passwords, path or query."""
    return urlsplit(url).netloc.rpartition("@")[2]


def path_identity(url: str) -> dict[str, str]:
    """Return {"path_sha256": hash of the URL's path}, since the path itself may be private; {} for
    ``/v1`` or no path."""
    path = urlsplit(url).path.strip("/")
    return {} if path in ("", "v1") else {"path_sha256": digest(path)}


def endpoint_identity(endpoint: CandidateEndpoint) -> dict[str, Any]:
    """Return the properties of an endpoint that can change a score, as JSON without secrets."""
    return {
        "host": host_of(endpoint.url),
        **path_identity(endpoint.url),
        "model": endpoint.model,
        "extra_body": endpoint.extra_body,
    }
