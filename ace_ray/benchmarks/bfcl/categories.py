"""Define BFCL's categories, their groups and languages, and the prompt forms.

Upstream defines them in ``category_mapping.py``, ``constants/default_prompts.py`` and
``model_handler/utils.py``. A prompt form is one way to document functions and to write calls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

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
# Categories that upstream no longer scores (its ``data/unused_datasets``).
CHATABLE, SQL, REST = "chatable", "sql", "rest"
EXEC = ("exec_simple", "exec_multiple", "exec_parallel", "exec_parallel_multiple")
COMPOSITE = "multi_turn_composite"
UNUSED = (SQL, REST, *EXEC, CHATABLE, COMPOSITE)
ALL_CATEGORIES = (*CATEGORIES, *UNUSED)
CONVERSATIONS = (*MULTI_TURN, COMPOSITE)
# Categories without gold answers. The verdict depends on whether the answer contains a call.
RELEVANCE = ("irrelevance", "live_irrelevance", "live_relevance", CHATABLE)

GROUPS: Mapping[str, Sequence[str]] = {
    "non_live": NON_LIVE,
    "live": LIVE,
    "single_turn": SINGLE_TURN,
    "multi_turn": MULTI_TURN,
    "memory": MEMORY,
    "web_search": WEB_SEARCH,
    "agentic": AGENTIC,
    "exec": EXEC,
    "unused": UNUSED,
}

Language = Literal["python", "java", "javascript"]


def language_of(category: str) -> Language:
    """Return the programming language of a category's calls."""
    if category == "simple_java":
        return "java"
    return "javascript" if category == "simple_javascript" else "python"


Returned = Literal["python", "json", "verbose_xml", "concise_xml"]
Documented = Literal["python", "xml", "json"]


@dataclass(frozen=True, slots=True)
class Form:
    """A prompt form: the format of calls, whether they are within ``<TOOLCALL>`` tags, the format
    of the functions' documentation, and the layout and style of the prompt."""

    returned: Returned = "python"
    tagged: bool = False
    documented: Documented = "json"
    layout: Literal["plaintext", "markdown"] = "plaintext"
    style: Literal["classic", "experimental"] = "classic"

    def __str__(self) -> str:
        """Return the form as upstream writes it in the ids of entries."""
        return (
            f"ret_fmt={self.returned}&tool_call_tag={self.tagged}&func_doc_fmt={self.documented}"
            f"&prompt_fmt={self.layout}&style={self.style}"
        )


DEFAULT = Form()
# The 26 forms of the format sensitivity category, in upstream's order.
FORMS = (
    *(
        Form(returned, tagged, documented)
        for returned in get_args(Returned)
        for tagged in (True, False)
        for documented in get_args(Documented)
    ),
    Form(layout="markdown"),
    Form(style="experimental"),
)

_BY_NAME = {str(form): form for form in FORMS}
_IN_ID = re.compile(r"format_sensitivity_\d+:([^:]*):([^:]*)")


def form_of(entry_id: str) -> Form:
    """Return the form in the id of a format sensitivity entry; `DEFAULT` for other entries. Raises
    `ValueError` for an unknown form."""
    match = _IN_ID.fullmatch(entry_id)
    if match is None:
        return DEFAULT
    if match[1] not in _BY_NAME:
        raise ValueError(f"{match[1]!r} is not a prompt format")
    return _BY_NAME[match[1]]


def original_id(entry_id: str) -> str:
    """Return the id of the entry that a format sensitivity entry repeats; other ids unchanged."""
    match = _IN_ID.fullmatch(entry_id)
    return entry_id if match is None else match[2]
