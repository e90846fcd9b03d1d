"""Where ``ace-ray view`` shows a row: pages of a report link there."""

from __future__ import annotations

from urllib.parse import quote

HOST = "127.0.0.1"
PORT = 8642
"""Unless another one is asked for, or this one is taken."""


def path_of(run_id: str, row_id: str = "") -> str:
    """Of a run's list of rows, or of one of them."""
    row = f"row/{quote(row_id, safe='')}" if row_id else ""
    return f"/run/{quote(run_id, safe='')}/{row}"


def address_of(run_id: str, row_id: str) -> str:
    """A link for whoever has the view open."""
    return f"http://{HOST}:{PORT}{path_of(run_id, row_id)}"
