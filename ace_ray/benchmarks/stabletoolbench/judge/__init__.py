"""Judges of answers: SoPR and FAC by a model, and SoWR between two runs."""
