"""The 17 categories of ACEBench and how its tables group them (upstream ``category.py``)."""

from __future__ import annotations

LANGUAGES = ("en", "zh")

ATOM = (
    "normal_atom_bool",
    "normal_atom_enum",
    "normal_atom_number",
    "normal_atom_list",
    "normal_atom_object_deep",
    "normal_atom_object_short",
)
SINGLE_TURN = ("normal_single_turn_single_function", "normal_single_turn_parallel_function")
MULTI_TURN = ("normal_multi_turn_user_switch", "normal_multi_turn_user_adjust")
NORMAL = (*ATOM, *SINGLE_TURN, *MULTI_TURN, "normal_similar_api", "normal_preference")
SPECIAL = ("special_incomplete", "special_error_param", "special_irrelevant")
AGENT = ("agent_multi_turn", "agent_multi_step")
GENERATION = (*NORMAL, *SPECIAL)
"""Categories answered with one model call per row."""
CATEGORIES = (*GENERATION, *AGENT)


_AGENT_TASKS = {
    "agent_multi_turn": (range(0, 4), range(5, 8), range(8, 12), range(12, 16), range(16, 20)),
    "agent_multi_step": (
        *(range(0, 2), range(2, 4), range(4, 6), range(6, 10)),
        *(range(10, 14), range(14, 18), range(18, 20)),
    ),
}
"""Numbers of agent entries with the same question and different functions. They are equal in
English and Chinese, which translate each other."""


def agent_task(category: str, entry_id: str) -> str:
    """Return a key that agent entries of the same question share, in both languages."""
    number = entry_id.rsplit("_", 1)[-1]
    if number.isascii() and number.isdigit():
        for numbers in _AGENT_TASKS[category]:
            if int(number) in numbers:
                return f"{category}_{numbers[0]}"
    return f"{category}_{number}"


def dialogue(category: str, entry_id: str) -> str:
    """Return the group of an entry: its dialogue in the multi-turn categories, else its own id.

    Multi-turn ids end in ``_<dialogue>_<turn>``.
    """
    return entry_id.rsplit("_", 1)[0] if category in MULTI_TURN else entry_id
