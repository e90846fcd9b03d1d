"""Call texts to results on the mini set's class: parsed, bounded, never evaluated."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.tools.environment import (
    MAX_STATE_CHARS,
    Environment,
    InitialState,
    open_environment,
)
from ace_ray.benchmarks.bfcl.tools.evaluate import BLOCKED, as_upstream_reads
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources
from ace_ray.errors import UserError

NAMES = ("list_orders", "add_order", "cancel_order", "set_price", "get_price", "total", "close_day")
CONFIG = {
    "Bakery": {
        "prices": {"rye bread": 4.5, "roll": 0.5},
        "orders": [{"order_id": 1, "customer": "Ida", "item": "roll", "quantity": 4}],
        "open": True,
    }
}


def bakery() -> Environment:
    return open_environment(ToolSources(), InitialState({"Bakery": NAMES}, CONFIG))


def test_calls_run_and_change_the_state() -> None:
    tools = bakery()
    assert tools.execute("add_order(customer='Jan', item='rye bread')") == '{"order_id": 2}'
    assert tools.execute("total('Jan')") == '{"total": 4.5}'
    assert tools.execute("add_order('Kim', 'roll', quantity=-3)").startswith('{"error": ')
    orders = tools.state()["Bakery"]["orders"]
    assert [order["customer"] for order in orders] == ["Ida", "Jan"]
    assert bakery().state()["Bakery"]["orders"] == CONFIG["Bakery"]["orders"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no_tool(x=1)", "name 'no_tool' is not defined"),
        ("len([1])", "name 'len' is not defined"),
        ("Bakery.total(customer='Ida')", "name 'Bakery' is not defined"),
        ("total.__call__('Ida')", "name 'total' is not defined"),
        ("total(customer=Ida)", "name 'Ida' is not defined"),
        ("total(customer=no_tool())", "name 'no_tool' is not defined"),
        ("total()", "Bakery.total() missing 1 required positional argument: 'customer'"),
        ("total(who='x')", "Bakery.total() got an unexpected keyword argument 'who'"),
        ("os.remove(path='x')", "Function call remove is not allowed."),
        ("total('Ida'", "'(' was never closed (<string>, line 1)"),
        ("total(customer='a', customer='b')", "keyword argument repeated: customer"),
        ("total(1 + 1)", "BinOp among the arguments"),
        ("total(f'{1}')", "JoinedStr among the arguments"),
        ("total([x for x in (1,)])", "ListComp among the arguments"),
        ("(lambda: 1)()", "not a call of a function by its name"),
        ("__import__('os').system('true')", "not a call of a function by its name"),
        ("total", "not a call of a function"),
        ("", ""),
        ("total(customer={[]: 1})", "unhashable type: 'list'"),
        ("total(**{'customer': 'Ida'})", "** among the arguments"),
    ],
)
def test_what_is_no_call_of_a_tool_is_an_error(text: str, said: str) -> None:
    found = bakery().execute(text)
    assert found.startswith("Error during execution: ")
    assert said in found


@pytest.mark.parametrize("name", sorted(BLOCKED))
def test_upstreams_blocked_names(name: str) -> None:
    said = f"Error during execution: Function call {name} is not allowed."
    assert bakery().execute(f"{name}()") == said


def test_a_result_may_be_an_argument() -> None:
    tools = bakery()
    found = json.loads(tools.execute("add_order(customer=get_price('roll'), item='roll')"))
    assert found == {"order_id": 2}
    assert tools.state()["Bakery"]["orders"][1]["customer"] == {"price": 0.5}
    assert tools.execute("total(customer=[get_price(item='roll'), 'x'])") == '{"total": 0}'


def test_starred_arguments_are_pythons() -> None:
    assert bakery().execute("total(*['Ida'])") == '{"total": 2.0}'


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("f(x='total (USD)')", "f(x='total(USD)')"),
        ("f (x='a\t(b) 1 (c)')", "f(x='a(b) 1 (c)')"),
        ("f(x='é (b)')", "f(x='é (b)')"),
        ("f(x='plain')", "f(x='plain')"),
    ],
)
def test_spaces_before_brackets_are_dropped_as_upstream_drops_them(text: str, read: str) -> None:
    assert as_upstream_reads(text) == read


def test_only_documented_methods_are_tools() -> None:
    tools = open_environment(ToolSources(), InitialState({"Bakery": ("total",)}, CONFIG))
    assert "not defined" in tools.execute("close_day()")
    assert "not defined" in tools.execute("_load_scenario(config={})")
    assert tools.state()["Bakery"]["open"] is True


def test_a_class_that_the_set_lacks_is_named() -> None:
    with pytest.raises(UserError, match="the mini set has no class TravelAPI"):
        open_environment(ToolSources(), InitialState({"TravelAPI": ()}))


def test_declared_calls_of_the_scenario() -> None:
    tools = bakery()
    texts = ["get_price('roll')", "no_tool()"]
    assert tools.call("step", {"texts": texts}).value == [tools.execute(text) for text in texts]
    assert tools.call("total", {"customer": "Ida"}).error == "unknown_tool"
    assert pickle.loads(pickle.dumps(ToolSources())) == ToolSources()


def memory(kind: str, *names: str) -> Environment:
    return open_environment(ToolSources(), InitialState({f"MemoryAPI_{kind}": names}))


def test_memories_are_dumped_and_restored() -> None:
    one = memory("kv", "core_memory_add", "archival_memory_add", "core_memory_retrieve_all")
    assert "error" not in one.execute("core_memory_add(key='a_key', value='first')")
    assert "error" not in one.execute("archival_memory_add('other', 'second')")
    assert "first" in one.call("dump", {}).value
    assert "second" not in one.call("dump", {}).value
    snapshot = one.call("snapshot", {}).value
    other = memory("kv", "core_memory_add", "core_memory_clear", "core_memory_retrieve_all")
    other.call("restore", {"snapshot": snapshot})
    assert json.loads(other.execute("core_memory_retrieve_all()")) == {"a_key": "first"}
    other.execute("core_memory_add('more', 'third')")
    assert snapshot["core_memory"] == {"a_key": "first"}


def test_a_memory_text_stays_within_its_limit() -> None:
    tools = memory("rec_sum", "memory_append", "memory_replace", "memory_retrieve")
    tools.execute("memory_append('aaaa')")
    assert "error" in tools.execute(f"memory_replace('a', {'b' * 9_000!r})")
    assert "error" in tools.execute(f"memory_append({'b' * 10_000!r})")
    assert tools.call("snapshot", {}).value == {"memory": "aaaa"}


class TestBounds:
    def test_deep_and_long_texts(self) -> None:
        tools = bakery()
        for text in (
            "total(" * 5_000,
            "total(" + "[" * 150 + "]" * 150 + ")",
            "total(" * 90 + ")" * 90,
            f"total({'9' * 5_000})",
            f"total({'x' * 200_000!r})",
            "total(" + "-" * 50_000 + "1)",
            "a" * 90_000 + " (" * 4_000,
            "\0",
            "total('\ud800')",
        ):
            assert isinstance(tools.execute(text), str)

    def test_a_step_has_no_bound_of_its_own(self) -> None:
        results = bakery().step(["get_price('roll')"] * 2_000)
        assert set(results) == {'{"price": 0.5}'}


def test_a_recorded_state_is_bounded() -> None:
    tools = bakery()
    tools.instances["Bakery"].notes = ["x" * 1_000] * 1_000
    tools.instances["Bakery"].marks = {str(n): [n] * 9 for n in range(50_000)}
    text = json.dumps(tools.state())
    assert len(text) < 2 * MAX_STATE_CHARS
    state = json.loads(text)["Bakery"]
    assert state["open"] is True
    assert state["notes"][-1] == "..."


def test_a_name_in_a_recorded_state_is_bounded() -> None:
    tools = bakery()
    tools.instances["Bakery"].shelves = {"x" * 3 * MAX_STATE_CHARS: 1}
    assert tools.state()["Bakery"]["shelves"] == {"...": "..."}


def test_state_is_json_whatever_it_holds() -> None:
    tools = bakery()
    odd: Any = {"set": {3, 1}, 4: (1.5, None), "big": 10**50, "object": object()}
    odd["self"] = odd
    odd["infinite"] = [1e999, float("nan")]
    tools.instances["Bakery"].prices = odd
    state = json.loads(json.dumps(tools.state()))["Bakery"]["prices"]
    assert state["set"] == [1, 3]
    assert state["4"] == [1.5, None]
    assert state["infinite"] == ["inf", "nan"]
    assert state["object"] == "<object>"
