"""From verdicts to numbers: summaries, outputs made elsewhere, and the gold answers' own score."""
