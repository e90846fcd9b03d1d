"""Compute the verdicts of both rule sets, official and strict, on a model's answers."""
