"""Read outputs of bfcl-eval, and turn verdicts into summaries, tables and reports."""
