"""Kernels, and the classes that they belong to."""
