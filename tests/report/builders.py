"""Rows, run folders, sweep folders and parsed pages for the tests of reports."""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.options import AGENT, CATEGORIES, MULTI_TURN, NORMAL, group_of
from ace_ray.config.schema import RunConfig
from ace_ray.models.families import FormatChoice
from ace_ray.models.sources import Adapter, ModelRef
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.summary import finish
from ace_ray.reports.report import make_report
from ace_ray.reports.runs import ScoredRun, load_runs
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS, episode_columns, verdict_columns
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import Episode, Verdict, digest

ERRORS = {"official": "value_error:string", "strict": "param_value"}
SPECIAL_ERRORS = {"official": "error_detection", "strict": "detection_failed"}

Row = dict[str, Any]


def row(
    language: str,
    category: str,
    number: int,
    *,
    official: bool = True,
    strict: bool | None = None,
    errors: dict[str, str] | None = None,
    process: float | None = None,
    status: str = "scored",
    sample: int = 0,
) -> Row:
    """Build a stored row. ``strict`` follows ``official`` unless given."""
    suffix = f"_{number}_0" if category in MULTI_TURN else f"_{number}"
    entry_id = f"{category}{suffix}"
    valid = {"official": official, "strict": official if strict is None else strict}
    errors = errors or (ERRORS if category in NORMAL else SPECIAL_ERRORS)
    verdicts = {}
    for rules, ok in valid.items() if status == "scored" else ():
        metrics = {} if process is None else {"end_to_end": float(ok), "process_accuracy": process}
        verdicts[rules] = Verdict(ok, "" if ok else errors[rules], metrics=metrics)
    keys = {"benchmark": "acebench", "category": category, "language": language, "id": entry_id}
    keys |= {"group": group_of(category, entry_id), "status": status, "worker": "host:1"}
    return {
        **keys,
        "row_id": digest(language, category, number, sample)[:32],
        **dict.fromkeys(("sample", "seed"), sample),
        "repeat": 0,
        "error_class": None if status == "scored" else "RuntimeError",
        "error": None,
        "attempts": 1,
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "duration_s": 1.0,
        **episode_columns(Episode(output="[f()]", finish_reason="stop", model_calls=1)),
        **verdict_columns(verdicts),
    }


def block(language: str, category: str, valid: int, of: int, **more: Any) -> list[Row]:
    """Build ``of`` rows of one category, the first ``valid`` of them right."""
    return [row(language, category, i, official=i < valid, **more) for i in range(of)]


def everything(
    shares: dict[str, int], *, of: int = 10, languages: Sequence[str] = ("en", "zh")
) -> list[Row]:
    """Build ``of`` rows per category and language. ``shares[category]`` are right, else all."""
    rows = []
    for language in languages:
        for category in CATEGORIES:
            process = 0.75 if category in AGENT else None
            rows += block(language, category, shares.get(category, of), of, process=process)
    return rows


def write_run(
    folder: Path,
    rows: Iterable[Row],
    *,
    model: str = "org/Toy-7B-Instruct",
    run_id: str = "",
    variant: str = "standard",
    missing: int = 0,
    finished: bool = True,
    restricted: dict[str, Any] | None = None,
    extra_identity: dict[str, Any] | None = None,
    parameters: int | None = None,
    adapter: str = "",
    benchmark: str = "acebench",
    **settings: Any,
) -> Path:
    """Write ``rows`` and a manifest made by the package. ``settings`` are keys of a config."""
    rows = [row | {"benchmark": row["benchmark"].replace("acebench", benchmark)} for row in rows]
    acebench, described = _benchmark(variant)
    tree: dict[str, Any] = {"model": {"source": model}, "benchmarks": [{"name": "acebench"}]}
    config = RunConfig.model_validate(
        {**tree, "backend": "vllm", "max_unscored_fraction": 0.0, **settings}
    )
    drawn = config.sampling.sampling()
    identity = {
        "model": digest(model),
        "chat_template_kwargs": {},
        "reasoning_parser": "auto",
        "backend": config.backend,
        "benchmarks": {"acebench": described},
        "engine": {},
        "sampling": [drawn.with_sample_seed(i).as_json() for i in range(config.samples)],
        "rows": digest(model, variant),
        **({"adapter": digest(adapter)} if adapter else {}),
        **(extra_identity or {}),
    }
    pinned = ModelRef(model, "hub", model, digest(model))
    if adapter:
        adapter_ref = ModelRef(adapter, "folder", adapter, digest(adapter))
        pinned = replace(pinned, adapter=Adapter(adapter_ref, 8, model))
    plan = SimpleNamespace(
        config=config,
        model=pinned,
        benchmarks={"acebench": acebench},
        rows=[None] * (len(rows) + missing),
        identity=identity,
        run_id=run_id or folder.name,
        choice=FormatChoice(),
        restricted=restricted or {},
        drawn=None,
    )
    text = json.dumps(make_manifest(cast(Any, plan), {}))
    manifest = json.loads(text.replace('"acebench"', f'"{benchmark}"'))
    if parameters is not None:
        manifest["model"]["parameters"] = parameters
    store = LocalStore(str(folder))
    store.put("run.json", json.dumps(manifest).encode())
    if rows:
        stored = [{**item, "run_id": plan.run_id} for item in rows]
        write_parts(store, "0-a", pa.Table.from_pylist(stored, schema=ROWS))
    if finished:
        store.put("_SUCCESS", b"")
    return folder


def loaded(*uris: Path | str) -> list[ScoredRun]:
    """Read runs, with labels."""
    return load_runs([str(uri) for uri in uris])


def change_manifest(run: Path, **keys: Any) -> dict[str, Any]:
    """Set ``keys`` of a run's manifest; return the manifest."""
    tree: dict[str, Any] = json.loads((run / "run.json").read_text()) | keys
    (run / "run.json").write_text(json.dumps(tree))
    return tree


def change_rows(run: Path, *numbers: int, **columns: Any) -> None:
    """Set ``columns`` of some rows of a run with one part, by default of all rows."""
    (part,) = (run / "rows").glob("*.parquet")
    rows = pq.read_table(part).to_pylist()
    for number in numbers or range(len(rows)):
        rows[number] |= columns
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(part)), part)


@cache
def _benchmark(variant: str) -> tuple[ACEBench, dict[str, Any]]:
    prompts = {"mode": "native"} if variant == "native" else {"variant": variant}
    benchmark = ACEBench.from_options({"data": "mini", **prompts})
    return benchmark, dict(benchmark.identity())


def ledger_line(label: str, state: str = "complete", **changes: Any) -> Row:
    """Return a line of ``ledger.json``: 100 device seconds for 340 entries."""
    return {
        **{"run_id": f"run-{label}", "label": label, "step": None, "state": state, "note": ""},
        **{"source": f"/models/train/{label}", "engine": "fresh", "devices": 1, "device": "gpu"},
        "seconds": {"load": 20.0, "warm_up": 5.0, "generation": 60.0, "tool": 10.0, "idle": 5.0},
        "entries": 340,
        "tokens": {"prompt": 1000, "completion": 200},
        "cost": 0.1,
        "per_1000": {"device_s": 294.1, "cost": 0.2941},
        **changes,
    }


def refused(label: str, note: str) -> Row:
    """Return the line of a model that never started."""
    line = {"run_id": f"run-{label}", "label": label, "step": None, "state": "refused"}
    return {**line, "source": f"/models/{label}", "note": note}


def write_sweep(folder: Path, lines: Sequence[Row], runs: dict[str, list[Row]]) -> Path:
    """Write a sweep: a manifest, a ledger of ``lines``, and a run per label in ``runs``."""
    for label, rows in runs.items():
        write_run(folder / f"run-{label}", rows, model=f"/models/train/{label}")
    manifest = {"schema_version": 1, "sweep_id": "train-1a2b", "config": {"checkpoints": {}}}
    manifest["created_at"] = "2026-01-01T00:00:00+00:00"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.json").write_text(json.dumps(manifest))
    (folder / "ledger.json").write_text(json.dumps({"schema_version": 1, "runs": list(lines)}))
    return folder


def summarized(folder: Path) -> Path:
    """Write the summary of the run in ``folder`` as `evaluate` does; return ``folder``."""
    store = LocalStore(str(folder))
    run = StoredRun(store)
    benchmarks = {"acebench": ACEBench.from_options({"data": "mini"})}
    finish(store, run.manifest, benchmarks, run.ledger, {})
    return folder


def complete_run(folder: Path, rows: Iterable[Row] = (), **options: Any) -> Path:
    return summarized(write_run(folder, rows or full_rows(5), **options))


def full_rows(right: int) -> list[Row]:
    """Build five rows per category; of one category ``right`` are right, else all."""
    return everything({"special_incomplete": right}, of=5)


def sweep_of(folder: Path, steps: dict[int, list[Row]], **lines: Any) -> Path:
    """Write, or write again, a sweep of checkpoints: their rows by step, with summaries."""
    listed = [ledger_line(f"step_{step}", step=step) for step in steps]
    listed += [ledger_line(label) for label in lines]
    runs = {f"step_{step}": rows for step, rows in steps.items()} | lines
    write_sweep(folder, listed, runs)
    for label in runs:
        summarized(folder / f"run-{label}")
    return folder


HOSTILE = [
    "</script><script>pwned=1</script>",
    "</pre></td></table></details><h1>x</h1>",
    '"><img src=x onerror=pwned=1>',
    "' onmouseover='pwned=1",
    "<svg/onload=pwned=1>",
    "</style><style>*{display:none}</style>",
    "<!-- <![CDATA[ <?php --!>",
    "&lt;b&gt; &amp;amp; &#60;i&#62;",
    "{{ 7*7 }}{% raw %}{# x #}${7*7}",
    "javascript:pwned=1",
    "\x1b[2J\x1b]0;title\x07red",
    "a\u202edcba\u2066\u200b\ufeff\u2028\u2029",
    "null\x00null",
    "lone \ud800 surrogate",
    "</textarea></title></select></option><base href=//x>",
]


def utf8(text: str) -> str:
    """Return valid Unicode, as rows and manifests hold it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def hostile_rows(text: str) -> list[Row]:
    """Build rows that say ``text`` wherever a row can, wrong under one rule set or both."""
    stored = utf8(text)
    messages = [
        {"role": text, "content": text},
        {"role": "tool", "content": {text: [text]}},
        {"role": "assistant", "content": text, "text": text, "tool_calls": [{"function": text}]},
        {"role": "user", "content": text},
    ]
    columns = ("output", "reasoning", "official_error", "strict_error", "finish_reason")
    fields = dict.fromkeys(columns, stored) | {"messages": json.dumps(messages)}
    fields |= dict.fromkeys(("state", "gold"), json.dumps({text: text}))
    errors = {"official": stored, "strict": stored}
    rows = [
        row("en", "agent_multi_step", n, official=n == 1, strict=False, errors=errors) | fields
        for n in (0, 1)
    ]
    names = dict.fromkeys(("id", "group", "language"), stored)
    return [*rows, rows[0] | names | {"row_id": "0" * 32}]


_OF_VIEW = re.compile(r"http://127\.0\.0\.1:8642/run/[\w.~%-]+/row/[\w.~%-]+", re.ASCII)
"""The only addresses that a page names."""


class Page(HTMLParser):
    """Elements of a page by tag and attribute names, its texts, scripts and styles."""

    void = frozenset({"meta", "wbr", "br", "input", "hr"})

    def __init__(self, content: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.shapes: Counter[tuple[str, frozenset[str]]] = Counter()
        self.values: list[tuple[str, str, str]] = []
        self.raw: dict[str, str] = {"script": "", "style": ""}
        self.text = ""
        self.open: list[str] = []
        self.odd: list[str] = []
        self.feed(content.decode())
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.shapes[tag, frozenset(name for name, _ in attributes)] += 1
        self.values += [(tag, name, value or "") for name, value in attributes]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        # A tag that closes itself has not been opened.
        if tag not in self.void and (not self.open or self.open.pop() != tag):
            self.odd.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.raw:
            self.raw[self.open[-1]] += data
        else:
            self.text += data

    def handle_decl(self, decl: str) -> None:
        if decl != "doctype html":
            self.odd.append(decl)

    def handle_comment(self, data: str) -> None:
        self.odd.append(data)

    handle_pi = unknown_decl = handle_comment


def report_page(*uris: Path | str, out: Path, **changes: Any) -> bytes:
    """Write a report to ``out``, and return its page."""
    options = {"paper": False, "rules": "official", **changes}
    make_report([str(u) for u in uris], out=str(out), console=Console(file=StringIO()), **options)
    return (out / "report.html").read_bytes()


def is_sound(content: bytes) -> Page:
    """Check that a page is well-formed, runs one script and sends no requests; return it."""
    page = Page(content)
    assert page.odd == page.open == []
    (policy,) = [value for _, _, value in page.values if value.startswith("default-src 'none'; ")]
    sha256 = base64.b64encode(hashlib.sha256(page.raw["script"].encode()).digest()).decode()
    assert f"script-src 'sha256-{sha256}'" in policy
    counts = Counter(tag for tag, _ in page.shapes.elements())
    assert (counts["script"], counts["style"]) == (1, 1)
    assert not counts.keys() & {"img", "iframe", "object", "embed", "link", "base", "form", "image"}
    for _, name, value in page.values:
        assert not name.startswith("on"), name
        assert name not in ("src", "srcdoc", "action", "formaction", "data"), name
        if name in ("href", "xlink:href"):
            assert value.startswith("#") or _OF_VIEW.fullmatch(value), value
    assert not re.search(r"@import|url\(|expression", page.raw["style"])
    return page
