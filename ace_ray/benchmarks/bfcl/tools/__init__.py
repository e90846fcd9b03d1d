"""Run the tool classes of the user's copy of bfcl-eval in a separate process."""
