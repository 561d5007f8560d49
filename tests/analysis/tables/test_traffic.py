"""What GPUs send and receive, step by step."""

from dataclasses import replace
from typing import Final

import polars as pl

import nsysflow
from nsysflow.analysis.options import Options
from tests import tiny
from tests.agreement import assert_pictures_agree
from tests.oracle.model import GpuTraffic, Op, PlainTrace, to_trace
from tests.tiny import Row, kernel, launch, opened, plain_of

MS: Final = 1_000_000


def copy(at_ms: int, moved: int, direction: str = "HtoD") -> Op:
    start = at_ms * MS + 10
    return tiny.copy(start, start + 10, None, direction, "pinned", "device", moved=moved)


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


PICTURES: Final[dict[str, PlainTrace]] = {
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


def test_a_narrowed_window_has_its_own_rates() -> None:
    trace = to_trace(PICTURES["no steps"])
    for from_ns, rates in ((None, [(None, 8)]), (6 * MS, [])):
        narrow = nsysflow.analyze(trace, Options(from_ns=from_ns)).traffic
        assert narrow.select("step", "pcie_tx_bytes_per_s").rows() == rates


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
