"""Which engine does the work, and how many workers it has."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from nsysflow.base.errors import SelectionError
from nsysflow.base.names import SLURM
from nsysflow.runs.resources import free_bytes, needed_bytes, usable_cores

if TYPE_CHECKING:
    from nsysflow.runs.workers import Engine

Executor = Literal["threads", "processes", "dask"]

_SLURM_WORKERS: Final = 8
"""Four jobs of two workers each: they digest 20 small reports in a second."""


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
def engine_of(choice: Choice, files: Sequence[Path]) -> "Iterator[Engine]":
    """The engine that was chosen, for work on these files; its workers end with the block.

    Raises:
        NsysflowError: Dask is needed and not installed, or no scheduler answers.
    """
    from nsysflow.runs.workers import Processes, Threads  # a few reports need neither

    executor = choice.executor or ("dask" if choice.scheduler else "processes")
    if executor == "dask":
        from nsysflow.runs.cluster import opened

        wanted = _SLURM_WORKERS if choice.scheduler == SLURM else _fitting(files)
        with opened(choice.scheduler, choice.workers or wanted) as cluster:
            yield cluster
        return
    workers = choice.workers or _fitting(files)
    if executor == "threads":
        yield Threads(workers=workers)
    else:
        yield Processes(workers=workers, threads=max(1, usable_cores() // workers))


def _fitting(files: Sequence[Path]) -> int:
    """As many workers as there are cores, files, and memory for the largest files."""
    each = max(map(needed_bytes, files), default=1)
    return max(1, min(usable_cores(), len(files), free_bytes() // each))
