"""What the reference models score: summaries in ``reference-runs/``, and the tables of the pages.

    python docs/reference_runs.py store RUN NAME CONFIG
    python docs/reference_runs.py store-sweep SWEEP CONFIG
    python docs/reference_runs.py

``store`` keeps a finished run's summary as ``reference-runs/NAME.json``, without the names of the
machine that made it; ``CONFIG`` is the file of ``reference-runs/`` that was run. ``store-sweep``
keeps what a sweep's report says of its models as ``sweep/sweep.json``, and its figure of sizes.
Without arguments the tables between the marks of the page and ``categories.csv`` are written anew.
A test compares the page with the stored runs.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.headline import titles
from ace_ray.benchmarks.registry import benchmark_class
from ace_ray.benchmarks.results import BenchmarkResult, Estimate
from ace_ray.storage.object_store import open_store

DOCS = Path(__file__).parent
FOLDER = DOCS / "reference-runs"
PAGE = FOLDER / "index.md"
_MARKED = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
KEPT = ("versions", "identity")
"""Of the manifest."""
SWEEP_CONFIG = "sweep.yaml"
SWEEP = "sweep/sweep.json"
FIGURE = "sweep/figure7.svg"
# Group of the page's table of differences.
SHOWN = "All"
CATEGORIES = FOLDER / "categories.csv"


def store(uri: str, name: str, config: str) -> None:
    run = open_store(uri)
    summary, manifest = (json.loads(run.get(file) or "{}") for file in ("summary.json", "run.json"))
    if not summary["complete"]:
        sys.exit(f"{uri} is not complete")
    # A path says where a file lay; the revision is the hash of what was in it.
    source = summary["model"]["source"]
    for text in ("uri", "ignored_files"):
        summary.pop(text, None)
    summary["timing"].pop("workers", None)
    summary["timing"].pop("loads", None)
    stored = {
        "config": config,
        "command": command(config, summary),
        "summary": summary,
        **{key: manifest[key] for key in KEPT},
    }
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    text = text.replace(source, Path(source).name)
    if "/home/" in text or str(Path.cwd()) in text:
        sys.exit("the summary names a path of this machine")
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def store_sweep(uri: str, config: str) -> None:
    """Of a sweep whose report has been made: the ledger's costs, and the differences between
    accuracies of the large groups."""
    sweep = open_store(uri)
    ledger = json.loads(sweep.get("ledger.json") or "{}")
    lines = (sweep.get("report/comparison.csv") or b"").decode().splitlines()
    kept = ("label", "parameters", "entries", "seconds", "tokens", "cost", "per_1000")
    stored = {
        "command": sweep_command(config),
        "models": [{key: line[key] for key in kept} for line in ledger["runs"]],
        "differences": [
            one
            for one in csv.DictReader(lines)
            if one["metric"] == "accuracy" and one["group"] in ("Normal", "Special", "Agent", "All")
        ],
    }
    (FOLDER / SWEEP).parent.mkdir(exist_ok=True)
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    (FOLDER / SWEEP).write_text(text + "\n", encoding="utf-8")
    if (figure := sweep.get("report/figure7.svg")) is not None:
        (FOLDER / FIGURE).write_bytes(figure)


def sweep_command(config: str) -> str:
    source = '"$(python infra/reference_models.py{})"'
    models = {1: "", 2: " qwen2.5-coder-1.5b"}
    values = [f"--set models.{i}.source={source.format(name)}" for i, name in models.items()]
    return f"ace-ray sweep docs/reference-runs/{config} {' '.join(values)}"


def command(config: str, summary: Mapping[str, Any]) -> str:
    """What made the run, from a checkout."""
    if config == SWEEP_CONFIG:
        return sweep_command(config)
    source = summary["model"]["source"]
    if name := re.search(r"Qwen2\.5-Coder-[\d.]+B", source):
        source = f"$(python infra/reference_models.py {name[0].lower()})"
    usual = yaml.safe_load((FOLDER / config).read_text("utf-8")).get("limit")
    limit = f" --limit {summary['limit']}" if summary.get("limit") not in (None, usual) else ""
    return f'ace-ray evaluate docs/reference-runs/{config}{limit} --set model.source="{source}"'


def stored_runs() -> dict[str, dict[str, Any]]:
    return {
        path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))
    }


def reported(stored: Mapping[str, Any]) -> list[tuple[type[Benchmark], BenchmarkResult]]:
    """The benchmarks of a stored run, as a report sees them."""
    summary = stored["summary"]
    model = Path(summary["model"]["source"]).stem.removesuffix(".Q4_K_M")
    runs = []
    for name, part in summary["benchmarks"].items():
        run = BenchmarkResult(model, model, {}, {}, {}, None, part, (), summary["headline"], "")
        runs.append((benchmark_class(name), run))
    return runs


def results() -> str:
    """A line of each stored run: its headline numbers under the official rules."""
    lines = ["| run | rows | official, % |", "|---|--:|---|"]
    for name, stored in stored_runs().items():
        for benchmark, run in reported(stored):
            rows = run.summary.get("counts", {}).get("scored", stored["summary"]["scored"])
            lines.append(f"| [{name}]({name}.json) | {rows:,} | {numbers(benchmark, run)} |")
    return "\n".join(lines) + "\n"


def numbers(benchmark: type[Benchmark], run: BenchmarkResult) -> str:
    """Return the headline numbers, partial ones in italics. Numbers without rows are left out."""
    scores = benchmark.scores(run.summary, benchmark.rule_sets[0])
    return ", ".join(
        f"*{title} {percent(one.estimate)}*"
        if one.estimate.partial
        else f"{title} {percent(one.estimate)}"
        for title, one in zip(titles(scores), scores, strict=True)
        if one.estimate is not None
    )


def percent(share: Estimate | None) -> str:
    if share is None:
        return ""
    low, high = share.interval
    return f"{100 * share.value:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def categories() -> str:
    """Return a CSV table of all categories: a line for each stored run, measure and rule set."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["run", "category", "measure", "rules", "n", "value", "low", "high"])
    for name, stored in stored_runs().items():
        for benchmark, run in reported(stored):
            for one in benchmark.categories(run):
                for rules in benchmark.rule_sets:
                    share = one.shares.get(rules)
                    if share is None:
                        continue
                    key = [name, one.category, one.measure, rules, one.scored]
                    table.writerow([*key, *(f"{n:.4f}" for n in (share.value, *share.interval))])
    return text.getvalue()


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def costs() -> str:
    """A line of each model of the sweep: what its entries took."""
    head = ["model", "parameters", "tokens", "engine seconds", "cost of 1,000 entries"]
    lines = [row(head), row(["---", *["--:"] * (len(head) - 1)])]
    for one in json.loads((FOLDER / SWEEP).read_text("utf-8"))["models"]:
        price = one["per_1000"]["cost"]
        cells = [
            one["label"],
            f"{one['parameters'] / 1e6:,.0f} M",
            f"{sum(one['tokens'].values()):,}",
            f"{sum(one['seconds'].values()):,.0f}",
            f"{price:.2f}",
        ]
        lines.append(row(cells))
    return "\n".join(lines) + "\n"


def differences() -> str:
    """Differences of the group `SHOWN` against the smallest model, with entries that turned."""
    head = ["rules", "model", "difference [95 %]", "gained", "lost", "Holm p"]
    lines = [row(head), row(["---", "---", *["--:"] * (len(head) - 2)])]
    for one in json.loads((FOLDER / SWEEP).read_text("utf-8"))["differences"]:
        if one["group"] != SHOWN:
            continue
        low, high, value = (100 * float(one[key]) for key in ("low", "high", "difference"))
        holm_p = float(one["holm_p"])
        p = "< 0.0001" if holm_p < 0.0001 else f"{holm_p:.2g}"
        difference = f"{value:+.1f} [{low:.1f}, {high:.1f}]"
        turned = [str(one["gained"]), str(one["lost"])]
        lines.append(row([one["rules"], one["other"], difference, *turned, p]))
    return "\n".join(lines) + "\n"


TABLES = {
    "costs": costs,
    "differences": differences,
    "results": results,
}


def page() -> str:
    """Return the page with its tables made from the stored runs."""

    def table(mark: re.Match[str]) -> str:
        return f"{mark[1]}\n{TABLES[mark[2]]()}\n{mark[3]}"

    return _MARKED.sub(table, PAGE.read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["store", uri, name, config]:
            store(uri, name, config)
        case ["store-sweep", uri, config]:
            store_sweep(uri, config)
        case []:
            pass
        case _:
            print(__doc__)
            return 2
    PAGE.write_text(page(), encoding="utf-8")
    CATEGORIES.write_text(categories(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
