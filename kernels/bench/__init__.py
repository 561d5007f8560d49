"""Kernels against their references: are they right, and then, how long do they take?

problem (inputs of one shape, references, limits) → call (variant, direction) → judged → measured →
row → table, CSV, JSON. Whatever needs a GPU is in `measuring.py`; the rest is tested without one.
"""
