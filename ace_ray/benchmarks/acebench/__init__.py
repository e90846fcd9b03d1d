"""ACEBench (arXiv 2501.12851): tool use in 17 categories, English and Chinese."""
