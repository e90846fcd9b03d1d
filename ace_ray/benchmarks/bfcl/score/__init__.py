"""Outputs made elsewhere, and from verdicts to summaries, tables and reports."""
