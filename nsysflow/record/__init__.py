"""`nsysflow profile` and `nsysflow doctor`: from a command to a run's folder.

request (what was asked) → preflight (can it be recorded here) → plan (what to run; pure) →
capture (run it, export, manifest) → failure (why there is no report).
"""
