"""Verdicts on multi-turn conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.categories import MULTI_TURN
from ace_ray.benchmarks.bfcl.check import conversations
from ace_ray.benchmarks.bfcl.check.conversations import check_multi_turn
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.tools.environment import initial_state_of, open_environment
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
    turns: Sequence[Sequence[Any]],
    ended: str = "",
    gold: Any = None,
    category: str = "multi_turn_base",
    **data: Any,
) -> dict[str, Verdict]:
    """``turns``: per turn the texts of the answers."""
    entry = Entry("bfcl", category, "en", f"{category}_0", DATA | data, gold or GOLD)
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


def test_calls_of_one_answer_or_of_several() -> None:
    together = [[f"{PRICE[:-1]}, {PRICE[1:]}"], [], [f"{SET[:-1]}, {ADD[1:]}"]]
    assert both(together) == ("", "")


@pytest.mark.parametrize(
    ("turns", "kind"),
    [
        ([["It costs 0.5."], [], GOOD[2]], conversations.NO_CALLS),
        ([[PRICE, SET], [], [ADD]], conversations.STATE),
        ([["[total(customer='Ida')]"], [], GOOD[2]], conversations.RESPONSE),
        ([[PRICE], [], [SET]], conversations.STATE),
        ([[PRICE], [], [ADD, SET, ADD]], conversations.STATE),
        ([[PRICE], [], [SET, ADD, "[close_day()]"]], conversations.STATE),
        ([[PRICE], []], conversations.TERMINATED),
        ([], conversations.TERMINATED),
        ([*GOOD, []], conversations.TERMINATED),
    ],
)
def test_what_fails_under_both(turns: Any, kind: str) -> None:
    assert both(turns) == (kind, kind)


def test_reading_more_and_earlier_is_free() -> None:
    more = [[PRICE, "[list_orders()]"], [], ["[total('x')]", SET, ADD, "[list_orders()]", "ok"]]
    assert both(more) == ("", "")


def test_a_result_counts_from_any_turn_so_far() -> None:
    gold = [["set_price(item='roll', price=0.6)"], ["get_price(item='roll')"]]
    found = verdicts([[SET, PRICE], [SET]], gold=gold)
    assert found["official"].valid
    found = verdicts([[SET, PRICE], [SET]], gold=[gold[0], gold[1] * 2])
    assert found["official"].error_type == conversations.RESPONSE


@pytest.mark.parametrize(
    ("category", "data"),
    [
        ("multi_turn_miss_param", {}),
        ("multi_turn_miss_func", {"missed_function": {"2": ["add_order"]}}),
        ("multi_turn_base", {}),
    ],
)
def test_a_turn_without_a_key_is_judged_by_what_comes_of_it(category: str, data: Any) -> None:
    """Functions are held out there, or a parameter is missing; others may help all the same."""
    for turns, kind in (
        ([[PRICE], [PRICE], [SET, ADD]], ""),
        ([[PRICE], [SET], [ADD]], ""),
        ([[PRICE], ["[close_day()]"], [SET, ADD]], conversations.STATE),
        ([[PRICE], [SET.replace("0.6", "0.7")], [ADD]], conversations.STATE),
        ([[PRICE], [SET], ["Done already."]], conversations.NO_CALLS),
    ):
        found = verdicts(turns, category=category, **data)
        assert found["official"] == found["strict"]
        assert found["strict"].error_type == kind
        assert found["strict"].metrics["turn_2"] == 1


def test_a_cut_in_the_last_turn() -> None:
    assert both(GOOD, "steps") == ("", conversations.TERMINATED)
    assert both(GOOD[:2], "steps") == (conversations.TERMINATED, conversations.TERMINATED)


@pytest.mark.parametrize("ended", ["context", "deadline"])
def test_a_conversation_that_could_not_go_on(ended: str) -> None:
    assert both(GOOD, ended) == (conversations.INFERENCE, conversations.INFERENCE)
    assert verdicts(GOOD[:1], ended)["official"].metrics["turn_1"] == 1


def test_later_turns_are_told_apart() -> None:
    found = verdicts([["no call"], [], GOOD[2]])["official"]
    assert found.error_type == conversations.NO_CALLS
    assert [found.metrics[f"turn_{n}"] for n in (1, 2, 3)] == [0, 1, 1]
    assert found.metrics["turns_passed"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[" * 10_000,
        "[get_price(item=" + "[" * 150 + "]" * 150 + ")]",
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


def test_what_cannot_be_compared_differs() -> None:
    from ace_ray.benchmarks.bfcl.tools.environment import difference

    class Box:
        def __init__(self, value: Any) -> None:
            self.value, self._hidden = value, object()

    loops: list[list[Any]] = [[], []]
    for loop in loops:
        loop.append(loop)
    assert difference({"A": Box(loops[0])}, {"A": Box(loops[1])}) == "A.value"
    assert difference({"A": Box([1, {"a": 2}])}, {"A": Box([1, {"a": 2}])}) == ""
    assert difference({"A": Box(1)}, {"A": Box(2)}) == "A.value"


def _moved_forward(entry: Entry) -> Iterator[list[list[str]]]:
    for turn, calls in enumerate(entry.gold[:-1]):
        if calls:
            continue
        held = entry.data.get("missed_function", {}).get(str(turn + 1), ())
        following = list(entry.gold[turn + 1])
        names = [call.partition("(")[0] for call in following]
        free = next((n for n, name in enumerate(names) if name in held), len(names) - 1)
        for count in range(1, min(free, len(names) - 1) + 1):
            turns = [list(calls) for calls in entry.gold]
            turns[turn], turns[turn + 1] = following[:count], following[count:]
            yield turns


def _checked(
    entry: Entry, turns: Sequence[Sequence[str]], sources: ToolSources, docs: Any
) -> dict[str, Verdict]:
    """Of a conversation whose turns make these calls, arguments without names allowed."""
    answers = [[Answer("\n".join(turn))] if turn else [] for turn in turns]
    return check_multi_turn(
        entry, answers, "", sources, docs, executable=lambda one: (one.text or "").split("\n")
    )


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
            found = _checked(entry, entry.gold, sources, docs)
            counts.update(rules for rules, verdict in found.items() if verdict.valid)
            nothing: list[list[Answer]] = [[] for _ in entry.gold]
            silent = check_multi_turn(entry, nothing, "", sources, docs)
            counts["silent"] += silent["official"].valid + silent["strict"].valid
        assert counts == {"official": 200, "strict": 200, "silent": 0}

    @pytest.mark.parametrize(
        ("category", "moved"), [("multi_turn_miss_func", 95), ("multi_turn_miss_param", 160)]
    )
    def test_calls_moved_forward_into_a_turn_without_a_key(
        self, bfcl_copy: UpstreamPackage, sources: ToolSources, category: str, moved: int
    ) -> None:
        """Of what the next turn's key does before its first held-out function one call or more; its
        last call stays there."""
        docs, counts = function_docs(bfcl_copy), Counter[str]()
        for entry in load(bfcl_copy, [category]):
            for turns in _moved_forward(entry):
                counts["moved"] += 1
                for rules, verdict in _checked(entry, turns, sources, docs).items():
                    counts[rules] += verdict.valid
        assert counts == {"moved": moved, "official": moved, "strict": moved}

    def test_an_effect_that_the_key_contradicts(
        self, bfcl_copy: UpstreamPackage, sources: ToolSources
    ) -> None:
        docs = function_docs(bfcl_copy)
        entry = next(
            e for e in load(bfcl_copy, ["multi_turn_miss_func"]) if e.id == "multi_turn_miss_func_1"
        )
        empty = list(entry.gold).index([])
        turns = [list(turn) for turn in entry.gold]
        for call, valid in (("pwd()", True), ("mkdir(dir_name='other')", False)):
            turns[empty] = [call]
            found = _checked(entry, turns, sources, docs)
            assert [found[rules].valid for rules in ("official", "strict")] == [valid, valid]

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
