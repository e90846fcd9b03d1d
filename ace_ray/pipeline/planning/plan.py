"""Plan a run before anything starts: entries, row ids, manifest, run id.

A row id is a hash of entry content, model revision, prompt text, sampling with seed, sample index
and protocol options. Rows with equal ids would generate the same content.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ace_ray
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.checked import own_code
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.registry import code_hash
from ace_ray.config.schema import RunConfig
from ace_ray.early_stopping.draw import Drawn, draw
from ace_ray.errors import UserError
from ace_ray.models.endpoint_engine import UNKNOWN
from ace_ray.models.families import FamilyFacts, FormatChoice
from ace_ray.models.roles import endpoint_identity
from ace_ray.models.sampling import check_budget, completed
from ace_ray.models.sizes import size_here
from ace_ray.models.sources import Adapter, ModelRef
from ace_ray.pipeline.entries import opening_json, select
from ace_ray.pipeline.planning import prefixes
from ace_ray.pipeline.planning.formats import choice_identity, choose_format, first_native, replayed
from ace_ray.pipeline.roles import RoleBindings, bind_roles
from ace_ray.types import Entry, canonical_json, digest

# Folder of a report in a run's folder; its files are not part of the run.
REPORTS = "report/"


@dataclass(frozen=True, eq=False)
class PlannedRows:
    """Planned rows as arrays of equal length (62 bytes a row). Episodes with several calls come
    first, the longest before the others. Other rows are ordered by the prefixes of their prompts.
    """

    ids: np.ndarray
    entry: np.ndarray
    sample: np.ndarray
    repeat: np.ndarray
    size: np.ndarray
    """Prompt length in characters, by which the work of a row is estimated."""
    interactive: np.ndarray
    shares: np.ndarray
    """Index of the `Benchmark.preparation` that the row shares; -1 if it shares none."""
    window: np.ndarray
    """Number of the early-stopping window in which the row is evaluated; 0 without windows."""
    common: np.ndarray
    """Characters that the prompt shares with the prompt of the row before (`prefixes`)."""

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, mask: np.ndarray) -> PlannedRows:
        """Return the rows at which ``mask`` is true; ``self`` if it is true everywhere."""
        if mask.all():
            return self
        kept = np.flatnonzero(mask)
        columns = {name: column[kept] for name, column in vars(self).items()}
        if len(kept):
            # Two rows share what all rows between them share.
            begins = np.concatenate([[0], kept[:-1] + 1])
            columns["common"] = np.minimum.reduceat(self.common[: kept[-1] + 1], begins)
        return PlannedRows(**columns)

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns of these rows that are passed to Ray Data, by name."""
        names = ("entry", "sample", "repeat", "shares")
        return {"row_id": self.ids, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True)
class Plan:
    """Everything that a run needs before it starts. ``rows`` are the rows that the run declares."""

    config: RunConfig
    model: ModelRef
    benchmarks: dict[str, Benchmark]
    bindings: RoleBindings
    entries: list[Entry]
    openings: list[str]
    """For each entry the messages and tools that open its episodes (`entries.opening_json`)."""
    rows: PlannedRows
    identity: dict[str, Any]
    run_id: str
    choice: FormatChoice
    """Chat template and parsers of the candidate."""
    replay: dict[str, str]
    """Benchmark -> which reasoning the candidate sees again (`formats.replayed`)."""
    restricted: dict[str, dict[str, Any]]
    """Benchmark -> the ``ids`` and ``limit`` that restrict only this benchmark (`select`)."""
    drawn: Drawn | None = None
    """Random order of the entries if the run may stop early; else None."""

    @property
    def uri(self) -> str:
        return f"{self.config.output.rstrip('/')}/{self.run_id}"


def make_plan(
    config: RunConfig,
    model: ModelRef,
    benchmarks: Sequence[Benchmark],
    family: FamilyFacts | None = None,
) -> Plan:
    """Return the plan of a run, which declares its rows. ``family``: facts about the model's
    family. Raises `UserError` if the config is invalid or selects no entries."""
    by_name = {benchmark.name: benchmark for benchmark in benchmarks}
    if len(by_name) < len(benchmarks):
        raise UserError(
            "a benchmark is listed twice",
            where="benchmarks",
            fix="list each benchmark once; use one config per variant",
        )
    for benchmark in benchmarks:
        with own_code(type(benchmark), "ready"):
            benchmark.ready(named=True)  # the config names it
    entries, restricted = select(config, benchmarks)
    if not entries:
        raise UserError("there is nothing to evaluate", where="benchmarks", fix="select entries")
    if config.ids is not None:  # leave out benchmarks without an entry: no roles, no services
        asked = {entry.benchmark for entry in entries}
        benchmarks = [benchmark for benchmark in benchmarks if benchmark.name in asked]
        by_name = {benchmark.name: benchmark for benchmark in benchmarks}
    own = completed(config.sampling, model, config.engine, where="sampling")
    config = config.model_copy(update={"sampling": own})
    sampling = config.sampling.sampling()
    samplings = [sampling.for_sample(i).identity() for i in range(config.samples)]
    native = first_native(by_name, entries)
    choice, facts = choose_format(config, family or FamilyFacts(), native=native)
    if config.backend == "vllm":
        check_budget(config.sampling, config.engine, choice.reasoning_parser, where="sampling")
    candidate = {
        "model": model.known_revision,
        "chat_template_kwargs": config.model.chat_template_kwargs,
        **choice_identity(config, choice, native=native is not None),
        "backend": config.backend,
        **({"adapter": model.adapter.ref.revision} if model.adapter else {}),
    }
    replay = {name: replayed(config, b, choice, facts) for name, b in by_name.items()}
    if config.model.endpoint is not None:
        candidate["endpoint"] = endpoint_identity(config.model.endpoint)
    bindings = bind_roles(config, model, benchmarks)
    described = {name: identity_of(b) for name, b in by_name.items()}
    shared = {name: digest(candidate, d.get("protocol")) for name, d in described.items()}
    roles = {
        name: {role: dict(binding.identity) for role, binding in bound.items()}
        for name, bound in bindings.items()
    }
    shown_again = {name: [policy] for name, policy in replay.items() if policy != "none"}
    played = {
        name: digest(
            shared[name],
            d.get("episodes"),
            roles[name],
            config.episode_timeout_s,
            *shown_again.get(name, ()),
        )
        for name, d in described.items()
    }
    sizes, together = np.zeros(len(entries), np.int64), np.zeros(len(entries), bool)
    ids = np.empty((len(entries), len(samplings)), dtype="S32")
    draws = [digest(one, sample) for sample, one in enumerate(samplings)]
    contents: list[str] = []
    openings: list[str] = []
    shares, preparations = np.full(len(entries), -1, np.int32), dict[tuple[str, str], int]()
    for index, entry in enumerate(entries):
        benchmark = by_name[entry.benchmark]
        messages, tools = benchmark.opening(entry)
        openings.append(opening_json(messages, tools))
        prompt = canonical_json(messages if tools is None else [messages, tools])
        sizes[index], together[index] = len(prompt), benchmark.interactive(entry)
        if together[index] and (preparation := benchmark.preparation(entry)):
            key = (entry.benchmark, preparation)
            shares[index] = preparations.setdefault(key, len(preparations))
        protocol = (played if together[index] else shared)[entry.benchmark]
        contents.append(digest(protocol, entry.content_hash(), prompt))
        ids[index] = [row_id(contents[index], one) for one in draws]
    drawn = draw(config.early, by_name, entries, config.samples) if config.early else None
    windows = drawn.windows if drawn else np.zeros(len(entries), np.int8)
    # Interactive episodes come first, since they make many calls in sequence.
    order = np.lexsort((prefixes.ranks(openings), -sizes * together, ~together, windows))
    twice = [at for at in order if is_repeated(entries[at], config.repeat_subset)]
    again = digest(samplings[0], 0, "repeat")
    entry_of = np.concatenate([np.repeat(order, len(samplings)), twice]).astype(np.int32)
    sample_of = np.zeros(len(entry_of), np.int32)
    sample_of[: ids.size] = np.tile(np.arange(len(samplings)), len(entries))
    repeat_of = (np.arange(len(entry_of)) >= ids.size).astype(np.int32)
    repeated = np.array([row_id(contents[at], again) for at in twice], dtype="S32")
    common = sizes[entry_of]  # samples of an entry share all
    for at in np.flatnonzero(np.diff(entry_of, prepend=-1)).tolist():
        before, text = openings[entry_of[at - 1]], openings[entry_of[at]]
        common[at] = min(common[at], prefixes.common_length(before, text)) if at else 0
    rows = PlannedRows(
        np.concatenate([ids[order].ravel(), repeated]),
        entry_of,
        sample_of,
        repeat_of,
        sizes[entry_of],
        together[entry_of],
        shares[entry_of],
        # Repeated rows come last, since early stopping does not use them.
        np.where(repeat_of == 0, windows[entry_of], windows.max() + bool(config.early)).astype(
            np.int8
        ),
        common.astype(np.int32),
    )
    identity = {
        **candidate,
        "benchmarks": described,
        "roles": roles,
        # The timeout of episodes may change their result.
        "episode_timeout_s": config.episode_timeout_s if rows.interactive.any() else None,
        "engine": config.engine,
        "sampling": samplings,
        "rows": hashlib.sha256(np.sort(rows.ids).tobytes()).hexdigest(),
    }
    if shown_again and rows.interactive.any():
        identity["replay_reasoning"] = {name: policy for name, (policy,) in shown_again.items()}
    return Plan(
        config=config,
        model=model,
        benchmarks=by_name,
        bindings=bindings,
        entries=entries,
        openings=openings,
        rows=rows,
        identity=identity,
        run_id=config.run_id or _run_id(list(by_name), model, digest(identity)),
        choice=choice,
        replay=replay,
        restricted={name: restricted[name] for name in by_name if name in restricted},
        drawn=drawn,
    )


def _described(adapter: Adapter) -> dict[str, Any]:
    ref = adapter.ref
    return {
        "source": ref.source,
        "kind": ref.kind,
        "revision": ref.revision,
        "rank": adapter.rank,
        "base": adapter.base,
    }


def identity_of(benchmark: Benchmark) -> dict[str, Any]:
    """Return `Benchmark.identity`. For a class in a local file, add the hash of the file."""
    code = code_hash(type(benchmark))
    with own_code(type(benchmark), "identity"):
        identity = benchmark.identity()
        json.dumps(identity, allow_nan=False)
    return {**identity, **({"code_sha256": code} if code else {})}


def groups_of(benchmark: Benchmark) -> dict[str, list[str]]:
    """Return `Benchmark.groups` for the manifest, so that reports need not run benchmark code."""
    return {group: list(members) for group, members in benchmark.groups.items()}


def row_id(content: str, drawn: str) -> str:
    """Return the id of a row from the digest of its content and the digest of its sampling."""
    return hashlib.sha256(f"{content} {drawn}".encode()).hexdigest()[:32]


def is_repeated(entry: Entry, share: float) -> bool:
    """Return whether the dialogue of ``entry`` is evaluated twice. ``share`` (0 to 1) is the share
    of dialogues that are repeated. The choice of dialogues does not depend on the model."""
    key = digest(entry.benchmark, entry.category, entry.language, entry.group)
    return int(key[:8], 16) < share * (1 << 32)


def _run_id(benchmarks: Sequence[str], model: ModelRef, identity: str) -> str:
    name = re.sub(r"[^a-z0-9._-]+", "-", f"{'-'.join(benchmarks)}-{model.name}".lower())
    return f"{name[:80].strip('-.')}-{identity[:10]}"


def _absolute(paths: Any) -> Any:
    if isinstance(paths, list):
        return [_absolute(path) for path in paths]
    return None if paths is None else str(Path(paths).expanduser().resolve())


def make_manifest(plan: Plan, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the content of ``run.json``: everything that can change a score, and a config with
    which the run can be repeated. ``facts`` are further keys."""
    resolved = plan.config.model_dump(mode="json")
    if plan.model.kind == "hub":
        resolved["model"]["revision"] = plan.model.revision
    adapter = plan.model.adapter
    if adapter and adapter.ref.kind == "hub":
        resolved["model"]["adapter_revision"] = adapter.ref.revision
    resolved["benchmarks"] = [
        {
            "name": benchmark.source or name,
            **benchmark.resolved(),
            **plan.restricted.get(name, {}),
        }
        for name, benchmark in plan.benchmarks.items()
    ]
    resolved["ids"] = None  # each benchmark in the manifest has its own ids
    for key in ("chat_template", "plugins"):
        resolved["model"][key] = _absolute(resolved["model"][key])
    # Write the chosen date, since the environment of another machine may set a different one.
    resolved["model"]["start_date"] = plan.choice.start_date or plan.config.model.start_date
    resolved["run_id"] = plan.run_id
    return {
        "schema_version": 1,
        "run_id": plan.run_id,
        "ace_ray_version": ace_ray.__version__,
        "declared": len(plan.rows),
        "rule_sets": {name: list(b.rule_sets) for name, b in plan.benchmarks.items()},
        "groups": {name: groups_of(b) for name, b in plan.benchmarks.items()},
        "entries": {name: data_hash(b.dataset()) for name, b in plan.benchmarks.items()},
        "restricted": plan.restricted,
        "config": resolved,
        "model": {
            "source": plan.model.source,
            "kind": plan.model.kind,
            "revision": plan.model.known_revision,
            **({"unknown": list(UNKNOWN)} if plan.model.kind == "endpoint" else {}),
            **_size(plan.model),
            **({"adapter": _described(adapter)} if adapter else {}),
        },
        "identity": plan.identity,
        **({"early": plan.drawn.as_json()} if plan.drawn else {}),
        **facts,
    }


def _size(model: ModelRef) -> dict[str, Any]:
    """Return the model's size as ``{"parameters": n}``; {} if it is unknown without the weights."""
    # The engine reports a file that cannot be read.
    with suppress(UserError):
        if (size := size_here(model)) is not None and size.parameters:
            return {"parameters": size.parameters}
    return {}
