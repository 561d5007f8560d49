"""Did it change, and why?

Pure Python on the figures of report.json: `check` and `diff` start without polars and without rich.
"""
