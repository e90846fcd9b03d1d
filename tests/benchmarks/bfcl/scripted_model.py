"""A model that answers as a script says, and the mini set's tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.data.loader import function_docs
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.tools.sources import tool_sources
from ace_ray.types import Completion, Sampling, ToolAnswer

COPY = UpstreamPackage.locate("mini")


DOCS = function_docs(COPY)


SOURCES = tool_sources(COPY)


Said = str | Completion | Exception


class Script:
    """A model that says what is written down, and keeps what it was sent."""

    def __init__(self, said: Sequence[Said], late: Callable[[], Any] | None = None) -> None:
        self.said, self.late = list(said), late
        self.sent: list[list[dict[str, Any]]] = []
        self.tools: list[Any] = []

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        self.sent.append(json.loads(json.dumps(list(messages))))
        self.tools.append(tools)
        said = self.said.pop(0) if self.said else "That is all."
        if isinstance(said, Exception):
            raise said
        if said == "(hangs)":
            await asyncio.sleep(60)
        if isinstance(said, Completion):
            return said
        return Completion(said, prompt_tokens=10, completion_tokens=2)


def said(text: str) -> Completion:
    return Completion(text, tools=ToolAnswer(text))
