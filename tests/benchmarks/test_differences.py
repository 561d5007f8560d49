import runpy
from math import e

import polars as pl
import pytest

from benchmarks.apart import apart
from benchmarks.gap_report_stability import changes, noise, share_pct, shifted_pct
from nsysflow.analysis.load import load
from nsysflow.analysis.trace import Trace
from nsysflow.report.gap_report import Place
from tests.reports import DATA, ROOT


def rows(*cases: tuple[str, str, str]) -> pl.DataFrame:
    """Rows as strings, as a CSV reader gives them: kernel, device and graph medians."""
    columns = ["kernel", "device_median_ns", "graph_warm_median_ns"]
    same = ("gpu", "shape", "dtype", "direction", "variant")
    return pl.DataFrame(cases, schema=columns, orient="row").with_columns(
        *(pl.lit("same").alias(name) for name in same), bytes=pl.lit("1")
    )


def test_the_largest_difference_comes_first_as_a_share_of_the_smaller_value() -> None:
    first = rows(("prio", "1000.0", "500.0"), ("muon", "80.0", "70.0"))
    second = rows(("prio", "990.0", "500.0"), ("muon", "80.0", "77.0"))
    found = apart(first, second)
    assert found["apart_pct"].to_list() == pytest.approx([10.0, 100 / 99, 0.0, 0.0])
    assert found.row(0, named=True)["timing"] == "graph_warm"


BASE = frozenset({"loss,waiting,step (a.py),20", "forward,launching,,5", "(all smaller ones),,,1"})
NEW = frozenset({"forward,launching,,10", "(all smaller ones),,,1"})


def test_the_lines_of_both_gap_reports_count() -> None:
    assert share_pct(BASE, BASE) == share_pct(frozenset(), frozenset()) == 0
    assert share_pct(BASE, NEW) == 100 * 3 / 5
    assert changes(BASE, NEW) == {"loss,waiting,step (a.py)": -20, "forward,launching": 5}


LOSS, FORWARD = Place("loss", "waiting"), Place("forward", "launching")


def test_the_noise_is_that_of_logs_of_rows_that_all_captures_have() -> None:
    same = [{LOSS: 0.2}, {LOSS: 0.2}]
    assert (noise(same), shifted_pct(same)) == (0, 0)
    shares = [{LOSS: 0.1, FORWARD: 0.1}, {LOSS: 0.1 * e, FORWARD: 0.1}, {LOSS: 0.1 * e**2}]
    assert noise(shares) == pytest.approx(1)


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


def test_calls_and_operations_meet_only_within_a_repetition(traces: tuple[Trace, Trace]) -> None:
    met = [
        trace.calls.drop_nulls("correlation").join(
            trace.ops, on=["process", "correlation"], nulls_equal=False
        )
        for trace in traces
    ]
    assert met[1].height == 3 * met[0].height
