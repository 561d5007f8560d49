"""The oracle: the analysis again, slow and obvious, written from the text of the spec alone.

It shares nothing with `nsysflow.analysis` but the canonical frames (`schema.py`, `trace.py`), and
is held to `tests/data/expected.json`. Where the two disagree, one of them or the spec is wrong.
"""
