"""Run tau2's environments in a limited process (`ace_ray.sandbox.replayed_environment`). Each
domain has one process. All environments of a domain share the databases in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.tau2.environment.sources import ToolSources, require_allowed
from ace_ray.errors import SandboxLost, UserError
from ace_ray.sandbox import replayed_environment
from ace_ray.sandbox.limited import LimitBroken, ProcessLost
from ace_ray.sandbox.protocol import Observation
from ace_ray.sandbox.replayed_environment import TRIES, Host, Op, host_of
from ace_ray.sandbox.tools import copy_arguments

_HANDLER = "ace_ray.benchmarks.tau2.environment.child:make"
_READS = frozenset(["equal", "changes"])
_OURS = "ours"


# The tools of each side in OpenAI's form.
Schemas = Mapping[str, list[dict[str, Any]]]
# A part of a task, as in upstream's file.
Part = Mapping[str, Any] | None


def _host(sources: ToolSources) -> Host:
    """Return the `Host` that runs a domain's tools. Raises `UserError` (`require_allowed`)."""
    key = (sources.domain, sources.sha256, sources.data_sha256, sources.is_trusted)
    names = ("tau2", *key, sources.release, sources.knowledge)
    return host_of(names, lambda: _new_host(sources))


def _new_host(sources: ToolSources) -> Host:
    require_allowed(sources)
    handler = _HANDLER + "_with_bm25" * ("bm25" in sources.knowledge)
    return Host(handler, lambda: [{"domain": _to_json(sources)}])


def _to_json(sources: ToolSources, *, data: bool = True) -> dict[str, Any]:
    """Return the sources, and the databases if ``data``, as the process reads them."""
    fields = {"release": sources.release, "knowledge": sources.knowledge}
    origin = {"where": sources.copy_name, "known": sources.is_published, "fields": fields}
    tree = {"domain": sources.domain, "texts": sources.source_texts(), **origin}
    return tree | ({"data": sources.database_texts()} if data else {})


def schemas(sources: ToolSources) -> Schemas:
    """Return the schemas of a domain's tools. Raises `UserError` if its classes do not load."""
    require_allowed(sources)
    host = host_of("tau2 schemas", lambda: Host(_HANDLER, list))
    failure: Exception | None = None
    for _ in range(TRIES):
        try:
            with host.lock:
                tools: Schemas = host.process().ask({"describe": _to_json(sources, data=False)})
            return tools
        except LimitBroken as error:
            raise _load_error("tool classes", sources, error) from error
        except ProcessLost as error:
            failure = error
    problem = f"the process that runs the tools does not start ({failure})"
    raise UserError(problem, where="data", fix="see its output above")


def _load_error(part: str, sources: ToolSources, error: Exception) -> UserError:
    problem = f"the {part} of {sources.domain} do not load: {error}"
    return UserError(problem, sources.copy_name, "name an unchanged copy of tau2 as data")


def check_domain(sources: ToolSources) -> None:
    """Load a domain's classes and databases once, in a separate process. Raises `UserError` if they
    do not load or must not run."""
    schemas(sources)
    host = _new_host(sources)
    try:
        host.process()
    except (LimitBroken, ProcessLost) as error:
        raise _load_error("databases", sources, error) from error
    finally:
        host.end()


class Attempt(replayed_environment.Attempt):
    """A group of environments of one domain that are created and dropped together."""

    def __init__(self, sources: ToolSources) -> None:
        super().__init__(_host(sources))

    def is_call(self, op: Op) -> bool:
        return bool(op[0] == "call")

    def is_state_change(self, op: Op) -> bool:
        return op[0] not in _READS

    def limit_answer(self, op: Op, error: LimitBroken) -> Any:
        if op[0] == "call":
            return [f"Error: {error}", True]
        if op[0] == "replay":
            answer = f"Error: {error}"
            return "" if op[5] == answer else f"{op[3]} answers {answer!r} now"
        if op[0] == "changes":
            return [{}, {}]
        raise SandboxLost(f"{op[0]} of an environment: {error}")


class TauEnvironment:
    """The environment of an episode, as a `Scenario`."""

    def __init__(
        self, sources: ToolSources, *, solo: bool, initial_state: Part, criteria: Part = None
    ) -> None:
        self._attempt = Attempt(sources)
        begin = initialization(initial_state, criteria)
        (problem,) = self._attempt.run_ops([("open", _OURS, solo, begin)])
        if problem:
            raise ValueError(f"the task's initial state cannot be set: {problem}")
        for call in calls_of_history(initial_state):
            self._attempt.run_ops([("replay", _OURS, *call, False)])
        self._attempt.run_ops([("sync", _OURS)])

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Call a tool. ``arguments`` has "requestor" (the side), "arguments" (of the tool)
        and "last" (whether it is the last call of its message). The observation has the answer as
        text, and the error "failed" if the tool raised."""
        try:
            args = copy_arguments(arguments["arguments"])
        except ValueError as error:
            return Observation(f"Error: {error}", "failed")
        op = ("call", _OURS, arguments["requestor"], name, args, arguments["last"])
        ((text, failed),) = self._attempt.run_ops([op])
        return Observation(text, "failed" if failed else "")

    def state(self) -> Any:
        """Return [before, after]: the records that differ from the shared databases."""
        (pair,) = self._attempt.run_ops([("changes", _OURS)])
        return pair


# A recorded call: requestor, tool name, arguments, answer.
Recorded = tuple[str, str, Mapping[str, Any], str]


def calls_of_history(initial_state: Part) -> list[Recorded]:
    """Return the calls in the message history of a task."""
    history = (initial_state or {}).get("message_history") or ()
    answers = {m.get("id", ""): m.get("content") or "" for m in history if m["role"] == "tool"}
    calls = [call for message in history for call in message.get("tool_calls") or ()]
    sides = [call.get("requestor", "assistant") for call in calls]
    return [
        (side, call["name"], call["arguments"], answers.get(call.get("id", ""), ""))
        for side, call in zip(sides, calls, strict=True)
    ]


def initialization(initial_state: Part, criteria: Part) -> dict[str, Any]:
    """Return what an environment needs of a task: a part of its initial state, and the names of the
    discoverable tools in its gold calls. banking_knowledge records reads only of these tools."""
    state, actions = initial_state or {}, (criteria or {}).get("actions") or ()
    calls = [a["arguments"] for a in actions if a["name"] == "call_discoverable_agent_tool"]
    reads = {"logged_reads": [call.get("agent_tool_name") for call in calls]} if calls else {}
    keys = ("initialization_data", "initialization_actions")
    return {k: state[k] for k in keys if k in state} | reads
