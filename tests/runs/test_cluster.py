"""What Dask says of a worker, in our words; and the jobs that Slurm is asked for."""

import os
import sys
from collections.abc import Mapping
from operator import add
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsysflow.base.errors import NsysflowError
from nsysflow.base.names import SLURM
from nsysflow.runs.cluster import _part, asked_for, opened
from tests.nsys.fakes import script as shell_script


@pytest.fixture(autouse=True)
def distributed() -> Any:
    """Imported by the one process that runs these tests: it takes 0.7 s of CPU time."""
    pytest.importorskip("dask_jobqueue", reason="needs dask-jobqueue")
    return pytest.importorskip("distributed", reason="needs distributed")


def failed(error: Exception) -> Any:
    return SimpleNamespace(status="error", exception=lambda: error)


def test_what_dask_says_of_a_worker_is_said_in_our_words(distributed: Any) -> None:
    killed = distributed.KilledWorker("task", SimpleNamespace(address="tcp://w:1"), 3)
    part = _part(4, Path("rank4.sqlite"), failed(killed))
    assert str(part.failed[4]).startswith("rank4.sqlite ended each of its workers")
    missing = ModuleNotFoundError("No module named 'nsysflow'", name="nsysflow.runs")
    with pytest.raises(NsysflowError, match="workers of this cluster have no nsysflow"):
        _part(0, Path("a"), failed(missing))
    with pytest.raises(ZeroDivisionError):  # any other is a bug of ours
        _part(0, Path("a"), failed(ZeroDivisionError()))


@pytest.mark.long
def test_an_address_without_a_scheduler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsysflow.runs.cluster._PATIENCE", "1s")
    with (
        pytest.raises(NsysflowError, match="no Dask scheduler answers at tcp:"),
        opened("tcp://127.0.0.1:9", 2),
    ):
        pass


def script(configured: Mapping[str, object]) -> str:
    """The job script under a configuration of `jobqueue.slurm`."""
    import dask
    from dask_jobqueue.slurm import SLURMJob

    with dask.config.set({f"jobqueue.slurm.{name}": value for name, value in configured.items()}):
        job = SLURMJob("tcp://192.0.2.7:8786", name="nsysflow", **asked_for())
        return str(job.job_script())


def test_a_job_of_slurm_starts_two_workers_of_this_python() -> None:
    lines = script({}).splitlines()
    assert "#SBATCH --cpus-per-task=2" in lines
    assert "#SBATCH --mem=8G" in lines
    assert "export POLARS_MAX_THREADS=1" in lines
    assert lines[-1].startswith(f"{sys.executable} -m distributed.cli.dask_worker tcp://192.0.2.7")
    assert "--nworkers 2" in lines[-1]


def slurm_here(folder: Path, monkeypatch: pytest.MonkeyPatch, sbatch: str) -> None:
    """A Slurm of scripts: what is submitted runs here at once."""
    shell_script(folder / "sbatch", sbatch)
    shell_script(folder / "scancel", 'kill -- "-$1"')
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.mark.long
def test_workers_of_slurm_do_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = f'cp "$1" {tmp_path}/job.sh'  # as Slurm does; Dask removes its copy
    run = f'setsid sh {tmp_path}/job.sh > {tmp_path}/job.log 2>&1 & echo "Submitted batch job $!"'
    slurm_here(tmp_path, monkeypatch, f'[ "$1" = --test-only ] && exit 0; {keep}; {run}')
    with opened(SLURM, 2) as cluster:
        assert cluster.merged(abs, [-1, -2, -3], add, lambda: None).value == 6


def test_why_slurm_refuses_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm_here(tmp_path, monkeypatch, "echo 'allocation failure: Invalid account' >&2; exit 1")
    refused = "Slurm refuses the workers' jobs: allocation failure"
    with pytest.raises(NsysflowError, match=refused), opened(SLURM, 2):
        pass
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NsysflowError, match="there is no Slurm here"), opened(SLURM, 2):
        pass
