"""Build the prompts of prompt mode, and the tools and messages of native mode.

The protocol is upstream's (``model_handler/utils.py``, ``utils.py``, ``base_handler.py``). The
texts are upstream's, from the user's copy of bfcl-eval, or ace_ray's (`texts`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from ace_ray.benchmarks.bfcl.categories import DEFAULT, Form, Language
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.data.upstream_texts import read_texts
from ace_ray.benchmarks.bfcl.functions import Function, add_hints, openai_tools, render_docs
from ace_ray.benchmarks.bfcl.texts import OWN, Texts, fill
from ace_ray.benchmarks.context import Model
from ace_ray.benchmarks.messages import Message, add_system, merge_system
from ace_ray.types import Completion, Sampling, digest


@dataclass(frozen=True)
class Prompts:
    """One set of prompts. Only scores with upstream's texts are comparable with the leaderboard."""

    source: Literal["official", "own"]
    texts: Texts

    @cached_property
    def sha256(self) -> str:
        """Return the hash of all prompt texts."""
        return digest(asdict(self.texts))

    def system(
        self,
        functions: Sequence[Function],
        form: Form = DEFAULT,
        language: Language = "python",
        hints: int = 1,
    ) -> str:
        """Return the system prompt of prompt mode.

        ``hints``: how often the hints about the programming language are added. Upstream adds hints
        twice in format sensitivity, and not at all to held-out functions."""
        for _ in range(hints):
            functions = add_hints(functions, language, self.texts.hints)
        style = self.texts.styles[form.style]
        call_format = style["tool_call_with_tag" if form.tagged else "tool_call_no_tag"]
        return fill(
            self.texts.layouts[form.layout],
            persona=style["persona"],
            task=style["task"],
            tool_call_format=fill(
                call_format,
                output_format=self.texts.outputs[form.returned],
                param_types=self.texts.types[form.returned],
            ),
            multiturn_behavior=style["multiturn_behavior"],
            available_tools=fill(
                style["available_tools"],
                format=form.documented,
                functions=render_docs(functions, form.documented),
            ),
        )

    def messages(
        self,
        question: Sequence[Message],
        functions: Sequence[Function],
        form: Form = DEFAULT,
        language: Language = "python",
        hints: int = 1,
    ) -> list[dict[str, Any]]:
        """Return the first messages of an episode in prompt mode, with the system prompt."""
        return add_system(self.system(functions, form, language, hints), question)

    def tools(
        self, functions: Sequence[Function], language: Language = "python", hints: int = 1
    ) -> list[dict[str, Any]]:
        """Return the functions as tools of native mode; if ``hints`` is 0, without hints."""
        return openai_tools(functions, language, self.texts.hints, hinted=bool(hints))

    def more_functions(self, functions: Sequence[Function] | None) -> str:
        """Return the user message that adds held-out functions. In native mode ``functions`` is
        None, because the functions are added to the tools."""
        if functions is None:
            return self.texts.more_functions
        return fill(self.texts.more_functions_prompt, functions=str(list(functions)))

    def memory(self, scenario: str, backend: str, content: str) -> str:
        """Return the system prompt that shows ``content``, the text of a memory. ``backend``: "kv",
        "vector" or "rec_sum"."""
        is_summary = backend == "rec_sum"
        return fill(
            self.texts.whole_memory if is_summary else self.texts.core_memory,
            scenario_setting=self.texts.settings[scenario],
            memory_content=content,
        )


def own_prompts() -> Prompts:
    """Return prompts with the texts that ace_ray wrote."""
    return Prompts("own", OWN)


def official_prompts(package: UpstreamPackage) -> Prompts:
    """Return bfcl-eval's prompts from the user's copy. Raises `UserError` if a text is missing."""
    return Prompts("official", read_texts(package))


class SystemlessModel:
    """Sends messages to a model through `merge_system`. Stored messages keep their roles.

    Upstream: ``convert_system_prompt_into_user_prompt``, ``combine_consecutive_user_prompts``."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        return await self._model.chat(merge_system(messages), sampling, tools)
