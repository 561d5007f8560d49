"""Workers that Slurm starts, by dask-jobqueue."""

import sys
from typing import Any, Final

from nsysflow.errors import not_installed

SLURM: Final = "slurm"
"""What is typed instead of the address of a scheduler."""

_DEFAULTS: Final = {"cores": 2, "processes": 2, "memory": "8GB", "python": sys.executable}
"""Of a job with two workers, where `jobqueue.slurm` of Dask's configuration says nothing. Python is
the one that runs here: it must be on storage that all nodes share."""

ANY_PORT: Final = "127.0.0.1:0"
"""Where a scheduler of ours shows its dashboard: a second run finds the usual port taken."""


def slurm_cluster(workers: int) -> Any:  # noqa: ANN401
    """A scheduler here, for which Slurm starts so many workers.

    Raises:
        NsysflowError: dask-jobqueue is not installed.
    """
    try:
        from dask_jobqueue.slurm import SLURMCluster
    except ModuleNotFoundError as error:
        raise not_installed(error.name, "dask") from error
    cluster = SLURMCluster(**asked_for(), scheduler_options={"dashboard_address": ANY_PORT})
    cluster.scale(workers)
    return cluster


def asked_for() -> dict[str, Any]:
    """What a job asks for, beside what Dask's configuration holds."""
    import dask

    held: dict[str, Any] = dask.config.get("jobqueue.slurm", {})
    asked = {name: value for name, value in _DEFAULTS.items() if not held.get(name)}
    prologue = [*(held.get("job-script-prologue") or ()), "export POLARS_MAX_THREADS=1"]
    return {**asked, "job_script_prologue": prologue}
