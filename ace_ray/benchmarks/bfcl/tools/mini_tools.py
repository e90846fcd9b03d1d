"""Tool classes of the mini set, which ace_ray wrote. They have the same contract as upstream's.

Public attributes are the state, and public methods are the tools. A method returns a dict, which is
``{"error": ...}`` if the call fails."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.bfcl.tools.standins import BM25Plus

Answer = dict[str, Any]

# Upstream's limits on memories, so that the task is equally difficult.
CORE_ENTRIES, CORE_CHARS = 7, 300
ARCHIVE_ENTRIES, ARCHIVE_CHARS = 50, 2_000
TEXT_CHARS = 10_000
_KEY = re.compile(r"[a-z]+(_[a-z0-9]+)*")


class Bakery:
    """A bakery, which takes orders for one day."""

    def __init__(self) -> None:
        self.prices: dict[str, float] = {}
        self.orders: list[dict[str, Any]] = []
        self.open = True

    def _load_scenario(self, config: Mapping[str, Any], long_context: bool = False) -> None:
        self.prices = dict(config.get("prices", {}))
        self.orders = [dict(order) for order in config.get("orders", [])]
        self.open = config.get("open", True)

    def list_orders(self) -> Answer:
        return {"orders": self.orders}

    def add_order(self, customer: str, item: str, quantity: int = 1) -> Answer:
        if not self.open:
            return {"error": "The bakery is closed."}
        if item not in self.prices:
            return {"error": f"There is no item {item!r}."}
        if quantity < 1:
            return {"error": "The quantity must be at least 1."}
        number = max((order["order_id"] for order in self.orders), default=0) + 1
        self.orders.append(
            {"order_id": number, "customer": customer, "item": item, "quantity": quantity}
        )
        return {"order_id": number}

    def cancel_order(self, order_id: int) -> Answer:
        for order in self.orders:
            if order["order_id"] == order_id:
                self.orders.remove(order)
                return {"cancelled": order_id}
        return {"error": f"There is no order {order_id}."}

    def set_price(self, item: str, price: float) -> Answer:
        if price < 0:
            return {"error": "A price cannot be negative."}
        self.prices[item] = price
        return {"item": item, "price": price}

    def get_price(self, item: str) -> Answer:
        if item not in self.prices:
            return {"error": f"There is no item {item!r}."}
        return {"price": self.prices[item]}

    def total(self, customer: str) -> Answer:
        amounts = [
            self.prices[order["item"]] * order["quantity"]
            for order in self.orders
            if order["customer"] == customer
        ]
        return {"total": round(sum(amounts), 2)}

    def close_day(self) -> Answer:
        if not self.open:
            return {"error": "The bakery is closed already."}
        self.open = False
        return {"orders_today": len(self.orders)}


class KeyValueMemory:
    """A memory with a core of a few short entries, which prompts show, and an archive."""

    def __init__(self) -> None:
        self.core_memory: dict[str, str] = {}
        self.archival_memory: dict[str, str] = {}

    def _dump_core_memory_to_context(self) -> str:
        return json.dumps(self.core_memory, indent=4) if self.core_memory else "(empty)"

    def core_memory_add(self, key: str, value: str) -> Answer:
        return _add(self.core_memory, str(key), str(value), CORE_ENTRIES, CORE_CHARS)

    def core_memory_remove(self, key: str) -> Answer:
        return _remove(self.core_memory, key)

    def core_memory_replace(self, key: str, value: str) -> Answer:
        return _replace(self.core_memory, str(key), str(value), CORE_CHARS)

    def core_memory_clear(self) -> Answer:
        self.core_memory = {}
        return {"status": "The core memory is empty now."}

    def core_memory_retrieve(self, key: str) -> Answer:
        return _retrieve(self.core_memory, key)

    def core_memory_list_keys(self) -> Answer:
        return {"keys": list(self.core_memory)}

    def core_memory_key_search(self, query: str, k: int = 5) -> Answer:
        return _search(self.core_memory, query, k)

    def core_memory_retrieve_all(self) -> Answer:
        return self.core_memory

    def archival_memory_add(self, key: str, value: str) -> Answer:
        return _add(self.archival_memory, str(key), str(value), ARCHIVE_ENTRIES, ARCHIVE_CHARS)

    def archival_memory_remove(self, key: str) -> Answer:
        return _remove(self.archival_memory, key)

    def archival_memory_replace(self, key: str, value: str) -> Answer:
        return _replace(self.archival_memory, str(key), str(value), ARCHIVE_CHARS)

    def archival_memory_clear(self) -> Answer:
        self.archival_memory = {}
        return {"status": "The archival memory is empty now."}

    def archival_memory_retrieve(self, key: str) -> Answer:
        return _retrieve(self.archival_memory, key)

    def archival_memory_list_keys(self) -> Answer:
        return {"keys": list(self.archival_memory)}

    def archival_memory_key_search(self, query: str, k: int = 5) -> Answer:
        return _search(self.archival_memory, query, k)


def _add(memory: dict[str, str], key: str, value: str, entries: int, chars: int) -> Answer:
    if len(memory) >= entries:
        return {"error": f"This memory holds {entries} entries at most."}
    if _KEY.fullmatch(key) is None:
        return {"error": "A key is lower-case words joined by underscores."}
    if key in memory:
        return {"error": "There is an entry with this key already."}
    if len(value) > chars:
        return {"error": f"A value has {chars} characters at most."}
    memory[key] = value
    return {"status": "Added."}


def _remove(memory: dict[str, str], key: str) -> Answer:
    if key not in memory:
        return {"error": "There is no entry with this key."}
    del memory[key]
    return {"status": "Removed."}


def _replace(memory: dict[str, str], key: str, value: str, chars: int) -> Answer:
    if key not in memory:
        return {"error": "There is no entry with this key."}
    if len(value) > chars:
        return {"error": f"A value has {chars} characters at most."}
    memory[key] = value
    return {"status": "Replaced."}


def _retrieve(memory: dict[str, str], key: str) -> Answer:
    if key not in memory:
        return {"error": "There is no entry with this key."}
    return {"value": memory[key]}


def _search(memory: dict[str, str], query: str, k: int) -> Answer:
    keys = list(memory)
    if not keys:
        return {"ranked_results": []}
    scores = BM25Plus([key.split("_") for key in keys]).get_scores(query.lower().split())
    ranked = sorted(zip(scores, keys, strict=True), key=lambda pair: pair[0], reverse=True)
    return {"ranked_results": ranked[:k]}


class SummaryMemory:
    """A memory that is one text, which the model keeps up to date."""

    def __init__(self) -> None:
        self.memory = ""

    def _dump_core_memory_to_context(self) -> str:
        return self.memory or "(empty)"

    def memory_append(self, text: str) -> Answer:
        return self._set(self.memory + str(text))

    def memory_update(self, text: str) -> Answer:
        return self._set(str(text))

    def memory_clear(self) -> Answer:
        return self._set("")

    def memory_replace(self, old_text: str, new_text: str) -> Answer:
        old, new = str(old_text), str(new_text)
        count = self.memory.count(old)
        if not count:
            return {"error": "The memory does not have this text."}
        if len(self.memory) + count * (len(new) - len(old)) > TEXT_CHARS:
            return {"error": f"The memory holds {TEXT_CHARS} characters at most."}
        return self._set(self.memory.replace(old, new))

    def memory_retrieve(self) -> Answer:
        return {"memory_content": self.memory}

    def _set(self, text: str) -> Answer:
        if len(text) > TEXT_CHARS:
            return {"error": f"The memory holds {TEXT_CHARS} characters at most."}
        self.memory = text
        return {"status": "The memory is up to date."}


# Classes by their names in entries.
CLASSES: Mapping[str, type[Any]] = {
    "Bakery": Bakery,
    "MemoryAPI_kv": KeyValueMemory,
    "MemoryAPI_rec_sum": SummaryMemory,
}
