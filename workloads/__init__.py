"""PyTorch programs with NVTX ranges: bottlenecks, their remedies, and controls.

Each runs in a child process, `python -P -m nsysflow.workloads NAME`, because the command line
imports no torch. It reads `catalog.toml` instead.
"""
