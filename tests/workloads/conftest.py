"""The workloads need torch, which the rest of the package does not.

Their fused variants run in Triton's interpreter where there is no GPU.
"""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["*test_*.py"]

if find_spec("torch"):
    from tests.interpreter import interpret_without_gpu

    interpret_without_gpu()
