"""Statistics of rows: several samples, and findings on answers that were not read or cut."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest

from ace_ray.benchmarks.aggregates import Aggregate, Column, aggregates
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.diagnosis import Answers, answer_texts, diagnose, second_reader, texts_of
from ace_ray.benchmarks.statistics import pooled_score, sample_tables, statistics
from ace_ray.benchmarks.tally import Tally, accuracies, totals
from ace_ray.types import SCORE, Entry, Episode, ResultRow, Verdict
from ace_ray.util.stats import wilson
from tests.benchmarks.scored_row import scored_row

ENTRIES = ([1, 0, 0, 1], [1, 1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1, 1, 1])


def rows(*entries: Sequence[float], category: str = "c") -> list[Any]:
    """Build rows of entries with these scores of their samples."""
    return [
        scored_row(category, str(number), {"correct": Verdict.graded(score)}, sample=sample)
        for number, scores in enumerate(entries)
        for sample, score in enumerate(scores)
    ]


def stats(*entries: Sequence[float], multi_turn: bool = False) -> dict[str, Any]:
    tally = Tally("c", ("correct",), multi_turn=multi_turn)
    for row in rows(*entries):
        tally.add(row)
    return accuracies([tally], "correct")


def test_samples_are_means_over_entries_of_the_chances() -> None:
    of_all = stats(*ENTRIES)
    # 12 of 19 samples are right; the evidence is that of four entries.
    assert of_all["interval"] == pytest.approx(wilson(12 / 19 * 4, 4))
    samples = of_all["samples"]
    assert (samples["min"], samples["max"]) == (4, 6)
    for name, right in (("pass_at_k", any), ("pass_hat_k", all)):
        shares: dict[str, float] = {}
        for k in range(1, 5):
            drawn = [[right(subset) for subset in combinations(scores, k)] for scores in ENTRIES]
            shares[str(k)] = sum(sum(chances) / len(chances) for chances in drawn) / len(ENTRIES)
        assert samples[name] == pytest.approx(shares)
        for at, share in shares.items():
            assert samples[f"{name}_intervals"][at] == pytest.approx(wilson(share * 4, 4))
    assert samples["mean"] == pytest.approx((0.5 + 0.8 + 0 + 1) / 4)
    assert samples["pass_at_k"]["1"] == samples["pass_hat_k"]["1"] == samples["mean"]


def test_parts_count_by_their_size_and_nothing_missing_is_made_up() -> None:
    parts = [{"n": 4, "accuracy": 1.0}, {"n": 16, "accuracy": 0.5}]
    score = pooled_score(parts).estimate
    assert score is not None
    assert (score.value, score.n) == (0.6, 20)
    summary = statistics(rows([1], [0]), ("correct",), {"Both": ["c", "d"]}, 0.0)
    assert summary["groups"] == {}
    tally = Tally("c", ("correct",))
    for tokens in (3, None):
        tally.add(scored_row("c", "i", {"correct": Verdict(True)}, prompt_tokens=tokens))
    assert totals([tally])["prompt_tokens"] is None


def test_graded_scores_and_single_samples_have_no_k() -> None:
    assert "samples" not in stats([1], [0])
    for scores in ([0.5, 0.25], [0.5, 0.5]):
        samples = stats(scores, [1, 1])["samples"]
        assert samples["mean"] == (sum(scores) / 2 + 1) / 2
        assert samples["pass_at_k"] == samples["pass_hat_k_intervals"] == {}
        assert sample_tables({"c": {"correct": {"samples": samples, "n": 2}}}, ("correct",)) == []
    # A dialogue of graded turns is right or wrong.
    samples = stats([1, 0.5], multi_turn=True)["samples"]
    assert (samples["pass_at_k"], samples["pass_hat_k"]) == ({"1": 0.5, "2": 1}, {"1": 0.5, "2": 0})


def test_columns_weight_their_parts_and_name_missing_categories() -> None:
    columns = {
        "pooled": Column("Pooled", ("a", "b"), "n"),
        "all": Column("All", ("pooled", "c"), (0.25, 0.75)),
    }
    judged = {"a": Aggregate(1.0, (0.5, 1.0), 4), "b": Aggregate(0.5, (0.2, 0.8), 16)}
    pooled, every = aggregates(columns, judged).values()
    share = {"value": pytest.approx(0.6), "interval": pytest.approx(wilson(12, 20))}
    assert pooled.as_json() == {**share, "missing": []}
    nothing = {"value": None, "interval": None, "missing": ["c"]}
    assert every.as_json() == {**nothing, "partial": share}
    judged["c"] = Aggregate(0.2, (0.1, 0.3), 5)
    assert aggregates(columns, judged)["all"].value == pytest.approx(0.25 * 0.6 + 0.75 * 0.2)


FENCED = '```json\n{"name": "f", "arguments": {"a": 1}}\n```'


def row(valid: bool = False, category: str = "c", **more: Any) -> ResultRow:
    verdict = Verdict(valid, "" if valid else "no_calls")
    return scored_row(category, "i", {"official": verdict, "strict": verdict}, **more)


def unread(reader: str = "fenced_json", category: str = "c", **more: Any) -> ResultRow:
    return row(category=category, second_reading=reader, **more)


def test_a_finding_is_five_rows_and_five_percent() -> None:
    assert diagnose([]) == diagnose([row(True)] * 100) == diagnose([row(False)] * 100) == []
    assert diagnose([unread()] * 4) == []
    assert diagnose([unread()] * 5 + [row()] * 96) == []
    assert len(diagnose([unread()] * 5 + [row()] * 95)) == 1
    failed = scored_row("c", "i", status="infra_error", finish_reason="length")
    assert diagnose([unread(repeat=1)] * 50 + [failed] * 50 + [row()] * 10) == []


def test_unread_calls_say_which_readers_find_them() -> None:
    hermes = unread("hermes")
    (finding,) = diagnose([row(True)] * 2 + [hermes] * 2 + [unread()] * 4 + [row()] * 2)
    assert (finding["kind"], finding["rows"], finding["of"]) == ("unread_calls", 6, 10)
    assert dict(finding["readers"]) == {"fenced_json": 4, "hermes": 2}
    assert finding["accuracy"] == {"official": 0.2, "strict": 0.2}
    assert "6 of 10 rows hold calls that were not read" in finding["text"]
    assert "fenced_json (4), hermes (2)" in finding["text"]
    command = "ace-ray reread RUN --tool-parser llama3_json does if the tokenizer has the token"
    assert command in finding["text"]
    (finding,) = diagnose([unread("<b>")] * 5)
    assert finding["readers"] == {"other": 5}


def test_a_category_is_a_finding_from_ten_percent() -> None:
    readable_rows = [row(category=f"other {number % 20}") for number in range(4241)]
    (finding,) = diagnose([*[unread(category="simple")] * 200, *readable_rows])
    assert (finding["rows"], finding["of"]) == (200, 4441)
    assert finding["categories"] == {"simple": {"rows": 200, "of": 200}}
    assert "200 of 4441 rows (200 of 200 in simple) hold calls" in finding["text"]

    def count(rows: int, of: int) -> int:
        return len(diagnose([unread()] * rows + [row()] * (of - rows) + readable_rows[:1000]))

    assert [count(4, 4), count(5, 5), count(5, 50), count(5, 51), count(9, 100)] == [0, 1, 1, 0, 0]


def test_cut_answers_and_endless_reasoning_have_the_accuracy_of_the_others() -> None:
    cut = row(finish_reason="length")
    (finding,) = diagnose([cut] * 6 + [row(True, finish_reason="stop")] * 3 + [row()])
    assert (finding["kind"], finding["rows"], finding["of"]) == ("cut_by_length", 6, 10)
    assert finding["accuracy"] == {"official": 0.3, "strict": 0.3}
    assert finding["others"] == {"official": 0.75, "strict": 0.75}
    assert "official 75.0 % (of all rows 30.0 %)" in finding["text"]
    endless = row(reasoning_truncated=True, finish_reason="length")
    first, reasoning = diagnose([endless] * 5)
    assert (first["kind"], reasoning["kind"]) == ("cut_by_length", "reasoning_never_ended")
    assert reasoning["others"] == {"official": None, "strict": None}
    graded = row(finish_reason="length")
    graded.verdicts = {"correct": Verdict(False, "half", metrics={SCORE: 0.5})}
    (finding,) = diagnose([graded] * 8)
    assert (finding["accuracy"], finding["others"]) == ({"correct": 0.5}, {"correct": None})


class Toy(Benchmark):
    """``[f(a=1)]`` is right."""

    name = "toy"

    def entries(self) -> list[Entry]:
        return [Entry(id="x", prompt="call f")]

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        return Verdict(episode.output == "[f(a=1)]", "no_call")

    def parse_failures(self, entry: Entry, episode: Episode) -> Answers:
        if len(episode.messages) > 1:
            return [texts_of(message) for message in episode.messages]
        return () if episode.output.startswith("[") else [answer_texts(episode, episode.output)]


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def read(output: str, **more: Any) -> str | None:
    toy = Toy()
    return second_reader(toy, toy.dataset()[0], Episode(output=output, **more))


def test_unread_calls_are_counted_under_the_most_frequent_reader() -> None:
    assert read(FENCED) == "fenced_json"
    assert read("[f(a=2)]") is None
    hermes = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    messages = [reply(FENCED), reply("Done."), reply(hermes), reply(FENCED)]
    assert read("", messages=messages) == "fenced_json"
    # Reasoning is read only if it never ended.
    reader = read("", reasoning=FENCED, reasoning_truncated=True)
    assert reader == "fenced_json"
    assert read("", reasoning=FENCED) is None


class Plain(Benchmark):
    """Reads calls in fenced JSON only, and has no `parse_failures` of its own."""

    name = "plain"

    def entries(self) -> list[Entry]:
        return [Entry(id="x", prompt="call f")]

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        if "```" not in episode.output:
            return Verdict(False, "no_call")
        return Verdict('"a": 1' in episode.output, "wrong_arguments")


@pytest.mark.parametrize(
    ("output", "reader"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', "llama3_json"),
        ('```json\n{"name": "f", "arguments": {"a": 1}}\n```', None),
        ('```json\n{"name": "f", "arguments": {"a": 2}}\n```', None),
        ("I do not know.", None),
    ],
    ids=["unread", "right", "read, but wrong", "words"],
)
def test_a_benchmark_without_parse_failures_is_diagnosed(output: str, reader: str | None) -> None:
    plain = Plain()
    episode = Episode(messages=[reply("?"), reply(output)], output=output, model_calls=1)
    assert second_reader(plain, plain.dataset()[0], episode) == reader
    # With tools, only answers to requests that offered them are read.
    offered = Episode(messages=[reply(output), {**reply(""), "text": output}], tools=[{}])
    assert (second_reader(plain, plain.dataset()[0], offered) is None) is (output[0] == "I")
    called = [{**message, "tool_calls": [1]} for message in offered.messages]
    assert second_reader(plain, plain.dataset()[0], Episode(messages=called, tools=[{}])) is None


def test_a_message_is_read_as_the_model_wrote_it() -> None:
    message = {**reply(""), "text": "t", "raw": f"<think>{FENCED}</think>the rest"}
    assert texts_of(message) == ["t", "the rest"]
    assert texts_of({"content": None, "text": 1, "raw": None}) == []
    message = {**reply(""), "reasoning": FENCED, "raw": f"[THINK]{FENCED}[/THINK]the rest"}
    assert texts_of(message) == ["[/THINK]the rest"]
    raw = {**reply("f(a=1)"), "raw": '[TOOL_CALLS]f{"a": 1}'}
    assert answer_texts(Episode(messages=[raw]), "f") == ["f", "f(a=1)", raw["raw"]]
    reader = read("cut off: ", messages=[{**reply("x"), "raw": raw["raw"]}])
    assert reader == "mistral"
