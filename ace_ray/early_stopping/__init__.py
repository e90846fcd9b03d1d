"""Deciding comparisons early: an order of entries, confidence sequences over it, and decisions."""
