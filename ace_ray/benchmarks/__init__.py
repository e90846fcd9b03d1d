"""Benchmarks: one folder each, behind one protocol (`ace_ray.benchmarks.protocol`)."""
