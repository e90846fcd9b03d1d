"""Benchmarks. Each has a folder with a subclass of `ace_ray.benchmarks.base.Benchmark`."""
