"""What is built in, and the options of each: read without importing torch.

`workloads/catalog.toml` and `kernels/catalog.toml` declare workloads and kernels. Tests hold both
files to the code.
"""

from nsysflow.catalog.catalog import (
    Kernel,
    Option,
    Variant,
    Workload,
    find,
    find_variant,
    kernels,
    workloads,
)

__all__ = [
    "Kernel",
    "Option",
    "Variant",
    "Workload",
    "find",
    "find_variant",
    "kernels",
    "workloads",
]
