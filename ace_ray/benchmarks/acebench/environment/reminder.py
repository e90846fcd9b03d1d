"""ReminderApi: a list of reminders of limited size.

The official tools delete and mark by the key of the list (1, 2, ...), which no tool ever shows, and
list, mark and search without a login; the Chinese search raises on every hit (it takes the stored
text for a date) and the English one is missing although function lists offer it. Fixed: reminders
are deleted by the ``reminder_id`` that viewing shows, everything needs a login, and the search
works in both languages. Marking, which is Chinese only and never offered, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import (
    App,
    InitialState,
    Phone,
    Texts,
    as_official,
    declare,
    done,
    refused,
)


@dataclass
class Reminders:
    reminder_list: dict[int, dict[str, Any]]
    capacity: int
    last_id: int
    phone: Phone
    texts: Texts
    fixed: bool

    def key(self, reminder_id: Any) -> Any:
        """What ``reminder_id`` stands for in the list; it is not in the list if there is none."""
        if not self.fixed:
            return reminder_id
        ids = {record["reminder_id"]: key for key, record in self.reminder_list.items()}
        return ids.get(reminder_id)


def view_reminder_by_title(app: Reminders, title: Any) -> dict[str, Any]:
    if not app.phone.logged_in:
        return refused(app.texts.of("view_reminder_by_title", "logged_out"))
    for record in app.reminder_list.values():
        if record["title"] == title:
            return {"status": True, "reminder": record}
    return refused(app.texts.of("view_reminder_by_title", "none", {"title": title}))


def add_reminder(app: Reminders, title: Any, description: Any, time: Any) -> dict[str, Any]:
    if not app.phone.logged_in:
        return refused(app.texts.of("add_reminder", "logged_out"))
    if len(app.reminder_list) >= app.capacity:
        return refused(app.texts.of("add_reminder", "full"))
    app.last_id += 1
    app.reminder_list[app.last_id] = {
        "reminder_id": app.last_id,
        "title": title,
        "description": description,
        "time": time,
        "notified": False,
    }
    return done(app.texts.of("add_reminder", "added", {"title": title}))


def delete_reminder(app: Reminders, reminder_id: Any) -> dict[str, Any]:
    if not app.phone.logged_in:
        return refused(app.texts.of("delete_reminder", "logged_out"))
    key = app.key(reminder_id)
    if key not in app.reminder_list:
        return refused(app.texts.of("delete_reminder", "unknown"))
    del app.reminder_list[key]
    return done(app.texts.of("delete_reminder", "deleted", {"reminder_id": reminder_id}))


def view_all_reminders(app: Reminders) -> dict[str, Any]:
    if app.fixed and not app.phone.logged_in:
        return refused(app.texts.of("view_reminder_by_title", "logged_out"))
    if not app.reminder_list:
        return refused(app.texts.of("view_all_reminders", "none"))
    shown = ("title", "description", "time", "notified")
    reminders = [{name: record[name] for name in shown} for record in app.reminder_list.values()]
    return {"status": True, "reminders": reminders}


def mark_as_notified(app: Reminders, reminder_id: Any) -> dict[str, Any]:
    if reminder_id not in app.reminder_list:
        return refused(app.texts.of("mark_as_notified", "unknown"))
    app.reminder_list[reminder_id]["notified"] = True
    return done(app.texts.of("mark_as_notified", "marked", {"reminder_id": reminder_id}))


def search_reminders(app: Reminders, keyword: str) -> dict[str, Any]:
    if not app.phone.logged_in:
        return refused(app.texts.of("view_reminder_by_title", "logged_out"))
    reminders = [
        {name: record[name] for name in ("title", "description", "time")}
        for record in app.reminder_list.values()
        if _mentions(record, keyword)
    ]
    if not reminders:
        return refused(app.texts.own("none_found"))
    return {"status": True, "reminders": reminders}


def search_reminders_official(app: Reminders, keyword: Any) -> dict[str, Any]:
    for record in app.reminder_list.values():
        if _mentions(record, keyword):
            record["time"].strftime("%Y-%m-%d %H:%M")  # raises: the time is a text
    return refused(app.texts.of("search_reminders", "none"))


def _mentions(record: dict[str, Any], keyword: Any) -> bool:
    return any(keyword.lower() in record[name].lower() for name in ("title", "description"))


def _open(initial: InitialState) -> Reminders:
    state = initial.state
    return Reminders(
        reminder_list=state["reminder_list"],
        capacity=state["max_capacity"],
        last_id=state["reminder_id_counter"],
        phone=initial.phone,
        texts=initial.texts,
        fixed=initial.fixed,
    )


_NAME = "ReminderApi"
_SHARED = declare(
    _NAME,
    {
        "view_reminder_by_title": (view_reminder_by_title, {"title": str}),
        "add_reminder": (add_reminder, {"title": str, "description": str, "time": str}),
        "delete_reminder": (delete_reminder, {"reminder_id": int}),
        "view_all_reminders": (view_all_reminders, {}),
    },
)
_SEARCH = {"keyword": str}
_OFFICIAL_ONLY = declare(
    _NAME,
    {
        "mark_as_notified": (mark_as_notified, {"reminder_id": int}),
        "search_reminders": (search_reminders_official, _SEARCH),
    },
)

REMINDER = App(
    name=_NAME,
    attributes={
        "max_capacity": (int, ()),
        "reminder_list": (dict, ("reminder_id", "title", "description", "time", "notified")),
        "reminder_id_counter": (int, ()),
    },
    texts={
        "view_reminder_by_title": ("none", "logged_out"),
        "add_reminder": ("added", "logged_out", "full"),
        "delete_reminder": ("deleted", "logged_out", "unknown"),
        "view_all_reminders": ("none",),
        "mark_as_notified": ("marked", "unknown"),
        "search_reminders": ("none", "time_format"),
    },
    saved=("reminder_list",),
    open=_open,
    official=as_official(_SHARED | _OFFICIAL_ONLY),
    fixed=_SHARED | declare(_NAME, {"search_reminders": (search_reminders, _SEARCH)}),
    own={
        "en": {"none_found": "No reminder mentions this keyword"},
        "zh": {"none_found": "没有提到该关键词的提醒"},
    },
    optional=frozenset({"mark_as_notified", "search_reminders"}),
)
