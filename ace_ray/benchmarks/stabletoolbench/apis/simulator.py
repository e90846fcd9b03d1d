"""An API played by a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.stabletoolbench.apis.answers import Answered, ApiLike
from ace_ray.benchmarks.stabletoolbench.apis.prompts import Form, SystemText, messages
from ace_ray.benchmarks.stabletoolbench.apis.reading import read_answer
from ace_ray.errors import PromptRefused, PromptTooLong
from ace_ray.records import Sampling, digest

ATTEMPTS = 3
RETRY_TEMPERATURE = 0.5
"""At temperature 0 another seed would only repeat the answer that could not be used."""
SAMPLING = Sampling(temperature=0.1, max_tokens=1024, seed=42)
"""How answers are drawn unless the config says otherwise."""
MIRROR_TOKENS = 2048
"""What MirrorAPI's own servers let it write, with the same temperature and seed."""
FAILED = "The API server failed to answer."


class Simulator:
    """Asks a model for an API's answer, up to `ATTEMPTS` times.

    Raises what the model does, except that a prompt it cannot take is a failure of this call: the
    agent's own arguments are part of that prompt.
    """

    def __init__(self, model: RoleModel, form: Form, system: SystemText) -> None:
        self._model, self._form, self._system = model, form, system
        self.model_calls = 0

    @property
    def takes_examples(self) -> bool:
        """Whether the prompt shows earlier answers."""
        return self._form == "own"

    def identity(self) -> dict[str, Any]:
        """What can move an answer, for the manifest."""
        return simulator_identity(self._model, self._form, self._system)

    @property
    def maker(self) -> str:
        """Names this simulator on the answers that it made."""
        return digest(self.identity())[:16]

    async def answer(
        self,
        api: ApiLike,
        arguments: Mapping[str, Any],
        examples: Sequence[tuple[str, str]] = (),
    ) -> Answered:
        """The model's answer; a declared failure when no attempt gave one in JSON."""
        failure = "simulator"
        for attempt in range(ATTEMPTS):
            chat = messages(self._form, self._system, api, arguments, examples)
            self.model_calls += 1
            try:
                said = await self._model.ask(chat, self._drawn(attempt))
            except (PromptTooLong, PromptRefused):
                failure = "prompt"
                if not examples:
                    break
                examples = ()
                continue
            failure = "simulator"
            found = read_answer(said.text, loose=self._form != "own")
            if found is not None:
                # What is stored, and read by a second run, is what this one goes on with.
                error, response = json.loads(json.dumps(found))
                return Answered(error, response, "simulator", origin="simulator")
        return Answered(FAILED, "", "simulator", failure=failure)

    def _drawn(self, attempt: int) -> Sampling:
        sampling = self._model.sampling
        if attempt == 0:
            return sampling
        temperature = sampling.temperature or RETRY_TEMPERATURE
        return replace(sampling, seed=sampling.seed + attempt, temperature=temperature)


def simulator_identity(model: RoleModel, form: Form, system: SystemText) -> dict[str, Any]:
    """Model, sampling, form and prompt of a simulator, as JSON values."""
    sampling = model.sampling
    return {
        **model.identity,
        "form": form,
        "system": {"source": system.source, "sha256": digest(system.text)},
        "temperature": sampling.temperature,
        "seed": sampling.seed,
        "attempts": ATTEMPTS,
        "retry_temperature": sampling.temperature or RETRY_TEMPERATURE,
    }
