"""Export a run as Inspect log files (``.eval``), for ``inspect view`` and Inspect's readers.

The format is Inspect's log format 2, as in inspect_ai 0.3: a zip of ``header.json``,
``summaries.json``, ``_journal/start.json`` and a file for each sample. This module writes row by
row, since Inspect's own writer keeps all samples in memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import Any

import ace_ray
from ace_ray.benchmarks.headline import titles
from ace_ray.benchmarks.results import Score
from ace_ray.benchmarks.transcript import Call, Step
from ace_ray.config.schema import ENDPOINT
from ace_ray.reports.excerpts import to_json
from ace_ray.reports.runs import ScoredRun, group_runs
from ace_ray.storage.object_store import Store
from ace_ray.types import CHECKED, SCORE, ResultRow, digest
from ace_ray.util.safe_loading import InvalidContent, bounded_time, json_of_row
from ace_ray.viewer.episode import EpisodeView
from ace_ray.viewer.row_filter import entry_order, episodes

# Maximum samples of one file. Viewers keep the list of samples in memory.
MOST_SAMPLES = 2_000
# Maximum characters of a sample's question and of strings in summaries. Messages are complete.
_INPUT = 1_000
# Timestamp of all files in a log, so that exporting a run again gives the same bytes.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
# Backend -> the prefix of a model's name in Inspect. The models of imported outputs have no prefix.
# The project Every Eval Ever reads a model's developer from the part after the prefix.
_ENGINES = {"vllm": "vllm", ENDPOINT: "openai-api"}
_ROLES = ("system", "user", "assistant", "tool")
# Fields of a sample that its summary contains, too.
_IN_SUMMARY = (
    *("id", "epoch", "input", "metadata", "scores", "model_usage", "started_at"),
    *("completed_at", "total_time", "working_time", "uuid", "target"),
)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


# Scores by rule set.
Scores = Mapping[str, Sequence[Score]]


def results_of(run: ScoredRun) -> Iterator[tuple[str, list[ResultRow], Scores]]:
    """For each benchmark with rows, yield its name, its rows (without repeats, sorted by
    `entry_order`) and its scores by rule set."""
    for holders in group_runs([run]):
        if rows := sorted(run.rows_of(holders.benchmark), key=entry_order):
            yield holders.benchmark, rows, holders.scores[0]


def export_inspect(run: ScoredRun, target: Store) -> list[str]:
    """Write the rows of ``run`` as log files into ``target``, and return the names of the files.

    Each log contains up to `MOST_SAMPLES` rows of one benchmark, and scores over all rows of this
    benchmark. Raises `UserError` if the run has no rows, or a row cannot be read."""
    names = []
    for benchmark, rows, scores in results_of(run):
        for number in range(-(-len(rows) // MOST_SAMPLES)):
            log = _Log(run, benchmark, rows, scores, number)
            target.put(log.name, log.content())
            names.append(log.name)
    return names


class _Log:
    """Log file ``number`` of a benchmark: some of its ``rows``, and scores over all of them."""

    def __init__(
        self, run: ScoredRun, benchmark: str, rows: list[ResultRow], scores: Scores, number: int
    ) -> None:
        self._run, self._benchmark, self._rule_scores = run, benchmark, scores
        self._part = rows[number * MOST_SAMPLES :][:MOST_SAMPLES]
        self._part_label = f"{number + 1} of {-(-len(rows) // MOST_SAMPLES)}"
        self._ids = _ids(rows)
        manifest = run.manifest
        self._limited = manifest.restriction(benchmark)
        self._id = digest(manifest.run_id, benchmark, number + 1)[:22]
        self._answered = model_name(manifest.model.source)
        engine = _ENGINES.get(manifest.config.backend)
        self._model = f"{engine}/{self._answered}" if engine else self._answered

    @property
    def name(self) -> str:
        time = f"{self._run.manifest.created_at:%Y-%m-%dT%H-%M-%S}"
        return f"{time}_{_UNSAFE.sub('-', self._benchmark)}_{self._id}.eval"

    def content(self) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as log:

            def put(name: str, value: Any) -> None:
                entry = zipfile.ZipInfo(name, _ZIP_TIME)
                log.writestr(entry, json.dumps(value), zipfile.ZIP_DEFLATED)

            spec = self._spec()
            plan: dict[str, Any] = {"name": "plan", "steps": [], "config": {}}
            put("_journal/start.json", {"version": 2, "eval": spec, "plan": plan})
            summaries = []
            for view in episodes(self._run, self._part):
                sample = self._sample(view)
                put(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", sample)
                summaries.append(_summary(sample))
            put("summaries.json", summaries)
            put("header.json", self._header(spec, plan, summaries))
        return out.getvalue()

    def _spec(self) -> dict[str, Any]:
        manifest = self._run.manifest
        samples = list(dict.fromkeys(self._ids[row.row_id] for row in self._part))
        dataset = {"name": self._benchmark, "samples": len(samples), "sample_ids": samples}
        epochs = 1 + max(row.sample for row in self._part)
        metadata = {"identity": manifest.tree["identity"], "part": self._part_label}
        metadata["scores"] = "of all parts"
        if words := self._limited.description:
            metadata["limited_to"] = words
        return {
            "eval_id": self._id,
            "run_id": manifest.run_id,
            "created": manifest.created_at.isoformat(),
            "task": self._benchmark,
            "task_id": digest(manifest.run_id, self._benchmark)[:22],
            "task_version": 0,
            "task_attribs": {},
            "task_args": {},
            "dataset": {**dataset, "shuffled": False},
            "model": self._model,
            "model_generate_config": {},
            "model_args": {},
            "config": {"epochs": epochs, "limit": self._limited.limit},
            "packages": {"ace_ray": ace_ray.__version__},
            "metadata": metadata,
        }

    def _header(
        self, spec: Mapping[str, Any], plan: Mapping[str, Any], summaries: Sequence[Any]
    ) -> dict[str, Any]:
        usage = [summary["model_usage"].get(self._model) for summary in summaries]
        names = ("input_tokens", "output_tokens", "total_tokens")
        total = {name: sum(counts[name] for counts in usage if counts) for name in names}
        is_complete = len(self._run.rows) >= self._run.manifest.declared
        return {
            "version": 2,
            "status": "success" if is_complete else "cancelled",
            "eval": spec,
            "plan": plan,
            "results": {
                "total_samples": len(summaries),
                "completed_samples": sum(summary["completed"] for summary in summaries),
                "scores": self._scores(),
            },
            "stats": {
                "started_at": min((s["started_at"] for s in summaries), default=""),
                "completed_at": max((s["completed_at"] for s in summaries), default=""),
                "model_usage": {} if None in usage else {self._model: total},
            },
        }

    def _scores(self) -> list[dict[str, Any]]:
        """Return a record per rule set. The first metric of the first record is the headline."""
        scores = []
        for rules, numbers in self._rule_scores.items():
            metrics = {
                name: {"name": name, "value": score.estimate.value, "params": {}}
                for title, score in zip(titles(numbers), numbers, strict=True)
                if score.estimate is not None
                for name in [title + "_partial" * score.estimate.partial]
            }
            scores.append({"name": rules, "scorer": rules, "reducer": "mean", "metrics": metrics})
        return scores

    def _sample(self, view: EpisodeView) -> dict[str, Any]:
        facts = view.facts
        began, seconds = facts["started_at"], facts["duration_s"]
        output = last_answer(view.steps)
        # The question is the last message of the user before the model's first answer.
        before = takewhile(lambda step: step.role != "assistant", view.steps)
        question = next((s.text for s in reversed([*before]) if s.role == "user"), "")
        store = {} if view.state is None else {"state": view.state}
        if view.tools is not None:  # that the model could call
            store["tools"] = [asdict(tool) for tool in view.tools]
        sample: dict[str, Any] = {
            "id": self._ids[view.row_id],
            "epoch": facts["sample"] + 1,
            "input": question[:_INPUT],
            "target": "" if view.gold is None else to_json(view.gold[0]),
            "messages": _messages(view),
            "output": _output(self._answered, output, facts, f"{view.row_id}-output"),
            "scores": {rules: _score(v, output) for rules, v in view.verdicts.items()},
            "metadata": _metadata(view),
            "store": store,
            "events": [],
            "model_usage": {self._model: usage} if (usage := _usage(facts)) else {},
            "started_at": bounded_time(began).isoformat(),
            "completed_at": bounded_time(began, seconds or 0.0).isoformat(),
            "total_time": seconds,
            "working_time": facts["generation_s"],
            "uuid": view.row_id,
        }
        if not view.verdicts and view.status not in CHECKED:
            message = f"{view.status}: {view.error}"
            sample["error"] = {"message": message, "traceback": "", "traceback_ansi": ""}
        # Inspect's limit needs a number. Without it, the stop reason shows that an answer was cut.
        if facts["finish_reason"] == "length" and facts["completion_tokens"] is not None:
            sample["limit"] = {"type": "token", "limit": facts["completion_tokens"]}
        return sample


def model_name(source: str) -> str:
    """Return ``<developer>/<name>``: a name on the hub unchanged, a path as ``local/<name>``."""
    parts = [part for part in source.rstrip("/").split("/") if part]
    if len(parts) == 2 and not source.startswith(("/", ".")) and ":" not in source:
        return source
    return f"local/{_UNSAFE.sub('-', parts[-1] if parts else 'model').removesuffix('.gguf')}"


def _ids(rows: Sequence[ResultRow]) -> dict[str, str]:
    """Return {row id: sample id}. A sample id consists of the language (if there are several), the
    category and the entry's id, in characters that file names may contain."""
    several_languages = len({row.language for row in rows}) > 1
    ids = {}
    for row in rows:
        language = row.language if several_languages else ""
        category = "" if row.id.startswith(row.category) else row.category
        name = "-".join(filter(None, (language, category, row.id)))
        safe = _UNSAFE.sub("_", name)[:120]
        if safe != name:
            safe = f"{safe}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
        ids[row.row_id] = safe
    return ids


def _messages(view: EpisodeView) -> list[dict[str, Any]]:
    """Return the messages of an episode. The results of calls follow the message with the calls."""
    messages: list[dict[str, Any]] = []
    for number, step in enumerate(view.steps):
        base = f"{view.row_id}-{number}"
        calls = {f"{base}-c{i}": call for i, call in enumerate(step.calls)}
        role = step.role if step.role in _ROLES else "user"
        content: Any = step.text
        if step.reasoning:
            content = [
                {"type": "reasoning", "reasoning": step.reasoning, "redacted": False},
                {"type": "text", "text": step.text},
            ]
        message = {"id": base, "role": role, "content": content}
        if calls and role == "assistant":
            message["tool_calls"] = [_call(call, call_id) for call_id, call in calls.items()]
        messages.append(message)
        for call_id, call in calls.items():
            if call.observation is None:
                continue
            result = {"id": f"{call_id}-r", "role": "tool", "content": call.observation}
            error = {"error": {"type": "unknown", "message": call.error}} if call.error else {}
            messages.append({**result, "tool_call_id": call_id, "function": call.name, **error})
    return messages


def _call(call: Call, name: str) -> dict[str, Any]:
    """Return a tool call. Arguments that are not a JSON object become one string argument."""
    try:
        arguments = json_of_row(call.arguments) if call.arguments else {}
    except InvalidContent:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {"as_written": call.arguments}
    return {"id": name, "function": call.name, "arguments": arguments, "type": "function"}


def _score(verdict: Mapping[str, Any], answer: str) -> dict[str, Any]:
    metrics = dict(verdict["metrics"])
    value: Any = metrics.pop(SCORE, "C" if verdict["valid"] else "I")
    reason = ": ".join(filter(None, (verdict["error_type"], verdict["error"])))
    metadata = {"error_type": verdict["error_type"], **metrics}
    return {"value": value, "answer": answer, "explanation": reason, "metadata": metadata}


def _metadata(view: EpisodeView) -> dict[str, Any]:
    types = {f"{rules}_error_type": v["error_type"] for rules, v in view.verdicts.items()}
    return {
        **{name: view.key[name] for name in ("category", "language") if view.key[name]},
        "status": view.status,
        **{name: value for name, value in types.items() if value},
        "seed": view.facts["seed"],
        "attempts": view.facts["attempts"],
    }


def _summary(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a sample that viewers show in a list of samples."""
    summary = {
        **{name: _cut_strings(sample[name]) for name in _IN_SUMMARY},
        "completed": "error" not in sample,
        "message_count": len(sample["messages"]),
    }
    if "error" in sample:
        summary["error"] = sample["error"]["message"][:_INPUT]
    if "limit" in sample:
        summary["limit"] = sample["limit"]["type"]
    return summary


def _cut_strings(value: Any) -> Any:
    """Return a JSON value with all strings and keys cut to `_INPUT` characters."""
    if isinstance(value, dict):
        return {name[:_INPUT]: _cut_strings(item) for name, item in value.items()}
    return value[:_INPUT] if isinstance(value, str) else value


def _output(model: str, text: str, facts: Mapping[str, Any], name: str) -> dict[str, Any]:
    stop = "max_tokens" if facts["finish_reason"] == "length" else "stop"
    message = {"id": name, "role": "assistant", "content": text, "source": "generate"}
    choices = [{"message": message, "stop_reason": stop}]
    return {"model": model, "choices": choices, "completion": text, "usage": _usage(facts)}


def _usage(facts: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the token counts of a row, or None if they are not known."""
    prompt, completion = facts["prompt_tokens"], facts["completion_tokens"]
    if prompt is None or completion is None:
        return None
    return {
        "input_tokens": prompt,
        "output_tokens": completion,
        "total_tokens": prompt + completion,
    }


def last_answer(steps: Sequence[Step]) -> str:
    """Return the text of the model's last message, or ""."""
    return next((step.text for step in reversed(steps) if step.role == "assistant"), "")
