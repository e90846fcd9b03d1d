"""Read calls in Java and JavaScript with tree-sitter, within bounds.

The rules follow upstream's ``java_parser.py`` and ``js_parser.py`` (``model_handler/parser``). The
syntax tree depends on the versions of grammar and parser. Only versions with upstream's trees are
allowed. Argument values are source text. In Java, a string argument loses its quotes, an anonymous
class its body, and a compound expression its spaces. In JavaScript, a string loses its quotes."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

from ace_ray.benchmarks.bfcl.decode.calls import DecodedCall
from ace_ray.errors import UserError
from ace_ray.parsing.syntax import NotCalls

_QUOTED = ("string_literal", "character_literal")
_WHOLE = ("identifier", "class_literal", "type_identifier", "method_invocation")
_JAVA_BARE = ("identifier", "class_literal")
_JAVA_COMMENTS = ("line_comment", "block_comment")


def read_java(text: str) -> list[DecodedCall] | None:
    """Read the first call in Java source. Return a list with this call, or None without a call.
    Raises `NotCalls` where upstream's decoder raises."""
    root = source_tree(text, "java")
    try:
        call = next((node for node in _nodes(root) if node.type == "method_invocation"), None)
        return None if call is None else [_java_call(call, text)]
    except RecursionError:
        raise NotCalls("nested too deep") from None


def _nodes(root: Any) -> Iterator[Any]:
    """Yield all nodes of a tree, in the order of the source."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(node.children)


def _java_text(node: Any, source: str) -> str:
    # Offsets count bytes, but upstream uses them to index characters. After a character that is
    # not ASCII, the strings that it reads are therefore shifted.
    return source[node.start_byte : node.end_byte]


def _java_call(call: Any, source: str) -> DecodedCall:
    name = _java_text(call.child_by_field_name("name"), source)
    owner = call.child_by_field_name("object")
    if owner is not None:
        name = f"{_java_text(owner, source)}.{name}"
    return _to_call(
        name,
        call.child_by_field_name("arguments").children,
        partial(_java_text, source=source),
        partial(_java_value, source=source),
        bare=_JAVA_BARE,
        comments=_JAVA_COMMENTS,
    )


def _java_value(node: Any, source: str, *, inside: bool = False) -> str:
    kind = node.type
    if kind in _QUOTED:
        text = _java_text(node, source)
        return text if inside else text[1:-1]
    if kind in _WHOLE:
        return _java_text(node, source)
    if kind == "array_creation_expression":
        return f"new {_field_text(node, 'type', source)}[]{_field_text(node, 'value', source)}"
    if kind == "object_creation_expression":
        arguments = ", ".join(
            _java_value(child, source, inside=True)
            for child in node.child_by_field_name("arguments").children
            if child.type not in (",", "(", ")")
        )
        return f"new {_field_text(node, 'type', source)}({arguments})"
    if not node.children:
        return _java_text(node, source)
    return "".join([_java_value(child, source, inside=True) for child in node.children])


def _field_text(node: Any, field: str, source: str) -> str:
    part = node.child_by_field_name(field)
    if part is None:
        raise NotCalls(f"an array without its {field}")
    return _java_value(part, source, inside=True)


_JAVASCRIPT_BARE = ("identifier", "true")


def read_javascript(text: str) -> list[DecodedCall] | None:
    """Read the first call in JavaScript source that is a complete statement. Return a list with
    this call; None if no statement is a call.

    Raises `NotCalls` where upstream's decoder raises."""
    root = source_tree(text, "javascript")
    if root.type != "program":
        return None
    for statement in root.children:
        if statement.type == "expression_statement":
            for part in statement.children:
                if part.type == "call_expression":
                    return [_javascript_call(part)]
    return None


def _javascript_call(call: Any) -> DecodedCall:
    called, arguments = call.children[:2]
    return _to_call(
        _javascript_text(called),
        arguments.children,
        _javascript_text,
        _javascript_value,
        bare=_JAVASCRIPT_BARE,
        comments=("comment",),
    )


def _javascript_text(node: Any) -> str:
    return str(node.text.decode())


def _javascript_value(node: Any) -> str:
    text = _javascript_text(node)
    return text[1:-1] if text[:1] in ("'", '"') and text.endswith(text[:1]) else text


# Versions of the grammars that bfcl-eval pins. With tree-sitter-javascript 0.25.0, the verdicts on
# 163 of 5,000 JavaScript outputs with added noise differ.
GRAMMARS: Mapping[str, str] = {"java": "0.21.0", "javascript": "0.21.4"}
# Versions of tree-sitter that gave the same trees as version 0.21.3 on 358,891 texts with added
# noise. bfcl-eval pins 0.21.3, which has a different interface. Version 0.25 recovers from syntax
# errors differently.
PARSERS = ("0.22.", "0.23.", "0.24.")
# Maximum characters and tokens (words and signs) of a text; gold answers have fewer than 400
# characters. Text without a syntax error is parsed in milliseconds. After an error, time and memory
# can grow with the square of the tokens. They reach 0.3 s and 150 MiB within these bounds, and
# would reach 3.4 s and 1.8 GiB with 8,192 tokens (``+1[^`` repeated).
MAX_SOURCE, MAX_TOKENS = 8_192, 2_048
_TOKEN = re.compile(r"\w++|[^\w\s]")


def source_tree(text: str, language: Literal["java", "javascript"]) -> Any:
    """Return the root node of a text's syntax tree.

    Raises `NotCalls` if the text exceeds the bounds or does not parse; the parser tolerates some
    missing semicolons and brackets. Raises `UserError` if tree-sitter is not installed."""
    if len(text) > MAX_SOURCE:
        raise NotCalls(f"longer than {MAX_SOURCE} characters")
    if len(_TOKEN.findall(text)) > MAX_TOKENS:
        raise NotCalls(f"more than {MAX_TOKENS} words and signs")
    try:
        source = text.encode()
    except UnicodeEncodeError:
        raise NotCalls("a lone surrogate in the text") from None
    new_parser, grammar = load_grammar(language)
    root = new_parser(grammar).parse(source).root_node
    if root.has_error and any(node.type == "ERROR" for node in _nodes(root)):
        raise NotCalls(f"not valid {language}")
    return root


@functools.cache
def load_grammar(language: str) -> tuple[Any, Any]:
    """Return the parser class and a language's grammar. Raises `UserError` if upstream's version of
    the grammar is not installed."""
    package, version = f"tree-sitter-{language}", GRAMMARS[language]
    parser = f"{PARSERS[-1]}0"
    fix = (
        f"pip install --no-deps tree-sitter=={parser} {package}=={version}, "
        f"or leave out simple_{language}"
    )
    try:
        tree_sitter = importlib.import_module("tree_sitter")
        grammar = importlib.import_module(f"tree_sitter_{language}")
        installed = {name: importlib.metadata.version(name) for name in ("tree-sitter", package)}
    except ImportError as error:
        missing_name = (error.name or package).replace("_", "-")
        raise UserError(f"{missing_name} is not installed", where="bfcl", fix=fix) from None
    for name, pin, right in (
        ("tree-sitter", parser, installed["tree-sitter"].startswith(PARSERS)),
        (package, version, installed[package] == version),
    ):
        if not right:
            problem = f"{name} {installed[name]} is installed, but upstream's verdicts need {pin}"
            raise UserError(problem, where="bfcl", fix=fix)
    # In these versions ``language()`` returns an address, which tree-sitter accepts with a warning.
    return tree_sitter.Parser, tree_sitter.Language(grammar.language())


def _to_call(
    name: str,
    arguments: Any,
    text: Callable[[Any], str],
    value: Callable[[Any], str],
    *,
    bare: tuple[str, ...],
    comments: tuple[str, ...],
) -> DecodedCall:
    """Return a call of the function ``name``, whose ``arguments`` are nodes of a syntax tree.

    ``bare``: types of the nodes that upstream keeps as positional arguments. ``comments``: types of
    the nodes that are comments. Raises `NotCalls` for an argument name that is given twice."""
    args: dict[str | None, Any] = {}
    positional = {}
    index = count = 0
    for node in arguments:
        if node.type == "assignment_expression":
            left, _, right = node.children[:3]
            key = text(left)
            if key in args:
                raise NotCalls("a repeated argument")
            index += 1
            args[key] = value(right)
        elif node.is_named and node.type not in comments:
            positional[index] = partial(value, node)
            index += 1
            if node.type in bare:
                count += 1
                args.setdefault(None, text(node))
    return DecodedCall(name, args, positional, count)
