"""Fused kernels, one module each; import the module: `from nsysflow.kernels.prio import prio`."""
