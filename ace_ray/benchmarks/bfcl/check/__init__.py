"""Verdicts under both rule sets on what a model answered."""
