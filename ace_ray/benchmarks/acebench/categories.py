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


def dialogue(category: str, entry_id: str) -> str:
    """The group an entry is judged in: its dialogue in the multi-turn categories, else itself.

    Multi-turn ids end in ``_<dialogue>_<turn>``.
    """
    return entry_id.rsplit("_", 1)[0] if category in MULTI_TURN else entry_id
