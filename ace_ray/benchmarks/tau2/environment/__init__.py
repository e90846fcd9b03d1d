"""Databases and tools of an episode."""
