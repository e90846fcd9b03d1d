"""From verdicts to the summary: groups, overall scores, format sensitivity, contamination."""
