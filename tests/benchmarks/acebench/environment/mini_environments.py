"""Environments of the mini set for the tests, and what their apps say."""

import copy
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ace_ray.benchmarks.acebench.data.loader import MINI
from ace_ray.benchmarks.acebench.environment import environment
from ace_ray.types import Entry

ON = {"BaseApi": {"wifi": True, "logged_in": True}}


@cache
def mini() -> dict[str, Any]:
    return environment.load_app_specs(MINI)


def agent_entry(
    classes: Sequence[str],
    config: Mapping[str, Any],
    loop: str = "multi_turn",
    language: str = "en",
) -> Entry:
    data = {"involved_classes": list(classes), "initial_config": config}
    return Entry("acebench", f"agent_{loop}", language, "one", data)


def initial(app: str, attribute: str, language: str = "en") -> Any:
    return copy.deepcopy(mini()["multi_turn"][language][app]["state"][attribute])


def start(
    *classes: str,
    language: str = "en",
    config: Mapping[str, Any] = ON,
    methods: Mapping[str, Any] | None = None,
    **state: Any,
) -> environment.Environment:
    """Open an environment; ``methods`` and ``state`` change the first class."""
    app_specs = copy.deepcopy(mini())
    described = app_specs["multi_turn"][language][classes[0]]
    described["state"].update(state)
    described["methods"].update(methods or {})
    return environment.open_environment(app_specs, agent_entry(classes, config, language=language))


class Sandbox:
    """An environment, with the texts and the state of its first app. Calls must be answered."""

    def __init__(self, *apps: str, language: str = "en", **options: Any) -> None:
        self.environment = start(*apps, language=language, **options)
        self._app, self._methods = apps[0], mini()["multi_turn"][language][apps[0]]["methods"]

    def __call__(self, tool: str, /, **arguments: Any) -> Any:
        observation = self.environment.call(tool, arguments)
        assert observation.error == "", observation
        return observation.value

    def failed(self, tool: str, /, **arguments: Any) -> str:
        """Return the error text of a call that must raise in the tool."""
        observation = self.environment.call(tool, arguments)
        assert observation.error == "failed", observation
        return str(observation.value)

    @property
    def state(self) -> dict[str, Any]:
        return next(app[self._app] for app in self.environment.state() if self._app in app)

    def text(self, tool: str, number: int, **values: Any) -> str:
        """Return a text of the app specification, with its placeholders replaced one by one."""
        text: str = self._methods[tool]["texts"][number]
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        return text

    def no(self, tool: str, number: int, **values: Any) -> dict[str, Any]:
        return {"status": False, "message": self.text(tool, number, **values)}

    def yes(self, tool: str, number: int, **values: Any) -> dict[str, Any]:
        return {"status": True, "message": self.text(tool, number, **values)}
