"""The categories of the benchmark: upstream's domains, and telecom without a user."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Category:
    """``solo``: the agent has the user's tools too, reads a ticket, and there is no user.
    ``user_tools``: the domain has tools for the user."""

    name: str
    domain: str
    solo: bool = False
    user_tools: bool = False

    @property
    def has_user(self) -> bool:
        return not self.solo


CATEGORIES = {
    one.name: one
    for one in (
        Category("airline", "airline"),
        Category("retail", "retail"),
        Category("telecom", "telecom", user_tools=True),
        Category("telecom_solo", "telecom", solo=True, user_tools=True),
        Category("mock", "mock"),
    )
}
"""By name, in print order."""
LEADERBOARD = ("airline", "retail", "telecom")
"""What upstream's leaderboard ranks."""
DOMAINS = tuple(dict.fromkeys(one.domain for one in CATEGORIES.values()))
