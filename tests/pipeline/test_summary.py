from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config.schema import RunConfig
from ace_ray.pipeline.summary import summarize
from ace_ray.reports.printed_summary import engine_line, pace_line, waits_line
from ace_ray.types import EndpointFacts, ResultRow, Verdict


class Counting:
    name = "toy"
    rule_sets = ()

    def summarize(self, rows: Iterable[Any], max_unscored: float) -> dict[str, Any]:
        return {"ids": [row.row_id for row in rows], "max_unscored": max_unscored}


def row(row_id: str, status: str = "scored", benchmark: str = "toy", **more: Any) -> ResultRow:
    verdicts = {"official": Verdict(True)} if status == "scored" else {}
    error = None if status == "scored" else "Boom"
    keys: Any = {"category": "c", "language": "en", "id": row_id, "group": row_id, "sample": 0}
    keys |= {"benchmark": benchmark, "status": status, "error_class": error, **more}
    return ResultRow(row_id=row_id, verdicts=verdicts, **keys)


def manifest_of(declared: int, max_unscored: float = 0.0) -> dict[str, Any]:
    tree = {"model": {"source": "m"}, "benchmarks": ["toy"], "max_unscored_fraction": max_unscored}
    config = RunConfig.model_validate(tree).model_dump(mode="json")
    return {"declared": declared, "run_id": "run", "model": {}, "config": config}


def summary(rows: list[ResultRow], declared: int, max_unscored: float = 0.0) -> dict[str, Any]:
    benchmarks: Any = {"toy": Counting(), "other": Counting()}
    manifest = manifest_of(declared, max_unscored)
    return summarize(manifest, benchmarks, lambda: iter(rows), {"wall_s": 1.0})


def test_statuses_add_up_and_each_benchmark_gets_its_rows() -> None:
    usage: dict[str, Any] = {"prompt_tokens": 3, "completion_tokens": 5, "model_calls": 1}
    rows = [
        row("a", finish_reason="length", **usage),
        row("b", "infra_error", benchmark="other"),
        row("c", "quarantined", reasoning_truncated=True, **usage),
        row("d", "skipped"),
    ]
    result = summary(rows, declared=6, max_unscored=0.5)
    parts = ("scored", "infra_error", "quarantined", "skipped", "missing")
    assert [result[part] for part in parts] == [1, 1, 1, 1, 2]
    assert result["declared"] == 6
    assert result["error_classes"] == {"Boom": 3}
    assert result["tokens"] == {"prompt": 6, "completion": 10}
    names = ("model_calls", "cut_by_length", "reasoning_truncated")
    assert [result[name] for name in names] == [2, 1, 1]
    expected = {"scores": {}, "ids": ["a", "c", "d"], "max_unscored": 0.5}
    assert result["benchmarks"]["toy"] == expected
    assert result["benchmarks"]["other"]["ids"] == ["b"]


UNJUDGED = "1 of 2 rows have no verdict (max_unscored_fraction is 0)"


@pytest.mark.parametrize(
    ("statuses", "declared", "max_unscored", "complete", "why"),
    [
        (["scored"], 1, 0.0, True, ""),
        (["scored", "skipped"], 2, 0.0, True, UNJUDGED),
        (["scored", "skipped"], 2, 0.5, True, ""),
        (["scored", "infra_error"], 2, 0.5, False, ""),
        (["scored"], 2, 0.0, False, UNJUDGED),
    ],
    ids=["scored", "skipped", "allowed", "failed", "missing"],
)
def test_run_is_complete_without_pending_rows_and_headline_needs_verdicts(
    statuses: list[str], declared: int, max_unscored: float, complete: bool, why: str
) -> None:
    rows = [row(str(number), status) for number, status in enumerate(statuses)]
    result = summary(rows, declared, max_unscored)
    assert (result["complete"], result["headline"], result["why"]) == (complete, not why, why)


def test_scores_of_named_entries_are_partial() -> None:
    manifest = manifest_of(1) | {"restricted": {"acebench": {"ids": ["a"]}}}
    benchmarks: Any = {"acebench": make_benchmark("acebench", {"languages": ["en"]})}
    right = dict.fromkeys(("official", "strict"), Verdict(True))
    rows = [replace(row("a", benchmark="acebench", category="normal_atom_bool"), verdicts=right)]
    for ids, partial in ((manifest, True), (manifest_of(1), False)):
        result = summarize(ids, benchmarks, lambda: iter(rows), {})
        pooled = result["benchmarks"]["acebench"]["scores"]["official"][-1]
        assert (pooled["name"], pooled["value"], pooled["partial"]) == ("Accuracy", 1.0, partial)


def test_reasons_of_missing_verdicts_are_grouped() -> None:
    late = [
        row(f"l{n}", "infra_error", error=f"host:80{n} gave no answer in {n} s") for n in range(7)
    ]
    skipped_rows = [row("o", "skipped", error="the prompt has 9000 tokens"), row("s")]
    failures = summary([*skipped_rows, *late], declared=9)["failures"]
    assert [tuple(failure.values()) for failure in failures] == [
        ("infra_error", "Boom", "host:800 gave no answer in 0 s", 7),
        ("skipped", "Boom", "the prompt has 9000 tokens", 1),
    ]
    many = [row(f"m{n}", "infra_error", error="x" * n) for n in range(1, 30)]
    reasons = summary(many, declared=29)["failures"]
    assert (len(reasons), reasons[-1]["rows"], reasons[-1]["error"]) == (11, 19, "other reasons")


def test_a_summary_has_shares_and_quantiles_of_the_rows_that_have_them() -> None:
    usage: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": 11, "model_calls": 1}
    rows = [
        row("a", cached_prompt_tokens=80, first_token_s=0.5, decode_s=1.0, **usage),
        row("b", cached_prompt_tokens=40, first_token_s=1.5, decode_s=3.0, **usage),
        row("c", **usage),
    ]
    engine = summary(rows, declared=3)["engine"]
    assert engine == {
        "prompt_tokens": {"computed": 80, "cached": 120},
        "first_token_s": {"p50": 0.5, "p95": 1.5},
        "token_s": {"p50": 0.1, "p95": 0.3},
    }
    line = "7 output tokens/s per engine; 60.0% of the prompt tokens came from the engine's cache"
    assert engine_line(engine, {"output_tokens_per_s": 7.1}).startswith(line)
    waits = {"waits": {"all": 0.34, "start": 0.09, "checker": 0.0, "tail": 0.25}}
    assert waits_line(waits) == "engines waited 34% of the time: tail 25%, start 9%"
    assert waits_line({"waits": {"all": 0.1, "tail": 0.1}}) == waits_line({}) == ""
    pace = {"until_90_s": 41.2, "last_tenth": 0.304, "episodes_per_engine_hour": 350.0}
    line = "90 % of the rows after 41 s; the last tenth took 30% of the time; "
    assert pace_line({"pace": pace}) == line + "350 episodes per engine hour"
    assert "engine" not in summary(rows[2:], declared=1)


def test_tokens_that_an_endpoint_does_not_report_have_no_sum() -> None:
    facts, silent = EndpointFacts("m-1").as_json(), EndpointFacts("m-2", has_usage=False).as_json()
    rows = [row("a", prompt_tokens=7, completion_tokens=3, endpoint=facts), row("b")]
    result = summary(rows, declared=2)
    assert result["tokens"] == {"prompt": 7, "completion": 3}
    assert result["endpoint"]["models"] == {"m-1": 1}
    rows.append(row("c", prompt_tokens=None, completion_tokens=None, endpoint=silent))
    result = summary(rows, declared=3)
    assert result["tokens"] == {"prompt": None, "completion": None}
    assert result["endpoint"]["calls_without_usage"] == 1
    assert result["endpoint"]["models"] == {"m-1": 1, "m-2": 1}
    assert "endpoint" not in summary([row("d")], declared=1)
