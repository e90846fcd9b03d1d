"""BFCL's categories, their groups, and their languages (upstream ``category_mapping.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

NON_LIVE = (
    "simple_python",
    "simple_java",
    "simple_javascript",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
)
LIVE = (
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
)
SINGLE_TURN = NON_LIVE + LIVE
MULTI_TURN = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
MEMORY = ("memory_kv", "memory_vector", "memory_rec_sum")
WEB_SEARCH = ("web_search_base", "web_search_no_snippet")
AGENTIC = WEB_SEARCH + MEMORY
FORMAT_SENSITIVITY = "format_sensitivity"
SCORING = SINGLE_TURN + MULTI_TURN + AGENTIC
CATEGORIES = (*SCORING, FORMAT_SENSITIVITY)
RELEVANCE = ("irrelevance", "live_irrelevance", "live_relevance")
"""Judged by whether there is a call at all; they have no answers."""

GROUPS: Mapping[str, Sequence[str]] = {
    "non_live": NON_LIVE,
    "live": LIVE,
    "single_turn": SINGLE_TURN,
    "multi_turn": MULTI_TURN,
    "memory": MEMORY,
    "web_search": WEB_SEARCH,
    "agentic": AGENTIC,
}

Language = Literal["python", "java", "javascript"]


def language_of(category: str) -> Language:
    """What the calls of a category are written in."""
    if category == "simple_java":
        return "java"
    return "javascript" if category == "simple_javascript" else "python"
