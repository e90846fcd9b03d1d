"""Call texts to results: parsed, bounded, never evaluated; upstream's classes loaded privately."""

import decimal
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.data.loader import function_docs
from ace_ray.benchmarks.bfcl.data.upstream_package import TOOL_MODULES, UpstreamPackage
from ace_ray.benchmarks.bfcl.tools import sources as tool_code
from ace_ray.benchmarks.bfcl.tools.environment import Environment, InitialState, open_environment
from ace_ray.benchmarks.bfcl.tools.evaluate import remove_call_spaces
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources, load_class, tool_sources
from ace_ray.errors import UserError
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
    added = "add_order(customer=get_price('roll'), item='rye bread')"
    steps = tools.call("step", {"texts": [added, "total(*['Ida'])"]}).value
    assert steps == ['{"order_id": 2}', '{"total": 2.0}']
    assert tools.call("total", {"customer": "Ida"}).error == "unknown_tool"
    orders = tools.state()["Bakery"]["orders"]
    assert [order["customer"] for order in orders] == ["Ida", {"price": 0.5}]
    assert opened().state()["Bakery"]["orders"] == CONFIG["orders"]
    tools = opened("Bakery", "total")
    for text in ("close_day()", "_load_scenario(config={})"):
        assert "not defined" in tools.execute(text), "only documented methods are tools"


def test_text_that_is_no_call_of_a_tool_is_an_error() -> None:
    for text, problem in (
        ("no_tool(x=1)", "name 'no_tool' is not defined"),
        ("total()", "Bakery.total() missing 1 required positional argument: 'customer'"),
        ("os.remove(path='x')", "Function call remove is not allowed."),
        ("total('Ida'", "'(' was never closed (<string>, line 1)"),
        ("total([x for x in (1,)])", "ListComp among the arguments"),
        ("__import__('os').system('true')", "not a call of a function by its name"),
    ):
        observation = opened().execute(text)
        assert observation.startswith("Error during execution: "), text
        assert problem in observation, text


def test_spaces_before_brackets_are_dropped_as_upstream_drops_them() -> None:
    assert remove_call_spaces("f (x='a\t(b) 1 (c)')") == "f(x='a(b) 1 (c)')"
    assert remove_call_spaces("f(x='é (b)')") == "f(x='é (b)')"


def test_long_calls_large_results_and_broken_calls_are_bounded() -> None:
    tools = opened()
    assert "a call of more than 100000" in tools.execute(f"total({'x' * 100_000!r})")
    for _ in range(25):
        tools.execute(f"add_order({'x' * 90_000!r}, 'roll')")
    assert "the result is too large" in tools.execute("list_orders()")
    for allowed in (True, True, True, False):
        assert ("used up their budget" in tools.execute("total('Ida')")) != allowed
        tools.charge_call()


def test_recorded_state_is_json_within_bounds() -> None:
    tools = opened()
    odd: Any = {"set": {3, 1}, 4: (1.5, None), "big": 10**50, "object": object()}
    odd |= {"self": odd, "infinite": [1e999, float("nan")]}
    tools.instances["Bakery"].prices = odd
    state = json.loads(json.dumps(tools.state()))["Bakery"]["prices"]
    assert (state["set"], state["4"]) == ([1, 3], [1.5, None])
    assert (state["infinite"], state["object"]) == (["inf", "nan"], "<object>")
    tools.instances["Bakery"].prices = ["x" * 1_000] * 1_000
    assert len(json.dumps(tools.state())) < 300_000
    assert tools.state()["Bakery"]["prices"][-1] == "..."


def test_memories_of_the_mini_set_have_upstreams_limits_and_search() -> None:
    tools = opened("MemoryAPI_rec_sum")
    tools.execute("memory_append('aaaa')")
    assert "error" in tools.execute(f"memory_replace('a', {'b' * 9_000!r})")
    assert "error" in tools.execute(f"memory_append({'b' * 10_000!r})")
    assert tools.call("snapshot", {}).value == {"memory": "aaaa"}
    tools = opened("MemoryAPI_kv")
    keys = ("dog_name", "favourite_food", "name_of_the_first_dog", "birthday", "dog_food_brand")
    tools.step([f"core_memory_add({key!r}, 'x')" for key in keys])
    result = json.loads(tools.execute("core_memory_key_search('food food cat', k=2)"))
    # Scores of rank_bm25 0.2.2, to the last bit.
    best = [[4.649063161488224, "favourite_food"], [4.2521828151326835, "dog_food_brand"]]
    assert result["ranked_results"] == best
    observations = tools.step([f"core_memory_add({key!r}, 'x')" for key in "abc"])
    assert ["error" in text for text in observations] == [False, False, True], "7 entries at most"


Open = Callable[..., Any]


@pytest.fixture(scope="module")
def sources(bfcl_copy: UpstreamPackage) -> ToolSources:
    return tool_sources(bfcl_copy)


@pytest.fixture(scope="module")
def open_class(bfcl_copy: UpstreamPackage, sources: ToolSources) -> Open:
    docs = function_docs(bfcl_copy)

    def opened(name: str, config: Any = None, *, long: bool = False, shared: Any = None) -> Any:
        names = tuple(str(doc["name"]) for doc in docs[name])
        state = InitialState({name: names}, {name: config or {}}, long)
        return open_environment(sources, state, shared)

    return opened


def test_classes_load_privately_and_write_no_file(open_class, sources, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    for name in TOOL_MODULES:
        tools = open_class(name)
        assert json.dumps(tools.state())
        if name.startswith("MemoryAPI"):
            tools.call("dump", {})
    assert not {m for m in set(sys.modules) - before if m.startswith(("bfcl", "faiss", "rank_"))}
    assert list(tmp_path.iterdir()) == []
    scope = load_class(sources, "MemoryAPI_kv").core_memory_add.__globals__["__builtins__"]
    assert not {"open", "eval", "exec", "compile", "input"} & set(scope)


def test_damaged_class_is_the_users_mistake(sources: ToolSources) -> None:
    for text, match in (
        ("class TicketAPI(:", r"ticket_api.py: does not load \(SyntaxError"),
        ("x = 1", "has no class TicketAPI"),
        ("import socket", "ImportError: no stand-in for socket"),
    ):
        damaged = ToolSources({**sources.texts, "ticket_api": text}, "copy", text, named=True)
        with pytest.raises(UserError, match=match):
            load_class(damaged, "TicketAPI")


def test_only_known_sources_run_unless_the_user_named_them(sources: ToolSources) -> None:
    text = sources.texts["ticket_api"] + "\n"
    changed = ToolSources({**sources.texts, "ticket_api": text}, "copy", "changed")
    problem = r"copy: the classes in .* differ from bfcl-eval .* only the stored run names this"
    with pytest.raises(UserError, match=problem):
        load_class(changed, "TicketAPI")
    with pytest.raises(UserError, match=problem):
        tool_code.require_allowed(replace(changed, sha256=sources.sha256))
    for allowed in (sources, replace(changed, named=True)):
        assert load_class(allowed, "TicketAPI").__name__ == "TicketAPI"


def test_dates_and_numbers_are_upstreams(open_class: Open) -> None:
    trading = open_class("TradingBot", {"authenticated": True})
    assert '"new_balance": 10001.0' in trading.execute("fund_account(amount=1)")
    assert "2024-09" in trading.execute("get_transaction_history(start_date='2024-01-01')")
    mpmath = pytest.importorskip("mpmath")
    digits = mpmath.mp.dps, decimal.getcontext().prec
    tools = open_class("MathAPI")
    assert "2.0959032742" in tools.execute("logarithm(value=10, base=3, precision=30)")
    assert len(tools.execute("square_root(number=2, precision=40)")) > 50
    assert (mpmath.mp.dps, decimal.getcontext().prec) == digits, "precision stays in the sandbox"
    assert "Exceeds the limit" in tools.execute("power(base=10, exponent=5000)")


def test_environments_share_mutable_defaults_only_on_request(open_class: Open) -> None:
    def third_tweet(*posted: Environment) -> str:
        posted[0].step(["post_tweet('first')", "mention(0, ['@a'])"])
        return posted[-1].execute("post_tweet('third')")

    def opened(shared: Any = None) -> Environment:
        return open_class("TwitterAPI", {"authenticated": True}, shared=shared)

    environment = opened()
    shared: dict[int, Any] = {}
    assert '"mentions": ["@a"]' in third_tweet(environment), "within one attempt the list is one"
    assert '"mentions": []' in third_tweet(environment, opened())
    assert '"mentions": ["@a"]' in third_tweet(opened(shared), opened(shared))
