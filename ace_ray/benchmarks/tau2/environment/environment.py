"""Databases and tools of one episode, built from the classes in a copy of tau2-bench (upstream
``environment/environment.py`` and ``domains/*/environment.py``).

A side is "assistant" (the agent) or "user". Each has a toolkit, which contains its database. In
banking_knowledge the user's toolkit works on the agent's database."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import zip_longest
from typing import Any

from ace_ray.benchmarks.tau2.environment.banking import Search, inspect_kits
from ace_ray.benchmarks.tau2.environment.sources import Overlay, hash_text, private_modules, update
from ace_ray.benchmarks.tau2.options import BANKING, INSPECT, KNOWLEDGE, NVIDIA
from ace_ray.errors import UserError
from ace_ray.sandbox.private_modules import PrivateModules

# By domain and side: module and class of the database, module and class of the tools.
_CLASSES: Mapping[str, Mapping[str, tuple[str, str, str, str]]] = {
    "airline": {"assistant": ("data_model", "FlightDB", "tools", "AirlineTools")},
    "retail": {"assistant": ("data_model", "RetailDB", "tools", "RetailTools")},
    "telecom": {
        "assistant": ("data_model", "TelecomDB", "tools", "TelecomTools"),
        "user": ("user_data_model", "TelecomUserDB", "user_tools", "TelecomUserTools"),
    },
    BANKING: {"assistant": ("data_model", "TransactionalDB", "", "")},  # tools: `Domain.kits`
    "mock": {"assistant": ("data_model", "MockDB", "tools", "MockTools")},
}
_READ_ONLY = ("read", "generic", "think")


class ReplayMismatch(Exception):
    """A replayed call has another result than recorded. Upstream's evaluation then fails."""


@dataclass
class Domain:
    """Classes and initial databases of a domain, which all its episodes share."""

    name: str
    modules: PrivateModules
    ids: _Ids
    location: str
    is_published: bool = False
    """Whether the classes are the published ones. If not, all tools get copies of records."""
    release: str = NVIDIA
    knowledge: str = ""
    bases: dict[str, Any] = field(default_factory=dict)
    """Initial database of each side; in banking_knowledge of the agent only."""
    searches: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_texts(
        cls, name: str, texts: Mapping[str, str], source: str, *, is_published: bool, **fields: Any
    ) -> Domain:
        """Load the classes of a domain, not its databases. Raises `UserError` if one is missing."""
        ids = _Ids()
        modules = private_modules(texts, source, ids.next_id)
        domain = cls(name, modules, ids, source, is_published, **fields)
        for module, db_class, *_ in _CLASSES[name].values():
            domain._class(module, db_class)
        domain.kits(dict.fromkeys(_CLASSES[name]))
        return domain

    def load(self, texts: Mapping[str, str]) -> None:
        """Load each side's database from JSON. Raises `UserError` if it does not fit its class."""
        for side, (module, db_class, *_) in _CLASSES[self.name].items():
            try:
                data = json.loads(texts[side])
                self.bases[side] = self._class(module, db_class).model_validate(data)
            except (ValueError, RecursionError) as error:
                line = " ".join(str(error).split())[:300]
                problem = f"the database of the {side} does not fit its classes: {line}"
                fix = "use an unmodified copy of the data"
                raise UserError(problem, where=self.location, fix=fix) from error
        if self.name == BANKING:
            documents = json.loads(texts["documents"])
            kinds = KNOWLEDGE[self.knowledge][2]
            if self.release == INSPECT and kinds:
                by_id = {document["id"]: document for document in documents}
                base = self._class("data_model", "KnowledgeBase")
                self.searches = {"grep": base.model_validate({"documents": by_id})}
            else:
                self.searches = {kind: Search(kind, documents) for kind in kinds}

    def kits(self, dbs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tools of each side, which work on the databases ``dbs``."""
        if self.name != BANKING:
            return {side: self._toolkit(side, dbs[side]) for side in _CLASSES[self.name]}
        db = dbs["assistant"]
        if self.release == INSPECT:
            return inspect_kits(self._class, db, self.searches, self.knowledge == "grep")
        _, name, kinds = KNOWLEDGE[self.knowledge]
        agent_class = self._class("retrieval_toolkits", f"KnowledgeTools{name}")
        agent = agent_class(db, *map(self.searches.get, kinds))
        return {"assistant": agent, "user": self._class("tools", "KnowledgeUserTools")(db)}

    def _toolkit(self, side: str, db: Any) -> Any:
        *_, module, tools_class = _CLASSES[self.name][side]
        toolkit_class = self._class(module, tools_class)
        toolkit = toolkit_class(db)
        # Copy the defaults of the class: the function that breaks a phone's VPN changes one.
        for key, value in vars(toolkit_class).items():
            if hasattr(value, "model_copy") and not isinstance(value, type):
                setattr(toolkit, key, value.model_copy(deep=True))
        return toolkit

    def _class(self, module: str, name: str) -> Any:
        folder = "banking" if self.release == INSPECT else f"domains.{self.name}"
        member = vars(self.modules.load(f"{folder}.{module}")).get(name)
        if member is None:
            problem = f"{folder.replace('.', '/')}/{module}.py has no {name}"
            raise UserError(problem, where=self.location, fix="give a complete copy of tau2-bench")
        return member

    def schemas(self) -> dict[str, list[dict[str, Any]]]:
        """Return the tools of each side in OpenAI's form, in the order of their definition."""
        kits = self.kits(dict.fromkeys(_CLASSES[self.name]))
        return {
            side: [tool.openai_schema for tool in kit.get_tools().values()]
            for side, kit in kits.items()
        }


@dataclass
class _Ids:
    """Generator of ids that upstream draws at random. Every replay gets the same ids."""

    drawn: int = 0

    def next_id(self) -> str:
        self.drawn += 1
        return f"{self.drawn:032x}"[::-1]


@dataclass
class Environment:
    """State of one episode. ``solo``: no user takes part, and the agent may also call the tools
    that are otherwise the user's."""

    domain: Domain
    solo: bool = False
    kits: dict[str, Any] = field(default_factory=dict)
    _drawn: int = 0

    def __post_init__(self) -> None:
        bases = self.domain.bases
        self.kits = self.domain.kits({side: _copy(base) for side, base in bases.items()})

    def begin(self, initial_state: Mapping[str, Any] | None) -> None:
        """Set the initial state of a task: merge the task's data into the databases, then call its
        functions.

        Raises the errors of upstream's code, which do not occur with upstream's tasks."""
        state = initial_state or {}
        data = state.get("initialization_data") or {}
        for side, key in (("assistant", "agent_data"), ("user", "user_data")):
            if data.get(key) is not None:
                kit = self.kits[side]
                kit.db = update(_to_plain(kit.db), data[key])
                if self.domain.name == BANKING:  # both sides share a database
                    self.kits = self.domain.kits({"assistant": kit.db})
        if hasattr(self.kits["assistant"], "set_read_log_allowlist"):
            self.kits["assistant"].set_read_log_allowlist(state.get("logged_reads"))
        for call in state.get("initialization_actions") or ():
            self.call_function(call)

    def call_function(self, call: Mapping[str, Any]) -> Any:
        """Call a function of a toolkit, even if it is not a tool, and return its result."""
        with self._use_ids():
            value = getattr(self.kits[call["env_type"]], call["func_name"])(**call["arguments"])
            self.sync()
        return value

    def is_true(self, assertion: Mapping[str, Any]) -> bool:
        """Return whether an assertion of a task holds. Raises the errors of its function, and
        `ValueError` if the function does not return a bool."""
        value = self.call_function(assertion)
        if not isinstance(value, bool):
            name, kind = assertion["func_name"], type(value)
            raise ValueError(f"Function {name} returned {kind} instead of bool")
        return value is bool(assertion.get("assert_value", True))

    def call(self, requestor: str, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Call a tool like upstream's ``get_response``. Return (answer as text, failed)."""
        try:
            value: Any = self.run(requestor, name, arguments)
            self.sync()
            error = False
        except Exception as failure:  # noqa: BLE001 - upstream makes it the tool's answer
            value, error = f"Error: {failure}", True
        return _text(value), error

    def run(self, requestor: str, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool of ``requestor`` (assistant or user) and return its result, without `sync` of
        both databases. Raises the tool's errors."""
        return self.make_tool_call(name, requestor=requestor, **arguments)

    def make_tool_call(self, tool_name: str, requestor: str, **arguments: Any) -> Any:
        """Call a tool through upstream's signature. If an argument has the name of a parameter,
        Python's error becomes the answer, which replays compare with the recorded answer."""
        side = self._side(requestor, tool_name)
        kit = self.kits.get(side)
        if kit is None:
            whose = "User tools" if side == "user" else "Tools"
            raise ValueError(f"{whose} not available")
        with self._use_ids(), _copy_mode(kit.db, self._may_write(kit, tool_name)):
            return kit.use_tool(tool_name=tool_name, **arguments)

    # A part of Python's error.
    make_tool_call.__module__ = "tau2.environment.environment"

    def replay(
        self, requestor: str, name: str, arguments: Mapping[str, Any], recorded: str, lenient: bool
    ) -> None:
        """Make a recorded call again, in 1.0.1 only if it can change the databases. Raises
        `ReplayMismatch` if the answer differs, in 1.0.1 unless ``lenient``."""
        if self.domain.release != NVIDIA:
            kits = [kit for kit in self.kits.values() if kit.has_tool(name)][:1]
            if not any(kit.tool_mutates_state(name) for kit in kits):
                return
        answer, _ = self.call(requestor, name, arguments)
        is_lenient = lenient and self.domain.release != NVIDIA
        if not is_lenient and _read(answer) != _read(recorded):
            pairs = enumerate(zip(answer, recorded, strict=False))
            offset = next((i for i, (a, b) in pairs if a != b), min(len(answer), len(recorded)))
            begin = max(0, offset - 20)
            ours, theirs = (f"{text[begin : offset + 60]!a:.90}" for text in (answer, recorded))
            problem = f"from character {offset} returned {ours}, recorded {theirs}"
            raise ReplayMismatch(f"{name:.60} {problem}")

    def sync(self) -> None:
        """Update the user's ``surroundings`` from the phone line and its bills (telecom only)."""
        if self.domain.name == "telecom":
            _sync_telecom(self)

    def texts(self) -> dict[str, Any]:
        """Return {side: value}. Two states of one domain are equal if their values are equal. A
        value is the text that upstream hashes; of shared records, only the changed ones count."""
        return {side: _state_text(self.kits[side].db) for side in self.domain.bases}

    def same_values(self, environment: Environment) -> bool:
        """Return whether two states are equal; numbers are compared by value."""
        for side, base in self.domain.bases.items():
            ours, theirs = (_changes(base, e.kits[side].db) for e in (self, environment))
            for path, (before, _) in (ours | theirs).items():
                unchanged = (before, before)
                if not same_by_value(ours.get(path, unchanged)[1], theirs.get(path, unchanged)[1]):
                    return False
        return True

    def changes(self) -> list[dict[str, Any]]:
        """Return [before, after]: by side, the records that differ from the shared databases."""
        states: list[dict[str, Any]] = [{side: {} for side in self.domain.bases} for _ in range(2)]
        for side, base in self.domain.bases.items():
            for (name, key), pair in _changes(base, self.kits[side].db).items():
                for state, value in zip(states, pair, strict=True):
                    state[side].setdefault(name, {})[key] = value
        return states

    def _side(self, requestor: str, name: str) -> str:
        if requestor == "user":
            if self.solo:
                raise ValueError("User tool calls are not allowed in solo mode")
            return "user"
        if self.solo and "user" in self.kits and self.kits["user"].has_tool(name):
            return "user"
        return "assistant"

    def _may_write(self, kit: Any, name: str) -> bool:
        if not (_overlays(kit.db) and self.domain.is_published and kit.has_tool(name)):
            return True
        return str(kit.tool_type(name).value) not in _READ_ONLY

    @contextmanager
    def _use_ids(self) -> Iterator[None]:
        """Draw ids from the environment's own sequence within the block."""
        ids = self.domain.ids
        ids.drawn = self._drawn
        try:
            yield
        finally:
            self._drawn = ids.drawn


def same_by_value(a: Any, b: Any) -> bool:
    """Return whether two JSON values are equal; numbers may differ by a millionth."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_by_value(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_by_value, a, b))
    if _is_number(a) and _is_number(b):
        return bool(abs(a - b) <= 1e-6)
    return bool(a == b)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@contextmanager
def _copy_mode(db: Any, copies: bool) -> Iterator[None]:
    """Set whether reading gives copies of records within the block, or the shared records
    themselves, which must not be changed."""
    overlays = list(_overlays(db).values())
    for overlay in overlays:
        overlay.copies = copies
    try:
        yield
    finally:
        for overlay in overlays:
            overlay.copies = True


def _copy(base: Any) -> Any:
    """Return a copy of the database for one episode. Records are copied only when they are read."""
    fields = {name: getattr(base, name) for name in type(base).model_fields}
    if all(_is_shareable(value) for value in fields.values()):
        return type(base).model_construct(**{k: Overlay(v) for k, v in fields.items()})
    return base.model_copy(deep=True)


def _is_shareable(value: Any) -> bool:
    return isinstance(value, dict) and all(hasattr(v, "model_copy") for v in value.values())


def _overlays(db: Any) -> dict[str, Overlay]:
    return {k: v for k, v in vars(db).items() if isinstance(v, Overlay)}


def _to_plain(db: Any) -> Any:
    """Return the database in upstream's class, for reading only: records are not copied."""
    plain = {name: dict(overlay.data) for name, overlay in _overlays(db).items()}
    return type(db).model_construct(**plain) if plain else db


def _state_text(db: Any) -> Any:
    overlays = _overlays(db)
    if not overlays:
        return hash_text(db.model_dump())
    return {
        name: {key: after for key, (_, after) in overlay.text_changes().items()}
        for name, overlay in overlays.items()
    }


def _changes(base: Any, db: Any) -> dict[tuple[str, str], tuple[Any, Any]]:
    """Return {(field, key): (before, after)} of values that differ between ``base`` and ``db``."""
    if overlays := _overlays(db):
        return {
            (name, key): (json.loads(before or "null"), json.loads(after or "null"))
            for name, overlay in overlays.items()
            for key, (before, after) in overlay.text_changes().items()
        }
    before, after = (json.loads(hash_text(database.model_dump())) for database in (base, db))
    return {
        (name, key): pair
        for name in before
        for key, pair in _differences(before[name], after.get(name)).items()
    }


def _differences(before: Any, after: Any) -> dict[str, tuple[Any, Any]]:
    """Return {key or position: (before, after)} for the members of two values that differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = dict.fromkeys((*before, *after))
        pairs = {str(key): (before.get(key), after.get(key)) for key in keys}
    elif isinstance(before, list) and isinstance(after, list):
        pairs = {str(i): pair for i, pair in enumerate(zip_longest(before, after))}
    else:
        pairs = {"": (before, after)}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _text(value: Any) -> str:
    """Return a tool's answer as text (upstream ``to_json_str``)."""
    if isinstance(value, str):
        return value
    return json.dumps(_to_json(value), default=str)


def _to_json(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return [_to_json(member) for member in value]
    if isinstance(value, dict):
        return {key: _to_json(member) for key, member in value.items()}
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise ValueError(f"Unsupported type: {type(value)}")


_VALIDATION = re.compile(r"Error: \d+ validation errors? for ")
_SUGGESTION = re.compile(r"\. Did you mean '\w+'\?\Z")


def _read(content: str) -> Any:
    """Return the value of a tool's answer that a replay compares. Texts that depend on the version
    of pydantic or Python are left out: they tell nothing of what the tool did."""
    if _VALIDATION.match(content):
        # The lines without indentation name the model and the fields; the others explain.
        return tuple(line for line in content.split("\n") if not line.startswith(" "))
    if content.startswith("Error: "):
        return _SUGGESTION.sub("", content)
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content


def _sync_telecom(environment: Environment) -> None:
    """Update the user's database like ``sync_tools`` in upstream's
    ``domains/telecom/environment.py``."""
    agent, user = environment.kits["assistant"], environment.kits["user"]
    around = user.db.surroundings
    number = around.phone_number
    if number is None:
        return
    line = agent._get_line_by_phone(number)
    if line is None:
        raise ValueError(f"Wrong scenario, line not found for phone number: {number}")
    around.line_active = line.status.value == "Active"
    around.roaming_allowed = bool(line.roaming_enabled)
    plan = agent._get_plan_by_id(line.plan_id)
    if plan is None:
        raise ValueError(
            f"Wrong scenario, invalid plan id ({line.plan_id}) for the phone number {number}"
        )
    limit_gb = plan.data_limit_gb + line.data_refueling_gb
    around.mobile_data_usage_exceeded = line.data_used_gb >= limit_gb
    if around.payment_request is not None and around.payment_request.paid:
        agent._set_bill_to_paid(around.payment_request.bill_id)
        around.payment_request = None
    if around.payment_request is None:
        bills = agent._get_bills_awaiting_payment(agent.get_customer_by_phone(number))
        if bills:
            requests = environment.domain.modules.load("domains.telecom.user_data_model")
            around.payment_request = vars(requests)["PaymentRequest"](
                bill_id=bills[0].bill_id, amount_due=bills[0].total_due
            )
