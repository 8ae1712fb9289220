"""Benchmarks: one program a question, run by `perf/run.py`. Not part of the package."""
