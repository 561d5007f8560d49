"""Workers of Dask: here, behind the address of a scheduler, or started by Slurm."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from logging import CRITICAL
from typing import TYPE_CHECKING, Any, Final

from nsysflow.base.atomic import scratch_folder
from nsysflow.base.errors import NsysflowError, ReportError, not_installed
from nsysflow.base.names import SLURM
from nsysflow.runs.workers import Done, Item, Part, T, in_pairs, joined, part_of

if TYPE_CHECKING:
    from distributed import Client, Future


_DEFAULTS: Final = {"cores": 2, "processes": 2, "memory": "8GB", "python": sys.executable}
"""Of a job with two workers, where `jobqueue.slurm` of Dask's configuration says nothing. Python is
the one that runs here: it must be on storage that all nodes share."""

ANY_PORT: Final = "127.0.0.1:0"
"""Where a scheduler of ours shows its dashboard: a second run finds the usual port taken."""


def slurm_cluster(workers: int) -> Any:
    """A scheduler here, for which Slurm starts so many workers.

    Raises:
        NsysflowError: dask-jobqueue is not installed, or Slurm refuses its jobs.
    """
    try:
        from dask_jobqueue.slurm import SLURMCluster
    except ModuleNotFoundError as error:
        raise not_installed(error.name, "dask") from error
    cluster = SLURMCluster(**asked_for(), scheduler_options={"dashboard_address": ANY_PORT})
    try:
        _require_accepted(cluster.job_script())
    except NsysflowError:
        cluster.close()
        raise
    cluster.scale(workers)
    return cluster


def _require_accepted(script: str) -> None:
    """Ask Slurm whether it would accept a job. If Slurm refuses it later, Dask reports no error and
    waits for its workers for ever.

    Raises:
        NsysflowError: Slurm refuses it, or there is no Slurm here.
    """
    with scratch_folder() as folder:
        job = folder / "job.sh"
        job.write_text(script, encoding="utf-8")
        try:
            asked = subprocess.run(
                ["sbatch", "--test-only", str(job)], capture_output=True, text=True, check=False
            )
        except FileNotFoundError as error:
            raise NsysflowError(
                "there is no Slurm here: no program sbatch is on PATH",
                "Type the command on a machine that can submit jobs",
            ) from error
    if asked.returncode:
        raise NsysflowError(
            f"Slurm refuses the workers' jobs: {_last_line(asked.stderr)}",
            "Set their partition, account and size in Dask's configuration (jobqueue.slurm). To see"
            " what your account may use",
            "sacctmgr show associations user=$USER",
        )


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def asked_for() -> dict[str, Any]:
    """What a job asks for, beside what Dask's configuration holds."""
    import dask

    held: dict[str, Any] = dask.config.get("jobqueue.slurm", {})
    asked = {name: value for name, value in _DEFAULTS.items() if not held.get(name)}
    prologue = [*(held.get("job-script-prologue") or ()), "export POLARS_MAX_THREADS=1"]
    return {**asked, "job_script_prologue": prologue}


_RETRIES: Final = 2
"""Of an item whose work fails with an error that is not ours. Dask itself starts the work of a
worker that died again, three times (`distributed.scheduler.allowed-failures`)."""

_PATIENCE: Final = "10s"
"""For so long a scheduler may take to answer."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """An engine of Dask workers. What items became stays with the workers until all is joined.

    Attributes:
        client: connected to the scheduler.
    """

    client: "Client"

    def merged(
        self,
        work: Callable[[Item], T],
        items: Sequence[Item],
        combine: Callable[[T, T], T],
        done: Done,
    ) -> Part[T]:
        """See `Engine`.

        Raises:
            NsysflowError: the workers have no nsysflow.
        """
        from distributed import as_completed

        send = partial(self.client.submit, pure=False)
        futures = [
            send(part_of, work, number, item, retries=_RETRIES) for number, item in enumerate(items)
        ]
        for _ in as_completed(futures):
            done()
        parts = [_part(number, items[number], each) for number, each in enumerate(futures)]
        whole: Any = in_pairs(partial(send, joined, combine), parts)
        found: Part[T] = whole.result() if hasattr(whole, "result") else whole
        return found


def _part(number: int, item: object, future: "Future[Any]") -> Any:
    """The future itself; a part of this process where the workers that did the item died.

    Raises:
        NsysflowError: the workers have no nsysflow.
    """
    from distributed import KilledWorker

    error = future.exception() if future.status == "error" else None
    if error is None:
        return future
    if isinstance(error, KilledWorker):
        path = getattr(item, "path", item)
        killed = ReportError(
            f"{path} ended each of its workers, probably for lack of memory",
            "Give workers more memory, or analyse it by itself",
        )
        return Part(failed={number: killed})
    if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("nsysflow"):
        raise NsysflowError(
            "the workers of this cluster have no nsysflow",
            "Install it in their Python, too",
            "pip install nsysflow",
        ) from error
    raise error


@contextmanager
def opened(scheduler: str | None, workers: int) -> Iterator[Cluster]:
    """A connected cluster; what was started for it ends with the block.

    Args:
        scheduler: the address of one, or `slurm`; None starts one here.
        workers: how many to start.

    Raises:
        NsysflowError: Dask is not installed, or no scheduler answers.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise not_installed(error.name, "dask") from error
    if scheduler is None or scheduler == SLURM:
        with (
            _local(workers) if scheduler is None else slurm_cluster(workers) as cluster,
            Client(cluster) as client,
        ):
            yield Cluster(client=client)
        return
    try:
        client = Client(scheduler, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise NsysflowError(
            f"no Dask scheduler answers at {scheduler}: {error}",
            "Start one, or see its address",
            "dask scheduler",
        ) from error
    with client:
        yield Cluster(client=client)


def _local(workers: int) -> Any:
    """A scheduler and workers on this machine, one thread each."""
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address=ANY_PORT,
        silence_logs=CRITICAL,
        env={"POLARS_MAX_THREADS": "1"},
    )
