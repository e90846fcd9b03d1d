"""The ways in which a prompt describes functions and asks for calls (upstream
``constants/default_prompts.py`` and ``model_handler/utils.py``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

Returned = Literal["python", "json", "verbose_xml", "concise_xml"]
Documented = Literal["python", "xml", "json"]


@dataclass(frozen=True, slots=True)
class Form:
    """One form of prompt: how calls are to be returned, whether within ``<TOOLCALL>`` tags, how
    functions are documented, how the prompt is laid out, and in whose style."""

    returned: Returned = "python"
    tagged: bool = False
    documented: Documented = "json"
    layout: Literal["plaintext", "markdown"] = "plaintext"
    style: Literal["classic", "experimental"] = "classic"

    def __str__(self) -> str:
        """The form as upstream's ids spell it."""
        return (
            f"ret_fmt={self.returned}&tool_call_tag={self.tagged}&func_doc_fmt={self.documented}"
            f"&prompt_fmt={self.layout}&style={self.style}"
        )


DEFAULT = Form()
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
"""The 26 forms of the format sensitivity categories, in upstream's order."""

_BY_NAME = {str(form): form for form in FORMS}
_IN_ID = re.compile(r"format_sensitivity_\d+:([^:]*):([^:]*)")


def form_of(entry_id: str) -> Form:
    """The form that an entry's id names; `DEFAULT` for all but those of format sensitivity.

    Raises `ValueError` for a form that there is not."""
    match = _IN_ID.fullmatch(entry_id)
    if match is None:
        return DEFAULT
    if match[1] not in _BY_NAME:
        raise ValueError(f"{match[1]!r} is no form of prompt")
    return _BY_NAME[match[1]]


def asked_id(entry_id: str) -> str:
    """The id of the entry that is asked: of format sensitivity the original one."""
    match = _IN_ID.fullmatch(entry_id)
    return entry_id if match is None else match[2]
