import json

import pytest

from ace_ray.benchmarks.bfcl.answers import Answer
from ace_ray.benchmarks.bfcl.check.single import check_single
from ace_ray.calls import Call, render

CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
FAILING = {
    "parallel_multiple_26",
    "live_simple_106-63-0",
    "live_simple_112-68-0",
    "live_multiple_862-181-3",
    "live_multiple_964-207-0",
    "live_multiple_1038-265-0",
}


@pytest.fixture(scope="module")
def rows(bfcl_folder):
    found = []
    for category in CATEGORIES:
        questions = (bfcl_folder / f"data/BFCL_v4_{category}.json").read_text().splitlines()
        answers = bfcl_folder / f"data/possible_answer/BFCL_v4_{category}.json"
        for question, answer in zip(questions, answers.read_text().splitlines(), strict=True):
            row = json.loads(question)
            found.append((category, row["id"], row["function"], json.loads(answer)["ground_truth"]))
    return found


def first(options):
    value = next((option for option in options if option != ""), "")
    if isinstance(value, dict):
        return {k: first(v) if isinstance(v, list) else v for k, v in value.items()}
    if isinstance(value, list):
        return [
            {k: first(v) if isinstance(v, list) else v for k, v in item.items()}
            if isinstance(item, dict)
            else item
            for item in value
        ]
    return value


def oracle(functions, gold, *, nulls=False):
    """Of each parameter the first acceptable value that is not "", left out where "" comes first
    and it is not required, or where it is null."""
    required = {f["name"]: f["parameters"]["required"] for f in functions}
    calls = []
    for expected in gold:
        for name, params in expected.items():
            args = {}
            for param, options in params.items():
                value = first(options)
                must = param in required[name]
                if not must and (not options or options[0] == "" or (value is None and not nulls)):
                    continue
                args[param] = value
            calls.append(Call(name, args))
    return calls


def failing(rows, **how):
    found = set()
    for category, row_id, functions, gold in rows:
        verdicts = check_single(
            category, functions, gold, Answer(render(oracle(functions, gold, **how)))
        )
        assert verdicts["official"] == verdicts["strict"]
        if not verdicts["official"].valid:
            found.add(row_id)
    return found


def test_the_same_gold_answers_pass_as_upstream(rows):
    assert len(rows) == 2351
    assert failing(rows) == FAILING


def test_a_null_that_is_written_passes(rows):
    assert failing(rows, nulls=True) == FAILING - {"live_multiple_1038-265-0"}


def test_mangled_gold_answers_do_not_pass(rows):
    passing = []
    for category, row_id, functions, gold in rows:
        calls = oracle(functions, gold)
        for mangled in (
            [Call(f"{call.name}_", call.args) for call in calls],
            calls[:-1],
            [*calls, calls[0]],
            [Call(call.name, {**call.args, "nothing": 1}) for call in calls],
        ):
            verdicts = check_single(category, functions, gold, Answer(render(mangled)))
            if any(verdict.valid for verdict in verdicts.values()):
                passing.append(row_id)
    assert passing == []
