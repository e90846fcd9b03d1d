"""Sessions in a run's manifest: the commands that evaluated rows, with their versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ace_ray
from ace_ray.benchmarks.headline import few
from ace_ray.storage.stored import Manifest

MOST_SESSIONS = 100
"""Maximum sessions in a manifest. Sessions whose versions occur again later are dropped first."""


def session_record(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a session that begins, from ``facts`` (`machine_facts`)."""
    return {
        "began_at": facts.get("created_at", ""),
        "versions": {"ace_ray": ace_ray.__version__, **facts.get("versions", {})},
    }


def with_session(manifest: Manifest, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the sessions of a run with one more, at most `MOST_SESSIONS`."""
    sessions = [one.model_dump() for one in manifest.sessions]
    sessions.append(dict(record))
    while len(sessions) > MOST_SESSIONS:
        later = [one["versions"] for one in sessions]
        same = (at for at, one in enumerate(later) if one in later[at + 1 :])
        sessions.pop(next(same, 0))
    return sessions


def versions_line(mixed: Mapping[str, Sequence[str]]) -> str:
    """Return a line on rows of several versions (`Manifest.mixed_versions`), or ""."""
    if not mixed:
        return ""
    words = "; ".join(f"{name} {few(versions, 3)}" for name, versions in mixed.items())
    return f"rows come from several versions: {words}"
