"""Workers that Slurm starts, by dask-jobqueue."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from nsysflow.base.errors import NsysflowError, not_installed

SLURM: Final = "slurm"
"""What is typed instead of the address of a scheduler."""

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
    with TemporaryDirectory() as folder:
        job = Path(folder) / "job.sh"
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
