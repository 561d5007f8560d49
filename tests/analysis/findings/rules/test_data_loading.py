"""Host code that gets the next batch ready while the GPU waits."""

from collections.abc import Iterator

import polars as pl
import pytest

from nsysflow.analysis.findings.pauses import LOADS_DATA
from nsysflow.analysis.findings.rules.data_loading import data_loading
from nsysflow.analysis.findings.subject import Subject
from nsysflow.analysis.options import Options
from tests import tiny
from tests.analysis.findings.subjects import (
    MS,
    US,
    Row,
    found,
    launched,
    loop,
    of_report,
    valued,
)


@pytest.mark.parametrize(
    ("path", "loads"),
    [
        ("/data", True),
        ("/next_batch", True),
        ("/get_data", True),
        ("/wait_for_batch", True),
        ("/enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", True),
        ("/loader/decode", True),
        ("/tokenize", True),
        ("/forward", False),
        ("/batch_norm", False),
        ("/h2d", False),
        ("/load_checkpoint", False),
        ("/metadata", False),
        ("/input_projection", False),
    ],
)
def test_a_phase_loads_data_by_its_name(path: str, loads: bool) -> None:
    assert pl.select(pl.lit(path).str.contains(LOADS_DATA)).item() == loads


def test_a_phase_that_loads_while_the_gpu_waits_is_found_and_replayed() -> None:
    (one,) = found(data_loading, of_report("h200-gpu-metrics"))
    assert (one.rule, one.phase, one.method) == ("data-loading", "step/data", "replay")
    assert one.size_ns > 1 * MS
    assert "num_workers" in one.change[0]


@pytest.mark.parametrize("name", ["dataload-async", "launch_bound-eager", "fusion-eager"])
def test_a_loader_that_hides_behind_the_gpu_and_other_phases_are_none(name: str) -> None:
    assert "data-loading" not in {one.finding.rule for one in valued(name)}


def between(start: int, i: int) -> Iterator[Row]:
    """A range for the model in a step, and 2 ms of host code before it outside any range."""
    yield from launched(start, 100 * i + 1, at=2_010, took=5, kernel_ns=900 * US)


def test_host_code_outside_all_ranges_is_an_upper_bound() -> None:
    rows: list[Row] = []
    for i in range(8):
        start = i * 3_000 * US
        rows.append(tiny.opened(start + 2_000 * US, start + 2_030 * US, "step"))
        rows += between(start, i)
    (one,) = found(data_loading, Subject(tiny.analysis_of(*rows, options=Options(skip=0))))
    assert one.title == "host code between the steps"
    assert one.changes is not None
    assert list(one.changes.options()) == ["--faster-host", "(outside ranges)=0"]
    assert one.method == "bound"
    assert "num_workers" in one.change[1]


def test_host_code_outside_all_ranges_is_no_loader_where_batches_have_a_phase() -> None:
    rows: list[Row] = []
    for i in range(8):
        start = i * 6_000 * US
        rows.append(tiny.opened(start + 2_000 * US, start + 6_000 * US, "step"))
        rows.append(tiny.opened(start + 3_000 * US, start + 5_000 * US, "data"))
        rows += between(start, i)
        rows += launched(start, 100 * i + 2, at=5_010, took=5, kernel_ns=900 * US)
    subject = Subject(tiny.analysis_of(*rows, options=Options(skip=0)))
    elsewhere, loads = found(data_loading, subject)
    assert (loads.phase, elsewhere.phase) == ("step/data", "")
    assert not any("num_workers" in advice for advice in elsewhere.change)


def test_steps_that_are_called_batch_load_nothing_by_that() -> None:
    rows: list[Row] = []
    for i in range(8):
        start = i * 100 * US
        rows.append(tiny.opened(start, start + 99 * US, "batch"))
        rows += launched(start, 100 * i + 1, at=60, took=5, kernel_ns=20 * US)
    assert not found(data_loading, Subject(tiny.analysis_of(*rows, options=Options(skip=0))))


def test_short_loops_without_a_loader_are_none() -> None:
    assert not found(
        data_loading,
        loop(
            lambda start, i: launched(start, 100 * i, at=10, took=5, kernel_ns=80 * US), every=100
        ),
    )
