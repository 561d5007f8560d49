"""What GPUs send and receive, step by step."""

from dataclasses import replace
from typing import Any, Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.options import Options
from tests.agreement import Picture, assert_pictures_agree
from tests.oracle.model import Copy, GpuTraffic, Op, PlainTrace, to_trace
from tests.tiny import PROCESS, Row, kernel, launch, opened, plain_of

MS: Final = 1_000_000


def copy(at_ms: int, moved: int, direction: str = "HtoD", device: int = 0) -> Op:
    name = f"memcpy {direction}"
    about = Copy(moved, direction, "pinned", "device")
    times = at_ms * MS + 10, at_ms * MS + 20
    return Op("memcpy", *times, device, PROCESS, 7, None, None, name, name, copy=about)


def steps(*rows: Row, traffic: tuple[GpuTraffic, ...], count: int = 4) -> PlainTrace:
    """Steps of 100 ms, each with a kernel; these copies; and what was read meanwhile."""
    found: list[Row] = [*rows]
    for number in range(count):
        at = 100 * number * MS
        found += [opened(at, at + 100 * MS, "step"), launch(at + 1, at + 2, number + 1)]
        found.append(kernel(at + 3, at + 99 * MS, number + 1))
    return replace(plain_of(*found), gpu_traffic=traffic)


def reading(at_ms: int, past_ms: int = 100, device: int = 0, **rates: int) -> GpuTraffic:
    named = {f"{name}_bytes_per_s": rate for name, rate in rates.items()}
    return GpuTraffic(at_ms * MS, device, past_ms * MS, **named)


PICTURES: Final[dict[str, Picture]] = {
    "half of a step": steps(traffic=(reading(150, pcie_rx=5), reading(250, pcie_rx=7))),
    "each rate in every other reading": steps(
        traffic=(reading(100, pcie_rx=5), reading(200, pcie_tx=7), reading(300, pcie_rx=9))
    ),
    "two processes read one GPU": steps(
        traffic=(reading(100, pcie_rx=5), reading(150, pcie_rx=7), reading(200, pcie_rx=9))
    ),
    "two readings of one instant": steps(
        traffic=(reading(100, 10, nvlink_tx=5), reading(100, 60, nvlink_tx=4))
    ),
    "more than 64 bits hold of bytes per second by ns": steps(
        traffic=(reading(150, nvlink_rx=450 * 10**9), reading(350, 200, nvlink_rx=451 * 10**9))
    ),
    "another GPU": steps(traffic=(reading(100, device=3, pcie_rx=5),)),
    "copies of both directions": steps(
        *(copy(10, 1_000), copy(10, 70, "DtoH"), copy(110, 9, "UVM HtoD"), copy(120, 5, "DtoD")),
        traffic=(reading(100, pcie_rx=20_000), reading(200, pcie_rx=20_000)),
    ),
    "no steps": replace(
        plain_of(launch(0, 1, 1), kernel(2, 10 * MS, 1)), gpu_traffic=(reading(5, 3, pcie_tx=8),)
    ),
}


def test_pictures_of_traffic_agree_with_the_oracle() -> None:
    assert_pictures_agree(PICTURES)


def rates(trace: PlainTrace, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
    table = nsysflow.analyze(to_trace(trace), Options(**options)).traffic
    return table.select("step", *(f"{column}_bytes_per_s" for column in columns)).rows()


def test_a_rate_holds_for_the_time_before_its_reading() -> None:
    trace = steps(traffic=(reading(150, pcie_rx=500), reading(250, pcie_rx=700, nvlink_tx=3)))
    assert rates(trace, "pcie_rx", "nvlink_tx", "pcie_tx") == [
        (0, 500, None, None),
        (1, pytest.approx(600), 3, None),
        (2, 700, 3, None),
    ]
    assert nsysflow.analyze(to_trace(replace(trace, gpu_traffic=()))).traffic.is_empty()


def test_no_time_counts_twice_where_two_processes_read_a_gpu() -> None:
    """The one whose reading ends later says only what came after the other's."""
    trace = steps(traffic=(reading(80, 80, pcie_rx=100), reading(100, 100, pcie_rx=600)))
    assert rates(trace, "pcie_rx") == [(0, pytest.approx(200))]


def test_the_copies_of_a_step_stand_beside_what_pcie_carried() -> None:
    of_each = [copy(10, 1_000), copy(20, 500), copy(30, 80, "DtoH"), copy(110, 9, "DtoD")]
    trace = steps(*of_each, traffic=(reading(200, 200, pcie_rx=90_000),))
    assert rates(trace, "pcie_rx", "htod", "dtoh") == [
        (0, 90_000, 15_000, 800),
        (1, 90_000, 0, 0),
    ]


def test_a_narrowed_window_has_its_own_rates() -> None:
    trace = PICTURES["no steps"]
    assert isinstance(trace, PlainTrace)
    assert rates(trace, "pcie_tx") == [(None, 8)]
    assert rates(trace, "pcie_tx", from_ns=6 * MS) == []


def test_each_rate_above_0_has_a_lane() -> None:
    first = reading(100, pcie_rx=25_000_000_000, pcie_tx=0, nvlink_rx=500_000_000)
    trace = steps(traffic=(first, reading(200, pcie_rx=5_000_000_000)), count=2)
    tracks = nsysflow.analyze(to_trace(trace)).tracks
    lanes = tracks.lanes.filter(pl.col("kind") == "counter")
    assert lanes["title"].to_list() == [
        "GPU 0: PCIe received, of 25.0 GB/s",
        "GPU 0: NVLink received, of 500 MB/s",
    ]
    assert tracks.counters.select("time_ns", "value_pct").rows() == [
        *((0, 100), (100 * MS, 20)),
        (0, 100),
    ]
