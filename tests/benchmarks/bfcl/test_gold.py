import pytest

from ace_ray.benchmarks.bfcl.categories import LIVE, NON_LIVE
from ace_ray.benchmarks.bfcl.check.single import check_single
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.gold import UNANSWERABLE, asked_for_gold, gold_calls
from ace_ray.parsing.literals import Call, render


@pytest.fixture(scope="module")
def entries(bfcl_copy):
    return load(bfcl_copy, [name for name in (*NON_LIVE, *LIVE) if asked_for_gold(name)])


def verdicts(entry, calls):
    functions = entry.data["function"]
    return check_single(entry.category, functions, entry.gold, Answer(render(calls)))


def test_the_same_gold_answers_pass_as_upstream(entries):
    assert len(entries) == 2351
    failing = set()
    for entry in entries:
        judged = verdicts(entry, gold_calls(entry.gold, entry.data["function"]))
        assert judged["official"] == judged["strict"]
        if not judged["official"].valid:
            failing.add(entry.id)
    assert failing == UNANSWERABLE


def test_a_null_that_is_written_passes(entries):
    (entry,) = [entry for entry in entries if entry.id == "live_multiple_1038-265-0"]
    ((name, acceptable),) = entry.gold[0].items()
    (call,) = gold_calls(entry.gold, entry.data["function"])
    nulls = {key: None for key, values in acceptable.items() if values[0] is None}
    assert nulls
    assert verdicts(entry, [Call(name, {**call.args, **nulls})])["official"].valid
