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

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import (
    Phone,
    Reply,
    Texts,
    declare,
    refusal,
    require,
    success,
)


def turn_on_wifi(phone: Phone) -> Reply:
    phone.wifi = True
    return success("on")


def login_device(phone: Phone) -> Reply:
    phone.logged_in = True
    return success("logged_in")


BASE = declare(
    "BaseApi", Phone, saved="wifi logged_in", texts={turn_on_wifi: "on", login_device: "logged_in"}
)


@dataclass
class Messages:
    inbox: dict[int, dict[str, Any]]
    user_list: dict[str, dict[str, Any]]
    max_capacity: int
    message_id_counter: int
    phone: Phone
    texts: Texts

    def user_id(self, name: str) -> str:
        return str(self.user_list[name]["user_id"])

    def date(self, message_id: int) -> str:
        """Return the date of a message (YYYY-MM-DD). Raises `KeyError` for a sent message."""
        return str(self.inbox[message_id]["time"])


def send_message(app: Messages, sender_name: Any, receiver_name: Any, message: Any) -> Reply:
    require(app.phone.logged_in, "logged_out")
    require(app.phone.wifi, "offline")
    require(len(app.inbox) < app.max_capacity, "full")
    require(sender_name in app.user_list and receiver_name in app.user_list, "unknown")
    app.message_id_counter += 1
    app.inbox[app.message_id_counter] = {
        "sender_id": app.user_id(sender_name),
        "receiver_id": app.user_id(receiver_name),
        "message": message,
    }
    return success("sent", receiver_name=receiver_name)


def delete_message(app: Messages, message_id: Any) -> Reply:
    require(app.phone.logged_in, "logged_out")
    require(message_id in app.inbox, "unknown")
    del app.inbox[message_id]
    return success("deleted", message_id=message_id)


def view_messages_between_users(
    app: Messages, sender_name: Any, receiver_name: Any
) -> dict[str, Any]:
    require(app.phone.logged_in, "logged_out")
    require(sender_name in app.user_list, "unknown_sender")
    require(receiver_name in app.user_list, "unknown_receiver")
    ends = (app.user_id(sender_name), app.user_id(receiver_name))
    messages = [
        {"id": key, "sender": sender_name, "receiver": receiver_name, "message": record["message"]}
        for key, record in app.inbox.items()
        if (record["sender_id"], record["receiver_id"]) == ends
    ]
    require(messages, "none")
    return {"status": True, "messages": messages}


def search_messages(app: Messages, user_name: Any, keyword: Any) -> dict[str, Any]:
    require(user_name in app.user_list, "unknown")
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
    require(messages, "none")
    return {"status": True, "messages": messages}


def get_all_message_times_with_ids(app: Messages) -> dict[Any, Any]:
    require(app.phone.logged_in, "logged_out")
    return {key: app.date(key) for key in app.inbox}


def get_latest_message_id(app: Messages) -> dict[str, Any]:
    return _extreme_message(app, "latest_message_id", max)


def get_earliest_message_id(app: Messages) -> dict[str, Any]:
    return _extreme_message(app, "earliest_message_id", min)


def _extreme_message(app: Messages, field_name: str, choose: Callable[..., int]) -> dict[str, Any]:
    require(app.phone.logged_in, "logged_out")
    require(app.inbox, "empty")
    dates = {key: datetime.strptime(app.date(key), "%Y-%m-%d") for key in app.inbox}
    message_id = choose(dates, key=dates.__getitem__)
    message = app.texts.fill_text(f"get_{field_name}", "found", {field_name: message_id})
    return {"status": True, "message": message, "message_id": message_id}


MESSAGE = declare(
    "MessageApi",
    Messages,
    saved="inbox",
    texts={
        send_message: "sent logged_out offline full unknown",
        delete_message: "deleted logged_out unknown",
        view_messages_between_users: "logged_out unknown_sender unknown_receiver none",
        search_messages: "unknown none",
        get_all_message_times_with_ids: "logged_out",
        get_latest_message_id: "found logged_out empty",
        get_earliest_message_id: "found logged_out empty",
    },
)


@dataclass
class Reminders:
    reminder_list: dict[int, dict[str, Any]]
    max_capacity: int
    reminder_id_counter: int
    phone: Phone
    texts: Texts


def view_reminder_by_title(app: Reminders, title: Any) -> dict[str, Any]:
    require(app.phone.logged_in, "logged_out")
    for record in app.reminder_list.values():
        if record["title"] == title:
            return {"status": True, "reminder": record}
    raise refusal("none", title=title)


def add_reminder(app: Reminders, title: Any, description: Any, time: Any) -> Reply:
    require(app.phone.logged_in, "logged_out")
    require(len(app.reminder_list) < app.max_capacity, "full")
    app.reminder_id_counter += 1
    app.reminder_list[app.reminder_id_counter] = {
        "reminder_id": app.reminder_id_counter,
        "title": title,
        "description": description,
        "time": time,
        "notified": False,
    }
    return success("added", title=title)


def delete_reminder(app: Reminders, reminder_id: Any) -> Reply:
    require(app.phone.logged_in, "logged_out")
    require(reminder_id in app.reminder_list, "unknown")
    del app.reminder_list[reminder_id]
    return success("deleted", reminder_id=reminder_id)


def view_all_reminders(app: Reminders) -> dict[str, Any]:
    require(app.reminder_list, "none")
    keys = ("title", "description", "time", "notified")
    reminders = [{name: record[name] for name in keys} for record in app.reminder_list.values()]
    return {"status": True, "reminders": reminders}


def mark_as_notified(app: Reminders, reminder_id: Any) -> Reply:
    require(reminder_id in app.reminder_list, "unknown")
    app.reminder_list[reminder_id]["notified"] = True
    return success("marked", reminder_id=reminder_id)


def search_reminders(app: Reminders, keyword: Any) -> Reply:
    for record in app.reminder_list.values():
        if any(keyword.lower() in record[name].lower() for name in ("title", "description")):
            record["time"].strftime("%Y-%m-%d %H:%M")  # raises: the time is a string
    return refusal("none")


REMINDER = declare(
    "ReminderApi",
    Reminders,
    saved="reminder_list",
    texts={
        view_reminder_by_title: "none logged_out",
        add_reminder: "added logged_out full",
        delete_reminder: "deleted logged_out unknown",
        view_all_reminders: "none",
        mark_as_notified: "marked unknown",
        search_reminders: "none time_format",
    },
    optional=frozenset({"mark_as_notified", "search_reminders"}),
)
