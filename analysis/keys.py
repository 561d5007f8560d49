"""nsys's keys of processes (globalPid) and threads (globalTid): 24 bits of tid, which are 0 in a
process's key, below 24 bits of pid, below what tells hosts and virtual machines apart."""

from typing import Final

import polars as pl

ID_BITS: Final = 24
ID_MASK: Final = (1 << ID_BITS) - 1


def process_of(thread: pl.Expr) -> pl.Expr:
    """Process key of a thread key."""
    return thread & pl.lit(~ID_MASK, pl.Int64)


def os_pid(process: pl.Expr) -> pl.Expr:
    """OS pid of a process key."""
    return (process // (1 << ID_BITS)) & ID_MASK


def os_tid(thread: pl.Expr) -> pl.Expr:
    """OS tid of a thread key."""
    return thread & ID_MASK
