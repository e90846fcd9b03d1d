"""Read tasks as entries, and read the policies that agents follow.

Tasks have the form of upstream's files (``data_model/tasks.py``); every key is checked."""

from __future__ import annotations

import json
import re
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from textwrap import indent
from typing import Any, Literal

from pydantic import Field

from ace_ray.benchmarks.dataset import (
    DATA_LIMIT_BYTES,
    PartialModel,
    is_texts,
    json_value,
    parse_tree,
)
from ace_ray.benchmarks.tau2.options import BANKING, CATEGORIES, KNOWLEDGE, Category
from ace_ray.benchmarks.tau2.upstream_package import (
    DATABASES,
    STOP,
    UPSTREAM,
    UpstreamPackage,
    domain_file,
    of_domain,
    read_text,
)
from ace_ray.errors import UserError
from ace_ray.sandbox.protocol import Scenario
from ace_ray.types import Entry, Episode
from ace_ray.util.suggestions import did_you_mean

_FIX = "use an unmodified copy of the data"
Side = Literal["user", "assistant"]
# A model judges "NL_ASSERTION", which only tasks of 1.0.1 have.
Basis = Literal["DB", "ENV_ASSERTION", "ACTION", "COMMUNICATE", "NL_ASSERTION"]


class Instructions(PartialModel):
    domain: str
    reason_for_call: str
    known_info: str | None = None
    unknown_info: str | None = None
    task_instructions: str

    def text(self) -> str:
        parts = {
            "Reason for call": self.reason_for_call,
            "Known info": self.known_info,
            "Unknown info": self.unknown_info,
            "Task instructions": self.task_instructions,
        }
        lines = [
            f"{name}:\n{indent(text, chr(9))}" for name, text in parts.items() if text is not None
        ]
        return "\n".join([f"Domain: {self.domain}", *lines])


class UserScenario(PartialModel):
    persona: str | None = None
    instructions: Instructions | str

    def text(self) -> str:
        """Return the text for the user simulator."""
        instructions = self.instructions
        lines = [] if self.persona is None else ["Persona:", indent(self.persona, "\t")]
        instructions = instructions if isinstance(instructions, str) else instructions.text()
        return "\n".join([*lines, "Instructions:", indent(instructions, "\t")])


class Action(PartialModel):
    action_id: str
    requestor: Side = "assistant"
    name: str
    arguments: dict[str, Any]
    info: str | None = None
    compare_args: list[str] | None = None


class EnvCall(PartialModel):
    env_type: Side
    func_name: str
    arguments: dict[str, Any]


class EnvAssertion(EnvCall):
    assert_value: bool = True
    message: str | None = None


class Criteria(PartialModel):
    actions: list[Action] | None = None
    env_assertions: list[EnvAssertion] | None = None
    communicate_info: list[str] | None = None
    nl_assertions: list[str] | None = None
    reward_basis: list[Basis] = Field(["DB", "COMMUNICATE"], min_length=1)


class InitializationData(PartialModel):
    agent_data: dict[str, Any] | None = None
    user_data: dict[str, Any] | None = None


class ToolCall(PartialModel):
    id: str = ""
    name: str
    arguments: dict[str, Any]
    requestor: Side = "assistant"


class Message(PartialModel):
    role: Literal["user", "assistant", "tool", "system"]
    content: str | None = None
    tool_calls: list[ToolCall] | None = None
    id: str = ""
    requestor: Side = "assistant"
    error: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the message in the form of `Rollout.trajectory`."""
        fields: dict[str, Any] = {"role": self.role, "content": self.content or ""}
        if self.role == "tool":
            fields |= {"id": self.id, "requestor": self.requestor, "error": self.error}
        if self.tool_calls:
            # As in a run's episode: with the requestor only if it is not the speaker.
            calls = [call.model_dump() for call in self.tool_calls]
            fields["tool_calls"] = [
                {k: v for k, v in call.items() if (k, v) != ("requestor", self.role)}
                | {"arguments": json.dumps(call["arguments"])}
                for call in calls
            ]
        return fields


class MessageOfHistory(Message):
    role: Literal["user", "assistant", "tool"]


class InitialState(PartialModel):
    initialization_data: InitializationData | None = None
    initialization_actions: list[EnvCall] | None = None
    message_history: list[MessageOfHistory] | None = None


class Task(PartialModel):
    id: str
    user_scenario: UserScenario
    ticket: str | None = None
    user_tools: list[str] | None = None
    initial_state: InitialState | None = None
    evaluation_criteria: Criteria | None = None


def task_of(tree: Any, source: str) -> Task:
    """Validate a task of the file ``source``. Raises `UserError` if a key is missing or invalid."""
    task_id = tree.get("id") if isinstance(tree, Mapping) else None
    location = f"{source}, task {task_id!r:.60}" if isinstance(task_id, str) else source
    task = parse_tree(Task, tree, location, _FIX)
    if "evaluation_criteria" not in task.model_fields_set:
        fix = "add it (null: nothing is judged), or use an unmodified copy of the data"
        raise UserError("evaluation_criteria: field required", where=location, fix=fix)
    return task


_SHOWN = ("user_scenario", "ticket", "user_tools", "initial_state")


def load(package: UpstreamPackage, category: Category, split: str | None) -> list[Entry]:
    """Return the tasks of ``split`` as entries, in file order.

    If ``split`` is None, return all tasks, in a solo category all with a ticket. ``data`` of an
    entry has the keys `_SHOWN` as in upstream's file; ``gold`` is ``evaluation_criteria``. Raises
    `UserError` if the split is unknown, or a task (named with its file) is invalid."""
    split_ids = None if split is None else set(_split_ids(package, category, split))
    entries, task_ids, location = [], set(), ""
    for location, tree in _json_trees(package, category.domain, "tasks"):
        if isinstance(tree, Mapping) and isinstance(tree.get("id"), str):
            task_ids.add(tree["id"])
            if split_ids is not None and tree["id"] not in split_ids:
                continue
        task = task_of(tree, location)
        if category.solo and task.ticket is None:
            if split_ids is None:
                continue
            problem = f"task {task.id!r} has no ticket, which the agent needs in solo mode"
            fix = "choose another split, or leave the category out"
            raise UserError(problem, where=location, fix=fix)
        data = {key: tree[key] for key in _SHOWN if tree.get(key) is not None}
        keys = {"benchmark": UPSTREAM.benchmark, "category": category.name, "language": "en"}
        gold = tree.get("evaluation_criteria")
        entries.append(Entry(**keys, id=task.id, data=data, gold=gold))
    if extra := sorted((split_ids or set()) - task_ids):
        raise UserError(f"{extra[0]!r} of split {split!r} is not a task", where=location, fix=_FIX)
    return entries


def _json_trees(package: UpstreamPackage, domain: str, kind: str) -> list[tuple[str, Any]]:
    """Return a domain's "tasks" or "documents" (``kind``) as JSON values, each with its file."""
    # banking_knowledge of 1.0.1 has a file for each. Its tasks.json is out of date.
    paths = package.json_files(domain_file(domain, kind)) if domain == BANKING else []
    if not paths:
        paths = [domain_file(domain, "tasks.json" if kind == "tasks" else "documents.json.gz")]
    pairs = []
    for path in paths:
        raw, location = package.read(path), package.full_path(path)
        try:
            if path.endswith(".gz"):
                raw = zlib.decompressobj(31).decompress(raw, DATA_LIMIT_BYTES)
        except zlib.error as error:
            raise UserError(f"is not a gzip file ({error})", where=location, fix=_FIX) from error
        trees = json_value(raw, location, _FIX)
        pairs += [(location, tree) for tree in (trees if isinstance(trees, list) else [trees])]
    return pairs


def splits(package: UpstreamPackage, domain: str) -> dict[str, list[str]]:
    """Return {split: task ids} of a domain. Raises `UserError` if the file is not of this form."""
    if domain == BANKING:  # has no file of splits
        trees = [tree for _, tree in _json_trees(package, domain, "tasks")]
        ids = [str(tree["id"]) for tree in trees if isinstance(tree, dict) and "id" in tree]
        return {"base": ids}
    path = domain_file(domain, "split_tasks.json")
    tree = json_value(package.read(path), package.full_path(path), _FIX)
    if not isinstance(tree, dict) or not all(map(is_texts, tree.values())):
        raise UserError("contains no lists of ids", where=package.full_path(path), fix=_FIX)
    return tree


def _split_ids(package: UpstreamPackage, category: Category, split: str) -> list[str]:
    ids_by_split = splits(package, category.domain)
    if split not in ids_by_split:
        fix = did_you_mean(split, ids_by_split)
        raise UserError(f"{category.domain} has no split {split!r}", "benchmarks.tau2.split", fix)
    return ids_by_split[split]


def policy(package: UpstreamPackage, category: Category, kind: str, knowledge: str) -> str:
    """Return the policy of the agent (upstream ``domains/*/environment.py``). ``kind`` is "manual"
    or "workflow" and matters in telecom only; ``knowledge`` in banking_knowledge only."""
    if category.domain == BANKING:
        return _banking_policy(package, knowledge)
    if category.domain != "telecom":
        return read_text(package, domain_file(category.domain, "policy.md"))
    solo = "_solo" if category.solo else ""
    support = "manual" if kind == "manual" else f"workflow{solo}"  # solo mode has no manual
    main = read_text(package, domain_file("telecom", f"main_policy{solo}.md"))
    tech_support = read_text(package, domain_file("telecom", f"tech_support_{support}.md"))
    return (
        f"<main_policy>\n{main}\n</main_policy>\n"
        f"<tech_support_policy>\n{tech_support}\n</tech_support_policy>"
    )


_INCLUDE = re.compile(r"\{\{(?:component:(\w+)|full_knowledge_base)\}\}")


def _banking_policy(package: UpstreamPackage, knowledge: str) -> str:
    def included(match: re.Match[str]) -> str:
        if match[1]:
            return read_text(package, domain_file(BANKING, f"prompts/components/{match[1]}.md"))
        return "\n\n---\n\n".join(f"## {d['title']}\n\n{d['content']}" for d in documents(package))

    text = read_text(package, domain_file(BANKING, f"prompts/{KNOWLEDGE[knowledge][0]}"))
    return _INCLUDE.sub(included, text)


class _Document(PartialModel):
    id: str
    title: str
    content: str


def documents(package: UpstreamPackage) -> list[dict[str, str]]:
    """Return the documents of banking_knowledge, by file name. Raises `UserError` if one is missing
    or invalid."""
    trees = _json_trees(package, BANKING, "documents")
    return [parse_tree(_Document, tree, file, _FIX).model_dump() for file, tree in trees]


def databases(package: UpstreamPackage, domain: str) -> dict[str, str]:
    """Return {side: database as JSON text} of a domain, in banking_knowledge also the
    ``documents``. Raises `UserError` if a file is invalid."""
    texts = {}
    if domain == BANKING:
        texts["documents"] = json.dumps(documents(package))
    for side, name in of_domain(DATABASES, domain).items():
        path = domain_file(domain, name)
        texts[side] = read_text(package, path)
        if name.endswith(".toml"):
            try:
                texts[side] = json.dumps(tomllib.loads(texts[side]), default=date.isoformat)
            except (ValueError, TypeError, RecursionError) as error:
                problem = f"is not valid TOML ({error})"
                raise UserError(problem, where=package.full_path(path), fix=_FIX) from error
    return texts


def gold_episode(scenario: Scenario, entry: Entry) -> Episode:
    """Return an episode in which each side makes its gold calls, and the agent gives all required
    information. ``scenario`` is a fresh scenario of the entry."""
    criteria: Mapping[str, Any] = entry.gold or {}
    solo = CATEGORIES[entry.category].solo
    trajectory = history(entry)
    for number, action in enumerate(criteria.get("actions") or ()):
        side = "assistant" if solo else action.get("requestor", "assistant")
        call = (f"gold{number}", action["name"], action["arguments"])
        trajectory += call_messages(scenario, side, *call)
    text = ". ".join(criteria.get("communicate_info") or ("Done",))
    trajectory.append({"role": "assistant", "content": text})
    return _episode(trajectory, solo=solo)


def silent_episode(entry: Entry) -> Episode:
    """Return an episode that ends at once: the agent makes no call and says nothing."""
    return _episode(history(entry), solo=CATEGORIES[entry.category].solo)


def call_messages(
    scenario: Scenario, side: str, call_id: str, name: str, arguments: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Call a tool of ``scenario``; yield the messages of the call and its result."""
    request = {"requestor": side, "arguments": arguments, "last": True}
    observation = scenario.call(name, request)
    tool_call = {"id": call_id, "name": name, "arguments": json.dumps(arguments)}
    yield {"role": side, "content": "", "tool_calls": [tool_call]}
    result = {"role": "tool", "id": call_id, "requestor": side}
    yield {**result, "content": observation.value, "error": bool(observation.error)}


def history_of(entry: Entry) -> Sequence[Mapping[str, Any]]:
    """Return the message history of a task, as in upstream's file."""
    return (entry.data.get("initial_state") or {}).get("message_history") or ()


def history(entry: Entry) -> list[dict[str, Any]]:
    """Return the message history of a task in the form of a trajectory."""
    return [Message.model_validate(message).to_dict() for message in history_of(entry)]


def _episode(trajectory: list[dict[str, Any]], *, solo: bool) -> Episode:
    stop = {"role": "assistant" if solo else "user", "content": STOP}
    end_reason = "agent_stop" if solo else "user_stop"
    state = {"trajectory": [*trajectory, stop], "ended": end_reason, "stopped": True}
    return Episode(output=STOP, state=state)
