"""Locate the user's copy of ``bfcl-eval``, and the files that ace_ray reads from the copy.

The paths are upstream's (``constants/eval_config.py``,
``constants/executable_backend_config.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ace_ray.benchmarks.bfcl.categories import (
    MEMORY,
    MULTI_TURN,
    RELEVANCE,
    REST,
    SINGLE_TURN,
    UNUSED,
    WEB_SEARCH,
)
from ace_ray.benchmarks.dataset import files_hash
from ace_ray.benchmarks.upstream_copy import Upstream, UpstreamCopy

# Scenarios of the memory categories, in upstream's order.
SCENARIOS = ("student", "customer", "finance", "healthcare", "notetaker")

FORMAT_IDS = "data/BFCL_v4_format_sensitivity.json"
PROMPT_SOURCE = "constants/default_prompts.py"
HINT_SOURCE = "utils.py"
NATIVE_SOURCE = "model_handler/utils.py"
_UNUSED_FOLDER = "data/unused_datasets"

_AGENTIC_DOC_FILES = {
    "WebSearchAPI": "web_search.json",
    "MemoryAPI_kv": "memory_kv.json",
    "MemoryAPI_vector": "memory_vector.json",
    "MemoryAPI_rec_sum": "memory_rec_sum.json",
}
# The file with the documentation of each class's functions.
DOC_FILES = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "MathAPI": "math_api.json",
    "MessageAPI": "message_api.json",
    "TwitterAPI": "posting_api.json",
    "TicketAPI": "ticket_api.json",
    "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json",
    "VehicleControlAPI": "vehicle_control.json",
    **_AGENTIC_DOC_FILES,
}
MINI_DOC_FILES = {"Bakery": "bakery.json", **_AGENTIC_DOC_FILES}

# The module of each class (upstream ``constants/executable_backend_config.py``).
TOOL_MODULES: Mapping[str, str] = {
    name: file.removesuffix(".json") for name, file in DOC_FILES.items() if name != "WebSearchAPI"
}
SHARED_TOOL_MODULES = ("long_context", "memory_api_metaclass")
TOOL_FOLDER = "eval_checker/multi_turn_eval/func_source_code"
TOOL_SOURCES = tuple(
    f"{TOOL_FOLDER}/{module}.py"
    for module in (*TOOL_MODULES.values(), *SHARED_TOOL_MODULES, "web_search")
)


def question_file(category: str) -> str:
    """Return the path of the file with a category's questions; categories may share a file."""
    if category in UNUSED:
        return f"{_UNUSED_FOLDER}/question/BFCL_v4_{category}.json"
    return f"data/BFCL_v4_{published_name(category)}.json"


def answer_file(category: str) -> str | None:
    """Return the path of the file with a category's answers, None for a category of `RELEVANCE`."""
    if category in RELEVANCE:
        return None
    if category == REST:  # its file of answers has the services' responses, not calls
        return (
            f"{_UNUSED_FOLDER}/executable_eval_sanity_check/api_status_check_ground_truth_rest.json"
        )
    if category in UNUSED:
        return f"{_UNUSED_FOLDER}/possible_answer/BFCL_v4_{category}.json"
    return f"data/possible_answer/BFCL_v4_{published_name(category)}.json"


def doc_file(name: str) -> str:
    """Return the path of a file with documentation of functions."""
    return f"data/multi_turn_func_doc/{name}"


def prerequisite_file(scenario: str) -> str:
    """Return the path of the file with the conversations that fill the memory of a scenario."""
    return f"data/memory_prereq_conversation/memory_{scenario}.json"


def published_name(category: str) -> str:
    """Return the name of a category in upstream's file names; categories may share a name."""
    if category in WEB_SEARCH:
        return "web_search"
    return "memory" if category in MEMORY else category


def data_files() -> tuple[str, ...]:
    """Return the paths of all files with questions, answers, docs and conversations."""
    files = [FORMAT_IDS]
    for category in (*SINGLE_TURN, *MULTI_TURN, WEB_SEARCH[0], MEMORY[0]):
        answers = answer_file(category)
        files += [question_file(category)] + ([answers] if answers else [])
    files += [prerequisite_file(scenario) for scenario in SCENARIOS]
    files += [doc_file(name) for name in DOC_FILES.values()]
    return tuple(files)


def all_files() -> tuple[str, ...]:
    """Return the paths of all files that an import copies."""
    paths = (path(category) for category in UNUSED for path in (question_file, answer_file))
    return (
        *data_files(),
        *filter(None, paths),
        PROMPT_SOURCE,
        HINT_SOURCE,
        NATIVE_SOURCE,
        *TOOL_SOURCES,
    )


VERSION = "2026.3.23"
# Value of `data_sha256` for `VERSION`.
OFFICIAL_DATA_SHA256 = "3124a2f9dffa71f8ca933a897702b6f0b87bdc5eafe14262ced1f57e530acacd"
MINI = Path(__file__).parents[1] / "mini"
UPSTREAM = Upstream(
    benchmark="bfcl",
    distribution="bfcl-eval",
    package="bfcl_eval",
    version=VERSION,
    mark="data/possible_answer",
    mini=MINI,
)


class UpstreamPackage(UpstreamCopy):
    """A copy of ``bfcl-eval``."""

    __slots__ = ()
    upstream = UPSTREAM

    def has_official_data(self) -> bool:
        return data_sha256(self) == OFFICIAL_DATA_SHA256


def data_sha256(package: UpstreamPackage) -> str:
    """Compute the SHA-256 (hex) of all data files. Raises `UserError` if a file is missing."""
    return files_hash({path: package.read(path) for path in data_files()})
