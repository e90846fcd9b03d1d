"""Records of results: rows as summaries see them, estimates, scores, tables, figures, a run.

Nothing here needs a benchmark's data: rows hold the verdicts. `ace_ray.reports` reads runs, prints
and draws; the benchmarks compute the numbers (`ace_ray.benchmarks.base.Benchmark`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ace_ray.types import Verdict, canonical_json
from ace_ray.util.sanitizing import one_line

Where = Literal["answer", "reasoning"]
_MOST_ANSWERS = 1 << 31


@dataclass(frozen=True, slots=True)
class SecondReading:
    """The reader that finds calls in most of a row's answers, where they are (in the answer, or in
    reasoning that never ended), and the number of answers that hold calls."""

    reader: str
    where: Where
    answers: int

    def as_json(self) -> str:
        return canonical_json(asdict(self))

    @classmethod
    def of_json(cls, value: Any) -> SecondReading:
        """Read what `as_json` gave. Raises `ValueError`."""
        if not isinstance(value, dict):
            raise ValueError("is no object")
        reader, where, answers = (value.get(key) for key in ("reader", "where", "answers"))
        if not isinstance(reader, str) or not 0 < len(reader) <= 40 or not reader.isidentifier():
            raise ValueError("names no reader")
        if where not in ("answer", "reasoning"):
            raise ValueError("names no place")
        if type(answers) is not int or not 0 < answers <= _MOST_ANSWERS:
            raise ValueError("counts no answers")
        return cls(reader, where, answers)


@dataclass(slots=True, repr=False)
class ResultRow:
    """The fields of a stored row that summaries read: keys, status, verdicts by rule set, usage."""

    row_id: str
    benchmark: str
    category: str
    language: str
    id: str
    group: str
    sample: int
    status: str
    repeat: int = 0
    """1 for a row that was generated again to measure how two identical runs differ."""
    error_class: str | None = None
    error: str | None = None
    """The reason why the row has no verdict."""
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    """None where an endpoint did not report it."""
    model_calls: int = 0
    generation_s: float = 0.0
    duration_s: float = 0.0
    reasoning_truncated: bool = False
    finish_reason: str = ""
    endpoint: dict[str, Any] | None = None
    """`ace_ray.storage.rows.endpoint_of`."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    second_reading: SecondReading | None = None

    def __repr__(self) -> str:
        judged = {rules: one.valid for rules, one in self.verdicts.items()}
        return f"<ResultRow {one_line(self.id, 80)}, sample {self.sample}: {judged or self.status}>"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share in 0..1 with its 95 % interval, over ``n`` judged entries or dialogues.

    ``partial``: some of the categories are missing."""

    value: float
    interval: tuple[float, float]
    n: int
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """A number over a whole run, by the formula of that name.

    ``missing`` are categories of the formula that the run lacks. Then ``estimate`` is partial, the
    mean of the others, or None."""

    name: str
    formula: str
    estimate: Estimate | None
    missing: Sequence[str] = ()

    @property
    def key(self) -> tuple[str, str]:
        """The score's identity among the scores of a benchmark."""
        return self.name, self.formula

    @classmethod
    def of_json(cls, tree: Mapping[str, Any]) -> Score:
        """Read the score that `as_json` wrote."""
        estimate = None
        if tree["value"] is not None:
            low, high = tree["interval"]
            estimate = Estimate(tree["value"], (low, high), tree["n"], tree["partial"])
        return cls(tree["name"], tree["formula"], estimate, tuple(tree["missing"]))

    def as_json(self) -> dict[str, Any]:
        """Return the score as in ``summary.json`` (docs/results.md)."""
        found = self.estimate
        return {
            "name": self.name,
            "formula": self.formula,
            "value": found.value if found else None,
            "interval": list(found.interval) if found else None,
            "n": found.n if found else 0,
            "partial": found is not None and found.partial,
            "missing": list(self.missing),
        }


def score_of(
    cell: Mapping[str, Any], name: str, formula: str, n: int, missing: Sequence[str]
) -> Score:
    """Make the score of a cell ``{"value", "interval", "partial": {"value", "interval"}}``."""
    whole = cell if cell["value"] is not None else cell.get("partial")
    estimate = None
    if whole is not None:
        low, high = whole["interval"]
        estimate = Estimate(whole["value"], (low, high), n, partial=bool(missing))
    return Score(name, formula, estimate, tuple(missing))


# A cell: text, a count, a share, or None for what the runs do not hold (printed as N/A).
Value = str | int | Estimate | None


@dataclass(frozen=True, slots=True)
class Table:
    """``name`` is the stem of its files; each line has as many cells as ``header``."""

    name: str
    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[Value]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CategoryResult:
    """One number of one category of a run, under every rule set.

    ``measure`` names the number (``accuracy``, ``process accuracy``). ``declared`` and ``scored``
    count rows. ``shares`` has every rule set; None if too many rows are not scored.
    """

    language: str
    category: str
    measure: str
    declared: int
    scored: int
    shares: Mapping[str, Estimate | None]


@dataclass(frozen=True, slots=True)
class Curves:
    """Panel -> series -> (x, share) points, by x: billions of parameters, or a training step."""

    name: str
    title: str
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, Estimate]]]]
    axis: Literal["parameters", "step"] = "parameters"


@dataclass(frozen=True, slots=True)
class Paper:
    """Counterparts of a paper's tables and figures; ``notes`` say what could not be drawn."""

    tables: Sequence[Table]
    figures: Sequence[Curves]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One benchmark of one run.

    ``label`` is unique in a report, ``model`` the candidate's short name. ``candidate`` holds the
    model's revision and the way it is served and asked, ``conditions`` everything else that can
    move a score (both dotted key -> JSON, `ace_ray.benchmarks.conditions`), ``identity`` the
    benchmark's part of it.
    ``parameters`` is the model's size where the manifest names one. ``summary`` comes from
    `Benchmark.statistics`. ``plays`` are the roles of episodes that the candidate plays itself.
    ``headline`` is false if more rows than allowed lack a verdict, and
    ``incomplete`` says which rows are missing, "" for none. ``step`` is the training step of a
    checkpoint. ``limited`` is true when the run declares a part of the entries, and
    ``partial`` when it evaluated named entries only.
    """

    label: str
    model: str
    candidate: Mapping[str, str]
    identity: Mapping[str, Any]
    conditions: Mapping[str, str]
    parameters: int | None
    summary: Mapping[str, Any]
    plays: Sequence[str]
    headline: bool
    incomplete: str
    step: int | None = None
    limited: bool = False
    partial: bool = False


def own_task(row: ResultRow) -> str:
    """Return the key of an entry, or dialogue, that shares its task with no other."""
    return f"{row.language}/{row.category}/{row.group}"
