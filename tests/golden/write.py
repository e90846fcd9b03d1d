"""Write the golden files of this folder: answers near the gold ones, and upstream's verdicts.

    ACEBENCH_OFFICIAL=CLONE PYTHONPATH=.:tests/parity python tests/golden/write.py

docs/parity.md says where CLONE comes from; BFCL and tau2 are the installed packages. Only ids, the
answers that this script makes, and verdicts are written. Commit 7e9bc9db has the scripts that wrote
``bfcl.jsonl`` and ``stabletoolbench.jsonl``.
"""

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import bfcl_multi_turn
import compare
import tau2_parity
from bfcl_child import sha
from official import answers_of, request, verdicts
from tau2_cases import conversation, recorded
from variations import variations

from ace_ray.benchmarks.acebench.data.loader import MINI, load
from ace_ray.benchmarks.bfcl.categories import CATEGORIES as BFCL_CATEGORIES
from ace_ray.benchmarks.bfcl.categories import MULTI_TURN
from ace_ray.benchmarks.bfcl.data.loader import function_docs
from ace_ray.benchmarks.bfcl.data.loader import load as load_bfcl
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.tau2.upstream_package import UpstreamPackage as Tau2Package
from ace_ray.types import Entry, Episode

FOLDER = Path(__file__).parent
PER_CATEGORY = 30
SEED = 44
Row = dict[str, Any]


def write(name: str, rows: Iterable[tuple[str, Row]]) -> None:
    """Keep `PER_CATEGORY` rows of each category, as many of each verdict as there are."""
    samples: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for category, row in rows:
        text, verdict = json.dumps(row), row["verdict"]
        kind = verdict[1] if isinstance(verdict, list) and len(verdict) > 1 else verdict
        if len(text) < 3_000:
            samples[category][json.dumps(kind)].append(text)
    lines = []
    for kinds in samples.values():
        ranked = sorted((n, kind) for kind, rows in kinds.items() for n in range(len(rows)))
        chosen: dict[str, int] = defaultdict(int)
        for _, kind in ranked[:PER_CATEGORY]:
            chosen[kind] += 1
        lines += [text for kind, rows in kinds.items() for text in rows[: chosen[kind]]]
    (FOLDER / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    print(f"{name}: {len(lines)} rows of {len(samples)} categories")


def acebench() -> Iterable[tuple[str, Row]]:
    """Variations of the mini set's gold answers."""
    cases = [(entry, [*variations(entry, 120, SEED)]) for entry in load(MINI)]
    answers = verdicts(request(entry, [output for _, output in pairs]) for entry, pairs in cases)
    for (entry, several), results in zip(cases, answers, strict=True):
        for (_, output), verdict in zip(several, results, strict=True):
            assert compare.agrees(verdict, compare.ours(entry, output)), (entry, output, verdict)
            row = {"entry": entry.key, "output": output, "verdict": verdict}
            yield f"{entry.language} {entry.category}", row


def bfcl_turns(copy: UpstreamPackage) -> Iterable[tuple[str, Row]]:
    """Conversations near the multi-turn keys."""
    docs = function_docs(copy)
    for category in MULTI_TURN:
        rng = random.Random(f"{SEED} {category}")
        entries = rng.sample(load_bfcl(copy, [category]), 40)
        groups = [(e, [bfcl_multi_turn.turns_of(e, docs, rng) for _ in range(3)]) for e in entries]
        answers = bfcl_multi_turn.upstream(copy, groups)
        for (entry, cases), results in zip(groups, answers, strict=True):
            for turns, theirs in zip(cases, results, strict=True):
                yield category, {**_of(entry), "turns": turns, "verdict": theirs}


def bfcl_prompts(copy: UpstreamPackage) -> Iterable[tuple[str, Row]]:
    """A hash of all prompts and tools of each category."""
    lines: list[Any] = [[category, "(nothing)"] for category in BFCL_CATEGORIES]
    request = "bfcl_child.py", [copy.root.parent, "prompts"], lines
    for (category, _), items in zip(lines, answers_of(*request, "BFCL_PROJECT_ROOT"), strict=True):
        yield category, {"category": category, "verdict": [len(items), sha(sorted(items))]}


def tau2_prompts(copy: Tau2Package) -> Iterable[tuple[str, Row]]:
    """Hashes of policy and greeting, tools, and all system messages of each category."""
    with tau2_parity.upstream(copy) as ask:
        for name in (category.name for category in copy.categories):
            prompts = ask("prompts", category=name)
            hashes = [sha(prompts[part]) for part in ("shown", "tools", "messages")]
            yield name, {"category": name, "verdict": [len(prompts["messages"]), *hashes]}


def tau2(copy: Tau2Package) -> Iterable[tuple[str, Row]]:
    """Conversations near the gold paths, without the answers of their calls."""
    with tau2_parity.upstream(copy) as ask:
        comparison = tau2_parity.Comparison(ask, copy)
        for name in comparison.names:
            rng = random.Random(f"{SEED} {name}")
            for _ in range(24):
                talk = conversation(comparison.pools[name], rng)
                state = tau2_parity.state_of(recorded(comparison.benchmark, talk), talk.ending)
                result = tau2_parity.evaluated(ask, talk.entry, state)
                ours = comparison.benchmark.verdicts(talk.entry, Episode(state=state))["official"]
                assert not comparison.verdict_problems(talk.entry, state, ours, result), talk
                verdict: Any = [result.get("reward"), result.get("breakdown")]
                if "crash" in result:
                    verdict = {"crash": result["crash"].partition(":")[0]}
                row = {**_of(talk.entry), "turns": talk.turns, "ended": talk.ending}
                yield name, {**row, "fault": talk.fault, "verdict": verdict}


def _of(entry: Entry) -> Row:
    return {"category": entry.category, "id": entry.id}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="one of the files")
    options = parser.parse_args()
    copy, tau2_copy = UpstreamPackage.locate("installed"), Tau2Package.locate("installed")
    for name, make_rows in {
        "acebench": lambda: acebench(),
        "bfcl_multi_turn": lambda: bfcl_turns(copy),
        "bfcl_prompts": lambda: bfcl_prompts(copy),
        "tau2": lambda: tau2(tau2_copy),
        "tau2_prompts": lambda: tau2_prompts(tau2_copy),
    }.items():
        if options.only in ("", name):
            write(name, make_rows())


if __name__ == "__main__":
    main()
