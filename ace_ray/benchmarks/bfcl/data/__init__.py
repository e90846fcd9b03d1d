"""Read BFCL's data from the user's copy of ``bfcl-eval``, without running any of its code."""
