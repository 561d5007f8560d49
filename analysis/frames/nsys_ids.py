"""nsys's keys of processes (globalPid) and threads (globalTid).

The low 24 bits of a thread's key are its tid, the next 24 its pid; the bits above distinguish hosts
and virtual machines. A process's key has 0 for the tid.
"""

from typing import Final

import polars as pl

ID_BITS: Final = 24
ID_MASK: Final = (1 << ID_BITS) - 1


def process_of(thread: pl.Expr) -> pl.Expr:
    """The process key of a thread key."""
    return thread & pl.lit(~ID_MASK, pl.Int64)


def os_pid(process: pl.Expr) -> pl.Expr:
    """The OS pid of a process key."""
    return (process // (1 << ID_BITS)) & ID_MASK


def os_tid(thread: pl.Expr) -> pl.Expr:
    """The OS tid of a thread key."""
    return thread & ID_MASK
