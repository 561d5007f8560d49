"""nsys, the command line program of Nsight Systems: find it, build its argv, run it."""

from nsysflow.nsys.argv import (
    BY_CUDA,
    WAIT_NS,
    Backtrace,
    Recording,
    export_argv,
    profile_argv,
)
from nsysflow.nsys.find import find
from nsysflow.nsys.importer import ImporterProblem, importer_problem
from nsysflow.nsys.places import Places, home, user_cache
from nsysflow.nsys.program import (
    ASSUMED,
    LAST_NVTX,
    Nsys,
    misses_new_nvtx,
    records_nvtx,
    too_old_for,
)
from nsysflow.nsys.run import DISK_FULL, export, exporter, last_words

__all__ = [
    "ASSUMED",
    "BY_CUDA",
    "DISK_FULL",
    "LAST_NVTX",
    "WAIT_NS",
    "Backtrace",
    "ImporterProblem",
    "Nsys",
    "Places",
    "Recording",
    "export",
    "export_argv",
    "exporter",
    "find",
    "home",
    "importer_problem",
    "last_words",
    "misses_new_nvtx",
    "profile_argv",
    "records_nvtx",
    "too_old_for",
    "user_cache",
]
