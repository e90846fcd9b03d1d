"""Our official ACEBench rules against the official evaluator, on variations of every row.

``ACEBENCH_OFFICIAL=CLONE python tests/parity/compare.py --data imported --per-row 25 [--seed S]``
prints the counts as a Markdown table, then what differs; exit code 1 when anything does.
"""

import argparse
import sys
from collections.abc import Iterable
from itertools import groupby

from official import Answer, request, verdicts
from report import Found
from variations import variations

from ace_ray.benchmarks.acebench.benchmark import check
from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.errors import UserError
from ace_ray.types import Entry, Verdict

COLUMNS = ("rows", "outputs", "judged", "valid", "equal", "crash", "refused")


def compare(entries: Iterable[Entry], per_row: int, seed: int = 0) -> Found:
    """Count by language and category of ``entries``, which come sorted by them."""
    report = Found()
    for (language, category), group in groupby(entries, lambda e: (e.language, e.category)):
        name = f"{language} {category}"
        cases = [(entry, list(variations(entry, per_row, seed))) for entry in group]
        lines = [request(entry, [output for _, output in several]) for entry, several in cases]
        for (entry, several), answers in zip(cases, verdicts(lines), strict=True):
            report.count(name, rows=1)
            for (kind, output), answer in zip(several, answers, strict=True):
                verdict = ours(entry, output)
                equal = agrees(answer, verdict)
                if isinstance(answer, dict):
                    ((why, detail),) = answer.items()
                    report.count(name, outputs=1, equal=equal, **{why: 1})
                    report.answers[f"{why}: {detail}"] += 1
                else:
                    report.count(name, outputs=1, equal=equal, judged=1, valid=answer[0])
                    report.answers[answer[1] or "valid"] += 1
                if not equal:
                    report.differences.append(
                        f"{name} {entry.id} [{kind}]\n  official {answer}\n"
                        f"  ours     {[verdict.valid, verdict.error_type, verdict.metrics]}\n"
                        f"  output   {str(output)[:600]!r}"
                    )
    return report


def ours(entry: Entry, output: object) -> Verdict:
    if entry.category.startswith("agent_"):
        return check_agent(entry, *output)["official"]  # type: ignore[misc]
    return check(entry, output)["official"]  # type: ignore[arg-type]


def agrees(answer: Answer, verdict: Verdict) -> bool:
    """Whether the two agree. Where the evaluator crashes or is about to run more than literals it
    gives no verdict, and ours has to say so."""
    if isinstance(answer, dict):
        kind = "official_crash" if "crash" in answer else "official_unsafe"
        return not verdict.valid and verdict.error_type == kind
    if verdict.error_type == "official_unsafe":  # an operation that ours does not compute
        return not verdict.valid
    process = [round(verdict.metrics["process_accuracy"], 3)] if len(answer) == 3 else []
    return answer == [verdict.valid, verdict.error_type, *process]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="imported", help="as in a run's config")
    parser.add_argument("--per-row", type=int, default=25, help="outputs per row")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        report = compare(load(locate(options.data)), options.per_row, options.seed)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return report.print(COLUMNS)


if __name__ == "__main__":
    sys.exit(main())
