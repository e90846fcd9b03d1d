"""Export a run's numbers as files of lm-evaluation-harness, or as evaluation results of a model on
the Hugging Face hub.

The files are lm-eval 0.4's ``results_<date>.json`` and ``samples_<task>_<date>.jsonl``, and the
hub's ``.eval_results/*.yaml``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

import ace_ray
from ace_ray.benchmarks.results import Score
from ace_ray.errors import UserError
from ace_ray.integrations.inspect_log import export_inspect, last_answer, model_name, results_of
from ace_ray.reports.excerpts import to_json
from ace_ray.reports.runs import ScoredRun
from ace_ray.storage.object_store import Store
from ace_ray.types import ResultRow, digest
from ace_ray.util.sanitizing import join_names
from ace_ray.util.stats import Z95
from ace_ray.viewer.episode import EpisodeView
from ace_ray.viewer.row_filter import episodes


def export_run(
    store: Store, form: str, target: Store | None, datasets: Sequence[str] = ()
) -> list[str]:
    """Export the run in ``store`` to the format ``form`` ("inspect", "lm-eval" or "hf"), and return
    the URIs of the files. ``target``: by default a folder in the run. ``datasets``: for "hf", the
    id of the dataset on the hub, or BENCHMARK=ID for each benchmark.

    Raises `UserError` if ``datasets`` do not fit the format or the run, or as the export does."""
    if form == "hf" and not datasets:
        fix = "name the benchmark's dataset, e.g. org/name"
        raise UserError("is required with --to hf", where="--dataset", fix=fix)
    if form != "hf" and datasets:
        raise UserError("applies to --to hf only", where="--dataset", fix="leave it out")
    run = ScoredRun(store)
    target = store.child(f"export/{form}") if target is None else target
    target.check_writable()
    if form == "hf":
        names = export_hub(run, target, datasets)
    else:
        names = (export_inspect if form == "inspect" else export_lm_eval)(run, target)
    return [f"{target.root}/{name}" for name in names]


def export_lm_eval(run: ScoredRun, target: Store) -> list[str]:
    """Write the results of ``run`` as lm-eval's files into ``target``; return their names. A task
    is a benchmark under one rule set. A metric has the name and the formula of a score."""
    manifest = run.manifest
    model = model_name(manifest.model.source)
    folder = _safe_name(model.replace("/", "__"))
    date = f"{manifest.created_at:%Y-%m-%dT%H-%M-%S}"
    results: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    configs: dict[str, Any] = {}
    names, samples = [], manifest.tree["config"].get("samples", 1)
    for benchmark, rows, by_rules in results_of(run):
        for rules, scores in by_rules.items():
            task = f"{benchmark}_{rules}"
            results[task] = {"alias": task, "sample_len": len(rows), **_metrics(scores)}
            scored = sum(row.status == "scored" for row in rows)
            counts[task] = {"original": len(rows), "effective": scored}
            configs[task] = {"task": task, "dataset_path": benchmark, "repeats": samples}
            configs[task]["output_type"] = "generate_until"
        for rules, lines in _samples(run, rows).items():
            name = f"{folder}/samples_{_safe_name(f'{benchmark}_{rules}')}_{date}.jsonl"
            target.put(name, bytes(lines))
            names.append(name)
    tree = {
        "results": results,
        "configs": configs,
        "versions": dict.fromkeys(results, ace_ray.__version__),
        "n-shot": dict.fromkeys(results, 0),
        "higher_is_better": {
            task: {name.split(",")[0]: True for name in metrics if name.endswith(",none")}
            for task, metrics in results.items()
        },
        "n-samples": counts,
        "config": {
            "model": manifest.config.backend,
            "model_args": f"pretrained={model}",
            "model_revision": manifest.tree["model"].get("revision"),
            "limit": manifest.config.limit,
            "restricted": {name: part.description for name, part in manifest.restricted.items()},
            "gen_kwargs": manifest.tree["identity"].get("sampling"),
        },
        "git_hash": None,
        "date": manifest.created_at.timestamp(),
        "model_name": model,
        "model_source": manifest.config.backend,
        "chat_template_sha": manifest.tree.get("chat_template_sha256"),
    }
    name = f"{folder}/results_{date}.json"
    target.put(name, json.dumps(tree, indent=2).encode())
    return [name, *names]


def _metrics(scores: Sequence[Score]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for score in scores:
        if score.estimate is None:
            continue
        name = _safe_name(f"{score.name} {score.formula}".lower())
        name += "_partial" * score.estimate.partial
        low, high = score.estimate.interval
        metrics[f"{name},none"] = score.estimate.value
        metrics[f"{name}_stderr,none"] = (high - low) / (2 * Z95)
    return metrics


def _samples(run: ScoredRun, rows: Sequence[ResultRow]) -> dict[str, bytearray]:
    """Return rule set -> lines of a ``samples_`` file, in the order in which rows are stored.
    ``doc_id`` is the index of the row in ``rows``."""
    numbers = {row.row_id: number for number, row in enumerate(rows)}
    lines: dict[str, bytearray] = {}
    for view in episodes(run, rows):
        for rules, verdict in view.verdicts.items():
            line = json.dumps(_sample(view, verdict, numbers[view.row_id]))
            lines.setdefault(rules, bytearray()).extend(f"{line}\n".encode())
    return lines


def _sample(view: EpisodeView, verdict: Any, number: int) -> dict[str, Any]:
    asked_by = ("system", "user")
    questions = [{"role": s.role, "content": s.text} for s in view.steps if s.role in asked_by]
    answer = last_answer(view.steps)
    target = "" if view.gold is None else to_json(view.gold[0])
    prompt = json.dumps(questions, ensure_ascii=False)
    return {
        "doc_id": number,
        "doc": {**view.key, "sample": view.facts["sample"], "row_id": view.row_id},
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {}}},
        "resps": [[answer]],
        "filtered_resps": [answer],
        "filter": "none",
        "metrics": ["acc"],
        "acc": float(verdict["valid"]),
        "error_type": verdict["error_type"],
        "doc_hash": digest(view.key, view.facts["sample"]),
        "prompt_hash": digest(prompt),
        "target_hash": digest(target),
    }


def export_hub(run: ScoredRun, target: Store, datasets: Sequence[str]) -> list[str]:
    """Write the headlines of ``run`` into ``target``, as a file per benchmark for the model's
    repository on the hub. Returns the file names. ``datasets``: as in `export_run`.

    Raises `UserError` if the headlines are not results of complete benchmarks: a headline is
    partial or missing, the run was limited, or ``datasets`` do not name the benchmarks."""
    ids, files = _dataset_ids(run, datasets), {}
    for benchmark, _, by_rules in results_of(run):
        if benchmark in ids:
            entries = [*_hub_entries(run, benchmark, by_rules, ids[benchmark])]
            files[f".eval_results/{_safe_name(benchmark)}.yaml"] = entries
    for name, entries in files.items():
        target.put(name, yaml.safe_dump(entries, sort_keys=False, allow_unicode=True).encode())
    return list(files)


def _dataset_ids(run: ScoredRun, datasets: Sequence[str]) -> dict[str, str]:
    """Return benchmark -> id of its dataset. Raises `UserError` if an item of ``datasets`` does not
    belong to one benchmark of ``run``."""
    names = run.benchmarks
    ids: dict[str, str] = {}
    for dataset in datasets:
        benchmark, equals, name = dataset.rpartition("=")
        if not equals and len(names) == 1:
            benchmark = names[0]
        if benchmark not in names or not name or benchmark in ids:
            problem = f"{dataset!r} does not name the dataset of one benchmark of the run"
            fix = " ".join(f"--dataset {name}=ORG/NAME" for name in names)
            raise UserError(problem, where="--dataset", fix=fix)
        ids[benchmark] = name
    return ids


def _hub_entries(
    run: ScoredRun, benchmark: str, by_rules: Mapping[str, Sequence[Score]], dataset: str
) -> Iterator[dict[str, Any]]:
    fix = "export a complete run"
    if words := run.manifest.restriction(benchmark).description:
        raise UserError(f"the run is limited to {words}", where=run.uri, fix=fix)
    for rules, (first, *_) in by_rules.items():
        if first.estimate is None or first.estimate.partial:
            lacks = f": without {join_names(first.missing)}" if first.missing else ""
            problem = f"the headline of {benchmark}, {rules} rules, is partial{lacks}"
            raise UserError(problem, where=run.uri, fix=fix)
        low, high = (round(100 * bound, 2) for bound in first.estimate.interval)
        yield {
            "dataset": {"id": dataset, "task_id": f"{benchmark}_{rules}"},
            "value": round(100 * first.estimate.value, 2),
            "date": run.manifest.created_at.date().isoformat(),
            "notes": (
                f"{first.name} ({first.formula}), {rules} rules, 95 % interval {low} to {high}, "
                f"n={first.estimate.n}; ace_ray {ace_ray.__version__}, run {run.manifest.run_id}"
            ),
        }


def _safe_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("_") or "run"
