"""The databases and tools behind an episode."""
