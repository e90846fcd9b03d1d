"""Tell a trainer about each finished checkpoint of a sweep: config key ``notify``.

Each run that has ended is sent once, as a JSON document, to a URL or to the stdin of a command. A
document that cannot be delivered is sent again when the next run ends, or by the next command.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from ace_ray.errors import UserError, first_line
from ace_ray.models.http import Http, HttpRequest
from ace_ray.models.urls import http_url, read_key
from ace_ray.reports.comparison import compare_runs
from ace_ray.reports.comparison_tables import headlines
from ace_ray.reports.kept import MARGIN
from ace_ray.reports.runs import ScoredRun
from ace_ray.storage.object_store import Store
from ace_ray.storage.stored import SUMMARY, as_json
from ace_ray.sweep.config import NotifyConfig
from ace_ray.sweep.ledger import CostRecord
from ace_ray.sweep.sweep import Sweep
from ace_ray.util import log
from ace_ray.util.safe_loading import json_object
from ace_ray.util.sanitizing import one_line
from ace_ray.util.secrets import mask_key

# File in the sweep's folder: the state of each run that was sent, by run id or source.
SENT = "notified.json"
# Pauses before the second and each later attempt.
BACKOFF_S = (1.0, 2.0, 4.0, 8.0)
_ENDED = ("complete", "decided", "failed", "refused")
_COMPARED = ("benchmark", "rules", "group", "n", "difference", "low", "high")


def check_notify(options: NotifyConfig | None) -> None:
    """Raise `UserError` unless ``options`` name one receiver whose secrets are set."""
    if options is None:
        return
    receivers = [options.url, options.url_env, options.command]
    if sum(receiver is not None for receiver in receivers) != 1:
        raise UserError("needs one of url, url_env and command", where="notify", fix="name one")
    url, _ = _secrets(options)
    try:
        http_url(url or "http://command")
    except ValueError as error:
        raise UserError(str(error), where="notify", fix="write an http(s) URL") from None


def _secrets(options: NotifyConfig) -> tuple[str, str | None]:
    """Return the URL ("" for a command) and the token. Raises `UserError` if one is not set."""
    fix = "set the variable, or leave the key out"
    url = options.url or read_key(options.url_env, "notify.url_env", fix) or ""
    return url, read_key(options.token_env, "notify.token_env", fix)


def notify(sweep: Sweep) -> None:
    """Send the runs that have ended and that were not sent before, in the order of the ledger.
    Return after the first failure, with a warning."""
    if (options := sweep.options.notify) is None:
        return
    content, lines = sweep.store.get(SENT), list(sweep.cost_records)
    sent = json_object(content, f"{sweep.store.root}/{SENT}") if content else {}
    for line in lines:
        key = line.run_id or line.source
        if line.state not in _ENDED or sent.get(key) == line.state:
            continue
        document = {"sweep": sweep.sweep_id, **document_of(sweep.store, line, lines)}
        if failure := _deliver(options, as_json(document)):
            log.warning(f"notify: {line.label} is not delivered yet: {failure}")
            return
        sent[key] = line.state
        sweep.store.put(SENT, as_json(sent))


def document_of(store: Store, line: CostRecord, lines: Sequence[CostRecord]) -> dict[str, Any]:
    """Return what a receiver gets about ``line``, a run of the sweep in ``store`` with the ledger
    ``lines`` (docs/sweeps.md)."""
    folder = store.child(line.run_id or ".")
    content = folder.get(SUMMARY) if line.run_id else None
    summary = json_object(content, f"{folder.root}/{SUMMARY}") if content else {}
    return {
        "schema_version": 1,
        "label": line.label,
        "step": line.step,
        "checkpoint": line.source,
        "folder": folder.root if line.run_id else None,
        "state": line.state,
        "note": line.note,
        "rows": {
            "declared": summary.get("declared"),
            "scored": summary.get("scored", 0),
            "not_evaluated": summary.get("missing", line.rows_left),
        },
        "headlines": [
            {"benchmark": name, "rules": rules, **scores[0]}
            for name, block in summary.get("benchmarks", {}).items()
            for rules, scores in block.get("scores", {}).items()
        ],
        "early": summary.get("early"),
        "comparison": _comparison(store, line, lines) if line.state == "complete" else None,
    }


def _comparison(
    store: Store, line: CostRecord, lines: Sequence[CostRecord]
) -> dict[str, Any] | None:
    """Return the paired difference to the previous complete checkpoint; None if there is none."""
    complete = [peer for peer in lines if peer.state == "complete" and peer.step is not None]
    earlier = [peer for peer in complete if (peer.step or 0) < (line.step or 0)]
    if not earlier:
        return None
    before = max(earlier, key=lambda peer: peer.step or 0)
    runs = [ScoredRun(store.child(record.run_id)) for record in (before, line)]
    facts = {"with": before.label, "step": before.step, "folder": runs[0].uri}
    runs[0].label, runs[1].label = "before", "after"
    try:
        compared = compare_runs(runs, reference="before", categories=False, margin=MARGIN)
    except UserError as error:
        return {**facts, "headlines": [], "refused": str(error)}
    records = headlines(compared.kept)
    return {**facts, "headlines": [{key: r[key] for key in _COMPARED} for r in records]}


def _deliver(options: NotifyConfig, document: bytes) -> str:
    """Send ``document``, and try again after `BACKOFF_S` if this may help. Return why it was not
    delivered, or ""."""
    (url, token), failure = _secrets(options), ""
    for pause_s in (0.0, *BACKOFF_S):
        time.sleep(pause_s)
        try:
            if options.command:
                failure = _run(options.command, document, options.timeout_s)
            else:
                status = asyncio.run(_post(url, token, document, options.timeout_s))
                failure = "" if 200 <= status < 300 else f"the receiver answered with {status}"
                if status < 500 and status not in (408, 425, 429):
                    break
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = first_line(error)
        if not failure:
            break
    return one_line(mask_key(mask_key(failure, token), url if options.url_env else None))


def _run(command: Sequence[str], document: bytes, timeout_s: float) -> str:
    # A new session: Ctrl-C does not reach the command.
    result = subprocess.run(
        command, input=document, capture_output=True, timeout=timeout_s, start_new_session=True
    )
    lines = result.stderr.decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"the command ended with {result.returncode}: {last}" if result.returncode else ""


async def _post(url: str, token: str | None, document: bytes, timeout_s: float) -> int:
    headers = {"Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    http = Http()
    try:
        reply = await http.fetch(HttpRequest("POST", url, headers, document, timeout_s, 1 << 10))
    finally:
        await http.close()
    return reply.status
