"""An OpenAI-compatible server that answers as it is told and notes what it was asked, and a server
with one answer. For runs, whose processes are not the test's: both live in threads of the test's
process."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], Any]
"""Request -> a chat completion (JSON values), or (status, body, headers), of which the last may be
absent. A body is a text, bytes, or pieces that are sent until the client goes."""


def completion(text: str | None = "hi", model: str = "m-1", **message: Any) -> dict[str, Any]:
    """A chat completion with usage."""
    reply = {"role": "assistant", "content": text, **message}
    return {
        "model": model,
        "system_fingerprint": "fp_1",
        "choices": [{"message": reply, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 3,
            "completion_tokens_details": {"reasoning_tokens": 1},
            "prompt_tokens_details": {"cached_tokens": 2},
        },
    }


def call(name: str, arguments: Any, number: int = 0) -> dict[str, Any]:
    """A tool call of a message."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"fn-{number}", "type": "function", "function": {"name": name, "arguments": text}}


class Scripted:
    """``answer`` may be replaced at any time; ``requests`` are the requests' bodies in order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Answer = lambda body: completion()


@contextmanager
def scripted_endpoint() -> Iterator[Scripted]:
    """The server, up until the context ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            scripted.requests.append(body)
            scripted.headers.append(dict(self.headers))
            answer = scripted.answer(body)
            if not isinstance(answer, tuple):
                answer = 200, json.dumps(answer)
            status, content, *headers = answer
            content = content.encode() if isinstance(content, str) else content
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            for name, value in (headers[0] if headers else {}).items():
                self.send_header(name, value)
            if isinstance(content, bytes):
                self.send_header("Content-Length", str(len(content)))
                content = [content]
            else:
                self.send_header("Connection", "close")
            self.end_headers()
            with suppress(ConnectionError):
                for piece in content:
                    self.wfile.write(piece)

        def log_message(self, format: str, *values: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    scripted = Scripted(f"http://127.0.0.1:{server.server_port}/v1")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield scripted
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def web_server(
    status: int, headers: dict[str, str], body: bytes
) -> Iterator[tuple[str, list[str]]]:
    """Serve one answer to all requests; yield the address and the requests' signatures."""
    signatures: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            signatures.append(self.headers.get("Authorization", ""))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_POST = do_PUT = do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", signatures
        server.shutdown()
