"""Which engine does the work, and how many workers it has."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from nsysflow.engine.part import Engine
from nsysflow.engine.processes import Processes
from nsysflow.engine.slurm import SLURM
from nsysflow.engine.threads import Threads
from nsysflow.errors import SelectionError

Executor = Literal["threads", "processes", "dask"]
EXECUTORS: Final[tuple[Executor, ...]] = get_args(Executor)

_SLURM_WORKERS: Final = 8
"""Four jobs of two workers each: they digest 20 small reports in a second."""

_REPORT_BYTES: Final = 200_000_000
_BYTES_PER_BYTE: Final = 6
_PACKED: Final = 10
"""A report takes about so much memory, plus six times its SQLite file (1.0 M kernels: 179 MB and
1.1 GB, docs/facts.md). Packed it is a tenth as large."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How work on many reports is done.

    Attributes:
        executor: where; None takes Dask if there is a scheduler, else processes. A script that
            starts those needs an `if __name__ == "__main__":`.
        workers: how many reports are open at once; None for as many as the machine has cores and
            memory for.
        scheduler: the address of a Dask scheduler, or `slurm`.

    Raises:
        SelectionError: these do not go together.
    """

    executor: Executor | None = None
    workers: int | None = None
    scheduler: str | None = None

    def __post_init__(self) -> None:
        if self.scheduler is None:
            return
        if self.executor not in (None, "dask"):
            raise SelectionError(
                f"--scheduler {self.scheduler} is for Dask, and --executor is {self.executor}",
                "Leave out one of them",
            )
        if self.workers is not None and self.scheduler != SLURM:
            raise SelectionError(
                f"the scheduler at {self.scheduler} has workers of its own",
                "Leave out --workers",
            )


@contextmanager
def engine_of(choice: Choice, files: Sequence[Path]) -> Iterator[Engine]:
    """The engine that was chosen, for work on these files; its workers end with the block.

    Raises:
        NsysflowError: Dask is needed and not installed, or no scheduler answers.
    """
    executor = choice.executor or ("dask" if choice.scheduler else "processes")
    if executor == "dask":
        from nsysflow.engine.cluster import opened

        wanted = _SLURM_WORKERS if choice.scheduler == SLURM else _fitting(files)
        with opened(choice.scheduler, choice.workers or wanted) as cluster:
            yield cluster
        return
    workers = choice.workers or _fitting(files)
    if executor == "threads":
        yield Threads(workers=workers)
    else:
        yield Processes(workers=workers, threads=max(1, _cores() // workers))


def _fitting(files: Sequence[Path]) -> int:
    """As many workers as there are cores, files, and memory for the largest files."""
    each = _REPORT_BYTES + _BYTES_PER_BYTE * max(map(_unpacked_bytes, files), default=0)
    return max(1, min(_cores(), len(files), _free_bytes() // each))


def _unpacked_bytes(file: Path) -> int:
    try:
        size = file.stat().st_size
    except OSError:  # whoever opens it says so
        return 0
    return size * _PACKED if file.suffix in (".xz", ".gz", ".zst") else size


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _free_bytes() -> int:
    """The memory that is free, or could be."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError):  # another system than Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
