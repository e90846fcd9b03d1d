"""Function calling with the user's own cases: messages, tools, expected calls (docs/calls.md)."""
