"""Check ACEBench answers by two rule sets. `official` gives the verdicts of the benchmark's own
evaluator, quirks included; `strict` follows the paper. `agent` judges episodes.

No model output is executed, and none makes a checker raise, hang or use unbounded memory.
"""
