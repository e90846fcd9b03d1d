"""Upstream's classes out of a real copy: loaded privately, bounded, never handing anything on."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.data.loader import function_docs
from ace_ray.benchmarks.bfcl.data.upstream_package import TOOL_MODULES, UpstreamPackage
from ace_ray.benchmarks.bfcl.tools.environment import Environment, InitialState, open_environment
from ace_ray.benchmarks.bfcl.tools.limited import LimitedEnvironment
from ace_ray.benchmarks.bfcl.tools.sources import (
    ToolSources,
    load_class,
    require_allowed,
    tool_sources,
)
from ace_ray.errors import UserError

Open = Callable[..., Environment]


@pytest.fixture(scope="module")
def sources(bfcl_copy: UpstreamPackage) -> ToolSources:
    return tool_sources(bfcl_copy)


@pytest.fixture(scope="module")
def open_class(bfcl_copy: UpstreamPackage, sources: ToolSources) -> Open:
    docs = function_docs(bfcl_copy)

    def opened(
        name: str, config: Any = None, *, long: bool = False, shared: Any = None
    ) -> Environment:
        names = tuple(doc["name"] for doc in docs[name])
        return open_environment(
            sources, InitialState({name: names}, {name: config or {}}, long), shared
        )

    return opened


@pytest.mark.parametrize("name", TOOL_MODULES)
def test_every_class_loads_and_has_its_documented_methods(name: str, open_class: Open) -> None:
    before = set(sys.modules)
    tools = open_class(name)
    assert not {m for m in set(sys.modules) - before if m.startswith(("bfcl", "faiss", "rank_"))}
    assert json.dumps(tools.state())


def test_sources_travel_and_load_once(sources: ToolSources) -> None:
    again = pickle.loads(pickle.dumps(sources))
    assert again == sources
    assert load_class(again, "TicketAPI") is load_class(sources, "TicketAPI")


def test_classes_cannot_open_files_or_run_text(sources: ToolSources) -> None:
    scope = load_class(sources, "MemoryAPI_kv").core_memory_add.__globals__["__builtins__"]
    assert not {"open", "eval", "exec", "compile", "input"} & set(scope)


def test_a_damaged_copy_is_the_users_mistake(sources: ToolSources) -> None:
    def with_text(text: str) -> ToolSources:
        return ToolSources({**sources.texts, "ticket_api": text}, "copy", text, named=True)

    with pytest.raises(UserError, match=r"ticket_api.py: does not load \(SyntaxError"):
        load_class(with_text("class TicketAPI(:"), "TicketAPI")
    with pytest.raises(UserError, match="no stand-in for requests"):
        load_class(with_text("import requests"), "TicketAPI")
    with pytest.raises(UserError, match="has no class TicketAPI"):
        load_class(with_text("x = 1"), "TicketAPI")


def test_dates_work_in_private_modules(open_class: Open) -> None:
    """datetime imports its parser in the name of its caller."""
    travel = open_class("TravelAPI")
    found = travel.execute("verify_traveler_information('a', 'b', '1990-01-01', 'US1')")
    assert "Cannot book" in found
    trading = open_class("TradingBot", {"authenticated": True})
    assert '"new_balance": 10001.0' in trading.execute("fund_account(amount=1)")
    assert "2024-09" in trading.execute("get_transaction_history(start_date='2024-01-01')")


def test_precision_stays_in_the_sandbox(open_class: Open) -> None:
    import decimal

    mpmath = pytest.importorskip("mpmath")
    tools = open_class("MathAPI")
    digits = mpmath.mp.dps, decimal.getcontext().prec
    assert tools.execute("logarithm(value=10, base=3, precision=30)").count("2.0959032742") == 1
    assert len(tools.execute("square_root(number=2, precision=40)")) > 50
    assert (mpmath.mp.dps, decimal.getcontext().prec) == digits


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MathAPI", "power(base=7, exponent=" + "9" * 4_000 + ")"),
        ("MathAPI", "logarithm(value=10, base=3, precision=100000000)"),
        ("MathAPI", "logarithm(value='1+1e-300000000j', base=10, precision=50)"),
        ("MemoryAPI_rec_sum", "memory_replace(old_text='', new_text=" + repr("b" * 90_000) + ")"),
    ],
)
def test_the_process_bounds_what_a_call_takes(
    name: str, text: str, bfcl_copy: UpstreamPackage, sources: ToolSources
) -> None:
    methods = tuple(doc["name"] for doc in function_docs(bfcl_copy)[name])
    environment = LimitedEnvironment(sources, InitialState({name: methods}))
    if name == "MemoryAPI_rec_sum":
        environment.call("step", {"texts": [f"memory_append({'a' * 9_000!r})"]})
    said = str(environment.call("step", {"texts": [text]}).value[0])
    assert "error" in said[:40].lower(), said[:100]
    assert len(said) < 200_000


def test_an_integer_that_cannot_be_printed_reads_as_upstream(open_class: Open) -> None:
    with pytest.raises(ValueError) as raised:
        str(10**5_000)
    tools = open_class("MathAPI")
    found = tools.execute("power(base=10, exponent=5000)")
    assert found == f"Error during execution: {raised.value}"
    assert tools.execute("power(base=2, exponent=100)") == json.dumps({"result": 2**100})


class TestFiles:
    def test_a_directory_in_itself(self, open_class: Open) -> None:
        tools = open_class("GorillaFileSystem")
        tools.step(["mkdir('a')", "cp('a', 'a')"])
        said = "Error during execution: maximum recursion depth exceeded"
        assert tools.execute("find()").startswith(said)
        assert tools.execute("du()").startswith(said)
        assert tools.execute("ls()") == '{"current_directory_content": ["a"]}'
        assert json.dumps(tools.state())

    def test_deep_directories(self, open_class: Open) -> None:
        tools = open_class("GorillaFileSystem")
        for _ in range(1_500):
            tools.step(["mkdir('a')", "cd('a')"])
        tools.execute("cd('/')")
        assert "maximum recursion depth" in tools.execute("find()")
        assert json.dumps(tools.state())


def test_defaults_are_not_handed_on(open_class: Open) -> None:
    def tweets(tools: Environment) -> str:
        tools.step(["post_tweet('first')", "mention(0, ['@a'])"])
        return tools.execute("post_tweet('second')")

    config = {"authenticated": True}
    one, other = open_class("TwitterAPI", config), open_class("TwitterAPI", config)
    # Within one attempt the list is one, as upstream's.
    assert '"mentions": ["@a"]' in tweets(one)
    assert '"mentions": []' in other.execute("post_tweet('third')")
    shared: dict[int, Any] = {}
    pair = [open_class("TwitterAPI", config, shared=shared) for _ in range(2)]
    tweets(pair[0])
    assert '"mentions": ["@a"]' in pair[1].execute("post_tweet('third')")


def test_records_of_the_long_context_are_not_handed_on(open_class: Open) -> None:
    def card(tools: Environment) -> dict[str, Any]:
        found: dict[str, Any] = next(iter(tools.instances["TravelAPI"].credit_card_list.values()))
        return found

    one, other = (open_class("TravelAPI", long=True) for _ in range(2))
    card(one)["balance"] = -1
    assert card(other)["balance"] != -1
    assert card(open_class("TravelAPI", long=True))["balance"] != -1


def test_key_search_is_upstreams(open_class: Open) -> None:
    tools = open_class("MemoryAPI_kv")
    said = tools.execute("core_memory_key_search(query='dog')")
    assert said == "Error during execution: division by zero"
    for key in ("dog_name", "favourite_food", "birthday"):
        tools.execute(f"core_memory_add({key!r}, 'x')")
    found = json.loads(tools.execute("core_memory_key_search('dog name', k=2)"))
    assert [key for _, key in found["ranked_results"]] == ["dog_name", "favourite_food"]


def test_vector_memory(open_class: Open) -> None:
    tools = open_class("MemoryAPI_vector")
    calls = [
        "core_memory_add(text='cats')",
        "core_memory_add('dogs')",
        "core_memory_retrieve('pet')",
    ]
    assert "no embedding" in tools.execute("core_memory_add(text='other')")
    assert tools.call("texts", {"texts": calls}).value == ["cats", "dogs", "pet"]
    vectors = {"cats": [3.0, 0.0], "dogs": [1.0, 1.0], "pet": [0.6, 0.8]}
    tools.call("vectors", {"vectors": vectors})
    assert tools.call("texts", {"texts": calls}).value == []
    added, _, found = tools.step(calls)
    assert set(json.loads(added)) == {"id"}
    ranked = [(one["text"], one["similarity_score"]) for one in json.loads(found)["result"]]
    assert [text for text, _ in ranked] == ["dogs", "cats"]
    assert ranked[0][1] == pytest.approx(1.4 / 2**0.5)
    snapshot = json.loads(json.dumps(tools.call("snapshot", {}).value))
    other = open_class("MemoryAPI_vector")
    other.call("vectors", {"vectors": vectors})
    other.call("restore", {"snapshot": snapshot})
    assert other.execute("core_memory_retrieve('pet')") == found
    tools.step(["core_memory_remove(1)", "core_memory_update(2, 'cats')", "core_memory_clear()"])
    assert tools.execute("core_memory_retrieve('pet')") == '{"result": []}'


@pytest.mark.parametrize("name", ["MemoryAPI_kv", "MemoryAPI_rec_sum", "MemoryAPI_vector"])
def test_a_limited_memory_answers_alike(
    name: str, bfcl_copy: UpstreamPackage, sources: ToolSources
) -> None:
    state = InitialState({name: tuple(doc["name"] for doc in function_docs(bfcl_copy)[name])})
    texts = [
        *("core_memory_add(text='a b')", "core_memory_add(key='a_b', value='x')"),
        *("archival_memory_add(text='c')", "archival_memory_add(key='c', value='y')"),
        *("core_memory_retrieve(query='d')", "core_memory_key_search(query='a c', k=2)"),
        *("core_memory_retrieve_all()", "core_memory_update(vec_id=0, new_text='c')"),
        *("memory_append(text='e')", "memory_replace(old_text='e', new_text='f')"),
        *("memory_retrieve()", "archival_memory_clear()", "core_memory_remove(vec_id=0)"),
    ]
    vectors = {text: [float(n), 1.0] for n, text in enumerate(("a b", "c", "d"))}
    told = [
        [
            box.call("texts", {"texts": texts}),
            box.call("vectors", {"vectors": vectors}),
            box.call("step", {"texts": texts}),
            (kept := box.call("snapshot", {})),
            box.call("dump", {}),
            box.call("restore", {"snapshot": kept.value}),
            box.state(),
        ]
        for box in (
            open_environment(sources, state),
            LimitedEnvironment(sources, state),
        )
    ]
    assert told[0] == told[1]
    assert sum("error" not in text.lower() for text in told[0][2].value) > 2


def test_no_file_is_written(open_class: Open, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in TOOL_MODULES:
        open_class(name).call("dump", {}) if name.startswith("MemoryAPI") else open_class(name)
    assert list(tmp_path.iterdir()) == []


def test_only_known_sources_run_unless_the_user_named_them(sources: ToolSources) -> None:
    require_allowed(sources)
    text = sources.texts["ticket_api"] + "\n"
    changed = ToolSources({**sources.texts, "ticket_api": text}, "copy", "changed")
    with pytest.raises(UserError, match=r"copy: the classes in .* are not those of bfcl-eval"):
        require_allowed(changed)
    with pytest.raises(UserError, match="only the stored run names them"):
        load_class(changed, "TicketAPI")
    named = replace(changed, named=True)
    require_allowed(named)
    assert load_class(named, "TicketAPI").__name__ == "TicketAPI"
