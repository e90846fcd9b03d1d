"""Tasks as entries, and the policies that agents follow."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from datetime import date

from ace_ray.benchmarks.dataset import is_texts, json_value
from ace_ray.benchmarks.tau2.categories import Category
from ace_ray.benchmarks.tau2.data.tasks import task_of
from ace_ray.benchmarks.tau2.data.upstream_package import (
    DATABASES,
    UPSTREAM,
    UpstreamPackage,
    domain_file,
)
from ace_ray.benchmarks.tau2.data.upstream_texts import read_text
from ace_ray.config.suggestions import did_you_mean
from ace_ray.errors import UserError
from ace_ray.types import Entry

_FIX = "use an unmodified copy of the data"
_SHOWN = ("user_scenario", "ticket", "initial_state")


def load(package: UpstreamPackage, category: Category, split: str | None) -> list[Entry]:
    """Return the tasks of a split, or all that can be played (None), in the order of their file.

    ``data`` of an entry has ``user_scenario``, ``ticket`` and ``initial_state`` as upstream's file
    does; ``gold`` is its ``evaluation_criteria``. Raises `UserError` naming file and task.
    """
    path = domain_file(category.domain, "tasks.json")
    where = package.where(path)
    trees = json_value(package.read(path), where, _FIX)
    if not isinstance(trees, list):
        raise UserError("holds no list of tasks", where=where, fix=_FIX)
    wanted = None if split is None else set(_split(package, category, split))
    entries, seen = [], set()
    for tree in trees:
        if isinstance(tree, Mapping) and isinstance(tree.get("id"), str):
            seen.add(tree["id"])
            if wanted is not None and tree["id"] not in wanted:
                continue
        task = task_of(tree, where)
        if category.solo and task.ticket is None:
            if wanted is None:
                continue
            raise UserError(
                f"task {task.id!r} has no ticket, which solo mode shows in place of a user",
                where=where,
                fix="choose another split, or leave the category out",
            )
        entries.append(
            Entry(
                benchmark=UPSTREAM.benchmark,
                category=category.name,
                language="en",
                id=task.id,
                data={key: tree[key] for key in _SHOWN if tree.get(key) is not None},
                gold=tree.get("evaluation_criteria"),
            )
        )
    if missing := sorted((wanted or set()) - seen):
        raise UserError(f"{missing[0]!r} of split {split!r} is in no task", where=where, fix=_FIX)
    return entries


def splits(package: UpstreamPackage, domain: str) -> dict[str, list[str]]:
    """The ids of each split. Raises `UserError`."""
    path = domain_file(domain, "split_tasks.json")
    tree = json_value(package.read(path), package.where(path), _FIX)
    if not isinstance(tree, dict) or not all(map(is_texts, tree.values())):
        raise UserError("holds no lists of ids", where=package.where(path), fix=_FIX)
    return tree


def _split(package: UpstreamPackage, category: Category, split: str) -> list[str]:
    known = splits(package, category.domain)
    if split not in known:
        raise UserError(
            f"{category.domain} has no split {split!r}",
            where="benchmarks.tau2.split",
            fix=did_you_mean(split, known),
        )
    return known[split]


def policy(package: UpstreamPackage, category: Category, kind: str) -> str:
    """What the agent is told to follow; ``kind`` is "manual" or "workflow" and counts in telecom
    alone (upstream ``domains/telecom/environment.py``)."""
    if category.domain != "telecom":
        return read_text(package, domain_file(category.domain, "policy.md"))
    solo = "_solo" if category.solo else ""
    support = "manual" if kind == "manual" else f"workflow{solo}"  # solo mode has no manual
    main = read_text(package, domain_file("telecom", f"main_policy{solo}.md"))
    rest = read_text(package, domain_file("telecom", f"tech_support_{support}.md"))
    return (
        f"<main_policy>\n{main}\n</main_policy>\n"
        f"<tech_support_policy>\n{rest}\n</tech_support_policy>"
    )


def databases(package: UpstreamPackage, domain: str) -> dict[str, str]:
    """Each side's database, JSON. Raises `UserError`."""
    return {side: _database(package, domain, name) for side, name in DATABASES[domain].items()}


def _database(package: UpstreamPackage, domain: str, name: str) -> str:
    path = domain_file(domain, name)
    text = read_text(package, path)
    if name.endswith(".json"):
        return text
    try:
        return json.dumps(tomllib.loads(text), default=date.isoformat)
    except (ValueError, TypeError, RecursionError) as error:
        what = f"is not valid TOML ({error})"
        raise UserError(what, where=package.where(path), fix=_FIX) from error
