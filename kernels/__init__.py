"""Fused kernels, one module each: `from nsysflow.kernels.prio import prio`."""
