"""Child process: upstream's tau2 over JSON lines from stdin, one answer line for each.

``python tau2_child.py PACKAGE_PARENT [SITE]``, started by `tau2_parity`, in an empty folder. SITE
is a folder with the packages that upstream needs; python -S then finds no others. In:
``{"do": what, ...}``, one of the methods of `Upstream`. Out: ``{"answer": value}`` or ``{"failed":
traceback}``. It imports upstream's code, and nothing of ace_ray.

Each request is answered in a fork, so that nothing is left of it, and on databases that were loaded
before. Two things of upstream's are made repeatable, as ours are: each environment has its own row
of ids in place of ``uuid4``, and its own copy of the details of a VPN, which are a default of the
class that a task's initial state changes for all later environments of the process.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import tomllib
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from bfcl_child import Anything
from official_child import stub

SOLO = "telecom_solo"
BANKING = "banking_knowledge"
DATABASES = (("airline", "FlightDB", "AIRLINE_DB_PATH"), ("retail", "RetailDB", "RETAIL_DB_PATH"))
"""The large ones."""
STAND_INS = (
    *("deepdiff", "dotenv", "fastapi", "loguru", "pandas", "redis", "tabulate", "uvicorn"),
    *("litellm", "litellm.main", "litellm.caching", "litellm.caching.caching"),
    *("audioop", "elevenlabs", "gymnasium", "openai", "pyaudio", "websockets"),
)
"""Modules that upstream imports and does not need here."""


class AddictDict(dict[str, Any]):
    """What upstream needs of ``addict.Dict``: mappings are merged, all else is replaced."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        super().__init__({k: AddictDict(v) if isinstance(v, dict) else v for k, v in value.items()})

    def update(self, changes: Mapping[str, Any]) -> None:  # type: ignore[override]
        for key, value in changes.items():
            child = self.get(key)
            if isinstance(child, AddictDict) and isinstance(value, dict):
                child.update(value)
            else:
                self[key] = value

    def to_dict(self) -> dict[str, Any]:
        return {k: v.to_dict() if isinstance(v, AddictDict) else v for k, v in self.items()}


class Loaded:
    """Databases of a class, loaded before they are asked for; each is given once."""

    def __init__(self, load: Callable[[str], Any], path: str, count: int) -> None:
        self._load = load
        self._ready = [load(path) for _ in range(count)]

    def __call__(self, path: str) -> Any:
        return self._ready.pop() if self._ready else self._load(path)


class Ids:
    """The ids that one environment draws."""

    current: Ids

    def __init__(self) -> None:
        self.drawn = 0

    @classmethod
    def uuid4(cls) -> SimpleNamespace:
        cls.current.drawn += 1
        return SimpleNamespace(hex=f"{cls.current.drawn:032x}"[::-1])


def _with_ids(ids: Ids, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)  # its name is in what Python says of arguments
    def called(*args: Any, **kwargs: Any) -> Any:
        Ids.current = ids
        return method(*args, **kwargs)

    return called


class Upstream:
    """What can be asked of upstream."""

    def __init__(self) -> None:
        self.messages = import_module("tau2.data_model.message")
        self.simulation = import_module("tau2.data_model.simulation")
        self.evaluator = import_module("tau2.evaluator.evaluator")
        self.agents = import_module("tau2.agent.llm_agent")
        self.users = import_module("tau2.user.user_simulator")
        self.orchestrator = import_module("tau2.orchestrator.orchestrator")
        llm = import_module("tau2.utils.llm_utils")
        self.registry = import_module("tau2.registry").registry
        for module, name, path in DATABASES:
            database: Any = getattr(import_module(f"tau2.domains.{module}.data_model"), name)
            location = getattr(import_module(f"tau2.domains.{module}.utils"), path)
            # An episode's load, and two of its evaluation.
            database.load = Loaded(database.load, location, 3)
        self.variant = "bm25_grep"
        self.banking: Any = None
        with suppress(ImportError):  # 1.0.1
            self.banking = import_module("tau2.domains.banking_knowledge.environment")
            documents = self.banking.get_knowledge_base()
            # Upstream takes files in the order of the disk.
            ordered = dict(sorted(documents.documents.items()))
            base = documents.model_copy(update={"documents": ordered})
            self.banking.get_knowledge_base = lambda: base
            judge: Any = import_module("tau2.evaluator.evaluator_nl_assertions")
            judge.generate = lambda **_: SimpleNamespace(content=json.dumps({"results": self.met}))
        self.met: list[dict[str, Any]] = []
        telecom: Any = import_module("tau2.domains.telecom.tools")
        telecom.uuid = Ids
        kit: Any = import_module("tau2.domains.telecom.user_tools").TelecomUserTools
        self.vpn = kit.default_vpn_details.model_copy(deep=True)
        self.domains = dict(self.registry._domains)
        for name, constructor in self.domains.items():
            self.registry._domains[name] = self._with_fresh_ids(constructor)
        vars(llm)["completion"] = self._completion
        vars(llm)["completion_cost"] = lambda **_: 0.0
        self.tasks = {name: _raw_tasks(name) for name in self.domains if "workflow" not in name}
        self.kind = import_module("tau2.data_model.tasks").Task
        self.turns: dict[str, deque[Any]] = {}
        self.last: dict[str, Any] = {}
        self.chats: dict[str, list[Any]] = {}

    def _with_fresh_ids(self, constructor: Callable[..., Any]) -> Callable[..., Any]:
        def construct(*args: Any, **kwargs: Any) -> Any:
            ids = Ids.current = Ids()
            environment = constructor(*args, **kwargs)
            for name in ("make_tool_call", "run_env_function_call"):
                setattr(environment, name, _with_ids(ids, getattr(environment, name)))
            if hasattr(environment.user_tools, "default_vpn_details"):
                environment.user_tools.default_vpn_details = self.vpn.model_copy(deep=True)
            return environment

        return construct

    def _task(self, category: str, task_id: str) -> Any:
        return self.kind.model_validate(self.tasks[_domain(category)][task_id])

    def _environment(self, category: str, task: Any = None) -> Any:
        constructor = self.registry.get_env_constructor(_domain(category))
        options = self._options(category, task)
        return constructor(solo_mode=True) if category == SOLO else constructor(**options)

    def _options(self, category: str, task: Any) -> dict[str, Any]:
        if category != BANKING:
            return {}
        build: Any = import_module("tau2.runner.build")
        reads = build._derive_read_log_allowlist(task)
        return {"retrieval_variant": self.variant, "read_log_allowlist": reads}

    def sequence(self, category: str, task: str, calls: list[Any]) -> dict[str, Any]:
        """Answers of calls in a task's initial state, and the databases' hashes behind them."""
        kind = self._task(category, task)
        environment = self._environment(category, kind)
        state = kind.initial_state
        begin = [
            getattr(state, name, None) for name in ("initialization_data", "initialization_actions")
        ]
        environment.set_state(*begin, [])
        answers = []
        for side, name, arguments in calls:
            call = self.messages.ToolCall(id="x", name=name, arguments=arguments, requestor=side)
            answer = environment.get_response(call)
            answers.append([answer.content, answer.error])
        hashes = [environment.get_db_hash(), environment.get_user_db_hash()]
        return {"answers": answers, "hashes": hashes}

    def prompts(self, category: str) -> dict[str, Any]:
        """Policy, greeting, tools, and both sides' system messages of all tasks of base."""
        environment = self._environment(category)
        splits = self.registry.get_task_splits_loader(_domain(category))
        tasks = self.tasks[_domain(category)]
        messages = {}
        for task_id in tasks if splits is None else splits()["base"]:
            task = self._task(category, task_id)
            agent = self._agent(category, environment, task)
            user = "" if category == SOLO else self._user(category, environment, task).system_prompt
            messages[task_id] = [agent.system_prompt, user]
        tools = {"assistant": [tool.openai_schema for tool in agent.tools]}
        if category != SOLO and environment.user_tools is not None:
            tools["user"] = [tool.openai_schema for tool in environment.get_user_tools()]
        greeting = self.orchestrator.DEFAULT_FIRST_AGENT_MESSAGE.content
        texts = [environment.get_policy(), greeting]
        return {"shown": texts, "tools": tools, "messages": sorted(messages.items())}

    def _agent(self, category: str, environment: Any, task: Any) -> Any:
        policy = environment.get_policy()
        if category != SOLO:
            return self.agents.LLMAgent(environment.get_tools(), policy, llm="agent")
        tools = environment.get_tools() + environment.get_user_tools()
        return self.agents.LLMSoloAgent(tools, policy, task=task, llm="agent")

    def _user(self, category: str, environment: Any, task: Any) -> Any:
        if category == SOLO and self.banking is not None:
            return self.users.DummyUser()
        kind = self.users.DummyUser if category == SOLO else self.users.UserSimulator
        names = getattr(task, "user_tools", None)
        tools = None
        if environment.user_tools is not None:
            tools = environment.get_user_tools(**({} if names is None else {"include": names}))
        return kind(tools=tools or None, instructions=str(task.user_scenario), llm="user")

    def evaluate(
        self, category: str, task: str, trajectory: list[Any], ended: str, met: Any = ()
    ) -> dict[str, Any]:
        """The reward of a conversation and its parts, or why upstream's evaluation fails. ``met``:
        the judge's answers on assertions in natural language."""
        self.met = [{"expectedOutcome": "", "reasoning": "", "metExpectation": m} for m in met]
        try:
            messages = [self._message(message) for message in trajectory]
            return self._reward(category, self._task(category, task), messages, ended)
        except Exception as error:  # noqa: BLE001  whatever it is, upstream's run ends there
            return {"crash": f"{type(error).__name__}: {str(error)[:200]}"}

    def _reward(self, category: str, task: Any, messages: list[Any], ending: str) -> dict[str, Any]:
        run = self.simulation.SimulationRun(
            id="x", task_id=task.id, start_time="", end_time="", duration=0.0,
            termination_reason=ending, messages=messages,
        )  # fmt: skip
        kind = self.evaluator.EvaluationType.ALL
        options = {"env_kwargs": self._options(category, task)} if category == BANKING else {}
        info = self.evaluator.evaluate_simulation(
            run, task, kind, solo_mode=category == SOLO, domain=_domain(category), **options
        )
        return {
            "reward": info.reward,
            "breakdown": {k.value: v for k, v in (info.reward_breakdown or {}).items()},
            "DB": None if info.db_check is None else info.db_check.db_match,
            "ENV_ASSERTION": [check.met for check in info.env_assertions or ()],
            "ACTION": [check.action_match for check in info.action_checks or ()],
            "COMMUNICATE": [check.met for check in info.communicate_checks or ()],
        }

    def _message(self, message: Mapping[str, Any]) -> Any:
        kind = getattr(self.messages, f"{message['role'].title()}Message")
        if message["role"] in ("tool", "system"):
            return kind(**message)
        calls = [
            self.messages.ToolCall(
                **{"requestor": message["role"], **call, "arguments": json.loads(call["arguments"])}
            )
            for call in message.get("tool_calls") or ()
        ]
        return kind(role=message["role"], content=message["content"], tool_calls=calls or None)

    def episode(
        self, category: str, task: str, turns: dict[str, Any], limits: list[int]
    ) -> dict[str, Any]:
        """A whole episode in upstream's loop, with scripted models, and its reward."""
        asked_task = self._task(category, task)
        environment = self._environment(category, asked_task)
        self.turns = {role: deque(lines) for role, lines in turns.items()}
        self.last = {role: lines[-1] for role, lines in turns.items()}
        self.chats = {"agent": [], "user": []}
        agent = self._agent(category, environment, asked_task)
        user = self._user(category, environment, asked_task)
        loop = self.orchestrator.Orchestrator(
            _domain(category), agent, user, environment, asked_task,
            max_steps=limits[0], max_errors=limits[1], solo_mode=category == SOLO,
        )  # fmt: skip
        result: dict[str, Any] = {"asked": self.chats}
        try:
            run = loop.run()
        except Exception as error:  # noqa: BLE001  the run of the task fails
            result["trajectory"] = [_plain(message) for message in loop.trajectory]
            result["crash"] = f"{type(error).__name__}: {str(error)[:200]}"
        else:
            result["trajectory"] = [_plain(message) for message in run.messages]
            ending = result["ended"] = run.termination_reason.value
            result["reward"] = self.evaluate(category, task, result["trajectory"], ending)
        return {**result, "steps": loop.step_count, "errors": loop.num_errors}

    def _completion(self, model: str, messages: list[Any], tools: Any, **_: Any) -> Any:
        """In place of ``litellm.completion``: the next turn of a script, its last one for ever."""
        self.chats[model].append(messages)
        turns = self.turns[model]
        turn = turns.popleft() if turns else self.last[model]
        calls = [SimpleNamespace(id=c["id"], function=SimpleNamespace(**c)) for c in turn["calls"]]
        reply = SimpleNamespace(role="assistant", content=turn["text"], tool_calls=calls)
        choice = SimpleNamespace(finish_reason="stop", message=reply, to_dict=dict)
        return SimpleNamespace(model=model, choices=[choice], get=lambda _: None, to_dict=dict)


def _raw_tasks(domain: str) -> dict[str, Any]:
    utils = import_module(f"tau2.domains.{domain}.utils")
    if domain == BANKING:
        files = sorted(utils.KNOWLEDGE_TASK_SET_PATH.glob("task_*.json"))
        trees = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        return {tree["id"]: tree for tree in trees}
    with open(getattr(utils, f"{domain.upper()}_TASK_SET_PATH"), encoding="utf-8") as file:
        return {task["id"]: task for task in json.load(file)}


def _domain(category: str) -> str:
    return "telecom" if category == SOLO else category


def _plain(message: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content or ""}
    if message.role == "tool":
        return fields | {"id": message.id, "requestor": message.requestor, "error": message.error}
    if message.tool_calls is not None:
        fields["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)}
            for call in message.tool_calls
        ]
    return fields


def main(parent: str, *site: str) -> None:
    # Behind what PYTHON has: the folder may be a whole site-packages.
    sys.path += [*site, parent]
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # upstream prints
    stubs: dict[str, Any] = {
        "addict": {"Dict": AddictDict},
        "toml": {"load": lambda file: tomllib.loads(file.read())},
        "loguru": {"logger": Anything()},
    }
    modules = (*STAND_INS, "addict", "toml")
    for name in [n for n in modules if importlib.util.find_spec(n.partition(".")[0]) is None]:
        stub(name, **{"__getattr__": lambda name: Anything, **stubs.get(name, {})})
    import_module("loguru").logger.remove()
    upstream = Upstream()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            continue
        request = json.loads(line)
        try:
            answer = {"answer": getattr(upstream, request.pop("do"))(**request)}
        except Exception:  # noqa: BLE001  shown where the request came from
            answer = {"failed": traceback.format_exc()[-4000:]}
        print(json.dumps(answer), file=answers, flush=True)
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
