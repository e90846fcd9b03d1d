"""Outputs made elsewhere, a run's summary, and its tables and figures."""
