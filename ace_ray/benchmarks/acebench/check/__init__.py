"""Check ACEBench answers by two rule sets. `official` gives the verdicts of upstream's evaluator,
including its faults; `strict` follows the paper. `agent` judges episodes by both.

The checkers execute no model output. No output makes them raise, hang or use unbounded memory.
"""
