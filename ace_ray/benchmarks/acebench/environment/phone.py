"""The phone's own apps: BaseApi, MessageApi and ReminderApi. Upstream's faults are reproduced.

BaseApi has the phone's two switches. Turning on a switch always succeeds.

MessageApi is one shared inbox of limited size. A sent message is stored without a time; after that,
every tool that reads times raises `KeyError`. Searching messages needs no login, unlike all other
tools. If several messages have the latest date, the first of them counts as the latest.

ReminderApi is a list of reminders of limited size. Reminders are deleted and marked by their key in
the list (1, 2, ...), which the listing does not show. Listing, marking and searching need no login.
A search that finds a reminder raises, because it treats the stored time, a string, as a date.
Marking and searching exist only in Chinese.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
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


def turn_on_wifi(phone: Phone) -> dict[str, Any]:
    phone.wifi = True
    return done(phone.texts.of("turn_on_wifi", "on"))


def login_device(phone: Phone) -> dict[str, Any]:
    phone.logged_in = True
    return done(phone.texts.of("login_device", "logged_in"))


BASE = App(
    name="BaseApi",
    texts={"turn_on_wifi": ("on",), "login_device": ("logged_in",)},
    saved=("wifi", "logged_in"),
    open=lambda initial: initial.phone,
    tools=declare("BaseApi", turn_on_wifi, login_device),
)


@dataclass
class Messages:
    inbox: dict[int, dict[str, Any]]
    people: dict[str, dict[str, Any]]
    capacity: int
    last_id: int
    phone: Phone
    texts: Texts

    def user_id(self, name: str) -> str:
        return str(self.people[name]["user_id"])

    def date(self, message_id: int) -> str:
        """Return the date of a message (YYYY-MM-DD). Raises `KeyError` for a sent message."""
        return str(self.inbox[message_id]["time"])


def send_message(
    app: Messages, sender_name: Any, receiver_name: Any, message: Any
) -> dict[str, Any]:
    if not app.phone.logged_in:
        return refused(app.texts.of("send_message", "logged_out"))
    if not app.phone.wifi:
        return refused(app.texts.of("send_message", "offline"))
    if len(app.inbox) >= app.capacity:
        return refused(app.texts.of("send_message", "full"))
    if sender_name not in app.people or receiver_name not in app.people:
        return refused(app.texts.of("send_message", "unknown"))
    app.last_id += 1
    app.inbox[app.last_id] = {
        "sender_id": app.user_id(sender_name),
        "receiver_id": app.user_id(receiver_name),
        "message": message,
    }
    return done(app.texts.of("send_message", "sent", {"receiver_name": receiver_name}))


def delete_message(app: Messages, message_id: Any) -> dict[str, Any]:
    if not app.phone.logged_in:
        return refused(app.texts.of("delete_message", "logged_out"))
    if message_id not in app.inbox:
        return refused(app.texts.of("delete_message", "unknown"))
    del app.inbox[message_id]
    return done(app.texts.of("delete_message", "deleted", {"message_id": message_id}))


def view_messages_between_users(
    app: Messages, sender_name: Any, receiver_name: Any
) -> dict[str, Any]:
    if not app.phone.logged_in:
        return refused(app.texts.of("view_messages_between_users", "logged_out"))
    if sender_name not in app.people:
        return refused(app.texts.of("view_messages_between_users", "unknown_sender"))
    if receiver_name not in app.people:
        return refused(app.texts.of("view_messages_between_users", "unknown_receiver"))
    ends = (app.user_id(sender_name), app.user_id(receiver_name))
    messages = [
        {
            "id": key,
            "sender": sender_name,
            "receiver": receiver_name,
            "message": record["message"],
        }
        for key, record in app.inbox.items()
        if (record["sender_id"], record["receiver_id"]) == ends
    ]
    if not messages:
        return refused(app.texts.of("view_messages_between_users", "none"))
    return {"status": True, "messages": messages}


def search_messages(app: Messages, user_name: Any, keyword: Any) -> dict[str, Any]:
    if user_name not in app.people:
        return refused(app.texts.of("search_messages", "unknown"))
    user_id = app.user_id(user_name)
    messages = [
        {
            "id": key,
            "sender_id": record["sender_id"],
            "receiver_id": record["receiver_id"],
            "message": record["message"],
        }
        for key, record in app.inbox.items()
        if user_id in (record["sender_id"], record["receiver_id"])
        and keyword.lower() in record["message"].lower()
    ]
    if not messages:
        return refused(app.texts.of("search_messages", "none"))
    return {"status": True, "messages": messages}


def get_all_message_times_with_ids(app: Messages) -> dict[Any, Any]:
    if not app.phone.logged_in:
        return refused(app.texts.of("get_all_message_times_with_ids", "logged_out"))
    return {key: app.date(key) for key in app.inbox}


def get_latest_message_id(app: Messages) -> dict[str, Any]:
    return _extreme(app, "get_latest_message_id", "latest_message_id", latest=True)


def get_earliest_message_id(app: Messages) -> dict[str, Any]:
    return _extreme(app, "get_earliest_message_id", "earliest_message_id", latest=False)


def _extreme(app: Messages, method: str, field_name: str, *, latest: bool) -> dict[str, Any]:
    if not app.phone.logged_in:
        return refused(app.texts.of(method, "logged_out"))
    if not app.inbox:
        return refused(app.texts.of(method, "empty"))
    dates = {key: datetime.strptime(app.date(key), "%Y-%m-%d") for key in app.inbox}
    message_id = (max if latest else min)(dates, key=dates.__getitem__)
    answer = done(app.texts.of(method, "found", {field_name: message_id}))
    return {**answer, "message_id": message_id}


def _open_messages(initial: InitialState) -> Messages:
    state = initial.state
    return Messages(
        inbox=state["inbox"],
        people=state["user_list"],
        capacity=state["max_capacity"],
        last_id=state["message_id_counter"],
        phone=initial.phone,
        texts=initial.texts,
    )


MESSAGE = App(
    name="MessageApi",
    texts={
        "send_message": ("sent", "logged_out", "offline", "full", "unknown"),
        "delete_message": ("deleted", "logged_out", "unknown"),
        "view_messages_between_users": ("logged_out", "unknown_sender", "unknown_receiver", "none"),
        "search_messages": ("unknown", "none"),
        "get_all_message_times_with_ids": ("logged_out",),
        "get_latest_message_id": ("found", "logged_out", "empty"),
        "get_earliest_message_id": ("found", "logged_out", "empty"),
    },
    saved=("inbox",),
    open=_open_messages,
    tools=declare(
        "MessageApi",
        send_message,
        delete_message,
        view_messages_between_users,
        search_messages,
        get_all_message_times_with_ids,
        get_latest_message_id,
        get_earliest_message_id,
    ),
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
        if any(keyword.lower() in record[name].lower() for name in ("title", "description")):
            record["time"].strftime("%Y-%m-%d %H:%M")  # raises: the time is a string
    return refused(app.texts.of("search_reminders", "none"))


def _open_reminders(initial: InitialState) -> Reminders:
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
    open=_open_reminders,
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
