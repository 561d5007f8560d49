"""The engine that options choose, and how many workers fit."""

from pathlib import Path

import pytest

from nsysflow.base.errors import SelectionError
from nsysflow.runs import engine as engine_module
from nsysflow.runs.engine import Choice, Executor, engine_of
from nsysflow.runs.workers import Processes, Threads


def test_the_executor_has_the_workers_that_were_asked_for() -> None:
    kinds: dict[Executor, type] = {"threads": Threads, "processes": Processes}
    for executor, kind in kinds.items():
        with engine_of(Choice(executor=executor, workers=3), []) as engine:
            assert isinstance(engine, kind)
            assert vars(engine)["workers"] == 3
    with engine_of(Choice(), []) as engine:
        assert isinstance(engine, Processes)


@pytest.mark.parametrize(
    ("free_bytes", "names", "workers"),
    [
        (100e9, ["a.sqlite"] * 9, 8),  # as many as there are cores
        (100e9, ["a.sqlite"] * 3, 3),  # no more than reports
        (10e9, ["a.sqlite"] * 9, 3),  # 0.2 GB and 6 times 0.5 GB each
        (10e9, ["a.sqlite", "a.sqlite.xz"], 1),  # 10 times as large once it is unpacked
        (1e9, ["a.sqlite"] * 9, 1),  # never none
        (100e9, ["gone.sqlite"] * 9, 8),
    ],
)
def test_as_many_workers_start_as_cores_and_memory_allow(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free_bytes: float,
    names: list[str],
    workers: int,
) -> None:
    for name in ("a.sqlite", "a.sqlite.xz"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(500_000_000)
    assert engine_module._cores() >= 1
    monkeypatch.setattr(engine_module, "_cores", lambda: 8)
    monkeypatch.setattr(engine_module, "free_bytes", lambda: int(free_bytes))
    with engine_of(Choice(), [tmp_path / name for name in names]) as engine:
        assert vars(engine)["workers"] == workers


def test_a_scheduler_means_dask_and_has_its_own_workers() -> None:
    with pytest.raises(SelectionError, match="--scheduler slurm is for Dask"):
        Choice(executor="threads", scheduler="slurm")
    assert Choice(executor="dask", scheduler="slurm", workers=4).workers == 4
    with pytest.raises(SelectionError, match="has workers of its own"):
        Choice(scheduler="tcp://10.0.0.1:8786", workers=4)
