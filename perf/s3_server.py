"""An S3 server of a script's own: moto in a process, behind a door in this one that can be shut.

The door forwards every request, and answers 503 while it is shut: moto keeps its objects in memory,
so it cannot be killed and started again.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BUCKET = "results"
REFUSAL = b"<Error><Code>SlowDown</Code><Message>told to refuse</Message></Error>"
_PER_HOP = ("connection", "transfer-encoding", "expect", "keep-alive")


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that is killed resets its connection.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class S3Server:
    """Context. Inside it the environment points every S3 client of this process and of its
    children at the door; ``uri`` is a bucket that exists, ``asked`` counts requests, ``refused``
    what was refused of them."""

    uri = f"s3://{BUCKET}"

    def __init__(self) -> None:
        self.shut = False
        self.asked = self.refused = 0
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port: int = probe.getsockname()[1]
        self._door = _Server(("127.0.0.1", 0), self._handler())

    def __enter__(self) -> S3Server:
        self._moto = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        threading.Thread(target=self._door.serve_forever, name="door", daemon=True).start()
        os.environ.update(
            AWS_ACCESS_KEY_ID="testing",
            AWS_SECRET_ACCESS_KEY="testing",
            AWS_DEFAULT_REGION="us-east-1",
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{self._door.server_port}",
            AWS_CONFIG_FILE=os.devnull,
            AWS_SHARED_CREDENTIALS_FILE=os.devnull,
        )
        self._wait()
        import boto3

        boto3.client("s3").create_bucket(Bucket=BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        self._door.shutdown()
        self._door.server_close()
        self._moto.terminate()
        self._moto.wait(timeout=30)

    @contextmanager
    def refusing(self, run: str) -> Iterator[None]:
        """Every request, for ``run`` or another, is answered with 503 meanwhile."""
        self.shut = True
        try:
            yield
        finally:
            self.shut = False

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while self._moto.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise SystemExit("moto does not start; try: python -m moto.server -p 5000")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Door(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server.asked += 1
                if server.shut:
                    server.refused += 1
                    self._answer(503, [("Content-Type", "application/xml")], REFUSAL)
                    return
                headers = {k: v for k, v in self.headers.items() if k.lower() not in _PER_HOP}
                moto = http.client.HTTPConnection("127.0.0.1", server._port, timeout=120)
                try:
                    moto.request(self.command, self.path, body or None, headers)
                    answer = moto.getresponse()
                    self._answer(answer.status, answer.getheaders(), answer.read())
                finally:
                    moto.close()

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

            def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response_only(status)
                length = str(len(body))
                for name, value in headers:
                    if name.lower() == "content-length":
                        # That of a HEAD speaks of the object.
                        length = value if self.command == "HEAD" else length
                    elif name.lower() not in _PER_HOP:
                        self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        return Door
