"""Compute the verdicts of both rule sets on a model's answers."""
