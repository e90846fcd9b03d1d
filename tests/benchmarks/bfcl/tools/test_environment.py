"""Call texts to results on the mini set's classes: parsed, bounded, never evaluated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.tools.environment import (
    MAX_CALL_CHARS,
    MAX_STATE_CHARS,
    Environment,
    InitialState,
    open_environment,
)
from ace_ray.benchmarks.bfcl.tools.evaluate import as_upstream_reads
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources
from tests.benchmarks.bfcl.synthetic_bfcl import DOCS

CONFIG = {
    "prices": {"rye bread": 4.5, "roll": 0.5},
    "orders": [{"order_id": 1, "customer": "Ida", "item": "roll", "quantity": 4}],
    "open": True,
}


def opened(name: str = "Bakery", *methods: str) -> Environment:
    names = methods or tuple(doc["name"] for doc in DOCS[name])
    return open_environment(ToolSources(), InitialState({name: names}, {name: CONFIG}))


def test_calls_run_and_change_the_state() -> None:
    tools = opened()
    added = "add_order(customer='Jan', item='rye bread')"
    assert tools.call("step", {"texts": [added, "total('Jan')"]}).value == [
        '{"order_id": 2}',
        '{"total": 4.5}',
    ]
    assert tools.call("total", {"customer": "Ida"}).error == "unknown_tool"
    assert tools.execute("add_order('Kim', 'roll', quantity=-3)").startswith('{"error": ')
    orders = tools.state()["Bakery"]["orders"]
    assert [order["customer"] for order in orders] == ["Ida", "Jan"]
    assert opened().state()["Bakery"]["orders"] == CONFIG["orders"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no_tool(x=1)", "name 'no_tool' is not defined"),
        ("total(customer=Ida)", "name 'Ida' is not defined"),
        ("total()", "Bakery.total() missing 1 required positional argument: 'customer'"),
        ("os.remove(path='x')", "Function call remove is not allowed."),
        ("total('Ida'", "'(' was never closed (<string>, line 1)"),
        ("total(customer='a', customer='b')", "keyword argument repeated: customer"),
        ("total([x for x in (1,)])", "ListComp among the arguments"),
        ("__import__('os').system('true')", "not a call of a function by its name"),
    ],
)
def test_text_that_is_no_call_of_a_tool_is_an_error(text: str, said: str) -> None:
    found = opened().execute(text)
    assert found.startswith("Error during execution: ")
    assert said in found


def test_results_and_starred_lists_may_be_arguments() -> None:
    tools = opened()
    tools.execute("add_order(customer=get_price('roll'), item='roll')")
    assert tools.state()["Bakery"]["orders"][1]["customer"] == {"price": 0.5}
    assert tools.execute("total(*['Ida'])") == '{"total": 2.0}'


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("f(x='total (USD)')", "f(x='total(USD)')"),
        ("f (x='a\t(b) 1 (c)')", "f(x='a(b) 1 (c)')"),
        ("f(x='é (b)')", "f(x='é (b)')"),
    ],
)
def test_spaces_before_brackets_are_dropped_as_upstream_drops_them(text: str, read: str) -> None:
    assert as_upstream_reads(text) == read


def test_only_documented_methods_are_tools() -> None:
    tools = opened("Bakery", "total")
    assert "not defined" in tools.execute("close_day()")
    assert "not defined" in tools.execute("_load_scenario(config={})")
    assert tools.state()["Bakery"]["open"] is True


def test_long_calls_large_results_and_broken_calls_are_bounded() -> None:
    tools = opened()
    assert "a call of more than 100000" in tools.execute(f"total({'x' * MAX_CALL_CHARS!r})")
    for _ in range(25):
        tools.execute(f"add_order({'x' * 90_000!r}, 'roll')")
    assert "the result is too large" in tools.execute("list_orders()")
    for allowed in (True, True, True, False):
        assert ("used up their budget" in tools.execute("total('Ida')")) != allowed
        tools.broke()


def test_recorded_state_is_json_within_bounds() -> None:
    tools = opened()
    odd: Any = {"set": {3, 1}, 4: (1.5, None), "big": 10**50, "object": object()}
    odd["self"] = odd
    odd["infinite"] = [1e999, float("nan")]
    tools.instances["Bakery"].prices = odd
    state = json.loads(json.dumps(tools.state()))["Bakery"]["prices"]
    assert (state["set"], state["4"]) == ([1, 3], [1.5, None])
    assert state["infinite"] == ["inf", "nan"]
    assert state["object"] == "<object>"
    tools.instances["Bakery"].prices = {"x" * 3 * MAX_STATE_CHARS: 1}
    assert tools.state()["Bakery"]["prices"] == {"...": "..."}
    tools.instances["Bakery"].prices = ["x" * 1_000] * 1_000
    text = json.dumps(tools.state())
    assert len(text) < 2 * MAX_STATE_CHARS
    assert json.loads(text)["Bakery"]["prices"][-1] == "..."


def test_memory_text_stays_within_its_limit() -> None:
    tools = opened("MemoryAPI_rec_sum")
    tools.execute("memory_append('aaaa')")
    assert "error" in tools.execute(f"memory_replace('a', {'b' * 9_000!r})")
    assert "error" in tools.execute(f"memory_append({'b' * 10_000!r})")
    assert tools.call("snapshot", {}).value == {"memory": "aaaa"}


def test_key_search_ranks_as_bm25() -> None:
    """Scores are those of rank_bm25 0.2.2, to the last bit."""
    tools = opened("MemoryAPI_kv")
    keys = ("dog_name", "favourite_food", "name_of_the_first_dog", "birthday", "dog_food_brand")
    for key in keys:
        tools.execute(f"core_memory_add({key!r}, 'x')")
    found = json.loads(tools.execute("core_memory_key_search('food food cat')"))
    assert found["ranked_results"] == [
        [4.649063161488224, "favourite_food"],
        [4.2521828151326835, "dog_food_brand"],
        [2.1972245773362196, "dog_name"],
        [2.1972245773362196, "name_of_the_first_dog"],
        [2.1972245773362196, "birthday"],
    ]
