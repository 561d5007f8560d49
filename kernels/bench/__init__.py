"""The kernels' benchmark: check each result against a reference, then time it.

problem (inputs of one shape, reference, tolerance) → call (variant, direction) → correctness →
measurement → row → table, CSV, JSON. Only `measurement.py` and `stopwatch.py` need a GPU; the rest
is tested without one.
"""
