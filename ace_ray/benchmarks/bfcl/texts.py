"""Define the structure of a set of prompt texts, and the set of texts that ace_ray wrote.

ace_ray's texts request the information and formats of upstream's, in other words."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ace_ray.benchmarks.bfcl.categories import Language

# The parts of a style, and the fields of each part's template. The names are upstream's.
STYLE_FIELDS: Mapping[str, frozenset[str]] = {
    "persona": frozenset(),
    "task": frozenset(),
    "tool_call_no_tag": frozenset({"output_format", "param_types"}),
    "tool_call_with_tag": frozenset({"output_format", "param_types"}),
    "multiturn_behavior": frozenset(),
    "available_tools": frozenset({"format", "functions"}),
}
LAYOUT_FIELDS = frozenset(
    {"persona", "task", "tool_call_format", "multiturn_behavior", "available_tools"}
)
MEMORY_FIELDS = frozenset({"scenario_setting", "memory_content"})


@dataclass(frozen=True)
class Hints:
    """Texts that are added to the descriptions of functions and parameters.

    ``typed`` and ``items`` are templates with the field ``{type}``, ``properties`` with
    ``{schema}``. ``float_type`` is added in native mode, where a float has only the type "number".
    """

    language: Mapping[Language, str]
    any: Mapping[Language, str]
    typed: Mapping[Language, str]
    items: Mapping[Language, str]
    properties: str
    float_type: str


@dataclass(frozen=True)
class Texts:
    """One set of prompt texts. The keys of ``styles`` are values of `Form.style`, of ``layouts``
    values of `Form.layout`, and of ``outputs`` and ``types`` values of `Form.returned`.
    ``settings`` has a text for each memory scenario. ``agentic`` describes the format of answers in
    memory and web search."""

    styles: Mapping[str, Mapping[str, str]]
    layouts: Mapping[str, str]
    outputs: Mapping[str, str]
    types: Mapping[str, str]
    more_functions: str
    more_functions_prompt: str
    agentic: str
    settings: Mapping[str, str]
    core_memory: str
    whole_memory: str
    hints: Hints


def fill(template: str, /, **values: object) -> str:
    """Fill in the fields of a template. Raises `ValueError` unless all fields are plain names."""
    fields(template)
    return template.format(**values)


@lru_cache(maxsize=256)
def fields(template: str) -> frozenset[str]:
    """Return a template's field names. Raises `ValueError` unless all fields are plain names."""
    parts = list(string.Formatter().parse(template))
    for _, field, spec, conversion in parts:
        if spec or conversion or (field is not None and not field.isidentifier()):
            raise ValueError(f"the field {field!r} is not a plain name")
    return frozenset(field for _, field, _, _ in parts if field is not None)


OWN_HINTS = Hints(
    language={
        "python": " (Called with the syntax of Python 3.)",
        "java": " (Called with the syntax of Java 8.)",
        "javascript": " (Called with the syntax of JavaScript.)",
    },
    any={
        "java": " Write any Java object here, as its source text.",
        "javascript": " Write any JavaScript value here, as its source text.",
    },
    typed={
        "java": " Write a Java value of type {type} here, as its source text.",
        "javascript": " Write a JavaScript value of type {type} here, as its source text.",
    },
    items={
        "java": " Its elements are plain values of type {type}.",
        "javascript": " Its elements are plain values of type {type}.",
    },
    properties=" Its entries are plain values, described by this schema: {schema}",
    float_type=" (A number with a fraction.)",
)

_XML_TYPES = (
    "Each type attribute names one of these: string, integer, float, boolean, array, dict, tuple."
)

OWN = Texts(
    styles={
        "classic": {
            "persona": "You turn requests into calls of functions.",
            "task": (
                "Below are a request and the functions at hand. Make every call that the request"
                " needs. When no function fits the request, or the request leaves out a value that"
                " a function requires, say so instead of calling."
            ),
            "tool_call_no_tag": (
                "An answer that calls functions has exactly this form: {output_format}"
                "\n{param_types}\nNothing else may stand before or after the calls."
            ),
            "tool_call_with_tag": (
                "An answer that calls functions has exactly this form:"
                " <TOOLCALL>{output_format}</TOOLCALL>\n{param_types}\nThe calls stand between the"
                " two tags, and nothing else does."
            ),
            "multiturn_behavior": (
                "A request can take several rounds: you will be shown what your calls returned, and"
                " may then call again. Go on until the request is done, then answer without a call;"
                " that ends your turn."
            ),
            "available_tools": "The functions, written as {format}:\n{functions}\n",
        },
        "experimental": {
            "persona": "Your job is to write function calls.",
            "task": (
                "Read the request, choose among the functions, and write the calls that fulfil it."
                " Say so when none of them can, or when a required value is not given."
            ),
            "tool_call_no_tag": (
                "Write the calls, and only the calls, like this: {output_format}\n{param_types}"
            ),
            "tool_call_with_tag": (
                "Write the calls, and only the calls, between tags, like this:"
                " <TOOLCALL>{output_format}</TOOLCALL>\n{param_types}"
            ),
            "multiturn_behavior": (
                "Keep calling, round after round, while something remains to be done; an answer"
                " without calls hands over to the user."
            ),
            "available_tools": "What you can call, as {format}:\n{functions}\n",
        },
    },
    layouts={
        "plaintext": (
            "{persona} {task}\n\n{tool_call_format}\n\n{multiturn_behavior}\n\n{available_tools}"
        ),
        "markdown": (
            "# Role\n{persona}\n\n# What to do\n{task}\n\n# Form of the answer\n{tool_call_format}"
            "\n\n# Rounds\n{multiturn_behavior}\n\n# Functions\n{available_tools}"
        ),
    },
    outputs={
        "python": "[first_function(name=value, other_name=other_value), second_function()]",
        "json": (
            '```json\n[{"function": "first_function", "parameters": {"name": value,'
            ' "other_name": other_value}}, {"function": "second_function", "parameters": {}}]\n```'
        ),
        "verbose_xml": (
            '<functions><function name="first_function"><params>'
            '<param name="name" value="the value" type="its type"/></params></function>'
            '<function name="second_function"><params></params></function></functions>'
        ),
        "concise_xml": (
            '<functions><function name="first_function">'
            '<param name="name" type="its type">the value</param></function>'
            '<function name="second_function"></function></functions>'
        ),
    },
    types={"python": "", "json": "", "verbose_xml": _XML_TYPES, "concise_xml": _XML_TYPES},
    more_functions="Here are further functions. Please try again with them.",
    more_functions_prompt="{functions}\nHere are further functions. Please try again with them.",
    agentic=(
        "End with an answer of this form: {'answer': the answer in a few words, 'context': one or"
        " two sentences on where it comes from}. When you cannot find it out, write 'unknown' for"
        " both. When the question makes no sense, the answer is 'unanswerable' and the context says"
        " why."
    ),
    settings={
        "student": "You help a student with study and everyday life.",
        "customer": "You answer the customers of an online shop.",
        "finance": "You assist somebody who works in finance at a high position.",
        "healthcare": "You accompany a patient between visits to the doctor.",
        "notetaker": "You keep somebody's notes, dates and plans.",
    },
    core_memory=(
        "{scenario_setting}\n\nYou have a memory that outlasts this conversation. It has two"
        " parts. The core memory is small, and you always see it. The archival memory holds much"
        " more, and you see of it only what you look up with your functions. Write down whatever"
        " may be asked about in a later conversation, and keep it correct.\n\nYour core memory"
        " holds:\n{memory_content}\n"
    ),
    whole_memory=(
        "{scenario_setting}\n\nYou have a memory that outlasts this conversation: one text, which"
        " you always see and change with your functions. Write down whatever may be asked about in"
        " a later conversation, and keep it correct.\n\nYour memory holds:\n{memory_content}\n"
    ),
    hints=OWN_HINTS,
)
