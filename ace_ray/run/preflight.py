"""What can be known to fail before anything is started: used by ``evaluate`` and ``doctor``."""

from __future__ import annotations

import json
from typing import Any

from ace_ray.benchmarks.protocol import Benchmark
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config import RunConfig
from ace_ray.errors import PromptRefused, UserError
from ace_ray.models.sources import ModelRef, resolve, tokenizer_folder
from ace_ray.run.plan import MANIFEST, Plan
from ace_ray.store import Store, open_store


def resolve_model(config: RunConfig) -> ModelRef:
    """The model, pinned. Raises `UserError`."""
    if config.backend == "fake":
        return ModelRef("fake", "fake", "fake", "fake")
    return resolve(
        config.model.source, config.model.revision, endpoint_url=config.store.endpoint_url
    )


def make_benchmarks(config: RunConfig) -> list[Benchmark]:
    """The benchmarks, configured. Raises `UserError`."""
    return [make_benchmark(b.name, b.options) for b in config.benchmarks]


def check_engine(config: RunConfig) -> list[str]:
    """The names of the engine arguments, all known. Raises `UserError`."""
    if config.backend == "fake":
        from ace_ray.config import validated
        from ace_ray.models.fake import FakeScript

        validated(FakeScript, config.engine, where="engine")
        return list(config.engine)
    from ace_ray.models.vllm_engine import check_engine_args

    check_engine_args(config.engine)
    return list(config.engine)


def check_chat(plan: Plan) -> dict[str, Any]:
    """The model's chat template on this run's prompts, and their length against the context.

    Only as many prompts are tokenized as it takes to find one that fits, shortest first.

    Returns facts for the manifest. Raises `UserError` when the template refuses the prompts or no
    prompt fits the context.
    """
    if plan.config.backend == "fake":
        return {"chat_template_sha256": ""}
    from ace_ray.models.chat import Chat

    folder = tokenizer_folder(plan.model)
    chat = Chat.load(folder, plan.config.model.chat_template_kwargs)
    context = plan.config.engine.get("max_model_len") or _context(folder)
    shortest = 0
    for row in reversed(plan.rows):
        entry = plan.entries[row.entry]
        messages = plan.benchmarks[entry.benchmark].prompt(entry)
        try:
            tokens = len(chat.encode(chat.render(messages)))
        except PromptRefused as error:
            raise UserError(
                str(error),
                where=plan.model.source,
                fix="use a model whose template takes system and user messages",
            ) from error
        shortest = shortest or tokens
        if not isinstance(context, int) or tokens < context:
            break
    else:
        raise UserError(
            f"no prompt fits: the shortest has {shortest} tokens, the context holds {context}",
            where="engine.max_model_len",
            fix="raise it, or use a model with a longer context",
        )
    return {"chat_template_sha256": chat.template_sha256}


def _context(folder: Any) -> int | None:
    tree = json.loads((folder / "config.json").read_text())
    length = tree.get("text_config", tree).get("max_position_embeddings")
    return length if isinstance(length, int) else None


def open_output(plan: Plan) -> tuple[Store, dict[str, Any] | None]:
    """The run's store, checked to be writable, and the manifest it already holds.

    Raises:
        UserError: it cannot be written, or holds a different run.
    """
    config = plan.config
    options = {"endpoint_url": config.store.endpoint_url, "region": config.store.region}
    parent = open_store(config.output, **options)
    if parent.get(MANIFEST) is not None:
        raise UserError(
            "the output folder is itself a run",
            where=config.output,
            fix="name the folder above it; each run gets a folder of its own",
        )
    store = open_store(plan.uri, **options)
    store.check_writable()
    raw = store.get(MANIFEST)
    if raw is None:
        if any(True for _ in store.list()[:1]):
            raise UserError(
                "the folder holds files that are no run",
                where=plan.uri,
                fix="choose another run_id or --output",
            )
        return store, None
    try:
        manifest: dict[str, Any] = json.loads(raw)
        theirs = manifest["identity"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{MANIFEST} cannot be read", where=plan.uri, fix="choose another run_id or --output"
        ) from error
    mine = json.loads(json.dumps(plan.identity))
    if theirs != mine:
        raise UserError(
            f"the folder holds a different run (they differ in {', '.join(_differ(theirs, mine))})",
            where=plan.uri,
            fix="choose another run_id or --output, or replace it with --fresh",
        )
    return store, manifest


def _differ(theirs: Any, mine: Any, path: str = "") -> list[str]:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        found = []
        for key in sorted({*theirs, *mine}):
            found += _differ(theirs.get(key), mine.get(key), f"{path}.{key}" if path else key)
        # Row ids differ whenever anything does; say so only if nothing else explains it.
        return [p for p in found if p != "rows"] or found
    return [] if theirs == mine else [path]
