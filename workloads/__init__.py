"""NVTX-annotated PyTorch: bottlenecks, their remedies, and controls.

Each runs in a child process, `python -P -m nsysflow.workloads NAME`, so that the command line
imports no torch; `catalog.toml` is what it reads instead.
"""
