"""The ACEBench paper's tables and figures, for any set of runs."""
