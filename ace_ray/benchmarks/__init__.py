"""Benchmarks: one folder each, each a class (`ace_ray.benchmarks.base`)."""
