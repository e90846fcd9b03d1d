"""Plan a run before anything starts: entries, row ids, manifest, run id.

A row id is a hash of entry content, model revision, prompt text, sampling with seed, sample index
and protocol options. Rows with equal ids would generate the same content."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.registry import code_hash
from ace_ray.benchmarks.validation import user_code
from ace_ray.config.schema import RunConfig
from ace_ray.early_stopping.draw import EntryOrder, draw_order
from ace_ray.errors import UserError
from ace_ray.models.families import FormatChoice, ModelFiles
from ace_ray.models.hazards import hazards_of
from ace_ray.models.sampling import check_budget, fill_defaults
from ace_ray.models.sources import ModelRef
from ace_ray.models.urls import endpoint_identity
from ace_ray.pipeline.entries import opening_json, select
from ace_ray.pipeline.planning import prefixes
from ace_ray.pipeline.planning.formats import choose_format, native_benchmark, replay_policy
from ace_ray.pipeline.roles import RoleBindings, bind_roles
from ace_ray.types import Entry, canonical_json, digest


@dataclass(frozen=True, eq=False)
class PlannedRows:
    """Planned rows as arrays of equal length (62 bytes a row). Interactive episodes come first, the
    longest before shorter ones. Other rows are ordered by the prefixes of their prompts."""

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

    def select(self, mask: np.ndarray) -> PlannedRows:
        """Return the rows at which ``mask`` is true; ``self`` if it is true everywhere."""
        if mask.all():
            return self
        indices = np.flatnonzero(mask)
        columns = {name: column[indices] for name, column in vars(self).items()}
        if len(indices):
            # Two rows share what all rows between them share.
            begins = np.concatenate([[0], indices[:-1] + 1])
            columns["common"] = np.minimum.reduceat(self.common[: indices[-1] + 1], begins)
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
    files: ModelFiles
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
    native: bool
    """Whether the run offers tools to the candidate through the model's template."""
    replay: dict[str, str]
    """Benchmark -> which reasoning the candidate sees again, if any (`formats.replay_policy`)."""
    restricted: dict[str, dict[str, Any]]
    """Benchmark -> the ``ids`` and ``limit`` that restrict only this benchmark (`select`)."""
    drawn: EntryOrder | None = None
    """Random order of the entries if the run may stop early; else None."""
    conflict_line: str = ""
    """Line about a stored run that this run cannot continue; "" if there is no such run."""

    @property
    def uri(self) -> str:
        return f"{self.config.output.rstrip('/')}/{self.run_id}"

    @property
    def hazards(self) -> dict[str, str]:
        """Hazards of the candidate's engine, name -> line."""
        return hazards_of(self.config, self.files, native=self.native)

    @property
    def parser_line(self) -> str:
        """Line about the parsers that were chosen for ``auto``; "" if none was chosen."""
        model, chosen = self.config.model, []
        if model.reasoning_parser == "auto" and self.choice.reasoning_parser != "auto":
            chosen.append(f"reasoning parser {self.choice.reasoning_parser}")
        if model.tool_parser == "auto" and self.choice.tool_parser is not None:
            chosen.append(f"tool parser {self.choice.tool_parser}")
        return f"chosen by model family: {', '.join(chosen)}" if chosen else ""


def make_plan(
    config: RunConfig,
    model: ModelRef,
    benchmarks: Sequence[Benchmark],
    files: ModelFiles | None = None,
) -> Plan:
    """Return the plan of a run, which declares its rows. ``files``: the model's small files.

    Raises `UserError` if the config is invalid or selects no entries."""
    files = files or ModelFiles()
    benchmarks, entries, restricted = _choose(config, benchmarks)
    by_name = {benchmark.name: benchmark for benchmark in benchmarks}
    sampling = fill_defaults(config.sampling, files.folder, config.engine, location="sampling")
    config = config.model_copy(update={"sampling": sampling})
    of_run = sampling.sampling()
    bindings = bind_roles(config, model, benchmarks)
    candidate, choice, replay, native = _candidate(config, model, by_name, entries, bindings, files)
    identity = {
        **candidate,
        "benchmarks": {name: identity_of(b) for name, b in by_name.items()},
        "roles": {
            name: {role: dict(binding.identity) for role, binding in bound.items()}
            for name, bound in bindings.items()
        },
    }
    drawn = draw_order(config.early, by_name, entries, config.samples) if config.early else None
    protocols = _protocols(config, candidate, identity, replay)
    samplings = [of_run.with_sample_seed(number).identity() for number in range(config.samples)]
    rows, openings = _rows_and_openings(config, samplings, by_name, entries, protocols, drawn)
    interactive = bool(rows.interactive.any())
    identity |= {
        # The timeout of episodes may change their result.
        "episode_timeout_s": config.episode_timeout_s if interactive else None,
        "engine": config.engine,
        "sampling": samplings,
        "rows": hashlib.sha256(np.sort(rows.ids).tobytes()).hexdigest(),
        **({"replay_reasoning": replay} if replay and interactive else {}),
    }
    return Plan(
        config=config,
        model=model,
        files=files,
        benchmarks=by_name,
        bindings=bindings,
        entries=entries,
        openings=openings,
        rows=rows,
        identity=identity,
        run_id=config.run_id or run_id_of("-".join(by_name), model.name, identity),
        choice=choice,
        native=native,
        replay=replay,
        restricted={name: restricted[name] for name in by_name if name in restricted},
        drawn=drawn,
    )


def run_id_of(benchmark: str, model: str, *content: Any) -> str:
    """Return a run id: the names as far as they fit, and a hash of ``content``."""
    name = re.sub(r"[^a-z0-9._-]+", "-", f"{benchmark}-{model}".lower())
    return f"{name[:80].strip('-.')}-{digest(*content)[:10]}"


def _choose(
    config: RunConfig, benchmarks: Sequence[Benchmark]
) -> tuple[Sequence[Benchmark], list[Entry], dict[str, dict[str, Any]]]:
    """Return the benchmarks with entries to evaluate, the entries, and the restrictions of single
    benchmarks (`select`)."""
    if len({benchmark.name for benchmark in benchmarks}) < len(benchmarks):
        raise UserError(
            "a benchmark is listed twice",
            where="benchmarks",
            fix="list each benchmark once; use one config per variant",
        )
    for benchmark in benchmarks:
        with user_code(type(benchmark), "ready"):
            benchmark.ready(named=True)  # the config names it
    entries, restricted = select(config, benchmarks)
    if not entries:
        fix = "change ids, limit or the benchmark's options so that they select entries"
        raise UserError("there is nothing to evaluate", where="benchmarks", fix=fix)
    if config.ids is not None:  # leave out benchmarks without an entry: no roles, no services
        names = {entry.benchmark for entry in entries}
        benchmarks = [benchmark for benchmark in benchmarks if benchmark.name in names]
    return benchmarks, entries, restricted


def _candidate(
    config: RunConfig,
    model: ModelRef,
    benchmarks: Mapping[str, Benchmark],
    entries: Sequence[Entry],
    bindings: RoleBindings,
    files: ModelFiles,
) -> tuple[dict[str, Any], FormatChoice, dict[str, str], bool]:
    """Return four facts about the candidate: the part of the run's identity; template and parsers;
    `formats.replay_policy` by benchmark, except "none"; whether its template is given tools."""
    native = native_benchmark(benchmarks, entries, bindings)
    choice, facts = choose_format(config, files.facts, native=native)
    by_vllm = config.backend == "vllm" and (native is not None or choice.vllm_reasoning_parser)
    identity = {
        "model": model.known_revision,
        "chat_template_kwargs": config.model.chat_template_kwargs,
        **choice.identity,
        "tool_parser": choice.tool_parser,
        # vLLM's code can change prompts or parsed answers.
        **({"format": "vllm"} if by_vllm else {}),
        "backend": config.backend,
        **({"adapter": model.adapter.ref.revision} if model.adapter else {}),
    }
    replay = {name: replay_policy(config, b, choice, facts) for name, b in benchmarks.items()}
    if config.backend == "vllm":
        check_budget(config.sampling, config.engine, choice.reasoning_parser, location="sampling")
    if config.model.endpoint is not None:
        identity["endpoint"] = endpoint_identity(config.model.endpoint)
    replay = {name: policy for name, policy in replay.items() if policy != "none"}
    return identity, choice, replay, native is not None


def _protocols(
    config: RunConfig,
    candidate: Mapping[str, Any],
    identity: Mapping[str, Any],
    replay: Mapping[str, str],
) -> dict[tuple[str, bool], str]:
    """Map (benchmark, whether rows are interactive) to the digest of all settings that decide the
    content of these rows."""
    protocols = {}
    for name, described in identity["benchmarks"].items():
        single = protocols[name, False] = digest(candidate, described.get("protocol"))
        protocols[name, True] = digest(
            single,
            described.get("episodes"),
            identity["roles"][name],
            config.episode_timeout_s,
            *([replay[name]] if name in replay else []),
        )
    return protocols


def _rows_and_openings(
    config: RunConfig,
    samplings: Sequence[Mapping[str, Any]],
    benchmarks: Mapping[str, Benchmark],
    entries: Sequence[Entry],
    protocols: Mapping[tuple[str, bool], str],
    drawn: EntryOrder | None,
) -> tuple[PlannedRows, list[str]]:
    """Return the rows in the order in which they are evaluated, and the opening of each entry."""
    sizes, interactive = np.zeros(len(entries), np.int64), np.zeros(len(entries), bool)
    ids = np.empty((len(entries), len(samplings)), dtype="S32")
    draws = [digest(sampling, sample) for sample, sampling in enumerate(samplings)]
    contents: list[str] = []
    openings: list[str] = []
    shares, preparations = np.full(len(entries), -1, np.int32), dict[tuple[str, str], int]()
    for index, entry in enumerate(entries):
        benchmark = benchmarks[entry.benchmark]
        messages, tools = benchmark.opening(entry)
        openings.append(opening_json(messages, tools))
        prompt = canonical_json(messages if tools is None else [messages, tools])
        sizes[index], interactive[index] = len(prompt), benchmark.interactive(entry)
        if interactive[index] and (preparation := benchmark.preparation(entry)):
            key = (entry.benchmark, preparation)
            shares[index] = preparations.setdefault(key, len(preparations))
        protocol = protocols[entry.benchmark, bool(interactive[index])]
        contents.append(digest(protocol, entry.content_hash(), prompt))
        ids[index] = [row_id(contents[index], sampling) for sampling in draws]
    windows = drawn.windows if drawn else np.zeros(len(entries), np.int8)
    # Interactive episodes come first, since they make many calls in sequence.
    order = np.lexsort((prefixes.ranks(openings), -sizes * interactive, ~interactive, windows))
    repeats = [index for index in order if is_repeated(entries[index], config.repeat_fraction)]
    repeat = digest(samplings[0], 0, "repeat")
    entry_of = np.concatenate([np.repeat(order, len(samplings)), repeats]).astype(np.int32)
    sample_of = np.zeros(len(entry_of), np.int32)
    sample_of[: ids.size] = np.tile(np.arange(len(samplings)), len(entries))
    repeat_of = (np.arange(len(entry_of)) >= ids.size).astype(np.int32)
    # With early stopping, repeated rows come after all windows: no decision uses them.
    last = windows.max() + bool(config.early)
    window_of = np.where(repeat_of == 0, windows[entry_of], last).astype(np.int8)
    repeat_ids = np.array([row_id(contents[index], repeat) for index in repeats], dtype="S32")
    rows = PlannedRows(
        np.concatenate([ids[order].ravel(), repeat_ids]),
        entry_of,
        sample_of,
        repeat_of,
        sizes[entry_of],
        interactive[entry_of],
        shares[entry_of],
        window_of,
        prefixes.shared_lengths(openings, entry_of, sizes),
    )
    return rows, openings


def identity_of(benchmark: Benchmark) -> dict[str, Any]:
    """Return `Benchmark.identity`. For a class in a local file, add the hash of the file."""
    code = code_hash(type(benchmark))
    with user_code(type(benchmark), "identity"):
        identity = benchmark.identity()
        json.dumps(identity, allow_nan=False)
    return {**identity, **({"code_sha256": code} if code else {})}


def row_id(content: str, drawn: str) -> str:
    """Return the id of a row from the digest of its content and the digest of its sampling."""
    return hashlib.sha256(f"{content} {drawn}".encode()).hexdigest()[:32]


def is_repeated(entry: Entry, share: float) -> bool:
    """Return whether the dialogue of ``entry`` is evaluated twice. ``share`` (0 to 1) is the share
    of dialogues that are repeated. The choice of dialogues does not depend on the model."""
    key = digest(entry.benchmark, entry.category, entry.language, entry.group)
    return int(key[:8], 16) < share * (1 << 32)
