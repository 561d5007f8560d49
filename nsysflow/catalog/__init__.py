"""What is built in, and the options of each: read without importing torch.

`workloads/catalog.toml` and `kernels/catalog.toml` declare workloads and kernels. Tests hold both
files to the code.
"""

from nsysflow.catalog.kernel import Kernel, kernels
from nsysflow.catalog.workload import Option, Variant, Workload, find, find_variant, workloads

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
