"""Table 5 and Figure 6 of the paper: what kinds of errors models make.

Both rule sets name errors in their own words; here they are sorted into the paper's kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ace_ray.benchmarks.acebench.categories import NORMAL
from ace_ray.benchmarks.acebench.paper.cells import judged, notes_on_runs, standard
from ace_ray.benchmarks.conditions import marked
from ace_ray.benchmarks.results import ReportedRun, StackedBars, Table, Value

_DETECTED_IN = ("special_incomplete", "special_error_param")
"""What Table 5 counts. The paper does not say so, but only then do its rows agree with Table 3:
Watt-Tool-8B's 188 + 4 errors are the 93 + 99 of Incomplete and Error, without Irrelevant."""
_SPECIAL = {
    "Error Detection": {"error_detection", "detection_failed"},
    "Error Correction": {"error_correction", "correction_failed"},
}
_OTHER = "Other"
_NORMAL = {
    "output_format": "Output Format",
    "wrong_output_format": "Output Format",
    "official_unsafe": "Output Format",
    "function_name": "Function Name",
    "function_mismatch": "Function Name",
    "wrong functions number": "Function Name",
    "wrong_function_name": "Function Name",
    "param_num": "Param Number",
    "wrong_param": "Param Number",
    "lack_args": "Param Number",
    "addition_args": "Param Number",
    "param_type": "Param Type",
    "type_error": "Param Type",
    "param_value": "Param Value",
    "value_error": "Param Value",
}
KINDS = (*dict.fromkeys(_NORMAL.values()), _OTHER)


def table5(runs: Sequence[ReportedRun], rules: str) -> Table:
    """Invalid rows of the incomplete and error_param categories, languages pooled, by kind."""
    shown = standard(runs)
    labels, legend = marked(shown)
    lines: list[list[Value]] = []
    judged_rows, others = [], []
    for run, label in zip(shown, labels, strict=True):
        blocks = [judged(run, run.summary["combined"], name) for name in _DETECTED_IN]
        found = [block for block in blocks if block is not None]
        if len(found) < len(blocks):
            lines.append([label, None, None])
            continue
        errors: Counter[str] = Counter()
        for block in found:
            errors.update({k: int(v["count"]) for k, v in block[rules]["errors"].items()})
        counts = [sum(errors[name] for name in names) for names in _SPECIAL.values()]
        lines.append([label, *counts])
        judged_rows.append(f"{sum(block['scored'] for block in found)} of {run.label}")
        if other := errors.total() - sum(counts):
            others.append(f"{other} of {run.label}")
    notes = ["rows of the incomplete and error_param categories, as the paper's counts imply"]
    if judged_rows:
        notes.append(f"judged rows: {', '.join(judged_rows)}")
    if others:
        notes.append(f"errors of another kind, in neither column: {', '.join(others)}")
    return Table(
        name="table5",
        title="Table 5: errors on Special data by type (rows)",
        header=["Model", *_SPECIAL],
        lines=lines,
        notes=[*legend, *notes_on_runs(shown, runs), *notes],
    )


def figure6(runs: Sequence[ReportedRun], rules: str) -> StackedBars | None:
    """Invalid rows of the normal categories by kind; None when no run has any.

    The unit is the row: in the multi-turn categories the turn.
    """
    shown = standard(runs)
    labels, _ = marked(shown)
    bars = []
    for run, label in zip(shown, labels, strict=True):
        counts = normal_errors(run, rules)
        if counts.total():
            bars.append((label, [counts[kind] for kind in KINDS]))
    if not bars:
        return None
    used = [i for i in range(len(KINDS)) if any(counts[i] for _, counts in bars)]
    return StackedBars(
        name="figure6",
        title=f"Error types on Normal data ({rules} rules)",
        kinds=[KINDS[i] for i in used],
        bars=[(label, [counts[i] for i in used]) for label, counts in bars],
    )


def normal_errors(run: ReportedRun, rules: str) -> Counter[str]:
    """Kind -> invalid rows of the normal categories, all languages."""
    counts: Counter[str] = Counter()
    for name, block in run.summary["combined"]["categories"].items():
        if name in NORMAL:
            for error_type, found in block[rules]["errors"].items():
                # The official rules write `value_error:string` and the like.
                kind = _NORMAL.get(error_type) or _NORMAL.get(error_type.partition(":")[0], _OTHER)
                counts[kind] += int(found["count"])
    return counts
