"""BFCL, the Berkeley Function Calling Leaderboard (v4), as a `Benchmark`."""
