"""Check ACEBench answers by two rule sets. `official` gives the verdicts of the benchmark's own
evaluator, quirks included; `strict` follows the paper. `agent` judges episodes.

The checkers execute no model output. No output makes them raise, hang or use unbounded memory.
"""
