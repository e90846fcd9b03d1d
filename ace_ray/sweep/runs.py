"""Plan the runs of a sweep. Each model has one run, an ordinary run in the sweep's folder."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ace_ray.benchmarks.comparability import flatten
from ace_ray.cluster.resources import gpus_per_worker, worker_cpus
from ace_ray.config.schema import ENDPOINT
from ace_ray.early_stopping.looks import is_decided
from ace_ray.errors import UserError
from ace_ray.models.checkpoints import tensors_of
from ace_ray.models.sizes import size_of
from ace_ray.models.urls import host_of
from ace_ray.pipeline import roles
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.planning.plan import Plan
from ace_ray.storage.object_store import Store, UnreachableStore
from ace_ray.storage.stored import MANIFEST, SUCCESS
from ace_ray.sweep.checkpoints import Checkpoint
from ace_ray.sweep.config import SweepConfig, SweepModel
from ace_ray.types import digest
from ace_ray.util.safe_loading import json_tree

_TOKENIZER = (
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json",
    "tekken.json", "params.json", "generation_config.json",
)  # fmt: skip
# Keys of config.json that do not describe the architecture.
_UNIMPORTANT = ("_name_or_path", "transformers_version", "use_cache")


@dataclass(frozen=True)
class SweepEntry:
    """A run of a sweep. Without a ``plan``, its model cannot be evaluated. The reason is in
    ``refused``, or in ``awaited`` if the model can be evaluated later."""

    label: str
    step: int | None
    source: str
    plan: Plan | None = None
    refused: str = ""
    awaited: str = ""
    swap_group: str = ""
    """Key shared by models whose weights a live engine can swap; "" if it cannot swap them."""
    gpus: int = 1
    """GPUs of one engine on a machine with GPUs; 0 for a model behind an endpoint."""
    workers: int | None = None
    """Number of engines in the config; None: as many as fit."""
    servers: tuple[tuple[float, int], ...] = ()
    """(CPUs, GPUs) of each model served beside the evaluated one, such as a user simulator."""
    parameters: int | None = None
    endpoint: str = ""
    """Host of the model's endpoint. Runs with the same host run one after another, since each run
    may use the endpoint's whole rate limit."""

    @property
    def run_id(self) -> str:
        return self.plan.run_id if self.plan else ""

    @property
    def server_gpus(self) -> int:
        return sum(gpus for _, gpus in self.servers)

    @property
    def min_gpus(self) -> int:
        """Minimum number of GPUs that the run needs, on a machine with GPUs."""
        return (self.workers or 1) * self.gpus + self.server_gpus

    @property
    def cpus(self) -> float:
        """Minimum number of CPUs that the run needs, on a machine without GPUs. Checkers, the
        writer and sandboxes need one CPU together."""
        if self.plan is None:
            return 0.0
        servers = sum(cpus for cpus, _ in self.servers)
        return (self.workers or 1) * worker_cpus(self.plan.config) + 1.0 + servers

    @property
    def tokens(self) -> int:
        """Estimated number of tokens of prompts and answers: one token per four characters of a
        prompt, and a quarter of ``max_tokens`` per answer."""
        if self.plan is None:
            return 0
        rows, answer = self.plan.rows, self.plan.config.sampling.max_tokens / 4
        calls = np.where(rows.interactive, 8, 1)
        return math.ceil(float((calls * (rows.size / 4 + answer)).sum()))


def entry_of_model(sweep: SweepConfig, model: SweepModel, output: str) -> SweepEntry:
    """Plan the run of a model that the config lists. Raises `UserError` if it cannot be planned."""
    plan = plan_run(sweep.run_of(model, output))
    source = model.adapter or plan.model.source
    return _attach_plan(SweepEntry(model.label or plan.model.name, None, source), plan)


def label_runs(models: Sequence[SweepModel], runs: Sequence[SweepEntry]) -> list[SweepEntry]:
    """Return ``runs`` with labels: the label in the config, or by default the model's name and the
    settings that differ between models with this name."""
    names = [run.plan.model.name for run in runs if run.plan]
    settings = [flatten(m.model_dump(exclude={"label"}, exclude_none=True)) for m in models]
    labels = []
    for name, model, changes in zip(names, models, settings, strict=True):
        peers = [peer for peer, peer_name in zip(settings, names, strict=True) if peer_name == name]
        keys = [key for key in changes if len({peer.get(key) for peer in peers}) > 1]
        parts = [f"{k.rpartition('.')[2]}={changes[k]}" for k in keys if changes[k] != "{}"]
        prefix = f"{name}: " if parts and len({*names}) > 1 else ""
        labels.append(model.label or prefix + (" ".join(parts).replace('"', "") or name))
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def unplanned_entry(checkpoint: Checkpoint, *, refused: str = "", awaited: str = "") -> SweepEntry:
    """Return a run without a plan, for a checkpoint that is refused or not complete yet."""
    label = f"step {checkpoint.step}"
    return SweepEntry(label, checkpoint.step, checkpoint.source, refused=refused, awaited=awaited)


def plan_of_checkpoint(sweep: SweepConfig, checkpoint: Checkpoint, output: str) -> Plan:
    """Plan the run of a checkpoint. Raises `UserError` if the config does not fit its model."""
    key = "source" if sweep.base is None else "adapter"
    return plan_run(sweep.run_of(SweepModel.model_validate({key: checkpoint.source}), output))


def entry_of_checkpoint(sweep: SweepConfig, checkpoint: Checkpoint, output: str) -> SweepEntry:
    """Plan the run of a checkpoint. Return a refused run if the checkpoint is incomplete or cannot
    be evaluated. Raises `UserError` if the store is not available."""
    if checkpoint.lacks:
        return unplanned_entry(
            checkpoint, refused=f"the checkpoint is incomplete: {checkpoint.lacks}"
        )
    try:
        plan = plan_of_checkpoint(sweep, checkpoint, output)
    except UnreachableStore:
        raise
    except UserError as error:
        return unplanned_entry(checkpoint, refused=str(error))
    return _attach_plan(unplanned_entry(checkpoint), plan)


def check_distinct(runs: Sequence[SweepEntry]) -> None:
    """Raise `UserError` if two models have the same run id: one is a copy, or is listed twice."""
    by_id: dict[str, SweepEntry] = {}
    for run in runs:
        if run.plan is not None and (first := by_id.setdefault(run.run_id, run)) is not run:
            raise UserError(
                f"this is the same model as {first.label} ({first.source})",
                where=f"{run.label} ({run.source})",
                fix="remove this copy, or give it another engine, sampling or chat template",
            )


def sort_by_step(runs: Iterable[SweepEntry]) -> list[SweepEntry]:
    """Sort runs by training step; runs without a step come first, in the order of the config."""
    return sorted(runs, key=lambda run: -1 if run.step is None else run.step)


def is_finished(store: Store, plan: Plan, *, all_rows: bool = False) -> bool:
    """Return whether the run of ``plan`` in the sweep's ``store`` is complete. A run that stopped
    early also counts as complete, unless ``all_rows`` is true."""
    folder = store.child(plan.run_id)
    early = plan.config.early
    decided = early is not None and early.stop and not all_rows and is_decided(folder)
    if folder.get(SUCCESS) is None and not decided:
        return False
    try:
        identity = json_tree(folder.get(MANIFEST) or b"{}")["identity"]
    except (ValueError, KeyError, TypeError):
        return False
    return bool(identity == json_tree(json.dumps(plan.identity)))


def _attach_plan(run: SweepEntry, plan: Plan) -> SweepEntry:
    config = plan.config
    has_servers = config.backend != "fake" and plan.rows.interactive.any()
    size = size_of(plan.model)
    return replace(
        run,
        plan=plan,
        swap_group=_swap_group(plan),
        gpus=0 if config.backend == ENDPOINT else gpus_per_worker(config.engine),
        workers=config.workers if isinstance(config.workers, int) else None,
        servers=tuple(roles.demand(plan.bindings, on_gpu=True)) if has_servers else (),
        parameters=size.parameters if size else None,
        endpoint=host_of(config.model.endpoint.url) if config.model.endpoint else "",
    )


def _swap_group(plan: Plan) -> str:
    """Return a hash of what models must share for a swap of weights: architecture, tokenizer,
    tensor layout, engine and sampling, or an adapter's base. Return "" if no swap is possible."""
    shared = plan.config.engine, plan.config.sampling.model_dump()
    if plan.model.adapter is not None:
        model_options = plan.config.model.model_dump(
            exclude={"source", "revision", "adapter", "adapter_revision"}
        )
        return digest("adapters", plan.model.revision, model_options, *shared)
    if plan.model.kind not in ("folder", "s3"):
        return ""
    layout = None  # the engine checks the tensors of weights on S3 when it loads them
    if plan.model.kind == "folder":
        tensors = tensors_of(Path(plan.model.location))
        layout = {name: [tensor.dtype, *tensor.shape] for name, tensor in tensors.items()}
    folder, config = plan.files.folder, plan.files.config
    if layout == {} or folder is None:
        return ""
    texts = {
        name: path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        for name, path in ((name, folder / name) for name in _TOKENIZER)
    }
    architecture = {key: value for key, value in config.items() if key not in _UNIMPORTANT}
    model_options = plan.config.model.model_dump(exclude={"source", "revision"})
    return digest(architecture, texts, layout, model_options, *shared)
