"""Rows of a real model and upstream's own evaluators: one way and the other.

    python tests/parity/real_rows.py write RUN FOLDER [--official CLONE]
    python tests/parity/real_rows.py compare RUN RESULTS SCORES

``write`` lays a run's rows out as upstream's result files: of BFCL in ``FOLDER/result/MODEL``, of
ACEBench in a copy of CLONE, whose data is cut to the rows that the run has: its evaluator wants all
rows of a category. ``compare`` reads one model's result folder and the score folder that upstream's
evaluator wrote of it. The run is the one that was written, or what ``ace-ray score`` made of the
results, and then the verdicts of all rows are compared; or it is another one of the same entries,
and rows with other texts are counted apart. Exit code 1 when a verdict differs on the same text.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.bfcl import categories as bfcl
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger

COLUMNS = ["benchmark", "category", "id", "status", "output", "state", "official_valid"]
FC_MODEL = "gpt-4o-2024-11-20-FC"
"""A name under which upstream reads native calls as OpenAI's."""
PROMPT_MODEL = "Qwen_Qwen3-0.6B"
"""A name under which upstream reads the text of a local model."""
ACEBENCH_MODEL = "gpt-4o"

Row = dict[str, Any]


def rows_of(uri: str) -> list[Row]:
    """The scored rows of a run, in order of their categories and ids."""
    tables = read_ledger(open_store(uri), print).tables(COLUMNS)
    stored = [row for table in tables for row in table.to_pylist()]
    rows = [row for row in stored if row["status"] == "scored"]
    if len(rows) < len(stored):
        print(f"{len(stored) - len(rows)} of {len(stored)} rows have no verdict and are left out")
    for row in rows:
        row["state"] = json.loads(row["state"] or "null")
    return sorted(rows, key=lambda row: (row["category"], numbers(row["id"])))


def numbers(entry_id: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", entry_id.partition("_")[2])]


def result_of(row: Row) -> Any:
    """A row's answer as upstream's programs store it."""
    state = row["state"] or {}
    if row["benchmark"] != "bfcl" or "turns" not in state:
        return row["output"]
    turns = [[_bfcl_answer(answer) for answer in turn] for turn in state["turns"]]
    return turns if row["category"] in bfcl.MULTI_TURN else turns[0][0]


def _bfcl_answer(stored: Any) -> Any:
    answer = Answer.stored(stored)
    return [{call.name: call.arguments} for call in answer.calls or ()] or answer.text


def by_category(rows: list[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["category"]].append(row)
    return groups


def write(rows: list[Row], folder: Path, official: Path | None) -> None:
    ours = [row for row in rows if row["benchmark"] == "bfcl"]
    native = any('"calls": ' in json.dumps(row["state"]) for row in ours)
    for category, group in by_category(ours).items():
        model = folder / "result" / (FC_MODEL if native else PROMPT_MODEL)
        path = model / bfcl_group(category) / f"BFCL_v4_{category}_result.json"
        write_lines(path, [{"id": row["id"], "result": result_of(row)} for row in group])
    rows = [row for row in rows if row["benchmark"] == "acebench"]
    if not rows:
        return
    if official is None:
        sys.exit("ACEBench's evaluator lies in a clone: name it with --official")
    shutil.copytree(official, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
    for category, group in by_category(rows).items():
        kept = {row["id"]: row for row in group}
        for part in ("", "possible_answer/"):
            path = folder / f"data_all/data_en/{part}data_{category}.json"
            entries = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
            write_lines(path, [entry for entry in entries if entry["id"] in kept])
            order = [entry["id"] for entry in entries if entry["id"] in kept]
        results = folder / f"result_all/result_en/{ACEBENCH_MODEL}/data_{category}_result.json"
        write_lines(results, [acebench_line(kept[entry_id]) for entry_id in order])


def acebench_line(row: Row) -> Row:
    if not row["category"].startswith("agent"):
        return {"id": row["id"], "result": row["output"]}
    return {"id": row["id"], "result": row["state"]["after"], "process": row["state"]["process"]}


def bfcl_group(category: str) -> str:
    if category.startswith(("live", "multi_turn")):
        return "live" if category.startswith("live") else "multi_turn"
    return "non_live"


def write_lines(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def upstream_rows(results: Path, scores: Path) -> Iterator[tuple[str, list[Row], int, set[Any]]]:
    """Category, result rows, how many upstream counts as right, ids that it lists as wrong. An
    agent row is listed by its place."""
    for path in sorted(results.rglob("*_result.json")):
        match = re.fullmatch(r"(?:BFCL_v4|data)_(\w+)_result\.json", path.name)
        assert match is not None
        name = path.name.replace("_result.json", "_score.json")
        score = next(scores.rglob(name), None)
        if score is None:
            print(f"{match[1]}: upstream has no {name}")
            continue
        head, *wrong = [json.loads(line) for line in score.read_text("utf-8").splitlines()]
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        yield match[1], rows, head["correct_count"], {row["id"] for row in wrong}


def compare(rows: list[Row], results: Path, scores: Path) -> int:
    """Print a line of each category; how many verdicts differ on the same text."""
    groups = by_category(rows)
    print(
        "| category | rows | ours | upstream | same text | verdict differs | other text "
        "| verdict differs |\n|---|--:|--:|--:|--:|--:|--:|--:|"
    )
    totals = [0] * 7
    for category, theirs, correct, listed in upstream_rows(results, scores):
        ours = {row["id"]: row for row in groups.get(category, [])}
        # The evaluator of single answers lists an answer also where only a later one of several
        # expected answers fits, and counts it as right.
        tolerated = len(listed) - (len(theirs) - correct)
        counts = [0] * 7
        doubtful: list[str] = []
        for place, their in enumerate(theirs):
            if their["id"] not in ours:
                continue
            row = ours[their["id"]]
            agent = category.startswith("agent")
            wrong = (place if agent else their["id"]) in listed
            same = (
                (their["result"], their["process"])
                == (row["state"]["after"], row["state"]["process"])
                if agent
                else their["result"] == result_of(row)
            )
            differs = row["official_valid"] == wrong
            if differs and row["official_valid"] and len(doubtful) < tolerated:
                doubtful.append(their["id"])
                wrong = differs = False
            of_row = (1, row["official_valid"], not wrong, same, same and differs, not same)
            for index, part in enumerate((*of_row, not same and differs)):
                counts[index] += bool(part)
            if same and differs:
                print(f"DIFFERS {category} {their['id']}: ours {row['official_valid']}")
        print(line(category, counts) + (f" listed and right: {doubtful}" if doubtful else ""))
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
    print(line("all", totals))
    if not totals[0]:
        sys.exit("no row of the run is among upstream's results")
    return totals[4]


def line(name: str, counts: list[int]) -> str:
    rows, ours, theirs, *rest = counts
    shares = [f"{100 * right / rows:.1f}" if rows else "" for right in (ours, theirs)]
    return f"| {' | '.join([name, str(rows), *shares, *map(str, rest)])} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("run")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--official", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("run")
    comparing.add_argument("results", type=Path)
    comparing.add_argument("scores", type=Path)
    args = parser.parse_args()
    rows = rows_of(args.run)
    if args.command == "write":
        write(rows, args.folder, args.official)
        return 0
    return 1 if compare(rows, args.results, args.scores) else 0


if __name__ == "__main__":
    sys.exit(main())
