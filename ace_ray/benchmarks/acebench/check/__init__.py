"""ACEBench's checkers: `official` is what the benchmark's own evaluator says, quirks included;
`strict` is the paper's definition. `agent` judges episodes.

Neither executes anything of an output, and no output makes them raise, hang or grow.
"""
