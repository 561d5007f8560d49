"""Fused kernels; none yet."""
