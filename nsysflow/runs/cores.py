"""On how many cores a report is analysed."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from nsysflow.runs.memory import unpacked_bytes

_SMALL_BYTES: Final = 4_000_000
"""Reports up to so large, as SQLite, are analysed on one core: 3 MB with 25,000 kernels took 2.9 s
on two, and 2.1 s on one of them (2-core VM, 2026-11-28)."""

_THREADS: Final = "POLARS_MAX_THREADS"

_PROCESSOR: Final = 36
"""Which field it is in a thread's stat, after its name."""


def use_one_core_for(reports: Sequence[Path]) -> None:
    """Let polars use one thread, on the core of this one, where all reports are small, unless the
    user chose otherwise. Polars reads the setting when it loads.

    Their frames have some hundred rows. Polars hands most of them to a thread of its own: to wake
    another core for it takes 100 us, longer than to compute them, and on one core it takes 10 us.
    """
    if _THREADS in os.environ or "polars" in sys.modules:
        return
    known = reports and all(report.exists() for report in reports)
    if not known or sum(map(unpacked_bytes, reports)) > _SMALL_BYTES:
        return
    os.environ[_THREADS] = "1"
    with suppress(OSError):  # there is no /proc, or a sandbox forbids it
        if hasattr(os, "sched_setaffinity") and _most_cores_idle():
            os.sched_setaffinity(0, {_core()})


def _most_cores_idle() -> bool:
    """Whether half of the cores or more have nothing to do. Busy ones are awake, and others may be
    on the same core for good."""
    running = Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0]
    return int(running) <= max(1, len(os.sched_getaffinity(0)) // 2)


def _core() -> int:
    """The core that this thread runs on."""
    stat = Path("/proc/thread-self/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[_PROCESSOR])
