"""Tell a trainer about each finished checkpoint of a sweep: config key ``notify``.

Each run that has ended is sent once, as a JSON document, to a URL or to the stdin of a command. A
document that cannot be delivered is sent again when the next run ends, or by the next command.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from ace_ray.errors import UserError, first_line
from ace_ray.models.http import Http, HttpRequest, Reply
from ace_ray.models.urls import http_url
from ace_ray.reports.comparison import compare_runs
from ace_ray.reports.kept import MARGIN
from ace_ray.reports.kept_tables import headlines
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
        raise UserError(
            "needs exactly one of url, url_env and command", where="notify", fix="name one"
        )
    _variable(options.token_env, "notify.token_env")
    if not options.command:
        try:
            http_url(_url(options))
        except ValueError as error:
            raise UserError(str(error), where="notify", fix="write an http(s) URL") from None


def notify(sweep: Sweep) -> None:
    """Send the runs that have ended and that were not sent before, in the order of the ledger.
    Return after the first failure, with a warning."""
    options = sweep.notify
    lines = list(sweep.cost_records)
    if options is None or not lines:
        return
    content = sweep.store.get(SENT)
    sent = json_object(content, f"{sweep.store.root}/{SENT}") if content else {}
    for line in lines:
        key = line.run_id or line.source
        if line.state not in _ENDED or sent.get(key) == line.state:
            continue
        about = {"schema_version": 1, "sweep": sweep.sweep_id, "sweep_folder": sweep.uri}
        document = {**about, **document_of(sweep.store, line, lines)}
        if failure := _deliver(options, as_json(document)):
            log.warning(f"notify: {line.label} is not delivered yet: {failure}")
            return
        sent[key] = line.state
        sweep.store.put(SENT, as_json(sent))


def document_of(store: Store, line: CostRecord, lines: Sequence[CostRecord]) -> dict[str, Any]:
    """Return what a receiver gets about ``line``, a run of the sweep in ``store`` with the ledger
    ``lines`` (docs/sweeps.md)."""
    folder = store.child(line.run_id)
    content = folder.get(SUMMARY) if line.run_id else None
    summary = json_object(content, f"{folder.root}/{SUMMARY}") if content else {}
    rows = {key: summary.get(key) for key in ("declared", "scored")}
    return {
        "label": line.label,
        "step": line.step,
        "checkpoint": line.source,
        "folder": folder.root if line.run_id else None,
        "state": line.state,
        "note": line.note,
        "rows": {**rows, "not_evaluated": summary.get("missing", line.rows_left)},
        "headlines": [
            {"benchmark": name, "rules": rules, **scores[0]}
            for name, block in summary.get("benchmarks", {}).items()
            for rules, scores in block.get("scores", {}).items()
            if scores
        ],
        "early": summary.get("early"),
        "comparison": _comparison(store, line, lines),
    }


def _comparison(
    store: Store, line: CostRecord, lines: Sequence[CostRecord]
) -> dict[str, Any] | None:
    """Return the paired difference to the previous complete checkpoint; None if there is none."""
    before = [
        (other.step, other)
        for other in lines
        if other.state == "complete" and other.step is not None and other.step < (line.step or 0)
    ]
    if line.state != "complete" or not before:
        return None
    step, previous = max(before, key=lambda pair: pair[0])
    facts = {"with": previous.label, "step": step, "folder": store.child(previous.run_id).root}
    runs = [ScoredRun(store.child(record.run_id)) for record in (previous, line)]
    for run, label in zip(runs, ("before", "after"), strict=True):
        run.label = label
    try:
        compared = compare_runs(runs, reference="before", categories=False, margin=MARGIN)
    except UserError as error:
        return {**facts, "headlines": [], "refused": str(error)}
    records = headlines(compared.kept)
    return {**facts, "headlines": [{key: r[key] for key in _COMPARED} for r in records]}


def _deliver(options: NotifyConfig, document: bytes) -> str:
    """Send ``document``, and try again after `BACKOFF_S` if this may help. Return why it was not
    delivered, or ""."""
    key = _variable(options.token_env, "notify.token_env")
    failure, may_pass = "", True
    for pause_s in (0.0, *BACKOFF_S):
        time.sleep(pause_s)
        try:
            if options.command:
                failure = _run(options.command, options.timeout_s, document)
            else:
                status = asyncio.run(_post(options, document, key)).status
                failure = "" if 200 <= status < 300 else f"the receiver answered with {status}"
                may_pass = status in (408, 425, 429) or status >= 500
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = first_line(error)
        if not failure or not may_pass:
            break
    return one_line(mask_key(mask_key(failure, key), _url(options) if options.url_env else None))


def _run(command: Sequence[str], timeout_s: float, document: bytes) -> str:
    with tempfile.TemporaryFile() as errors:
        code = subprocess.run(
            command,
            input=document,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            timeout=timeout_s,
            start_new_session=True,  # Ctrl-C does not reach it
        ).returncode
        errors.seek(0)
        lines = errors.read(1 << 20).decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"the command ended with {code}: {last}" if code else ""


async def _post(options: NotifyConfig, document: bytes, key: str | None) -> Reply:
    headers = {"Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {key}"} if key else {}
    http = Http()
    try:
        return await http.fetch(
            HttpRequest("POST", _url(options), headers, document, options.timeout_s, 1 << 10)
        )
    finally:
        await http.close()


def _url(options: NotifyConfig) -> str:
    return options.url or _variable(options.url_env, "notify.url_env") or ""


def _variable(name: str | None, location: str) -> str | None:
    """Return the value of the environment variable ``name``; None if ``name`` is None. Raises
    `UserError` if the variable does not contain one line of ASCII."""
    if name is None:
        return None
    # Values from files and secrets often end with a newline.
    value = os.environ.get(name, "").strip()
    if not value or not value.isascii() or not value.isprintable():
        raise UserError(
            f"the environment variable {name} is not set to one line of ASCII",
            where=location,
            fix="set the variable, or leave the key out",
        )
    return value
