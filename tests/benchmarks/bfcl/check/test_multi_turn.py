"""Verdicts on multi-turn conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.categories import MULTI_TURN
from ace_ray.benchmarks.bfcl.check import conversations
from ace_ray.benchmarks.bfcl.check.conversations import check_multi_turn
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.tools.environment import (
    difference,
    initial_state_of,
    open_environment,
)
from ace_ray.benchmarks.bfcl.tools.limited import LimitedEnvironment
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources, tool_sources
from ace_ray.types import Entry, Verdict

DOCS = {
    "Bakery": [
        {"name": name}
        for name in ("add_order", "set_price", "get_price", "list_orders", "total", "close_day")
    ]
}
GOLD = [
    ["get_price(item='roll')"],
    [],
    ["set_price(item='roll', price=0.6)", "add_order(customer='Ida', item='roll')"],
]
DATA = {
    "question": [[], [], []],
    "initial_config": {"Bakery": {"prices": {"roll": 0.5}, "orders": [], "open": True}},
    "involved_classes": ["Bakery"],
}


def verdicts(
    turns: Sequence[Sequence[Any]], ended: str = "", gold: Any = None
) -> dict[str, Verdict]:
    """Judge a conversation, given as the texts of the answers by turn."""
    entry = Entry("bfcl", "multi_turn_base", "en", "multi_turn_base_0", DATA, gold or GOLD)
    answers = [[Answer(text) for text in turn] for turn in turns]
    return check_multi_turn(entry, answers, ended, ToolSources(), DOCS)


def both(turns: Sequence[Sequence[Any]], ended: str = "") -> tuple[str, str]:
    found = verdicts(turns, ended)
    return found["official"].error_type, found["strict"].error_type


PRICE, SET = "[get_price(item='roll')]", "[set_price(item='roll', price=0.6)]"
ADD = "[add_order(customer='Ida', item='roll')]"
GOOD = [[PRICE, "It costs 0.5."], ["Which one?"], [SET, ADD, "Done."]]


def test_the_key_is_valid() -> None:
    found = verdicts(GOOD)
    assert found["official"] == found["strict"]
    assert found["official"].valid
    metrics = {"turns_passed": 1, "turns_state": 1, "turns_response": 1}
    assert found["official"].metrics == metrics | {"turn_1": 1, "turn_2": 1, "turn_3": 1}


def test_calls_of_a_turn_may_come_together_or_with_more_readings() -> None:
    together = [[f"{PRICE[:-1]}, {PRICE[1:]}"], [], [f"{SET[:-1]}, {ADD[1:]}"]]
    more = [[PRICE, "[list_orders()]"], [], ["[total('x')]", SET, ADD, "[list_orders()]", "ok"]]
    assert both(together) == both(more) == ("", "")


@pytest.mark.parametrize(
    ("turns", "kind"),
    [
        ([["It costs 0.5."], [], GOOD[2]], conversations.NO_CALLS),
        ([[PRICE, SET], [], [ADD]], conversations.STATE),
        ([["[total(customer='Ida')]"], [], GOOD[2]], conversations.RESPONSE),
        ([[PRICE], [], [SET, ADD, "[close_day()]"]], conversations.STATE),
        ([[PRICE], []], conversations.TERMINATED),
        ([*GOOD, []], conversations.TERMINATED),
    ],
)
def test_wrong_conversations(turns: Any, kind: str) -> None:
    assert both(turns) == (kind, kind)


def test_a_result_counts_from_any_turn_so_far() -> None:
    gold = [["set_price(item='roll', price=0.6)"], ["get_price(item='roll')"]]
    found = verdicts([[SET, PRICE], [SET]], gold=gold)
    assert found["official"].valid
    found = verdicts([[SET, PRICE], [SET]], gold=[gold[0], gold[1] * 2])
    assert found["official"].error_type == conversations.RESPONSE


@pytest.mark.parametrize(
    ("turns", "kind"),
    [
        ([[PRICE], [PRICE], [SET, ADD]], ""),
        ([[PRICE], [SET], [ADD]], ""),
        ([[PRICE], ["[close_day()]"], [SET, ADD]], conversations.STATE),
        ([[PRICE], [SET.replace("0.6", "0.7")], [ADD]], conversations.STATE),
        ([[PRICE], [SET], ["Done already."]], conversations.NO_CALLS),
    ],
)
def test_turn_without_a_key_is_judged_by_later_turns(turns: Any, kind: str) -> None:
    found = verdicts(turns)
    assert found["official"] == found["strict"]
    assert found["strict"].error_type == kind
    assert found["strict"].metrics["turn_2"] == 1


def test_conversations_that_were_cut() -> None:
    assert both(GOOD, "steps") == ("", conversations.TERMINATED)
    assert both(GOOD[:2], "steps") == (conversations.TERMINATED, conversations.TERMINATED)
    for ended in ("context", "deadline", "inference"):
        assert both(GOOD, ended) == (conversations.INFERENCE, conversations.INFERENCE)
    metrics = verdicts(GOOD[:1], "context")["official"].metrics
    assert (metrics["turn_1"], metrics["turn_2"]) == (1, 0)


def test_later_turns_count_behind_a_failed_one() -> None:
    found = verdicts([["no call"], [], GOOD[2]])["official"]
    assert found.error_type == conversations.NO_CALLS
    assert [found.metrics[f"turn_{n}"] for n in (1, 2, 3)] == [0, 1, 1]
    assert found.metrics["turns_passed"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        f"[get_price(item={'x' * 300_000!r})]",
        "[" + ", ".join(["get_price(item='roll')"] * 3_000) + "]",
        "\ud800\0",
        "[get_price(item={})]",
    ],
)
def test_no_answer_makes_it_raise(text: str) -> None:
    found = verdicts([[text] * 3, [text], [text]])
    assert not found["official"].valid
    assert len(found["official"].error) < 300


def test_values_that_cannot_be_compared_differ() -> None:
    class Box:
        def __init__(self, value: Any) -> None:
            self.value, self._hidden = value, object()

    loops: list[list[Any]] = [[], []]
    for loop in loops:
        loop.append(loop)
    for one, other, where in (
        (loops[0], loops[1], "A.value"),
        ([1, {"a": 2}], [1, {"a": 2}], ""),
        (1, 2, "A.value"),
    ):
        assert difference({"A": Box(one)}, {"A": Box(other)}) == where


@pytest.fixture(scope="module")
def sources(bfcl_copy: UpstreamPackage) -> ToolSources:
    return tool_sources(bfcl_copy)


class TestRealCopy:
    @pytest.mark.nightly
    @pytest.mark.parametrize("category", MULTI_TURN)
    def test_every_key_is_valid(
        self, bfcl_copy: UpstreamPackage, sources: ToolSources, category: str
    ) -> None:
        docs, counts = function_docs(bfcl_copy), Counter[str]()
        for entry in load(bfcl_copy, [category]):
            # The key's calls are given as they are: some have arguments without names.
            turns = [[Answer("\n".join(turn))] if turn else [] for turn in entry.gold]
            found = check_multi_turn(
                entry, turns, "", sources, docs, executable=lambda one: (one.text or "").split("\n")
            )
            counts.update(rules for rules, verdict in found.items() if verdict.valid)
            nothing: list[list[Answer]] = [[] for _ in entry.gold]
            silent = check_multi_turn(entry, nothing, "", sources, docs)
            counts["silent"] += silent["official"].valid + silent["strict"].valid
        assert counts == {"official": 200, "strict": 200, "silent": 0}

    @pytest.mark.nightly
    def test_no_key_fails_for_want_of_a_module(
        self, bfcl_copy: UpstreamPackage, sources: ToolSources
    ) -> None:
        """Both sides failing alike would pass every check."""
        docs, errors = function_docs(bfcl_copy), Counter[str]()
        for entry in load(bfcl_copy, ["multi_turn_base"]):
            state = initial_state_of(entry, docs)
            here, limited = (
                open_environment(sources, state),
                LimitedEnvironment(sources, state),
            )
            for turn in entry.gold:
                results = limited.call("step", {"texts": turn}).value
                errors.update(text for text in results if text.startswith("Error during execution"))
                assert results == here.step(turn)
            assert limited.state() == here.state()
        assert not errors

    def test_records_that_upstream_shares(
        self, bfcl_copy: UpstreamPackage, sources: ToolSources
    ) -> None:
        """An insurance paid with a card of the long context: the key's card pays it too."""
        docs = function_docs(bfcl_copy)
        config = {"TravelAPI": {"access_token": "a", "booking_record": {"1": {}}}}
        data = {"initial_config": config, "involved_classes": ["TravelAPI"]}
        entry = Entry(
            "bfcl", "multi_turn_long_context", "en", "x_0", data, [["list_all_airports()"]]
        )
        cards = open_environment(sources, initial_state_of(entry, docs)).instances["TravelAPI"]
        card = next(iter(cards.credit_card_list))
        paid = (
            "[list_all_airports(), purchase_insurance(access_token='a', insurance_type='b',"
            f" booking_id='1', insurance_cost=5, card_id={card!r})]"
        )
        found = check_multi_turn(entry, [[Answer(paid)]], "", sources, docs)
        assert found["official"].valid
        assert found["strict"].error_type == conversations.STATE
        assert check_multi_turn(entry, [[Answer(paid)]], "", sources, docs) == found
