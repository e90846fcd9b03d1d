"""ReminderApi: a list of reminders of limited size.

As upstream's, tools delete and mark by the key of the list (1, 2, ...), which no tool ever shows,
and list, mark and search without a login. The search raises on every hit, since it takes the stored
text for a date. Marking and searching exist in Chinese only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import (
    App,
    InitialState,
    Phone,
    Texts,
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
    if reminder_id not in app.reminder_list:
        return refused(app.texts.of("delete_reminder", "unknown"))
    del app.reminder_list[reminder_id]
    return done(app.texts.of("delete_reminder", "deleted", {"reminder_id": reminder_id}))


def view_all_reminders(app: Reminders) -> dict[str, Any]:
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


def search_reminders(app: Reminders, keyword: Any) -> dict[str, Any]:
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
    )


REMINDER = App(
    name="ReminderApi",
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
    tools=declare(
        "ReminderApi",
        view_reminder_by_title,
        add_reminder,
        delete_reminder,
        view_all_reminders,
        mark_as_notified,
        search_reminders,
    ),
    optional=frozenset({"mark_as_notified", "search_reminders"}),
)
