"""An S3 server of a command's own: moto in a process, which can be told to refuse every request."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUCKET = "results"
SERVER = """
import sys
from pathlib import Path
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

moto = DomainDispatcherApplication(create_backend_app)
refusal = b"<Error><Code>SlowDown</Code><Message>told to refuse</Message></Error>"

def answer(environ, start_response):
    if not Path(sys.argv[2]).exists():
        return moto(environ, start_response)
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(refusal)))]
    start_response("503 Slow Down", headers)
    return [refusal]

run_simple("127.0.0.1", int(sys.argv[1]), answer, threaded=True)
"""


class S3Server:
    """Context. Inside it the environment points every S3 client of this process and of its
    children at the server; ``uri`` is a bucket that exists."""

    uri = f"s3://{BUCKET}"

    def __enter__(self) -> S3Server:
        self._folder = tempfile.TemporaryDirectory(prefix="ace-ray-s3-")
        self._refuses = Path(self._folder.name, "refuses")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port: int = probe.getsockname()[1]
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(self._port), str(self._refuses)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.environ.update(
            AWS_ACCESS_KEY_ID="testing",
            AWS_SECRET_ACCESS_KEY="testing",
            AWS_DEFAULT_REGION="us-east-1",
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{self._port}",
            AWS_CONFIG_FILE=os.devnull,
            AWS_SHARED_CREDENTIALS_FILE=os.devnull,
        )
        self._wait()
        import boto3

        boto3.client("s3").create_bucket(Bucket=BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.terminate()
        self._server.wait(timeout=30)
        self._folder.cleanup()

    @contextmanager
    def refusing(self, run: str) -> Iterator[None]:
        """Every request, for ``run`` or another, is answered with 503 meanwhile."""
        self._refuses.touch()
        try:
            yield
        finally:
            self._refuses.unlink()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while self._server.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise SystemExit("moto does not start; try: python -m moto.server -p 5000")
