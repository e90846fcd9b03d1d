"""ACEBench's data: the official layout, its import and its download."""
