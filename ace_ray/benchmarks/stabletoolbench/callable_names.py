"""Names of query groups, tools, APIs, parameters and categories.

Published names become callable names by the rules of ``toolbench/utils.py`` and
``server/utils.py``, mistakes included: upstream's caches and answers use these names as keys.
"""

from __future__ import annotations

import re

BENCHMARK = "stabletoolbench"
# Groups in the order of upstream's tables.
#
# ``G1`` queries need one tool, ``G2`` several tools of one category, ``G3`` several tools of one
# collection. The second part says what ToolBench's training set does not contain: the queries
# (``instruction``), the tools (``tool``), or whole categories (``category``).
GROUPS = (
    "G1_instruction",
    "G1_category",
    "G1_tool",
    "G2_instruction",
    "G2_category",
    "G3_instruction",
)
LEVELS = {f"I{n}": tuple(name for name in GROUPS if name.startswith(f"G{n}")) for n in (1, 2, 3)}
MAX_NAME = 64
FINISH = "Finish"
# Values of the argument ``return_type`` of Finish.
GIVE_ANSWER, GIVE_UP = "give_answer", "give_up_and_restart"
# Name that replaces an unknown function in the chat.
HALLUCINATED = "invalid_hallucination_function_name"

# A mistake in upstream's pattern keeps the circumflex.
_OTHER = re.compile("[^\u4e00-\u9fa5a-zA-Z0-9_^]")
_RESERVED = frozenset(("from", "class", "return", "false", "true", "id", "and"))


def standardize(name: str) -> str:
    """Return a standard name: ``4chan Feed`` becomes ``get_4chan_feed``, ``/api/Tracking/`` becomes
    ``api_tracking``.

    Characters other than CJK, ASCII letters, digits, ``_`` and ``^`` become underscores. Repeated
    underscores become one. Underscores at the ends are dropped. The result may be empty."""
    name = re.sub("_+", "_", _OTHER.sub("_", name)).lower().strip("_")
    return f"get_{name}" if name[:1].isdigit() else name


def standardize_category(category: str) -> str:
    """Return a category's name: ``News, Media`` -> ``News_Media``. ``___`` becomes ``__``."""
    for char in " ,/":
        category = category.replace(char, "_")
    return category.replace("__", "_")


def api_name(name: str) -> str:
    """Return the standard name of an API or parameter; ``is_`` is put before reserved names."""
    standard = standardize(name)
    return f"is_{standard}" if standard in _RESERVED else standard


def function_name(api: str, tool: str) -> str:
    """Return the function name of an API: the last 64 characters of ``<api>_for_<tool>``."""
    return f"{api_name(api)}_for_{standardize(tool)}"[-MAX_NAME:]
