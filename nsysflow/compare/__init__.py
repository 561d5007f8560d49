"""Did it change, and why?

Plain Python: `nsysflow check report.json` must not wait for polars. docs/spec.md §18 defines what
the numbers mean.
"""
