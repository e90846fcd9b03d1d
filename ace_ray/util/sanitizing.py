"""Make text from models and users safe for a terminal, a page or a spreadsheet."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ace_ray.util.secrets import mask_secrets

if TYPE_CHECKING:
    from rich.console import Console

# Escape sequences that move a cursor, colour text or rename a window.
_ESCAPES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?")
# Format characters reorder or hide text around them. Separators break lines.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
# Maximum characters of a spreadsheet's cell.
_LONGEST_CELL = 32_000
_FORMULA = ("=", "+", "-", "@", "\t")


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates by U+FFFD, so that ``text`` can be encoded as UTF-8. Models write
    lone surrogates as JSON escapes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def sanitize_text(text: str, longest: int = 2_000) -> str:
    """Return ``text`` without escape sequences and control characters, except line breaks and tabs.

    Characters that are invisible or reorder text become escapes like ``\\u202e``. The result has
    at most ``longest`` characters, followed by a note with the number of omitted characters."""
    result = _ESCAPES.sub("", text[:longest]).replace("\r\n", "\n")
    left_out = max(0, len(text) - longest)
    # Most texts are printable; this check runs in C.
    if not result.replace("\n", "").isprintable():
        result = "".join(map(_escape_hidden, result))
    left_out += max(0, len(result) - longest)
    return result[:longest] + (f" [{left_out} more characters]" if left_out else "")


def one_line(text: str, longest: int = 200) -> str:
    """Return ``text`` on one line with single spaces, cleaned and cut by `sanitize_text`."""
    return " ".join(sanitize_text(text, longest).split())


def sanitize_line(text: str, longest: int = 8_000) -> str:
    """Return a line for a terminal or a log, without control characters and secrets."""
    # Remove escape sequences first: a sequence before a secret could hide its beginning.
    return re.sub("[\n\t]", " ", sanitize_text(mask_secrets(_ESCAPES.sub("", text)), longest))


def print_line(console: Console, line: str) -> None:
    """Print ``line`` after `sanitize_line` has cleaned it. It may contain text from models or
    users."""
    console.print(sanitize_line(line), highlight=False, soft_wrap=True, markup=False, emoji=False)


def spreadsheet(text: str) -> str:
    """Return ``text`` as a CSV cell. If it looks like a formula, it gets a leading quote."""
    cell = sanitize_text(text, _LONGEST_CELL)
    return f"'{cell}" if cell.lstrip().startswith(_FORMULA) else cell


def _escape_hidden(sign: str) -> str:
    if unicodedata.category(sign) in _HIDDEN or sign in "\ufffe\uffff":  # the two are not in XML
        return sign if sign in "\n\t" else ascii(sign)[1:-1]
    return sign


def join_names(names: Iterable[str], limit: int = 2) -> str:
    """Join the first ``limit`` names, followed by the number of the remaining names."""
    names = list(names)
    if len(names) <= limit + 1:
        return ", ".join(names)
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"
