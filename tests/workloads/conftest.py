"""The workloads need torch, which the rest of the package does not.

Their fused variants run in Triton's interpreter where there is no GPU.
"""

import os
from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]

if find_spec("torch"):
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
