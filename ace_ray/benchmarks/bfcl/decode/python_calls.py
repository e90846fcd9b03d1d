"""Calls written in Python, as upstream's decoder reads them (``model_handler/utils.py``).

It is lenient: names become texts (``true`` is "true"), every sign negates, positional arguments
vanish, a call as a value becomes an object or, without keywords, its source. Binary operations it
runs through ``eval``. Here those on literals are folded. Most others only fail there, since the
names that models use (``base * height``) mean nothing in upstream's decoder; that much can be said
without running them. The others would run code and are refused.

An argument that a keyword of Python names (``flight_book(from="Seattle")``) does not parse, so
upstream's decoder finds no call. Under ``strict`` it is a call.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from functools import partial
from typing import Any

from ace_ray.benchmarks.bfcl.decode.calls import Read
from ace_ray.parsing.literals import LenientReader
from ace_ray.parsing.syntax import NotCalls, expression


def read_python(text: str) -> list[Read]:
    """Read a call, or a list, tuple or set of calls.

    Raises `NotCalls` where upstream's decoder raises, and `Refused` on an operation that is not
    folded, whichever comes first in its order of evaluation.
    """
    return _calls(expression(text))


def read_python_with_keywords(text: str) -> list[Read]:
    """Read the calls of a text in which a keyword of Python names an argument.

    Raises `NotCalls` for any other text, too."""
    marked = marked_names(text)
    if marked is None:
        raise NotCalls("no argument is named by a keyword")
    return _calls(marked_expression(marked))


def _calls(tree: ast.expr) -> list[Read]:
    reader = LenientReader(KNOWN.__contains__, bare_as_source=True)
    try:
        if isinstance(tree, ast.Call):
            return [_call(tree, reader)]
        if not isinstance(tree, (ast.List, ast.Tuple, ast.Set)):
            raise NotCalls(f"{type(tree).__name__} in place of a list")
        return [_call(item, reader) for item in tree.elts]
    except RecursionError:
        raise NotCalls("nested too deep") from None


def _call(node: ast.expr, reader: LenientReader) -> Read:
    if not isinstance(node, ast.Call):
        raise NotCalls(f"{type(node).__name__} in place of a call")
    name, args = reader.call(node)
    positional = {n: partial(_positional, item) for n, item in enumerate(node.args)}
    seen: set[str | None] = set()
    repeated = None
    for argument in node.keywords:
        if argument.arg in seen:
            repeated = argument.arg
        seen.add(argument.arg)
    return Read(name, args, positional, repeated=repeated)


def _positional(node: ast.expr) -> Any:
    # With a budget of its own: what was read may be kept, and be asked for several times.
    return LenientReader(KNOWN.__contains__, bare_as_source=True).value(node)


_MARK = "ꔀ"
"""A letter, which makes a keyword a name. No text that holds it is read this way."""
# String literals and comments are passed over as a whole. A keyword before a single `=` occurs
# nowhere else in an expression.
_TOKENS = re.compile(
    r"'''(?:[^'\\]++|\\.|'(?!''))*+(?:''')?+"
    r'|"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?+'
    r"|'(?:[^'\\\n]++|\\.)*+'?+"
    r'|"(?:[^"\\\n]++|\\.)*+"?+'
    r"|#[^\n]*+"
    rf"|\b({'|'.join(keyword.kwlist)})\b(?=\s*+=(?!=))",
    re.DOTALL,
)


def marked_names(text: str) -> str | None:
    """Mark keywords that name arguments, so that Python parses them; None without any."""
    if _MARK in text:
        return None
    marked = _TOKENS.sub(lambda token: token[0] + _MARK if token[1] else token[0], text)
    return None if marked == text else marked


def marked_expression(text: str) -> ast.expr:
    """Parse a text from `marked_names`, and restore the names in the tree.

    Raises `NotCalls` as `expression` does."""
    tree = expression(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is not None:
            node.arg = node.arg.removesuffix(_MARK)
        elif isinstance(node, ast.arg):
            raise NotCalls("a parameter named by a keyword")
    return tree


# Names with a value in upstream's `eval` besides the builtins: the names of upstream's module, and
# the one local name of its function.
_NAMES = frozenset([
    "ADDITIONAL_SYSTEM_PROMPT_FOR_AGENTIC_RESPONSE_FORMAT", "AGENTIC_CATEGORY",
    "ALL_AVAILABLE_MEMORY_BACKENDS", "ALL_CATEGORIES", "ALL_SCORING_CATEGORIES", "Callable",
    "DEFAULT_SYSTEM_PROMPT_FORMAT", "DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC",
    "DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING", "DOTENV_PATH",
    "FORMAT_SENSITIVITY_IDS_PATH", "FileLock", "GORILLA_TO_OPENAPI", "H100_X8_PRICE_PER_HOUR",
    "LIVE_CATEGORY", "LOCAL_SERVER_MAX_CONCURRENT_REQUEST", "LOCAL_SERVER_PORT", "LOCK_DIR", "List",
    "Lock", "MAXIMUM_STEP_LIMIT", "MEMORY_AGENT_SETTINGS",
    "MEMORY_BACKEND_INSTRUCTION_CORE_ARCHIVAL", "MEMORY_BACKEND_INSTRUCTION_UNIFIED",
    "MEMORY_CATEGORY", "MEMORY_PREREQ_CONVERSATION_PATH", "MEMORY_SCENARIO_NAME",
    "MULTI_TURN_CATEGORY", "MULTI_TURN_FUNC_DOC_FILE_MAPPING", "MULTI_TURN_FUNC_DOC_PATH",
    "ModelStyle", "NON_LIVE_CATEGORY", "NON_SCORING_CATEGORY", "OUTPUT_FORMAT_MAPPING", "Optional",
    "PACKAGE_ROOT", "PARAM_TYPE_MAPPING", "POSSIBLE_ANSWER_PATH", "PROJECT_ROOT", "PROMPT_PATH",
    "PROMPT_STYLE_TEMPLATES", "PROMPT_TEMPLATE_MAPPING", "Path", "RED_FONT", "RESET",
    "RESULT_FILE_PATTERN", "RESULT_PATH", "ReturnFormat", "SCORE_PATH", "SINGLE_TURN_CATEGORY",
    "TEST_COLLECTION_MAPPING", "TEST_IDS_TO_GENERATE_PATH", "TYPE_CHECKING", "Type", "UTILS_PATH",
    "Union", "VERSION_PREFIX", "WEB_SEARCH_CATEGORY", "__builtins__", "__cached__", "__file__",
    "_cast_to_openai_type", "_generate_function_doc_python", "_generate_function_doc_xml",
    "add_language_specific_hint_to_function_doc", "add_memory_instruction_system_prompt", "ast",
    "ast_parse", "builtins", "clean_up_memory_prereq_entries", "combine_consecutive_user_prompts",
    "contain_multi_turn_interaction", "contain_multi_turn_irrelevance",
    "convert_system_prompt_into_user_prompt", "convert_to_function_call", "convert_to_tool",
    "convert_value", "copy", "decoded_output_to_execution_list", "deepcopy",
    "default_decode_ast_prompting", "default_decode_execute_prompting", "extract_last_user_message",
    "extract_memory_backend_type", "extract_prompt_format_from_id", "extract_system_prompt",
    "extract_test_category", "extract_test_category_from_id", "filter_entries_by_id",
    "find_file_by_category", "format_execution_results_prompting", "format_function_doc",
    "formulate_system_prompt", "get_all_format_sensitivity_configs",
    "get_directory_structure_by_category", "get_directory_structure_by_id",
    "get_file_name_by_category", "get_general_grouping", "get_sub_grouping", "hashlib",
    "is_agentic", "is_chatable", "is_empty_output", "is_executable", "is_executable_format_output",
    "is_first_memory_prereq_entry", "is_format_sensitivity", "is_function_calling_format_output",
    "is_java", "is_js", "is_live", "is_memory", "is_memory_prereq", "is_multi_turn", "is_non_live",
    "is_relevance_or_irrelevance", "is_rest", "is_sql", "is_web_search", "json",
    "load_dataset_entry", "load_file", "load_format_sensitivity_ground_truth_entry",
    "load_format_sensitivity_test_cases", "load_ground_truth_entry",
    "load_test_entries_from_id_file", "make_json_serializable", "operator", "os",
    "parse_concise_xml_function_call", "parse_java_function_call", "parse_javascript_function_call",
    "parse_json_function_call", "parse_nested_value", "parse_prompt_variation_params",
    "parse_test_category_argument", "parse_verbose_xml_function_call",
    "populate_initial_settings_for_memory_test_cases",
    "populate_initial_settings_for_web_search_test_cases",
    "populate_test_cases_with_predefined_functions", "process_agentic_test_case",
    "process_memory_test_case", "process_web_search_test_case", "re", "reduce",
    "resolve_ast_by_type", "resolve_ast_call", "retry", "retry_if_exception_message",
    "retry_if_exception_type", "retry_with_backoff", "sort_file_content_by_id", "sort_key",
    "system_prompt_pre_processing_chat_model", "value", "wait_random_exponential",
    "write_list_of_dicts_to_file",
])  # fmt: skip
KNOWN = _NAMES | frozenset(dir(builtins))
"""All names with a value in upstream's ``eval``. On other names it raises."""
