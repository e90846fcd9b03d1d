"""A run's exports, opened by the tools that they are for.

    python -m perf.readers [RUN ...] [--eee PYTHON] [--lm-eval FOLDER]

Without a RUN it makes one: agent episodes with tools, calls, reasoning and a sandbox that changes.
``PYTHON`` has every-eval-ever with its inspect extra (0.3.0 was used): it converts the logs of
Inspect and the files of lm-eval, and validates what came out. ``FOLDER`` holds lm-eval's package
(0.4.9 was used), which needs torch only to be imported whole: its utilities find the files and
print the table. The hub's file is read by huggingface_hub in tests/export.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from types import ModuleType

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.export.inspect_log import export_inspect
from ace_ray.export.result_files import export_lm_eval
from ace_ray.records import Entry, Episode
from ace_ray.store import open_store
from ace_ray.view.select import StoredRun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="*", metavar="RUN", help="stored runs")
    parser.add_argument("--eee", help="a Python with every-eval-ever[inspect]")
    parser.add_argument("--lm-eval", help="a folder with the package lm_eval")
    asked = parser.parse_args()
    if not asked.eee and not asked.lm_eval:
        parser.error("name --eee, --lm-eval or both")
    with tempfile.TemporaryDirectory() as scratch:
        for number, uri in enumerate(asked.runs or [made(Path(scratch, "made"))]):
            run, folder = StoredRun(open_store(uri)), Path(scratch, str(number))
            print(f"{run.manifest.run_id}: {len(run.rows):,} rows")
            export_inspect(run, open_store(str(folder / "inspect")))
            export_lm_eval(run, open_store(str(folder / "lm-eval")))
            if asked.lm_eval:
                read_by_lm_eval(folder / "lm-eval", asked.lm_eval)
            for source in ("inspect", "lm-eval") if asked.eee else ():
                converted(folder, source, asked.eee)


def converted(folder: Path, source: str, python: str) -> None:
    """Convert and validate with Every Eval Ever, which wants its files below ``data``."""
    home = folder / f"{source}-eee"
    home.mkdir()
    # Of lm-eval's a folder for each model.
    (logs,) = [folder / source] if source == "inspect" else (folder / source).iterdir()
    tool = [str(Path(python).with_name("every_eval_ever"))]
    who = ["--source_organization_name", "ace_ray", "--evaluator_relationship", "third_party"]
    more = [] if source == "inspect" else ["--include_samples"]
    words = ["convert", source.replace("-", "_"), "--log_path", str(logs), "--output_dir", "data"]
    said(tool + words + who + more, home)
    files = sorted(str(path.relative_to(home)) for path in home.glob("data/**/*.json*"))
    found = json.loads(said([*tool, "validate", "--format", "json", *files], home))
    wrong = [one for one in found if not one["valid"]]
    assert files, "it converted nothing"
    assert not wrong, wrong
    lines = sum(one["line_count"] for one in found)
    print(f"every_eval_ever convert and validate, {source}: {len(found)} files, {lines:,} lines")


def said(words: list[str], folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words[1:3])} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def read_by_lm_eval(folder: Path, package: str) -> None:
    sys.path.append(package)
    whole = ModuleType("lm_eval")  # importing the real one imports torch
    whole.__path__ = [f"{package}/lm_eval"]
    sys.modules["lm_eval"] = whole
    utils = import_module("lm_eval.utils")
    files = sorted(str(path) for path in folder.glob("*/*"))
    latest = utils.get_latest_filename(utils.get_results_filenames(files))
    results = json.loads(Path(latest).read_text())
    print(utils.make_table(results))
    tasks = {}
    for name in utils.get_sample_results_filenames(files):
        task = utils.get_file_task_name(Path(name).name)
        tasks[task] = [json.loads(line) for line in Path(name).read_text().splitlines()]
    assert tasks.keys() == results["results"].keys(), tasks.keys()
    for task, lines in tasks.items():
        assert len(lines) == results["n-samples"][task]["effective"], task
    print(f"lm_eval: {len(tasks)} tasks, {sum(map(len, tasks.values())):,} samples")


def made(folder: Path) -> str:
    """A run of sixteen episodes in ``folder``."""
    made_run = import_module("tests.run.made_run")
    made_run.written_run(folder, episode, samples=2)
    # Its answers stand for an engine's: of a fake one Every Eval Ever knows no developer.
    manifest = json.loads((folder / "run.json").read_text())
    manifest["config"]["backend"] = manifest["identity"]["backend"] = "vllm"
    (folder / "run.json").write_text(json.dumps(manifest))
    return str(folder)


def episode(number: int, entry: Entry) -> Episode:
    """Two answers, two calls of which one has no readable arguments, and a sandbox that changed."""
    output = render_gold(entry) if number % 3 else "[nothing()]"
    schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    told = {"name": "find", "description": "Finds it.", "parameters": schema}
    calls = [
        {"id": name, "type": "function", "function": {"name": "find", "arguments": arguments}}
        for name, arguments in (("a", '{"x": "1"}'), ("b", "no json"))
    ]
    return Episode(
        [
            {"role": "system", "content": "Find what the user asks for."},
            {"role": "user", "content": "Find it."},
            {"role": "assistant", "content": "", "reasoning": "because", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a", "content": '{"found": 1}'},
            {"role": "tool", "tool_call_id": "b", "content": "Error"},
            {"role": "assistant", "content": output},
        ],
        output,
        model_calls=2,
        prompt_tokens=70,
        completion_tokens=9,
        finish_reason="stop",
        tools=[{"type": "function", "function": told}],
        state={
            "before": [{"Files": {"a.txt": "one", "list": [1, 2, 3]}}],
            "end": [{"Files": {"a.txt": "two", "list": [1], "new": {}}}],
            "steps": [],
        },
    )


if __name__ == "__main__":
    main()
