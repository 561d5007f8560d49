"""The oracle: the analysis a second time, slow and obvious, written only from docs/spec.md.

Functions cite the rules that they follow: §3.4 is rule 4 of section 3. The oracle shares the
canonical frames with `nsysflow.analysis` (`schema.py`, `trace.py`), the classes of kernels and the
peaks of GPUs, and nothing else. `tests/data/expected.json` checks it independently. If oracle and
analysis disagree, one of them or the spec is wrong.
"""
