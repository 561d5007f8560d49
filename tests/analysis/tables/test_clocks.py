"""Clocks over time, and what a lower one costs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.clocks import CLOCKS, DROPS, clock_drops
from nsysflow.analysis.tables.operators import OPERATORS
from tests.agreement import assert_pictures_agree
from tests.analyses import rows_of
from tests.oracle.clocks import drops
from tests.oracle.model import Device, GpuState, Operator, OperatorShape, PlainTrace, to_trace
from tests.oracle.operators import operators
from tests.oracle.report import Report
from tests.tiny import PROCESS, Row, kernel, launch, opened, plain_of

MS: Final = 1_000_000


def steps(*lengths: tuple[int, int], states: Sequence[GpuState] = ()) -> PlainTrace:
    """Steps of these ms, each with a kernel for so many of them; and what was read meanwhile."""
    rows: list[Row] = []
    at = 0
    for number, (step, compute) in enumerate(lengths, start=1):
        rows += [opened(at, at + step * MS, "step"), launch(at + 1, at + 2, number)]
        rows.append(kernel(at + 3, at + 3 + compute * MS, number))
        at += step * MS
    return replace(plain_of(*rows), gpu_states=tuple(states))


def clock(at_ms: int, mhz: int | None, **more: Any) -> GpuState:
    return GpuState(at_ms * MS, 0, mhz, **more)


TWO: Final = ((10, 10),) * 4

PICTURES: Final[dict[str, PlainTrace]] = {
    "a reading holds a second": steps(
        (600, 600), (600, 600), (600, 600), states=[clock(-100, 1980), clock(1_100, 1530)]
    ),
    "no reading before the third step": steps(*TWO, states=[clock(22, 1980)]),
    "the last reading is too old": steps((10, 10), (2_000, 10), (10, 10), states=[clock(0, 1980)]),
    "of one instant the highest": steps(*TWO, states=[clock(5, 1530), clock(5, 1980)]),
    "what is not read ends nothing": steps(
        *TWO, states=[clock(0, 1980, power_w=350), clock(15, None, power_w=700)]
    ),
    "the first of two limits at one instant": steps(
        *TWO, states=[clock(0, 1, limit="power_cap"), clock(0, 1, limit="thermal")]
    ),
    "as much time in two limits": steps(
        *TWO,
        states=[
            clock(at, None, limit=limit)
            for at, limit in ((0, "power_cap"), (2, "thermal"), (4, "none"), (10, "idle"))
        ],
    ),
    "a clock of 0": steps(*TWO, states=[clock(0, 0)]),
    "another GPU": steps(*TWO, states=[GpuState(0, 3, 1980)]),
    "no steps": replace(
        plain_of(launch(0, 1, 1), kernel(2, 10 * MS, 1)), gpu_states=(clock(5, 1980),)
    ),
}


def test_pictures_of_clocks_agree_with_the_oracle() -> None:
    assert_pictures_agree(PICTURES)


def test_a_selected_window_without_steps_has_its_own_means() -> None:
    trace = to_trace(PICTURES["no steps"])
    narrow = nsysflow.analyze(trace, Options(from_ns=0, to_ns=8 * MS)).clocks
    assert narrow.select("step", "start_ns", "end_ns", "sm_clock_mhz").rows() == [
        (None, 2, 8 * MS, 1980)
    ]
    assert nsysflow.analyze(trace, Options(to_ns=4 * MS)).clocks.is_empty()
    assert nsysflow.analyze(replace(trace, gpu_states=trace.gpu_states.clear())).clocks.is_empty()


def rows(*series: tuple[float | None, int, int], **about: Any) -> pl.DataFrame:
    """CLOCKS of steps with a clock, compute and duration each."""
    given = [
        {
            **dict.fromkeys(CLOCKS, None),
            "report": "r",
            "process": 1,
            "device": 0,
            "step": number,
            "start_ns": 0,
            "sm_clock_mhz": mhz,
            "compute_ns": compute,
            "end_ns": duration,
            **{name: values[number] for name, values in about.items()},
        }
        for number, (mhz, compute, duration) in enumerate(series)
    ]
    return pl.DataFrame(given, schema=CLOCKS)


FALLS: Final = (*[(1980.0, 900, 1000)] * 5, *[(1530.0, 1160, 1270)] * 5)

SERIES: Final[dict[str, pl.DataFrame]] = {
    "it falls": rows(*FALLS, limited_by=[None] * 5 + ["power_cap"] * 2 + ["thermal"] * 3),
    "as many of two limits": rows(*FALLS, limited_by=["none"] * 6 + ["power_cap", "thermal"] * 2),
    "no faster at a higher clock": rows(*[(1980.0, 900, 1000)] * 5, *[(1530.0, 900, 1000)] * 5),
    "the host is the limit": rows(*[(1980.0, 900, 2000)] * 5, *[(1530.0, 1160, 2000)] * 5),
    "part of it is the host": rows(*[(1980.0, 900, 2000)] * 5, *[(1530.0, 1160, 2100)] * 5),
    "more to do": rows(*[(1980.0, 900, 1000)] * 5, *[(1900.0, 1900, 2000)] * 5),
    "it only rises while it warms up": rows((1200.0, 900, 1000), *[(1980.0, 900, 1000)] * 9),
    "within its noise": rows(*[(1980.0, 900, 1000)] * 5, *[(1950.0, 950, 1050)] * 5),
    "four steps": rows(*FALLS[3:7]),
    "five steps": rows(*FALLS[3:8]),
    "steps without a clock": rows(*FALLS[3:8], *[(None, 10, 10)] * 5),
    "two processes": pl.concat(
        [rows(*FALLS), rows(*FALLS[2:]).with_columns(process=pl.lit(2, pl.Int64))]
    ),
    "a window": rows(*FALLS, step=[None] * 10),
    "none": rows(),
}


@pytest.mark.parametrize("name", SERIES)
def test_what_a_lower_clock_costs_is_the_oracles(name: str) -> None:
    found = clock_drops(SERIES[name])
    expected = drops(SERIES[name].to_dicts())
    assert rows_of(found.to_dicts(), [*DROPS]) == rows_of(expected, [*DROPS])


def product(*states: GpuState, sms: int | None = 132, gpu: str = "NVIDIA H200") -> float:
    """Share of the roofline of a product of 8192 x 8192 x 8192 in bf16 that takes 1 ms."""
    ran = plain_of(launch(0, 1, 1), kernel(0, MS, 1))
    dims, types = "[[8192, 8192], [8192, 8192]]", '["c10::BFloat16", "c10::BFloat16"]'
    trace = replace(
        ran,
        operators=(Operator(PROCESS, 1, 1, OperatorShape("aten::mm", dims, types)),),
        devices=(Device(0, gpu, "GPU-0", sms, 4_814_304_000_000),),
        gpu_states=states,
    )
    found = nsysflow.analyze(to_trace(trace)).operators
    assert rows_of(found.to_dicts(), OPERATORS.names()) == rows_of(
        operators(Report(trace)), OPERATORS.names()
    )
    return float(found["roofline_pct"][0])


def test_the_roofline_is_at_the_mean_clock_where_that_is_known() -> None:
    flops = 2 * 8192**3
    stated = 100 * flops / 989.4e12 * 1e3
    for more in (product(), product(clock(0, 1530), sms=None), product(clock(0, 0))):
        assert more == pytest.approx(stated)
    at_clock = 100 * flops / (132 * 4096 * 1530e6) * 1e3
    assert product(clock(0, 1530)) == pytest.approx(at_clock)
    twice = product(clock(-1, 1980), GpuState(MS // 2, 0, 1530))
    assert twice == pytest.approx(100 * flops / (132 * 4096 * 1755e6) * 1e3)
    other = product(clock(0, 1530), gpu="NVIDIA A100-SXM4-80GB", sms=108)
    assert other == pytest.approx(100 * flops / (108 * 2048 * 1530e6) * 1e3)
