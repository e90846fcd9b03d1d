"""BFCL, the Berkeley Function Calling Leaderboard (v4), behind the `Benchmark` protocol."""
