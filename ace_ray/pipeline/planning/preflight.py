"""Check config, model, prompts and output before a run starts, for ``evaluate`` and ``doctor``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config.schema import ENDPOINT, EXTERNAL, RunConfig
from ace_ray.errors import PromptRefused, UserError
from ace_ray.models import adapters
from ace_ray.models.endpoint_engine import check_endpoint, endpoint_ref
from ace_ray.models.engine_args import check_engine_args, check_parsers
from ace_ray.models.families import SWITCHES, family_facts, of_transformers
from ace_ray.models.roles import ServedRole, check_size
from ace_ray.models.sampling import check_sampling
from ace_ray.models.sources import ModelRef, resolve, tokenizer_folder
from ace_ray.pipeline.entries import read_opening
from ace_ray.pipeline.planning import formats
from ace_ray.pipeline.planning.plan import REPORTS, Plan
from ace_ray.storage.lease import LEASE
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.stored import MANIFEST, differences, read_manifest
from ace_ray.util import vllm_source
from ace_ray.util.safe_loading import json_tree
from ace_ray.util.sanitizing import few

if TYPE_CHECKING:
    from ace_ray.models.chat import Chat

Messages = Sequence[Mapping[str, Any]]
Count = Callable[[Messages, Messages | None], int]
# Number of prompts that fit the context after which shorter ones are not counted (4 ms a prompt).
ENOUGH = 50
DIVIDED_CALLS = (
    "the chat template takes one call per message; an answer with several calls is shown to the "
    "model as several messages with one call each"
)
# Time limit for counting tokens, since some templates are slow.
COUNT_S = 10.0


def resolve_model(config: RunConfig, *, weights: bool = True) -> ModelRef:
    """Return the config's model with a fixed revision. ``weights``: whether its weights are needed.
    Raises `UserError` if it cannot be used."""
    if config.backend == ENDPOINT:
        return endpoint_ref(config.model)
    source = config.model.source
    assert source is not None  # `run_config` refuses a model without a source
    if config.backend == "fake" and not Path(source).is_dir():
        model = ModelRef("fake", "fake", "fake", "fake")
    else:
        model = resolve(
            source,
            config.model.revision,
            endpoint_url=config.store.endpoint_url,
            region=config.store.region,
            weights=weights and config.engine.get("load_format") != "dummy",
        )
    if config.model.adapter is not None:
        model = adapters.with_adapter(
            model,
            config.model.adapter,
            config.model.adapter_revision,
            endpoint_url=config.store.endpoint_url,
            region=config.store.region,
        )
    if config.backend == "vllm":
        adapters.check_engine(model, config.engine)
        _check_loadable(config, model)
        _check_heads(config, model)
    return model


# Engine arguments with which vLLM may load another architecture than config.json names.
_DECIDE = ("hf_overrides", "model_impl", "config_format", "trust_remote_code", "speculative_config")


def _check_loadable(config: RunConfig, model: ModelRef) -> None:
    """Raise `UserError` if vLLM does not support the model's architecture or quantization. An
    engine would report this only after minutes."""

    if model.kind not in ("folder", "s3", "hub"):
        return
    folder = tokenizer_folder(model)
    tree = _model_config(folder)
    facts = family_facts(folder, str(config.engine.get("tokenizer_mode", "auto")))
    if facts.tekken or vllm_source.has_plugins():
        return
    adapters.check_experts(model, facts.architectures)
    where = f"{model.location}/config.json"
    known = vllm_source.architectures()
    if known and "auto_map" not in tree and not any(map(config.engine.get, _DECIDE)):
        named = facts.architectures
        if not named:
            raise UserError(
                "names no 'architectures'",
                where=where,
                fix="add them as in the original model, or to engine.hf_overrides",
            )
        if known.isdisjoint(named) and not of_transformers(named):
            raise UserError(
                f"vLLM does not support the architecture {few(f'{name:.80}' for name in named)}",
                where=where,
                fix="use a vLLM that supports it, or another model",
            )
    _check_quantization(tree, where)


def _check_quantization(tree: Mapping[str, Any], where: str) -> None:
    # Read the method as vLLM does (transformers_utils/model_arch_config_convertor.py).
    text = tree.get("text_config")
    places = [tree, text] if isinstance(text, dict) else [tree]
    keys = ("quantization_config", "compression_config")
    listed = [place.get(key) for place in places for key in keys]
    stored = next((one for one in listed if isinstance(one, dict)), {})
    method = str(stored.get("quant_method") or "").lower().replace("_tensors", "-tensors")
    methods = vllm_source.quantizations()
    # vLLM renames auto-round to a method of its own (inc).
    if method and methods and method not in methods | {"auto-round"}:
        raise UserError(
            f"vLLM does not support the quantization {method:.80}",
            where=where,
            fix="use the model without it, or quantized in another way",
        )


def _check_heads(config: RunConfig, model: ModelRef) -> None:
    """Raise `UserError` if tensor_parallel_size does not divide the model's attention heads."""
    parts = config.engine.get("tensor_parallel_size", 1)
    if type(parts) is not int or parts < 2:
        return
    tree = _model_config(tokenizer_folder(model))
    text = tree.get("text_config")
    heads = (text if isinstance(text, dict) else tree).get("num_attention_heads")
    if isinstance(heads, int) and heads % parts and not config.engine.get("hf_overrides"):
        raise UserError(
            f"the model's {heads} attention heads cannot be divided by {parts} evenly",
            where="engine.tensor_parallel_size",
            fix=f"set a divisor of {heads}, or use pipeline_parallel_size",
        )


def make_benchmarks(config: RunConfig) -> list[Benchmark]:
    """Return the benchmarks of the config. This executes local files that the config names. Raises
    `UserError` if a benchmark or its options are invalid."""
    made = [make_benchmark(b.name, b.options) for b in config.benchmarks]
    for benchmark in made:
        if benchmark.source:  # other processes cannot import this module by its name
            from ray import cloudpickle

            cloudpickle.register_pickle_by_value(sys.modules[type(benchmark).__module__])
        if benchmark.needs_logprobs and config.backend == ENDPOINT:
            raise UserError(
                "needs logprobs of given texts, which endpoints do not provide",
                where=f"benchmarks.{benchmark.name}",
                fix="omit the option that needs them (bfcl: contamination), or set backend: vllm",
            )
    return made


# Engine arguments with which an engine would take more GPUs than planned.
_NOT_PLANNED = ("data_parallel_size", "data_parallel_size_local", "prefill_context_parallel_size")
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "max_num_seqs")


def check_engine(config: RunConfig) -> list[str]:
    """Check the engine arguments and return their names. Raises `UserError` if one is invalid."""
    if config.backend == EXTERNAL:
        raise UserError(
            "this run has outputs that another program generated",
            where="backend",
            fix="set backend: vllm to evaluate a model, or judge the outputs with ace-ray score",
        )
    if config.backend == ENDPOINT:
        check_endpoint(config)
        return []
    if config.backend == "fake":
        from ace_ray.config.schema import validated
        from ace_ray.models.fake import FakeScript

        validated(FakeScript, config.engine, where="engine")
        return list(config.engine)
    check_engine_args(config.engine)
    check_sampling(config.sampling, config.model, where="sampling")
    check_parsers(config.model)
    # The plan uses these arguments, so refuse booleans, null and numbers below 1.
    for name in _SIZES:
        check_size(name, config.engine.get(name, 1))
    for name in _NOT_PLANNED:
        if (value := config.engine.get(name)) not in (None, 1):
            what = f"{name!r} is {value!r}, but each worker has one engine"
            fix = "leave it out; 'workers' sets the number of engines"
            raise UserError(what, where="engine", fix=fix)
    if "reasoning_parser" in config.engine:
        raise UserError(
            "'reasoning_parser' belongs to model",
            where="engine.reasoning_parser",
            fix="use model.reasoning_parser",
        )
    return list(config.engine)


def check_chat(plan: Plan) -> tuple[dict[str, Any], str, int]:
    """Check that the chat template accepts this run's prompts, and that prompts fit the context.

    Return facts for the manifest, a line about how many prompts fit, and the number of prompts that
    do not fit. If tokens cannot be counted, the last two values are "" and 0. Raises `UserError` if
    the template refuses the prompts or no prompt fits the context."""
    engine = plan.config.engine
    context: int | None
    count: Count
    native = is_native(plan)
    facts: dict[str, Any] = {"chat_template_sha256": ""}
    if plan.config.backend == ENDPOINT:
        _check_roles(plan, None)
        return {"chat_template_sha256": None}, "", 0
    if plan.config.backend == "fake":
        from ace_ray.models.fake import FakeScript, count_words

        context, count = FakeScript.model_validate(engine).max_model_len, count_words
    else:
        from ace_ray.models.chat import Chat

        folder = tokenizer_folder(plan.model)
        if plan.model.adapter is not None:
            adapters.check_template(plan.model, plan.choice.chat_template)
            adapters.check_where_local(plan.model)
        mode = str(engine.get("tokenizer_mode", "auto"))
        if family_facts(folder, mode).writes_by_code:
            _context(engine, folder)  # check config.json; only the engine can check the prompts
            return facts, "", 0
        chat = Chat.load(
            folder,
            plan.config.template_kwargs,
            trust_remote_code=engine.get("trust_remote_code") is True,
            template=plan.choice.chat_template,
            date=plan.choice.start_date,
        )
        context, facts["chat_template_sha256"] = _context(engine, folder), chat.template_sha256
        if native:
            chat.require_tools(plan.model.source, episodes=_interactive(plan))
            facts["chat_template_sha256"] = chat.tools_template_sha256
            if _interactive(plan) and chat.is_single_call:
                facts["divided_calls"] = DIVIDED_CALLS
        _check_variables(plan, chat)
        _check_template_probes(plan, chat)
        _check_roles(plan, chat)

        def count(messages: Messages, tools: Messages | None) -> int:
            return len(chat.encode(chat.render(messages, tools)))

    return facts, *_fit(plan, count, context)


def is_native(plan: Plan) -> bool:
    """Return whether the run offers tools to the candidate through the model's template."""
    return formats.first_native(plan.benchmarks, plan.entries) is not None


def _interactive(plan: Plan) -> bool:
    return bool(plan.rows.interactive.any())


def _check_variables(plan: Plan, chat: Chat) -> None:
    """Raise `UserError` if the template does not use a variable that the config sets."""
    effort = plan.config.sampling.reasoning_effort
    if effort is not None and not any(map(chat.names, ("reasoning_effort", "enable_thinking"))):
        raise UserError(
            f"the chat template of {plan.model.source} does not use reasoning_effort",
            where="sampling.reasoning_effort",
            fix="leave it out, or set the template's own variable in model.chat_template_kwargs",
        )
    for name in plan.config.model.chat_template_kwargs:
        # Parsers read the switches for thinking, even if the template does not use them.
        if chat.names(name) or (name in SWITCHES and plan.choice.named_reasoning):
            continue
        raise UserError(
            f"the chat template of {plan.model.source} does not use {name}",
            where=f"model.chat_template_kwargs.{name}",
            fix="leave it out",
        )


def _check_template_probes(plan: Plan, chat: Chat) -> None:
    """Raise `UserError` if the template refuses a kind of message in interactive episodes."""
    entries = {(e.benchmark, e.category): e for e in plan.entries}
    for entry in entries.values():
        benchmark = plan.benchmarks[entry.benchmark]
        if benchmark.interactive(entry):
            sent = benchmark.template_probe(entry), benchmark.tools(entry)
            _check_taken(
                chat, *sent, who=entry.category, where=plan.model.source, fix=benchmark.refused_fix
            )


def _check_roles(plan: Plan, candidate: Chat | None) -> None:
    """Raise `UserError` if the template of a role's model refuses the role's chats or drops its
    tools. ``candidate`` is None for an endpoint, whose template is unknown."""
    from ace_ray.models.chat import Chat

    for name, roles in plan.bindings.items() if _interactive(plan) else ():
        for role, binding in roles.items():
            chat, tools = candidate, plan.benchmarks[name].role_tools(role)
            where, fix = f"benchmarks.{name}.{role}", "use another model or an endpoint for it"
            if isinstance(binding.role, ServedRole):
                assert binding.model is not None  # a served role has a model
                chat = Chat.load(
                    tokenizer_folder(binding.model),
                    binding.role.model.chat_template_kwargs,
                    trust_remote_code=binding.role.engine.get("trust_remote_code") is True,
                )
                if tools is not None:
                    chat.require_tools(where, episodes=True, fix=fix)
            elif binding.role != "same" or chat is None:
                continue
            messages = plan.benchmarks[name].role_chat(role)
            _check_taken(chat, messages, tools, who="this role", where=where, fix=fix)


def _check_taken(
    chat: Chat, messages: Messages, tools: Messages | None, *, who: str, where: str, fix: str
) -> None:
    """Raise `UserError` if the template of ``chat`` refuses ``messages`` and ``tools``. ``who`` is
    the category or role that sends them; ``where`` and ``fix`` are parts of the error."""
    try:
        chat.render(messages, tools)
    except PromptRefused as error:
        senders = ", ".join(message["role"] for message in messages)
        what = f"messages of {senders} in {who}: {error}"
        raise UserError(what, where=where, fix=fix) from error


def _fit(plan: Plan, count: Count, context: int | None) -> tuple[str, int]:
    """Count the tokens of the shortest prompt, then of the longest ones until `ENOUGH` prompts fit.
    Return a line about the prompts, and the number of prompts that are too long or that the
    template refuses.

    Raises `UserError` if the template refuses the shortest prompt, or if no prompt fits
    ``context``."""
    entries = sorted({*plan.rows.entry.tolist()}, key=lambda n: len(plan.openings[n]))
    fitting = skipped = longest = 0
    least: int | None = None
    end = time.monotonic() + COUNT_S
    for number in (*entries[:1], *reversed(entries[1:])):
        benchmark = plan.benchmarks[plan.entries[number].benchmark]
        try:
            tokens = count(*read_opening(plan.openings[number]))
        except PromptRefused as error:
            if not fitting:
                where, fix = plan.model.source, benchmark.refused_fix
                raise UserError(str(error), where=where, fix=fix) from error
            skipped += 1
            continue
        longest, least = max(longest, tokens), min(least or tokens, tokens)
        fits = context is None or tokens < context
        fitting, skipped = fitting + fits, skipped + (not fits)
        # A prompt with more characters may have fewer tokens, but not half as many.
        can_fit = context is None or least <= 2 * context
        time_over = time.monotonic() > end and (fitting or not can_fit)
        if context is None or fitting == ENOUGH or time_over:
            break
    if entries and not fitting:
        shortest = entries[0]
        benchmark = plan.benchmarks[plan.entries[shortest].benchmark]
        chars_per_token = len(plan.openings[shortest]) / (least or 1)
        change = benchmark.shorter_prompts(context or 0, chars_per_token)
        raise UserError(
            f"no prompt fits: the shortest has {least:,} tokens, but the context is {context:,}",
            where="engine.max_model_len",
            fix=change or "raise it, or use a model with a longer context",
        )
    if context is None:
        return "the chat template accepts them; only vLLM knows the context length", skipped
    total, uncounted = len(entries), len(entries) - skipped - fitting
    told = f"{total - skipped} of {total} prompts fit"
    if uncounted and fitting < ENOUGH:
        told = f"{uncounted} of {total} prompts were not counted, at least {skipped} do not fit"
    told += f" a context of {context} tokens, the longest has {longest}"
    if skipped:
        told += "; rows whose prompt does not fit are skipped (PromptTooLong)"
    return told, skipped


def _context(engine: Mapping[str, Any], folder: Path) -> int | None:
    """Return the context length in tokens; None if only vLLM knows it."""
    tree = _model_config(folder)
    text = tree.get("text_config")
    length = engine.get("max_model_len")
    if length is None:
        length = (text if isinstance(text, dict) else tree).get("max_position_embeddings")
    # vLLM also accepts -1, with which it chooses the length.
    return length if isinstance(length, int) and length > 0 else None


def _model_config(folder: Path) -> dict[str, Any]:
    """Read the config.json in ``folder``. Raises `UserError` if it cannot be read."""
    file = folder / "config.json"
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(tree, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"cannot be read as a model's configuration: {error}",
            where=str(file),
            fix="name a complete model folder",
        ) from error
    return tree


def _output(config: RunConfig) -> Store:
    options = config.store
    return open_store(config.output, endpoint_url=options.endpoint_url, region=options.region)


def output_store(plan: Plan) -> Store:
    """Return the store of the run's folder."""
    return _output(plan.config).child(plan.run_id)


def open_output(plan: Plan, *, fresh: bool = False) -> tuple[Store, dict[str, Any] | None]:
    """Check that the run's store is writable. Return the store, and the manifest in it or None.

    If ``fresh``, the store may have any run, since the caller replaces that run; the manifest is
    None. Raises `UserError` if the store cannot be written, or has a different run."""
    config = plan.config
    parent = _output(config)
    store = parent.child(plan.run_id)
    store.check_writable()
    # Refuse links before engines start, since files outside the folder must not change.
    for folder in ("rows", "results/tools", "files", *(f"files/{one}" for one in plan.benchmarks)):
        store.check_unlinked(folder)
    if parent.get(MANIFEST) is not None:
        raise UserError(
            "the output folder is itself a run",
            where=config.output,
            fix="name the folder above it; each run gets a folder of its own",
        )
    if store.get(MANIFEST) is None:
        listed = [item for item in store.list() if not item.path.startswith(REPORTS)]
        if foreign := [item for item in listed if item.path != LEASE]:
            raise UserError(
                f"the folder contains files that do not belong to a run ({foreign[0].path})",
                where=plan.uri,
                fix="choose another run_id or --output",
            )
        return store, None
    try:
        manifest = read_manifest(store).tree
    except UserError as error:  # --fresh does not remove such a folder either
        raise UserError(
            f"the folder contains a {MANIFEST} that is not a run's",
            where=plan.uri,
            fix="choose another run_id or --output",
        ) from error
    if fresh:
        return store, None
    mine = json_tree(json.dumps(plan.identity))
    if paths := differences(manifest["identity"], mine):
        raise UserError(
            f"the folder contains a different run (the runs differ in {', '.join(paths)})",
            where=plan.uri,
            fix="choose another run_id or --output, or replace the run with --fresh",
        )
    return store, dict(manifest)
