"""Answer requests in the limited process that runs tau2's tools (`ace_ray.sandbox.limited_child`).
Only the limited process runs the classes in a copy of tau2-bench."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from ace_ray.benchmarks.tau2.environment.environment import Domain, Environment, ReplayMismatch
from ace_ray.sandbox.limited_child import call_limits

# Modules that calls import. They are imported early, since calls cannot open files.
_LATE = ("_strptime", "encodings.idna", "linecache", "locale", "operator", "typing_extensions")


# The environments of an attempt, by name.
_Attempt = dict[str, Environment]


class Tools:
    """Handler of three kinds of requests.

    - {"describe": sources}: return the tools' schemas. {"domain": sources}: load a domain.
    - {"attempt": number, "ops": [...], "forget": [number, ...]}: drop the attempts in
      "forget", run the operations on this attempt's environments, return their results.

    An operation has a kind, the name of an environment, and arguments (`_run`)."""

    def __init__(self) -> None:
        self._domain: Domain | None = None
        self._attempts: dict[int, _Attempt] = {}

    def __call__(self, request: Mapping[str, Any]) -> Any:
        if "describe" in request:
            return _domain(request["describe"]).schemas()
        if "domain" in request:
            self._domain = _domain(request["domain"])
            self._domain.load(request["domain"]["data"])
            return None
        for number in request["forget"]:
            self._attempts.pop(number, None)
        attempt = self._attempts.setdefault(request["attempt"], {})
        # If a batch breaks a limit, the parent sends its operations again one by one
        # (`call_limits`).
        with call_limits():
            return [self._run(attempt, *op) for op in request["ops"]]

    def _run(self, attempt: _Attempt, kind: str, name: str, *arguments: Any) -> Any:
        if kind == "open":  # create it in a task's initial state; return an error, or ""
            assert self._domain is not None
            solo, state = arguments
            opened = attempt[name] = Environment(self._domain, solo)
            return _problem(opened.begin, state) or _problem(opened.sync)
        environment = attempt[name]
        match kind, *arguments:
            case "call", *call, is_last:  # make a call; return [answer, failed]
                answer = environment.call(*call)
                if is_last:  # the last call of its message
                    environment.sync()
                return list(answer)
            case ("sync",):  # as upstream after a replay; return its error, or ""
                return _problem(environment.sync)
            case "replay", *record:  # make a recorded call; return how its answer differs, or ""
                return _problem(environment.replay, *record)
            case "gold", actions:  # make a task's gold calls, without `Environment.sync`
                for action in actions:
                    with suppress(Exception):  # upstream logs it
                        requestor = action.get("requestor", "assistant")
                        environment.run(requestor, action["name"], action["arguments"])
            case "assert", assertion:  # return [whether it holds, error or ""]
                try:
                    return [environment.is_true(assertion), ""]
                except Exception as error:  # noqa: BLE001 - as `_problem`
                    return [False, _line(error)]
            case "equal", other:  # by upstream's hashes, and by value
                are_equal = environment.texts() == attempt[other].texts()
                return [are_equal, are_equal or environment.same_values(attempt[other])]
            case ("changes",):  # the records that differ from the initial databases
                return environment.changes()
        return None


def _domain(tree: Mapping[str, Any]) -> Domain:
    fields = {"is_published": tree["known"], **tree["fields"]}
    return Domain.from_texts(tree["domain"], tree["texts"], tree["where"], **fields)


def _problem(step: Callable[..., object], *arguments: Any) -> str:
    """Run ``step``; return its error as text, or ""."""
    try:
        step(*arguments)
    except ReplayMismatch as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever the user's copy raises
        return _line(error)
    return ""


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def make() -> Tools:
    """Return the handler for `ace_ray.sandbox.limited_child.main`, with all modules imported."""
    for name in _LATE:
        import_module(name)
    _warm_up()
    return Tools()


def make_with_bm25() -> Tools:
    """Return the same handler, with the library that ranks documents imported."""
    import_module("rank_bm25")
    return make()


def _warm_up() -> None:
    """Use pydantic and the parser of docstrings once, so that they import all their modules."""
    from datetime import date, datetime
    from enum import Enum
    from typing import Annotated, Literal

    from docstring_parser import parse
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

    class Kind(str, Enum):  # noqa: UP042 - as upstream has them
        ONE = "one"

    class Part(BaseModel):
        model_config = ConfigDict(extra="forbid")
        kind: Kind = Kind.ONE
        day: date | None = None
        time: datetime | None = None
        word: Literal["a"] = "a"
        number: Annotated[float | int | str, Field(description="n")] = 0.5

    model = create_model("Whole", parts=(dict[str, list[Part]], Field(..., description="x")))
    instance = model.model_validate({"parts": {"a": [{"day": "2025-01-01", "time": "2025-01-01"}]}})
    instance.model_copy(deep=True).model_dump(mode="json")
    instance.model_dump_json()
    model.model_json_schema()
    parse('"""A.\n\nB.\n\nArgs:\n    a (int): b\n\nReturns:\n    c\n\nRaises:\n    E: d\n"""')
    try:
        Part.model_validate({"kind": "two", "more": 1})
    except ValidationError as error:
        str(error)
