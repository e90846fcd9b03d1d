"""What the apps say: answer texts of the world file, and our own for answers it does not have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_FIELD = re.compile(r"\{([^{}]*)\}")


def fill(template: str, values: Mapping[str, Any]) -> str:
    """``template`` with each ``{field}`` that ``values`` has as its ``str()``, in one pass.

    Values are never looked into, so braces in a model's words stay words.
    """
    return _FIELD.sub(lambda m: str(values[m[1]]) if m[1] in values else m[0], template)


class Texts:
    """The answer texts of one class in one language.

    Args:
        methods: the world file's ``methods`` of the class.
        names: per method what its texts are called here, in the file's order.
        own: answers that the file has no text for, by name.
    """

    def __init__(
        self,
        methods: Mapping[str, Any],
        names: Mapping[str, Sequence[str]],
        own: Mapping[str, str],
    ) -> None:
        self._own = own
        self._texts = {
            method: dict(zip(names[method], methods[method]["texts"], strict=True))
            for method in names
            if method in methods
        }

    def of(self, method: str, name: str, values: Mapping[str, Any] | None = None) -> str:
        """The text ``name`` of ``method``, filled."""
        return fill(self._texts[method][name], values or {})

    def own(self, name: str, values: Mapping[str, Any] | None = None) -> str:
        return fill(self._own[name], values or {})
