"""Check HTTP URLs, and read API keys."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ace_ray.config.schema import CandidateEndpoint, EndpointConfig
from ace_ray.errors import UserError
from ace_ray.types import digest


def http_url(text: str) -> SplitResult:
    """Parse an absolute HTTP URL. Raises `ValueError` if ``text`` is not such a URL, or has a user
    name. The error does not show the text."""
    if not (text.isascii() and text.isprintable()) or " " in text or "\\" in text:
        raise ValueError("it contains characters that are not allowed in a URL")
    try:
        url = urlsplit(text)
        is_http = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:  # its message shows the URL, which may hold a secret
        is_http = False
    if not is_http:
        raise ValueError("it is not an http(s) URL")
    if "@" in url.netloc:
        raise ValueError("it contains a user name or a password")
    return url


def check_url(url: str, location: str, *, fix: str, key: str = "api_key_env") -> SplitResult:
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
        return http_url(url)
    except ValueError as error:
        raise UserError(f"is not a valid URL: {error}", where=location, fix=fix) from None


def endpoint_access(endpoint: EndpointConfig, location: str) -> tuple[SplitResult, str | None]:
    """Return the base URL and the API key of an endpoint; None if it takes no key. ``location``:
    config key of the endpoint. Raises `UserError` as `check_url` and `read_key`."""
    where, fix = f"{location}.url", "write the base URL, e.g. https://api.openai.com/v1"
    url = check_url(endpoint.url, where, fix=fix)
    if url.path.rstrip("/").endswith("/completions"):
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
