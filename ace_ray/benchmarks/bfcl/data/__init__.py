"""BFCL's data: the user's copy of ``bfcl-eval``, read without running any of it."""
