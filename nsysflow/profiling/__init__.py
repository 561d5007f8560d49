"""`nsysflow profile`: from a command to a run's directory.

request (what was asked) → plan (what will be run; pure) → run → outcome.
"""

from nsysflow.profiling.capture import capture, plan_of, require_gpu, require_program
from nsysflow.profiling.folder import make_unused_folder
from nsysflow.profiling.plan import WINDOW_DEFAULT, Plan, shown
from nsysflow.profiling.request import Request
from nsysflow.profiling.workload import command_of

__all__ = [
    "WINDOW_DEFAULT",
    "Plan",
    "Request",
    "capture",
    "command_of",
    "make_unused_folder",
    "plan_of",
    "require_gpu",
    "require_program",
    "shown",
]
