"""StableToolBench: queries that virtual APIs can answer, and judges of the answers."""
