"""Answer requests in the limited process that runs tau2's tools (`ace_ray.sandbox.limited_child`).
Only the limited process runs the classes in a copy of tau2-bench."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
      "forget", run the operations (`op_*`) on this attempt's environments, return their results."""

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
            return [_OPERATIONS[op[0]](self, attempt, *op[1:]) for op in request["ops"]]

    def op_open(
        self, attempt: _Attempt, name: str, solo: bool, initial_state: Mapping[str, Any] | None
    ) -> str:
        """Create the environment ``name`` in a task's initial state; return an error, or ""."""
        assert self._domain is not None
        environment = attempt[name] = Environment(self._domain, solo)
        return _problem(lambda: environment.begin(initial_state)) or _problem(environment.sync)

    def op_call(
        self,
        attempt: _Attempt,
        name: str,
        requestor: str,
        tool: str,
        arguments: Mapping[str, Any],
        last: bool,
    ) -> list[Any]:
        """Make a call; return [answer, failed]. ``last``: the call is the last of its message."""
        environment = attempt[name]
        answer = environment.call(requestor, tool, arguments)
        if last:
            environment.sync()
        return list(answer)

    def op_sync(self, attempt: _Attempt, name: str) -> str:
        """Run `Environment.sync`, as upstream after a replay; return its error, or ""."""
        return _problem(attempt[name].sync)

    def op_replay(
        self, attempt: _Attempt, name: str, requestor: str, tool: str, arguments: Any, *record: Any
    ) -> str:
        """Make a recorded call again; return how its answer differs from the record, or ""."""
        return _problem(lambda: attempt[name].replay(requestor, tool, arguments, *record))

    def op_gold(self, attempt: _Attempt, name: str, actions: Sequence[Mapping[str, Any]]) -> int:
        """Make a task's gold calls, without `Environment.sync`. Return how many fail."""
        failed = 0
        for action in actions:
            try:
                requestor = action.get("requestor", "assistant")
                attempt[name].run(requestor, action["name"], action["arguments"])
            except Exception:  # noqa: BLE001 - upstream logs it
                failed += 1
        return failed

    def op_assert(self, attempt: _Attempt, name: str, assertion: Mapping[str, Any]) -> list[Any]:
        """Check an assertion. Return [whether it holds, error]; error is "" without a failure."""
        try:
            return [attempt[name].is_true(assertion), ""]
        except Exception as error:  # noqa: BLE001 - as `_problem`
            return [False, _line(error)]

    def op_equal(self, attempt: _Attempt, ours: str, theirs: str) -> list[bool]:
        """Return whether two environments are equal: by upstream's hashes, and by value."""
        environment, reference = attempt[ours], attempt[theirs]
        are_equal = environment.texts() == reference.texts()
        return [are_equal, are_equal or environment.same_values(reference)]

    def op_changes(self, attempt: _Attempt, name: str) -> list[Any]:
        """Return the records that differ from the initial databases (`Environment.changes`)."""
        return attempt[name].changes()


def _domain(tree: Mapping[str, Any]) -> Domain:
    fields = {"is_published": tree["known"], **tree["fields"]}
    return Domain.from_texts(tree["domain"], tree["texts"], tree["where"], **fields)


def _problem(step: Callable[[], object]) -> str:
    """Run ``step``; return its error as text, or ""."""
    try:
        step()
    except ReplayMismatch as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever the user's copy raises
        return _line(error)
    return ""


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    name.removeprefix("op_"): member for name, member in vars(Tools).items() if name[:3] == "op_"
}


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
