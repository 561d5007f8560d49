"""Threads and processes that do the work, how many of them fit, and their memory."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from operator import add
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.base.errors import Damaged, ReportError, SelectionError
from nsysflow.runs import engine as engine_module
from nsysflow.runs import resources
from nsysflow.runs.cluster import Cluster
from nsysflow.runs.engine import Choice, engine_of
from nsysflow.runs.resources import (
    free_bytes,
    free_of_groups,
    is_large,
    needed_bytes,
    room_bytes,
    scratch_for,
)
from nsysflow.runs.workers import Engine, Part, all_joined, in_pairs, part_of
from tests.runs.works import Once, bug, killed, killed_once, named

NUMBERS = [*range(20), 101, 103]
WHOLE = "".join(f"{number}," for number in range(20))

needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="needs distributed")
dask = pytest.param("dask", marks=[needs_dask, pytest.mark.long])


@pytest.fixture(params=["threads", "processes", dask], scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Two workers of each kind."""
    with engine_of(Choice(executor=request.param, workers=2), []) as opened:
        yield opened


def nothing() -> None:
    pass


def test_results_are_in_the_order_of_the_items(engine: Engine) -> None:
    done: list[int] = []
    whole = engine.merged(named, NUMBERS, add, lambda: done.append(1))
    assert whole.value == WHOLE
    assert {number: str(error) for number, error in whole.failed.items()} == {
        20: "101 is damaged",
        21: "103 is damaged",
    }
    assert len(done) == len(NUMBERS)


@pytest.mark.parametrize("engine", [dask], indirect=True, scope="module")
def test_a_scheduler_is_found_by_its_address(engine: Cluster) -> None:
    address = engine.client.scheduler_info()["address"]
    with engine_of(Choice(scheduler=address), []) as other:
        assert other.merged(named, NUMBERS, add, nothing).value == WHOLE


def test_a_bug_keeps_its_traceback(engine: Engine) -> None:
    with pytest.raises(IndexError, match="list index out of range"):
        engine.merged(bug, NUMBERS, add, nothing)


def test_a_worker_that_dies_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    mark = tmp_path / "died"
    if type(engine).__name__ == "Threads":
        mark.touch()  # a thread cannot die alone
    items = [Once(number, mark) for number in range(20)]
    assert engine.merged(killed_once, items, add, nothing) == Part(value=WHOLE)
    assert mark.exists()


@pytest.mark.slow
def test_an_item_that_kills_every_worker_is_left_out() -> None:
    with engine_of(Choice(executor="processes", workers=2), []) as engine:
        whole = engine.merged(killed, range(20), add, nothing)
    assert whole.value == WHOLE.replace(",3,", ",", 1)
    assert list(whole.failed) == [3]
    assert isinstance(whole.failed[3], ReportError)
    assert str(whole.failed[3]).startswith("3 ended its worker process 3 times")


@given(st.lists(st.integers(), min_size=1, max_size=70))
def test_joining_in_pairs_keeps_every_item_in_order(numbers: list[int]) -> None:
    assert in_pairs(lambda one, other: one + other, [[each] for each in numbers]) == numbers
    # as deep as the logarithm of the parts
    assert in_pairs(lambda one, other: max(one, other) + 1, [0] * 1000) == 10


@given(st.lists(st.integers(0, 200), min_size=1, max_size=20))
def test_what_failed_is_left_out_and_named_by_its_number(items: list[int]) -> None:
    parts = [part_of(named, number, item) for number, item in enumerate(items)]
    whole = all_joined(lambda one, other: one + other, parts)
    bad = [number for number, item in enumerate(items) if item >= 100 and item % 2]
    good = "".join(f"{item}," for number, item in enumerate(items) if number not in bad)
    assert (whole.value or "", sorted(whole.failed)) == (good, bad)
    assert all(isinstance(each, Damaged) for each in whole.failed.values())


def sized(file: Path, size: int) -> Path:
    with file.open("wb") as out:
        out.truncate(size)
    return file


@pytest.mark.parametrize(
    ("free", "names", "workers"),
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, names: list[str], workers: int
) -> None:
    for name in ("a.sqlite", "a.sqlite.xz"):
        sized(tmp_path / name, 500_000_000)
    assert resources.usable_cores() >= 1
    monkeypatch.setattr(engine_module, "usable_cores", lambda: 8)
    monkeypatch.setattr(engine_module, "free_bytes", lambda: int(free))
    with engine_of(Choice(), [tmp_path / name for name in names]) as engine:
        assert vars(engine)["workers"] == workers


def test_a_scheduler_means_dask_and_has_its_own_workers() -> None:
    with pytest.raises(SelectionError, match="--scheduler slurm is for Dask"):
        Choice(executor="threads", scheduler="slurm")
    assert Choice(executor="dask", scheduler="slurm", workers=4).workers == 4
    with pytest.raises(SelectionError, match="has workers of its own"):
        Choice(scheduler="tcp://10.0.0.1:8786", workers=4)


GB = 10**9


@pytest.mark.parametrize(
    ("needed", "free", "large"),
    [
        (6 * GB, 16 * GB, False),
        (6 * GB + 1, 16 * GB, True),  # however much is free
        (2 * GB, 4 * GB, False),
        (2 * GB + 1, 4 * GB, True),  # more than half of what is free
    ],
)
def test_a_report_is_large_beside_memory_or_alone(needed: int, free: int, *, large: bool) -> None:
    assert is_large(needed, free) == large


def test_a_report_needs_six_times_its_bytes_and_ten_times_more_packed(tmp_path: Path) -> None:
    assert needed_bytes(sized(tmp_path / "a.sqlite", GB)) == 6 * GB + GB // 5
    assert needed_bytes(sized(tmp_path / "a.sqlite.xz", GB)) == 60 * GB + GB // 5
    assert needed_bytes(tmp_path / "gone.sqlite") == GB // 5
    # a run needs what its report needs, and a parquetdir what all of its tables need
    folder = tmp_path / "run"
    folder.mkdir()
    assert needed_bytes(folder) == GB // 5
    sized(folder / "program.log", GB // 2)
    sized(folder / "report.sqlite", GB)
    assert needed_bytes(folder) == 6 * GB + GB // 5
    for name in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        sized(folder / f"{name}.parquet", 2 * GB)
    assert needed_bytes(folder) == 24 * GB + GB // 5


def limited(group: Path, names: tuple[str, str], most: str, stat: str) -> None:
    group.mkdir(parents=True, exist_ok=True)
    (group / names[0]).write_text(f"{most}\n")
    (group / names[1]).write_text("600\n")
    (group / "memory.stat").write_text(f"anon 7\n{stat} 100\n")


NEW, OLD = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")


def test_a_group_leaves_what_it_may_take_and_what_the_kernel_can_drop(tmp_path: Path) -> None:
    limited(tmp_path / "user" / "me", NEW, "1000", "inactive_file")
    assert [*free_of_groups("0::/user/me\n", tmp_path)] == [500]
    limited(tmp_path / "user", NEW, "800", "inactive_file")  # the groups around it count too
    assert sorted(free_of_groups("0::/user/me\n", tmp_path)) == [300, 500]
    limited(tmp_path / "user", NEW, "max", "inactive_file")
    assert [*free_of_groups("0::/user\n1:name=systemd:/\n", tmp_path)] == []


def test_in_a_container_the_innermost_group_is_where_all_are_mounted(tmp_path: Path) -> None:
    limited(tmp_path / "memory", OLD, "1000", "total_inactive_file")
    assert [*free_of_groups("5:devices:/x\n4:memory:/docker/0123\n", tmp_path)] == [500]
    assert free_bytes() > 0  # on this machine


def test_a_large_report_uses_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = sized(tmp_path / "a.sqlite", GB)
    monkeypatch.setattr(resources, "free_bytes", lambda: 8 * GB)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scratch = scratch_for(report, low_memory=False)
    assert scratch is not None
    assert scratch.folder.is_relative_to(tmp_path / "cache")
    assert scratch.folder.is_dir()
    assert scratch.room_bytes == room_bytes(8 * GB)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_small_reports_are_analysed_on_one_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: chosen.append(cores))
    monkeypatch.setattr(resources, "_most_cores_idle", lambda: True)
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    monkeypatch.setenv("POLARS_MAX_THREADS", "3")
    small, large = sized(tmp_path / "a.sqlite", 1000), sized(tmp_path / "b.sqlite", GB)
    resources.use_one_core_for([small])  # the user chose
    assert os.environ["POLARS_MAX_THREADS"] == "3"
    monkeypatch.delenv("POLARS_MAX_THREADS")
    for others in ([], [large], [small, large], [tmp_path / "rank*.sqlite"]):
        resources.use_one_core_for(others)
    assert "POLARS_MAX_THREADS" not in os.environ
    assert not chosen
    resources.use_one_core_for([small])
    assert os.environ["POLARS_MAX_THREADS"] == "1"
    assert len(chosen) == 1
    assert chosen[0] <= os.sched_getaffinity(0)


@pytest.mark.parametrize(("free", "room"), [(0, 0), (12 * GB, 2 * GB), (60 * GB, 7 * GB // 2)])
def test_a_large_report_takes_some_of_the_free_memory_but_never_all(free: int, room: int) -> None:
    assert room_bytes(free) == room
