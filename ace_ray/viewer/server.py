"""``ace-ray view``: a web server that shows runs to browsers on this machine, with a URL per row.

The server writes nothing. A request needs a secret token, since other users of the machine can
reach the port. Requests with another host name are refused, so that other web pages cannot read
the responses. The content security policy forbids foreign scripts, and templates escape all values.
Long texts are folded, and invisible characters are replaced by their names."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import uvicorn
from jinja2 import Environment
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ace_ray.errors import UserError
from ace_ray.reports.excerpts import excerpt, mark_hidden, to_json
from ace_ray.reports.explain import CAUSES
from ace_ray.reports.html.answers import HOST, PORT, path_of
from ace_ray.reports.html.page import environment
from ace_ray.types import ResultRow, Verdict
from ace_ray.util.safe_loading import SHOWN_CHARS
from ace_ray.viewer.episode import MOST_CHANGES, EpisodeView
from ace_ray.viewer.row_filter import key_of, outcome
from ace_ray.viewer.table import NOT_SCORED, RIGHT, WRONG, Query, RunTable

PAGE_ROWS = 100
# Maximum values that the filter of a column offers; the most frequent values are chosen.
MOST_CHOICES = 1_000
# Texts with more characters are folded.
FOLDED = 1_500
_START = 160
_PORTS = 20
# The URL parameter with the token.
TOKEN = "token"
_NO_TOKEN = (
    "only the person who started ace-ray view can open these pages: open "
    "the URL that it printed, with the token at its end; after that, links "
    "work in the same browser"
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


def serve(runs: Sequence[RunTable], port: int | None) -> None:
    """Print the URL, and serve ``runs`` until the process is interrupted."""
    listener, token = listener_at(port), secrets.token_urlsafe(32)
    address = f"http://{HOST}:{listener.getsockname()[1]}/?{TOKEN}={token}"
    print(f"view: {address} (Ctrl-C to stop)", flush=True)  # with the token unmasked
    config = uvicorn.Config(application(runs, token), log_level="warning", server_header=False)
    uvicorn.Server(config).run(sockets=[listener])


def listener_at(port: int | None) -> socket.socket:
    """Listen on ``port``, or if None, on the first free port from `PORT` on. Return the socket.
    Raises `UserError` if the ports are in use."""
    for candidate in [port] if port is not None else range(PORT, PORT + _PORTS):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, candidate))
            listener.listen()  # requests may follow as soon as the address is printed
        except OSError:
            listener.close()
            continue
        return listener
    raise UserError(
        "cannot listen on this port" if port is not None else f"{_PORTS} ports are in use",
        where=f"--port {port if port is not None else PORT}",
        fix="name another port; 0 takes any free port",
    )


def application(runs: Sequence[RunTable], token: str) -> Starlette:
    """Build the web application that shows ``runs``. Requests need the ``token``."""
    site = _PageHandlers(runs)
    return Starlette(
        routes=[
            Route("/", site.home),
            Route("/run/{run}/", site.rows),
            Route("/run/{run}/state", site.state),
            Route("/run/{run}/row/{row}", site.row),
            Route("/run/{run}/row/{row}/against/{other}", site.row),
            Route(f"{_ASSETS_FOLDER}{{name}}", _asset),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"]),
            Middleware(_TokenMiddleware, token=token),
        ],
        exception_handlers={404: _error_response, UserError: _error_response},
    )


class _TokenMiddleware:
    """Middleware that refuses requests without the token in the URL or in a cookie.

    A request with the token in its URL gets a cookie, and is redirected to a URL without it."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = self._app
        if scope["type"] == "http" and not scope["path"].startswith(_ASSETS_FOLDER):
            request = Request(scope)
            # Browsers share cookies between ports, so servers on other ports need other names.
            cookie = f"ace_ray_view_{scope['server'][1]}"
            if self._is_right(request.query_params.get(TOKEN, "")):
                answer = self._cookie_redirect(request, cookie)
            elif not self._is_right(request.cookies.get(cookie, "")):
                answer = _page("error.html.j2", status=403, title="Not shown", error=_NO_TOKEN)
        await answer(scope, receive, send)

    def _is_right(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self._token.encode())

    def _cookie_redirect(self, request: Request, cookie: str) -> Response:
        pairs = [pair for pair in request.query_params.multi_items() if pair[0] != TOKEN]
        # Keep a single leading slash: a URL that begins with two slashes names another host.
        path = f"/{request.scope['raw_path'].decode('ascii', 'replace').lstrip('/')}"
        answer = RedirectResponse(f"{path}?{urlencode(pairs)}" if pairs else path, 303, _HEADERS)
        # With "lax", browsers also send the cookie when a user follows a link in a report.
        answer.set_cookie(cookie, self._token, httponly=True, samesite="lax")
        return answer


class _NotFound(UserError):
    """The requested page does not exist."""


class _PageHandlers:
    """Handlers of the pages. Starlette runs them in threads, since they are not asynchronous."""

    def __init__(self, runs: Sequence[RunTable]) -> None:
        self._runs: dict[str, RunTable] = {}
        for run in runs:
            name, number = run.run_id, 2
            while name in self._runs:
                name, number = f"{run.run_id}~{number}", number + 1
            self._runs[name] = run

    def home(self, request: Request) -> Response:
        lines = []
        for name, run in self._runs.items():
            run.refresh()
            lines.append({"name": name, "href": path_of(name), **run.facts()})
        return _page("home.html.j2", title="Runs", runs=lines)

    def state(self, request: Request) -> Response:
        """Return the number of rows. Pages of an unfinished run request it every few seconds."""
        _, run = self._run(request)
        return JSONResponse({"rows": len(run.rows), "finished": run.finished}, headers=_HEADERS)

    def rows(self, request: Request) -> Response:
        name, run = self._run(request)
        params = request.query_params
        query, against = Query.from_params(params), self._base_name(name, params.get("against", ""))
        base = self._runs.get(against)
        rows = run.select(query, base)
        pages = max(1, -(-len(rows) // PAGE_ROWS))
        digits = params.get("page", "")
        is_number = digits.isascii() and digits.isdecimal() and len(digits) < 9
        page = min(max(1, int(digits) if is_number else 1), pages)
        page_rows = rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
        link = _Links(name, query, against)
        return _page(
            "rows.html.j2",
            title=name,
            run={"name": name, **run.facts()},
            others=[n for n in self._runs if n != name],
            against=against,
            query=query,
            rules=run.rule_sets,
            causes=CAUSES,
            choices=_choices(run, query),
            count=len(rows),
            lines=[
                {
                    "row": row,
                    "href": link.row(row.row_id),
                    "other": base.by_key.get(key_of(row)) if base else None,
                }
                for row in page_rows
            ],
            page=page,
            pages=pages,
            turn={
                "previous": link.rows(page=page - 1) if page > 1 else "",
                "next": link.rows(page=page + 1) if page < pages else "",
            },
            live=not run.finished,
        )

    def row(self, request: Request) -> Response:
        """Show a row. If the URL names another run, show the same row of that run beside it."""
        name, run = self._run(request)
        row_id = request.path_params["row"]
        if (row := run.by_id.get(row_id)) is None:
            raise _NotFound("the run has no such row", where=row_id, fix="see the list of rows")
        sides: list[dict[str, Any]] = [{"name": name, "row": row_view(run.episode(row))}]
        params = request.query_params
        beside = request.path_params.get("other")
        against = self._base_name(name, params.get("against", "")) if beside is None else beside
        if beside is not None:
            if beside not in self._runs:
                fix = "choose a run from the list of runs"
                raise _NotFound("no such run", where=beside, fix=fix)
            base = self._runs[beside]
            base_row = base.by_key.get(key_of(row))
            sides.append({"name": beside, "row": base_row and row_view(base.episode(base_row))})
        link = _Links(name, Query.from_params(params), against)
        return _page(
            "row.html.j2",
            title=row.id,
            back=link.rows(),
            turn=self._row_links(run, link, row, pair=beside is not None),
            sides=sides,
            pairs=[
                (run_name, _Links(name, link.query, run_name).row(row.row_id, pair=True))
                for run_name, table in self._runs.items()
                if run_name != name and key_of(row) in table.by_key
            ],
        )

    def _row_links(
        self, run: RunTable, link: _Links, row: ResultRow, *, pair: bool
    ) -> dict[str, str]:
        """Return links to the previous and the next row in the list, and the position of ``row``.
        With ``pair``, the links show the rows of two runs side by side."""
        row_ids = [r.row_id for r in run.select(link.query, self._runs.get(link.against))]
        if row.row_id not in row_ids:
            return {"previous": "", "next": "", "place": ""}
        at = row_ids.index(row.row_id)
        return {
            "previous": link.row(row_ids[at - 1], pair=pair) if at else "",
            "next": link.row(row_ids[at + 1], pair=pair) if at + 1 < len(row_ids) else "",
            "place": f"{at + 1:,} of {len(row_ids):,}",
        }

    def _run(self, request: Request) -> tuple[str, RunTable]:
        """Return the name and the rows of the run in the URL, after reading new rows."""
        name = request.path_params["run"]
        if name not in self._runs:
            raise _NotFound("no such run", where=name, fix="see the list of runs")
        self._runs[name].refresh()
        return name, self._runs[name]

    def _base_name(self, name: str, against: str) -> str:
        """Return the run to compare with: ``against`` if it exists, the only other run, or ""."""
        names = [n for n in self._runs if n != name]
        if against in names:
            return against
        return names[0] if len(names) == 1 else ""


class _Links:
    """Builds URLs that contain the filters of a list of rows."""

    def __init__(self, run: str, query: Query, against: str) -> None:
        self.run, self.query, self.against = run, query, against

    def rows(self, **more: Any) -> str:
        return self._url(path_of(self.run), more)

    def row(self, row_id: str, *, pair: bool = False) -> str:
        beside = f"/against/{quote(self.against, safe='')}" if pair and self.against else ""
        return self._url(path_of(self.run, row_id) + beside, {})

    def _url(self, path: str, more: Mapping[str, Any]) -> str:
        against = {"against": self.against} if self.against else {}
        parameters = {**self.query.as_dict(), **against, **more}
        return f"{path}?{urlencode(parameters)}" if parameters else path


def _choices(run: RunTable, query: Query) -> dict[str, list[tuple[str, int]]]:
    rules = run.rules_of(query.rules)
    none = Verdict(None)
    error_types = run.counts(lambda row: row.verdicts.get(rules, none).error_type)
    return {
        "benchmark": run.counts(lambda row: row.benchmark)[:MOST_CHOICES],
        "language": run.counts(lambda row: row.language)[:MOST_CHOICES],
        "category": sorted(run.counts(lambda row: row.category)[:MOST_CHOICES]),
        "error_type": error_types[:MOST_CHOICES],
        "verdict": [(name, 0) for name in (RIGHT, WRONG, NOT_SCORED, "changed")],
    }


def text_view(text: str) -> dict[str, Any]:
    """Return the template's values for a string. ``start``: first line of a long, folded string."""
    start = mark_hidden(" ".join(text[:_START].split())) if len(text) > FOLDED else ""
    return {"text": excerpt(text, SHOWN_CHARS), "length": len(text), "start": start}


def row_view(view: EpisodeView) -> dict[str, Any]:
    """Return the template's values for a row. ``first_answer``: index of the model's first answer;
    the page shows the offered tools before it."""
    roles = [step.role for step in view.steps]
    first_answer = roles.index("assistant") if "assistant" in roles else len(roles)
    return {"view": view, "facts": view.fact_texts(), "first_answer": first_answer}


def render(template: str, view: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(**view)


@cache
def _environment() -> Environment:
    env = environment("ace_ray.viewer", "pages")
    env.filters |= {"words": text_view, "pretty": to_json, "outcome": outcome}
    env.globals["most_changes"] = MOST_CHANGES
    return env


def _page(template: str, *, status: int = 200, **view: Any) -> Response:
    return HTMLResponse(render(template, view), status_code=status, headers=_HEADERS)


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        raise _NotFound("no such file", where=name, fix="")
    folder = "reports/html" if name == "report.css" else "viewer/pages"
    content = files("ace_ray").joinpath(f"{folder}/{name}").read_bytes()
    return Response(content, media_type=_ASSETS[name], headers=_HEADERS)


def _error_response(request: Request, error: Exception) -> Response:
    if not isinstance(error, UserError):
        return _page("error.html.j2", status=404, title="Not found", error="there is no such page")
    status = 404 if isinstance(error, _NotFound) else 500
    return _page("error.html.j2", status=status, title="Not shown", error=str(error))
