"""Binary operations in a call's values, which upstream runs through ``eval``.

Those on literals are folded. Most others only fail there, since the names that models use
(``base * height``) mean nothing in upstream's decoder; that much can be said without running them.
What is left would run code and is refused.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Any

from ace_ray.calls import Budget, NotCalls, Refused, fold

# Frames that Python's default recursion limit leaves the upstream decoder for writing an operation
# back as text, and what one level of that and of its own descent costs (measured on 3.11).
_FRAMES = 975
_FRAMES_PER_OPERATION = 3
_FRAMES_PER_VALUE = 2
# What means something there besides Python's own names: what upstream's module has, and the one
# name that its function has by then.
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
"""The names on which upstream's ``eval`` could do something; on others it raises."""


def operation(node: ast.BinOp, budget: Budget, depth: int) -> Any:
    """The value of an operation, ``depth`` levels within a call.

    Raises `NotCalls` where evaluating it would only raise, and `Refused` where it could run code
    or is too large.
    """
    frames = _FRAMES - depth * _FRAMES_PER_VALUE
    try:
        return fold(node, budget, frames // _FRAMES_PER_OPERATION)
    except Refused:
        name = next(_first_names(node), None)
        if name is not None and name not in KNOWN:
            raise NotCalls("a name in an operation that stands for nothing") from None
        raise


def _first_names(node: ast.expr) -> Iterator[str | None]:
    """The names of an operation in the order in which they are looked up, as far as that is plain.

    None comes in place of a part that may or may not be evaluated, or that does more than that.
    """
    pending: list[ast.expr] = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.BinOp):
            pending += [part.right, part.left]
        elif isinstance(part, ast.UnaryOp):
            pending.append(part.operand)
        elif isinstance(part, (ast.Attribute, ast.Starred)):
            pending.append(part.value)
        elif isinstance(part, ast.Subscript):
            pending += [part.slice, part.value]
        elif isinstance(part, ast.Call):
            pending.append(part.func)
        elif isinstance(part, (ast.List, ast.Tuple, ast.Set)):
            pending += reversed(part.elts)
        elif not isinstance(part, ast.Constant):
            yield None
