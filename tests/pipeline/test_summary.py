from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config.schema import RunConfig
from ace_ray.pipeline.summary import summarize
from ace_ray.storage.rows import ResultRow
from ace_ray.types import Verdict


class Counting:
    name = "toy"
    rule_sets = ()

    def summarize(self, rows: Iterable[Any], max_unscored: float) -> dict[str, Any]:
        return {"ids": [row.row_id for row in rows], "max_unscored": max_unscored}


def row(row_id: str, status: str = "scored", benchmark: str = "toy", **more: Any) -> ResultRow:
    verdicts = {"official": Verdict(True)} if status == "scored" else {}
    error = None if status == "scored" else "Boom"
    keys = {"category": "c", "language": "en", "id": row_id, "group": row_id, "sample": 0}
    return ResultRow(
        row_id=row_id,
        benchmark=benchmark,
        status=status,
        error_class=error,
        verdicts=verdicts,
        **{**keys, **more},
    )


def manifest_of(declared: int, max_unscored: float = 0.0) -> dict[str, Any]:
    config = RunConfig.model_validate(
        {"model": {"source": "m"}, "benchmarks": ["toy"], "max_unscored": max_unscored}
    )
    return {
        "declared": declared,
        "run_id": "run",
        "model": {},
        "config": config.model_dump(mode="json"),
    }


def summary(rows: list[ResultRow], declared: int, max_unscored: float = 0.0) -> dict[str, Any]:
    benchmarks: Any = {"toy": Counting(), "other": Counting()}
    manifest = manifest_of(declared, max_unscored)
    return summarize(manifest, benchmarks, lambda: iter(rows), {"wall_s": 1.0})


def test_the_statuses_add_up_to_what_was_declared() -> None:
    rows = [row("a"), row("b", "infra_error"), row("c", "quarantined"), row("d", "skipped")]
    found = summary(rows, declared=6)
    parts = ("scored", "infra_error", "quarantined", "skipped", "missing")
    assert [found[part] for part in parts] == [1, 1, 1, 1, 2]
    assert sum(found[part] for part in parts) == found["declared"] == 6
    assert found["error_classes"] == {"Boom": 3}


def test_the_scores_of_named_entries_are_partial() -> None:
    manifest = manifest_of(1) | {"restricted": {"acebench": {"ids": ["a"]}}}
    made: Any = {"acebench": make_benchmark("acebench", {"languages": ["en"]})}
    right = dict.fromkeys(("official", "strict"), Verdict(True))
    rows = [replace(row("a", benchmark="acebench", category="normal_atom_bool"), verdicts=right)]
    for ids, partial in ((manifest, True), (manifest_of(1), False)):
        found = summarize(ids, made, lambda: iter(rows), {})
        pooled = found["benchmarks"]["acebench"]["scores"]["official"][-1]
        assert (pooled["name"], pooled["value"], pooled["partial"]) == ("Accuracy", 1.0, partial)


def test_why_rows_have_no_verdict_is_told_once_for_each_reason() -> None:
    late = [
        row(f"l{n}", "infra_error", error=f"host:80{n} gave no answer in {n} s") for n in range(7)
    ]
    other = [row("o", "skipped", error="the prompt has 9000 tokens"), row("s")]
    found = summary([*other, *late], declared=9)["failures"]
    assert found == [
        {
            "status": "infra_error",
            "error_class": "Boom",
            "error": "host:800 gave no answer in 0 s",
            "rows": 7,
        },
        {
            "status": "skipped",
            "error_class": "Boom",
            "error": "the prompt has 9000 tokens",
            "rows": 1,
        },
    ]
    many = [row(f"m{n}", "infra_error", error="x" * n) for n in range(1, 30)]
    told = summary(many, declared=29)["failures"]
    assert [one["rows"] for one in told] == [1] * 10 + [19]
    assert told[-1]["error"] == "other reasons"
    assert summary([row("a")], 1)["failures"] == []


def test_a_run_is_complete_when_nothing_is_pending() -> None:
    assert summary([row("a")], 1)["complete"]
    assert summary([row("a"), row("b", "skipped")], 2)["complete"]
    assert not summary([row("a"), row("b", "infra_error")], 2)["complete"]
    assert not summary([row("a")], 2)["complete"]


def test_a_headline_needs_the_verdicts() -> None:
    rows = [row("a"), row("b"), row("c"), row("d", "skipped")]
    strict = summary(rows, 4)
    assert not strict["headline"]
    assert strict["why"] == "1 of 4 rows have no verdict, max_unscored is 0"
    tolerant = summary(rows, 4, max_unscored=0.25)
    assert (tolerant["headline"], tolerant["why"]) == (True, "")
    assert summary(rows[:3], 3)["headline"]


def test_usage_is_added_up_over_all_rows() -> None:
    rows = [
        row("a", prompt_tokens=3, completion_tokens=5, model_calls=1, finish_reason="length"),
        row("b", prompt_tokens=4, completion_tokens=6, model_calls=2, reasoning_truncated=True),
    ]
    found = summary(rows, 2)
    assert found["tokens"] == {"prompt": 7, "completion": 11}
    assert (found["model_calls"], found["cut_by_length"], found["reasoning_truncated"]) == (3, 1, 1)


def test_each_benchmark_sees_its_own_rows() -> None:
    found = summary([row("a"), row("b", benchmark="other"), row("c")], 3, max_unscored=0.5)
    told = {"scores": {}, "ids": ["a", "c"], "max_unscored": 0.5}
    assert found["benchmarks"]["toy"] == told
    assert found["benchmarks"]["other"]["ids"] == ["b"]


def test_rows_are_read_and_never_held() -> None:
    """Once per benchmark, from the start; each row may go as soon as the next one comes."""
    begun: list[int] = []

    def read() -> Iterator[ResultRow]:
        begun.append(0)
        for name in ("toy", "other"):
            for index in range(3):
                begun[-1] += 1
                yield row(f"{name}{index}", benchmark=name)

    benchmarks: Any = {"toy": Counting(), "other": Counting()}
    found = summarize(manifest_of(6), benchmarks, read, {})
    assert begun == [6, 6]
    assert (found["scored"], found["missing"], found["complete"]) == (6, 0, True)
    assert found["benchmarks"]["other"]["ids"] == ["other0", "other1", "other2"]
    # A report counts without any benchmark.
    begun.clear()
    assert summarize(manifest_of(6), {}, read, {})["scored"] == 6
    assert begun == [6]


class Content:
    """A benchmark from elsewhere, which has seen enough after one row."""

    name = "toy"
    rule_sets = ()

    def summarize(self, rows: Iterable[Any], max_unscored: float) -> dict[str, Any]:
        return {"first": next(iter(rows)).row_id}


def test_totals_do_not_hang_on_what_a_benchmark_reads() -> None:
    rows = [row("a"), row("b", "infra_error"), row("c", "skipped")]
    benchmarks: Any = {"toy": Content()}
    found = summarize(manifest_of(3), benchmarks, lambda: iter(rows), {})
    assert (found["scored"], found["infra_error"], found["skipped"]) == (1, 1, 1)
    assert (found["missing"], found["complete"]) == (0, False)
