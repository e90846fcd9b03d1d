"""Decide comparisons early: draw entries in an order, bet on the differences, and stop."""
