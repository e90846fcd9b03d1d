"""Take the README's screenshots of a stored run.

    python docs/screenshots.py RUN [ROW_ID]

Writes ``images/report.png``, the top of its report, and ``images/transcript.png``, the page of
one row in ``ace-ray view``. ROW_ID defaults to the first row of an agent category, else the first
row. Needs ``chromium`` on the PATH.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ace_ray

IMAGES = Path(__file__).parent / "images"
SIZE = "1280,900"


def screenshot(url: str, path: Path) -> None:
    """Store what a browser window shows of ``url``. Raises `SystemExit` without a browser."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("chromium is not on the PATH; install it")
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}"]
    subprocess.run(
        [browser, *options, f"--screenshot={path}", url],
        check=True,
        capture_output=True,
        timeout=120,
    )


def report_page(run: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(str(ace_ray.report([run], output=folder)))
        screenshot(page.resolve().as_uri(), IMAGES / "report.png")


def row_page(run: ace_ray.Run, row: str) -> None:
    command = [sys.executable, "-m", "ace_ray.cli.main", "view", run.uri, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = None
            while found is None:
                found = re.search(r"(http://\S+/)\?(token=\S+)", server.stdout.readline())
            url = f"{found[1]}run/{run.run_id}/row/{row}?{found[2]}"
            screenshot(url, IMAGES / "transcript.png")
        finally:
            server.terminate()


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    run = ace_ray.Run.open(sys.argv[1])
    rows = run.rows(["row_id", "category"]).to_pylist()
    rows.sort(key=lambda row: not row["category"].startswith("agent"))
    IMAGES.mkdir(exist_ok=True)
    report_page(run.uri)
    row_page(run, sys.argv[2] if len(sys.argv) == 3 else rows[0]["row_id"])


if __name__ == "__main__":
    main()
