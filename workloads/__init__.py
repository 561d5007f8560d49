"""NVTX-annotated PyTorch workloads; none yet."""
