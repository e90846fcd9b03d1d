"""Figures of the engine, from a call to the row and the summary."""

from typing import Any

from ace_ray.pipeline.summary import summarize
from ace_ray.reports.printed_summary import engine_line, pace_line, waits_line
from ace_ray.storage.rows import ENGINE, episode_columns
from ace_ray.types import Completion, EndpointFacts, EngineFigures, Episode, ResultRow


def columns(*completions: Completion) -> list[Any]:
    episode = Episode()
    for completion in completions:
        episode.record(completion)
    values = episode_columns(episode)
    return [values[name] for name in ENGINE]


def test_a_row_has_the_sums_of_its_calls_or_null() -> None:
    two = (EngineFigures(16, 0.5, 2.0), EngineFigures(32, 0.25, 1.0))
    completions = [Completion("a", engine=figures) for figures in two]
    assert columns(*completions) == [48, 0.75, 3.0]
    assert columns(*completions, Completion("b")) == [None, None, None]
    assert columns() == [None, None, None]
    # An endpoint reports cached tokens, but no times.
    assert columns(Completion("c", endpoint=EndpointFacts(cached_tokens=8))) == [8, None, None]


def test_a_summary_has_shares_and_quantiles_of_the_rows_that_have_them() -> None:
    keys = ("r", "toy", "all", "en", "1", "1", 0, "scored")
    reported: list[dict[str, Any]] = [
        {"cached_prompt_tokens": 80, "first_token_s": 0.5, "decode_s": 1.0},
        {"cached_prompt_tokens": 40, "first_token_s": 1.5, "decode_s": 3.0},
        {},
    ]
    rows = [
        ResultRow(*keys, prompt_tokens=100, completion_tokens=11, model_calls=1, **figures)
        for figures in reported
    ]
    manifest: dict[str, Any] = {"declared": 3, "run_id": "r", "model": {}}
    manifest |= {"config": {"max_unscored_fraction": 0, "backend": "vllm", "limit": None}}
    engine = summarize(manifest, {}, lambda: rows, {})["engine"]
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
    assert "engine" not in summarize(manifest, {}, lambda: rows[2:], {})
