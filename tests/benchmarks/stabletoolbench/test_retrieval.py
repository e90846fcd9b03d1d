"""Which APIs an agent is offered: seeded, repeatable, and what is left out is named."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.data.loader import MINI, load
from ace_ray.benchmarks.stabletoolbench.names import function_name
from ace_ray.benchmarks.stabletoolbench.retrieval import Scope, ToolPool, parse_scope
from ace_ray.errors import UserError
from tests.benchmarks.stabletoolbench.scripted_agent import doc, entry_of


def names(docs: list[dict[str, Any]]) -> list[str]:
    return [one["api"] for one in docs]


ENTRIES = [
    entry_of(doc("Bakery", "Find bread"), doc("Bakery", "Shops"), row_id="1"),
    entry_of(*[doc("Weather", f"Weather of {day}") for day in "abcdefgh"], row_id="2"),
    entry_of(doc("Bakery", "find BREAD"), doc("Trains", "Departures"), row_id="3"),
]


def test_the_pool_holds_each_api_once() -> None:
    pool = ToolPool([*ENTRIES, *ENTRIES], Scope("all"))
    assert len(pool.docs) == 12
    assert pool.docs_of(ENTRIES[0]) == pool.docs


def test_the_querys_own_apis_are_the_default() -> None:
    assert ToolPool(ENTRIES, Scope()).docs_of(ENTRIES[0]) is ENTRIES[0].data["apis"]


def test_distractors_are_drawn_by_query_and_seed() -> None:
    pool = ToolPool(ENTRIES, Scope("distractors", 4), seed=1)
    offered = pool.docs_of(ENTRIES[0])
    assert len(offered) == 6
    assert {"Find bread", "Shops"} <= set(names(offered))
    assert "find BREAD" not in names(offered), "two functions of one name"
    assert offered == ToolPool(ENTRIES, Scope("distractors", 4), seed=1).docs_of(ENTRIES[0])
    assert offered == pickle.loads(pickle.dumps(pool)).docs_of(ENTRIES[0])
    others = [
        names(ToolPool(ENTRIES, Scope("distractors", 4), seed=seed).docs_of(ENTRIES[0]))
        for seed in range(2, 8)
    ]
    assert any(set(other) != set(names(offered)) for other in others)
    assert any(other[:2] != ["Find bread", "Shops"] for other in others)


def test_distractors_do_not_depend_on_python_hashing() -> None:
    pool = ToolPool(ENTRIES, Scope("distractors", 3), seed=0)
    assert names(pool.docs_of(ENTRIES[2])) == names(pool.docs_of(ENTRIES[2]))
    assert pool.identity()["tool_scope_seed"] == 0


def test_retrieved_apis_fit_the_query() -> None:
    pytest.importorskip("bm25s")
    pool = ToolPool(ENTRIES, Scope("retrieved", 3))
    asked = entry_of(query="When do trains leave? I need departures.", row_id="9")
    assert names(pool.docs_of(asked))[0] == "Departures"
    assert len(pool.docs_of(asked)) == 3
    unknown = entry_of(query="zzz ???", row_id="9")
    assert names(pool.docs_of(unknown)) == names(pool.docs[:3]), "of equals the earlier"
    assert pickle.loads(pickle.dumps(pool)).docs_of(asked) == pool.docs_of(asked)
    assert pool.identity()["retriever"].startswith("bm25s ")


def test_without_the_library_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(UserError, match="pip install bm25s"):
        ToolPool(ENTRIES, Scope("retrieved", 3))
    ToolPool(ENTRIES, Scope("distractors", 3))


def test_all_is_refused_with_its_size_where_it_does_not_fit() -> None:
    pool = ToolPool(ENTRIES, Scope("all"))
    with pytest.raises(UserError, match=r"all 12 APIs have \d,\d{3} characters \(about"):
        pool.require_fits(1000, "official")
    pool.require_fits(100_000, "official")
    ToolPool(ENTRIES, Scope()).require_fits(1, "official")


def test_a_pool_can_be_too_small() -> None:
    with pytest.raises(UserError, match="there are 12 APIs"):
        ToolPool(ENTRIES, Scope("distractors", 5))
    with pytest.raises(UserError, match="there are 12 APIs"):
        ToolPool(ENTRIES, Scope("retrieved", 13))


@pytest.mark.parametrize(
    "value", ["everything", {"distractors": 0}, {"retrieved": True}, {"x": 1}, None, {}, 5]
)
def test_bad_scopes_are_refused(value: Any) -> None:
    with pytest.raises(UserError, match=r"^benchmarks\.stabletoolbench\.tool_scope: "):
        parse_scope(value)


def test_scopes_are_read_as_written() -> None:
    for value in ("query", "all", {"distractors": 20}, {"retrieved": 5}):
        assert parse_scope(value).as_json() == value


def test_the_published_pool(shared_queries: Path) -> None:
    entries = load(shared_queries).entries
    pool = ToolPool(entries, Scope("distractors", 20))
    assert len(pool.docs) == 2490
    for entry in entries[::100]:
        offered = pool.docs_of(entry)
        assert len(offered) == len(entry.data["apis"]) + 20
        own = {function_name(one["api"], one["tool"]) for one in entry.data["apis"]}
        assert sum(function_name(one["api"], one["tool"]) in own for one in offered) == len(
            entry.data["apis"]
        )


def test_the_mini_pool_can_be_offered_whole() -> None:
    entries = load(MINI).entries
    ToolPool(entries, Scope("all")).require_fits(60_000, "official")
