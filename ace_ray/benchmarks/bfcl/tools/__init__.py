"""Upstream's classes out of the user's copy, behind a `Scenario` in a process of its own."""
