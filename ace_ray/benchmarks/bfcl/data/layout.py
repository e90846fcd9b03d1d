"""Which files of the ``bfcl-eval`` package are read, by their paths in it (upstream
``constants/eval_config.py`` and ``constants/executable_backend_config.py``)."""

from __future__ import annotations

from ace_ray.benchmarks.bfcl.categories import (
    MEMORY,
    MULTI_TURN,
    RELEVANCE,
    SINGLE_TURN,
    WEB_SEARCH,
)

SCENARIOS = ("student", "customer", "finance", "healthcare", "notetaker")
"""Of the memory categories, in upstream's order."""

FORMAT_IDS = "data/BFCL_v4_format_sensitivity.json"
PROMPT_SOURCE = "constants/default_prompts.py"
HINT_SOURCE = "utils.py"
NATIVE_SOURCE = "model_handler/utils.py"

DOC_FILES = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "MathAPI": "math_api.json",
    "MessageAPI": "message_api.json",
    "TwitterAPI": "posting_api.json",
    "TicketAPI": "ticket_api.json",
    "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json",
    "VehicleControlAPI": "vehicle_control.json",
    "WebSearchAPI": "web_search.json",
    "MemoryAPI_kv": "memory_kv.json",
    "MemoryAPI_vector": "memory_vector.json",
    "MemoryAPI_rec_sum": "memory_rec_sum.json",
}
"""The file with the functions' docs, by the class that has the functions."""
MINI_DOC_FILES = {
    "Bakery": "bakery.json",
    **{
        name: file
        for name, file in DOC_FILES.items()
        if name == "WebSearchAPI" or name.startswith("MemoryAPI_")
    },
}

_TOOLS = "eval_checker/multi_turn_eval/func_source_code"
TOOL_SOURCES = tuple(
    f"{_TOOLS}/{module}.py"
    for module in (
        "gorilla_file_system",
        "long_context",
        "math_api",
        "memory_api_metaclass",
        "memory_kv",
        "memory_rec_sum",
        "memory_vector",
        "message_api",
        "posting_api",
        "ticket_api",
        "trading_bot",
        "travel_booking",
        "vehicle_control",
        "web_search",
    )
)


def question_file(category: str) -> str:
    """The file with a category's questions; several categories may share one."""
    return f"data/BFCL_v4_{_published(category)}.json"


def answer_file(category: str) -> str | None:
    """The file with a category's answers, None where there are none."""
    if category in RELEVANCE:
        return None
    return f"data/possible_answer/BFCL_v4_{_published(category)}.json"


def doc_file(name: str) -> str:
    """The path of a file of functions' docs."""
    return f"data/multi_turn_func_doc/{name}"


def prerequisite_file(scenario: str) -> str:
    """The conversations that come before a memory scenario's questions."""
    return f"data/memory_prereq_conversation/memory_{scenario}.json"


def _published(category: str) -> str:
    """The name under which a category's questions are published."""
    if category in WEB_SEARCH:
        return "web_search"
    return "memory" if category in MEMORY else category


def data_files() -> tuple[str, ...]:
    """The files of questions, answers, docs and conversations."""
    files = [FORMAT_IDS]
    for category in (*SINGLE_TURN, *MULTI_TURN, WEB_SEARCH[0], MEMORY[0]):
        answers = answer_file(category)
        files += [question_file(category)] + ([answers] if answers else [])
    files += [prerequisite_file(scenario) for scenario in SCENARIOS]
    files += [doc_file(name) for name in DOC_FILES.values()]
    return tuple(files)


def all_files() -> tuple[str, ...]:
    """Every file that an import keeps."""
    return (*data_files(), PROMPT_SOURCE, HINT_SOURCE, NATIVE_SOURCE, *TOOL_SOURCES)
