"""Communication kernels, and the ranks of one run."""
