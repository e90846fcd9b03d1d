"""An interactive benchmark in one file: an agent with two tools books appointments for a simulated
user, and is judged by what stands in the calendar at the end."""

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext, Truncated
from ace_ray.config.roles import Role, parse_role
from ace_ray.config.schema import Section
from ace_ray.sandbox.protocol import Observation, Session
from ace_ray.sandbox.tools import Parameter, Tool, call_tool, unknown_tool
from ace_ray.types import Entry, Episode, Verdict

FREE = {"Monday": ["09:00", "15:00"], "Tuesday": ["10:00"]}
WISHES = {
    "morning": ("You want an appointment on Monday morning. You are Ada.", {"Monday 09:00": "Ada"}),
    "full": ("You are Bo. You can come on Tuesday after 12:00 only.", {}),
}
AGENT = "You make appointments. Look at the calendar before you promise anything."
PERSON = "You call a doctor's office. {wish} Say DONE when nothing is left to be settled."
MAX_TURNS = 12


def free_slots(booked: dict[str, str], day: str) -> list[str]:
    return [time for time in FREE.get(day, ()) if f"{day} {time}" not in booked]


def book(booked: dict[str, str], day: str, time: str, name: str) -> str:
    if time not in free_slots(booked, day):
        return "this slot is not free"
    booked[f"{day} {time}"] = name
    return "booked"


DAY, TIME, NAME = (Parameter(name, types=(str,)) for name in ("day", "time", "name"))
TOOLS = {
    "free_slots": Tool("free_slots", free_slots, (DAY,)),
    "book": Tool("book", book, (DAY, TIME, NAME)),
}


class Calendar:
    """The sandbox: tools over the state of one episode."""

    def __init__(self) -> None:
        self._booked: dict[str, str] = {}

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        tool = TOOLS.get(name)
        return call_tool(tool, self._booked, arguments) if tool else unknown_tool(name)

    def state(self) -> dict[str, str]:
        return dict(self._booked)


class Appointments(Benchmark):
    name = "appointments"

    class Options(Section):
        user: Any = "same"
        """Who plays the user: the candidate itself, or another model."""

    def entries(self) -> list[Entry]:
        return [
            Entry(id=id, data={"wish": wish, "free": FREE}, gold=bookings)
            for id, (wish, bookings) in WISHES.items()
        ]

    def texts(self) -> dict[str, str]:
        return {"user": PERSON, "most turns": str(MAX_TURNS)}

    def roles(self) -> dict[str, Role]:
        return {"user": parse_role(self.options.user, "benchmarks.appointments.user")}

    def scenario(self, entry: Entry) -> Calendar:
        return Calendar()

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        return [{"role": "system", "content": AGENT}]

    def tools(self, entry: Entry) -> list[dict[str, Any]]:
        return [tool.schema() for tool in TOOLS.values()]

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        async with context.sandbox() as calendar:
            ended = await self._talk(entry, context, calendar)
            context.episode.state = {"booked": await calendar.state(), "ended": ended}
        return context.episode

    async def _talk(self, entry: Entry, context: EpisodeContext, calendar: Session) -> str:
        person = [{"role": "system", "content": PERSON.format(wish=entry.data["wish"])}]
        context.episode.messages, reply = self.prompt(entry), "Hello, how can I help you?"
        for _ in range(MAX_TURNS):
            if reply:  # it called no tool: it speaks to the user
                person.append({"role": "user", "content": reply})
                said = (await context.ask_role("user", person)).text
                person.append({"role": "assistant", "content": said})
                context.say("user", said)
                if "DONE" in said:
                    return "finished"
            answer = await context.ask(tools=self.tools(entry))
            if isinstance(answer, Truncated):
                return answer.reason
            calls = answer.tools.calls if answer.tools else ()
            await context.execute(calendar, calls)
            reply = "" if calls else answer.text
        return "max_turns"

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        right = (episode.state or {}).get("booked") == entry.gold
        return Verdict(right, "" if right else "wrong_bookings")
