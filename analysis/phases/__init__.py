"""Which NVTX range each operation and each idle moment belongs to."""
