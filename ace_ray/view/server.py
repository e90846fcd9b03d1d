"""``ace-ray view``: runs in a browser of this machine, with an address for every row.

Nothing is written. Only GET requests with the token are answered: other users of the machine reach
the port, too. The policy of the answers forbids all scripts but their own, and a name
of another host, as a foreign page would need to ask, is refused.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ace_ray.errors import UserError
from ace_ray.reports.address import HOST, PORT, path_of
from ace_ray.view.pages import render, row_view
from ace_ray.view.table import NOT_SCORED, RIGHT, SORTS, Query, RunTable

PAGE_ROWS = 100
MOST_CHOICES = 1_000
"""Maximum values that the filter of a column offers, the most frequent ones."""
_PORTS = 20
TOKEN = "token"
"""The URL parameter with the token."""
_NO_TOKEN = (
    "these pages are for who started ace-ray view: open the address that it printed, "
    "with the token at its end; after that, links work in the same browser"
)
_ASSETS_FOLDER = "/assets/"
_ASSETS = {"view.js": "text/javascript", "view.css": "text/css", "report.css": "text/css"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def serve(runs: Sequence[RunTable], port: int | None, say: Callable[[str], None]) -> None:
    """Answer until the process is interrupted. Raises `UserError`: the port is taken."""
    listener, token = listener_at(port), secrets.token_urlsafe(32)
    address = f"http://{HOST}:{listener.getsockname()[1]}/?{TOKEN}={token}"
    say(f"view: {address} (Ctrl-C ends it)")
    config = uvicorn.Config(application(runs, token), log_level="warning", server_header=False)
    uvicorn.Server(config).run(sockets=[listener])


def listener_at(port: int | None) -> socket.socket:
    for candidate in [port] if port is not None else range(PORT, PORT + _PORTS):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, candidate))
            listener.listen()  # whoever reads the address may ask at once
        except OSError:
            listener.close()
            continue
        return listener
    raise UserError(
        "nothing can listen there" if port is not None else f"{_PORTS} ports are taken",
        where=f"--port {port if port is not None else PORT}",
        fix="name another port; 0 takes any that is free",
    )


def application(runs: Sequence[RunTable], token: str) -> Starlette:
    """Build the site over ``runs``, for who has the ``token``."""
    site = _Site(runs)
    return Starlette(
        routes=[
            Route("/", site.alone(site.home)),
            Route("/run/{run}/", site.alone(site.rows)),
            Route("/run/{run}/state", site.alone(site.state)),
            Route("/run/{run}/row/{row}", site.alone(site.row)),
            Route("/run/{run}/row/{row}/against/{other}", site.alone(site.pair)),
            Route(f"{_ASSETS_FOLDER}{{name}}", _asset),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"]),
            Middleware(_TokenRequired, token=token),
        ],
        exception_handlers={404: _not_found, UserError: _refused},
    )


class _TokenRequired:
    """Answer requests with the token, in the URL or in the cookie that the first visit sets.

    The first answer redirects to the URL without the token, which may be copied and kept."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = self._app
        if scope["type"] == "http" and not scope["path"].startswith(_ASSETS_FOLDER):
            request = Request(scope)
            # Cookies are a host's; another view has another port.
            cookie = f"ace_ray_view_{scope['server'][1]}"
            if self._is_right(request.query_params.get(TOKEN, "")):
                answer = self._admitted(request, cookie)
            elif not self._is_right(request.cookies.get(cookie, "")):
                answer = _page("error.html.j2", status=403, title="Not shown", error=_NO_TOKEN)
        await answer(scope, receive, send)

    def _is_right(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self._token.encode())

    def _admitted(self, request: Request, cookie: str) -> Response:
        asked = [one for one in request.query_params.multi_items() if one[0] != TOKEN]
        # One slash: two would begin the name of another host.
        there = f"/{request.scope['raw_path'].decode('ascii', 'replace').lstrip('/')}"
        answer = RedirectResponse(f"{there}?{urlencode(asked)}" if asked else there, 303, _HEADERS)
        # Lax: links of a report lead here.
        answer.set_cookie(cookie, self._token, httponly=True, samesite="lax")
        return answer


class _NotFound(UserError):
    """Of an address that names nothing."""


class _Site:
    """The pages. Handlers are plain functions, in threads of Starlette's."""

    def __init__(self, runs: Sequence[RunTable]) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, RunTable] = {}
        for run in runs:
            name, number = run.run_id, 2
            while name in self._runs:
                name, number = f"{run.run_id}~{number}", number + 1
            self._runs[name] = run

    def alone(self, handler: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """One request at a time: a run that grows between two looks has other numbers of rows."""

        @wraps(handler)
        def locked(request: Request) -> Response:
            with self._lock:
                return handler(request)

        return locked

    def home(self, request: Request) -> Response:
        lines = []
        for name, run in self._runs.items():
            run.refresh()
            lines.append({"name": name, "href": _address(name), **run.facts()})
        return _page("home.html.j2", title="Runs", runs=lines)

    def state(self, request: Request) -> Response:
        """What a page of a run that goes on asks every few seconds."""
        _, run = self._run(request)
        run.refresh()
        return JSONResponse(
            {"rows": run.table.num_rows, "finished": run.finished}, headers=_HEADERS
        )

    def rows(self, request: Request) -> Response:
        name, run = self._run(request)
        run.refresh()
        asked = request.query_params
        query, against = Query.of(asked), self._other(name, asked.get("against", ""))
        other = self._runs.get(against)
        found = run.select(query, other)
        pages = max(1, -(-len(found) // PAGE_ROWS))
        page = min(max(1, _whole(asked.get("page"))), pages)
        shown = found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
        link = _Links(name, query, against)
        return _page(
            "rows.html.j2",
            title=name,
            run={"name": name, **run.facts()},
            others=[one for one in self._runs if one != name],
            against=against,
            query=query,
            rules=run.rule_sets,
            choices=_choices(run, query),
            count=len(found),
            lines=[link.line(one, against_row) for one, against_row in _lines(run, shown, other)],
            sorts=link.sorts(),
            page=page,
            pages=pages,
            turn={
                "previous": link.rows(page=page - 1) if page > 1 else "",
                "next": link.rows(page=page + 1) if page < pages else "",
            },
            live=not run.finished,
        )

    def row(self, request: Request) -> Response:
        name, run = self._run(request)
        run.refresh()
        number = self._number(run, request.path_params["row"])
        asked = request.query_params
        against = self._other(name, asked.get("against", ""))
        link = _Links(name, Query.of(asked), against)
        return _page(
            "row.html.j2",
            title=run.lines([number])[0]["id"],
            back=link.rows(),
            turn=self._turn(run, link, number, self._runs.get(against)),
            sides=[{"name": name, "row": row_view(run.episode(number))}],
            pairs=self._pairs(name, run, number, link),
        )

    def pair(self, request: Request) -> Response:
        """The same entry in two runs."""
        name, run = self._run(request)
        run.refresh()
        number = self._number(run, request.path_params["row"])
        against = request.path_params["other"]
        if against not in self._runs:
            raise _NotFound("no such run", where=against, fix="name one of the list of runs")
        other = self._runs[against]
        place = other.by_key.get(run.key_of(number))
        asked = request.query_params
        link = _Links(name, Query.of(asked), against)
        sides: list[dict[str, Any]] = [{"name": name, "row": row_view(run.episode(number))}]
        sides.append(
            {
                "name": against,
                "row": None if place is None else row_view(other.episode(place)),
            }
        )
        return _page(
            "row.html.j2",
            title=run.lines([number])[0]["id"],
            back=link.rows(),
            turn=self._turn(run, link, number, other, pair=True),
            sides=sides,
            pairs=self._pairs(name, run, number, link),
        )

    def _turn(
        self, run: RunTable, link: _Links, number: int, other: RunTable | None, pair: bool = False
    ) -> Mapping[str, str]:
        """Where the rows before and after lie in the list that was come from."""
        found = run.select(link.query, other).tolist()
        if number not in found:
            return {"previous": "", "next": "", "place": ""}
        at = found.index(number)

        def to(place: int) -> str:
            if not 0 <= place < len(found):
                return ""
            row_id = run.lines([found[place]])[0]["row_id"]
            return link.row(row_id, pair=pair)

        return {
            "previous": to(at - 1),
            "next": to(at + 1),
            "place": f"{at + 1:,} of {len(found):,}",
        }

    def _pairs(self, name: str, run: RunTable, number: int, link: _Links) -> list[tuple[str, str]]:
        """The runs that this entry may be looked at beside."""
        row_id = run.lines([number])[0]["row_id"]
        return [
            (other, _Links(name, link.query, other).row(row_id, pair=True))
            for other, table in self._runs.items()
            if other != name and run.key_of(number) in table.by_key
        ]

    def _run(self, request: Request) -> tuple[str, RunTable]:
        name = request.path_params["run"]
        if name not in self._runs:
            raise _NotFound("no such run", where=name, fix="see the list of runs")
        return name, self._runs[name]

    def _other(self, name: str, asked: str) -> str:
        """The run to compare with: the one that is asked for, else the only other one."""
        others = [one for one in self._runs if one != name]
        if asked in others:
            return asked
        return others[0] if len(others) == 1 else ""

    @staticmethod
    def _number(run: RunTable, row_id: str) -> int:
        number = run.number_of(row_id)
        if number is None:
            raise _NotFound("the run has no such row", where=row_id, fix="see the list of rows")
        return number


class _Links:
    """Addresses that keep what a list was asked for."""

    def __init__(self, run: str, query: Query, against: str) -> None:
        self.run, self.query, self.against = run, query, against

    def rows(self, **more: Any) -> str:
        return _address(self.run, {**self._asked(), **more})

    def row(self, row_id: str, *, pair: bool = False) -> str:
        asked = self._asked()
        if not pair or not self.against:
            return _address(self.run, asked, row_id)
        beside = f"{path_of(self.run, row_id)}/against/{quote(self.against, safe='')}"
        return f"{beside}?{urlencode(asked)}"

    def line(self, line: Mapping[str, Any], other: Mapping[str, Any] | None) -> dict[str, Any]:
        return {**line, "href": self.row(line["row_id"]), "other": other}

    def sorts(self) -> dict[str, str]:
        """Column -> the list sorted by it, the other way round where it is so already."""
        return {
            name: _address(
                self.run,
                {**self._asked(), "sort": f"-{name}" if self.query.sort == name else name},
            )
            for name in SORTS
        }

    def _asked(self) -> dict[str, str]:
        return {**self.query.as_dict(), **({"against": self.against} if self.against else {})}


def _address(run: str, asked: Mapping[str, Any] | None = None, row_id: str = "") -> str:
    return f"{path_of(run, row_id)}{f'?{urlencode(asked)}' if asked else ''}"


def _lines(
    run: RunTable, shown: Any, other: RunTable | None
) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Rows as values, each with that of the other run."""
    lines = run.lines(shown)
    if other is None:
        return [(line, None) for line in lines]
    places = [other.by_key.get(run.key_of(int(number))) for number in shown]
    held = {
        p: line
        for p, line in zip(
            [p for p in places if p is not None],
            other.lines([p for p in places if p is not None]),
            strict=True,
        )
    }
    return [
        (line, None if place is None else held[place])
        for line, place in zip(lines, places, strict=True)
    ]


def _choices(run: RunTable, query: Query) -> dict[str, list[tuple[str, int]]]:
    rules = run.rules_of(query.rules)
    return {
        "benchmark": run.counts("benchmark")[:MOST_CHOICES],
        "language": run.counts("language")[:MOST_CHOICES],
        "category": sorted(run.counts("category")[:MOST_CHOICES]),
        "error_type": run.counts(f"{rules}_error_type")[:MOST_CHOICES],
        "verdict": [(name, 0) for name in (RIGHT, "wrong", NOT_SCORED, "changed")],
    }


def _whole(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 9 else 1


def _page(template: str, *, status: int = 200, **view: Any) -> Response:
    return HTMLResponse(render(template, view), status_code=status, headers=_HEADERS)


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        raise _NotFound("no such file", where=name, fix="")
    package = "ace_ray.reports.html" if name == "report.css" else "ace_ray.view.pages"
    content = files(package).joinpath(name).read_bytes()
    return Response(content, media_type=_ASSETS[name], headers=_HEADERS)


def _not_found(request: Request, error: Exception) -> Response:
    return _page("error.html.j2", status=404, title="Not found", error="there is no such page")


def _refused(request: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, _NotFound) else 500
    return _page("error.html.j2", status=status, title="Not shown", error=str(error))
