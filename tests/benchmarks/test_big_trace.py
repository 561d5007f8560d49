import runpy

import polars as pl
import pytest

from nsysflow.analysis.load import load
from nsysflow.analysis.trace import Trace
from tests.reports import DATA, ROOT

SAMPLE = DATA / "h200-train.sqlite.xz"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Trace]:
    """A report, and three repetitions of it."""
    once = load(SAMPLE)
    target = tmp_path_factory.mktemp("big") / "big.sqlite"
    script = runpy.run_path(str(ROOT / "benchmarks" / "big_trace.py"))
    script["make_big_trace"](SAMPLE, target, kernels=2 * kernels(once) + 1)
    return once, load(target)


def kernels(trace: Trace) -> int:
    return trace.ops.filter(pl.col("kind") == "kernel").height


@pytest.mark.parametrize("frame", ["ops", "calls", "ranges", "overhead"])
def test_every_frame_with_times_repeats_as_a_whole(traces: tuple[Trace, Trace], frame: str) -> None:
    once, big = (getattr(trace, frame) for trace in traces)
    lasted = pl.col("end_ns") - pl.col("start_ns")
    assert big.height == 3 * once.height
    assert big.select(lasted.sum()).item() == 3 * once.select(lasted.sum()).item()


def test_a_call_and_an_operation_meet_only_within_their_repetition(
    traces: tuple[Trace, Trace],
) -> None:
    met = [
        trace.calls.drop_nulls("correlation").join(
            trace.ops, on=["process", "correlation"], nulls_equal=False
        )
        for trace in traces
    ]
    assert met[1].height == 3 * met[0].height
