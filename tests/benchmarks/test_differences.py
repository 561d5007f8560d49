import runpy
from math import e
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nsysflow
from benchmarks.apart import apart
from benchmarks.formats import kineto_text, write_rocpd
from benchmarks.gap_report_stability import changes, noise, share_pct, shifted_pct
from benchmarks.many_ranks.__main__ import Wanted, make_run
from benchmarks.many_ranks.compared import found_beside
from benchmarks.many_ranks.simulated import Delay, Kind
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


RANKS = 4
LATE = 2


def small(
    *, delay: Delay | None = None, tp: int = 1, kernels: int = 240, communicators: bool = True
) -> Wanted:
    """A run of a few ranks and steps."""
    return Wanted(ranks=RANKS, kernels=kernels, tp=tp, communicators=communicators, delay=delay)


def collectives(folder: Path, rank: int) -> pl.DataFrame:
    """The collectives of a rank in order, plus `lasted_ns`."""
    trace = nsysflow.load(folder / f"rank{rank}.sqlite", shapes=False)
    return (
        nsysflow.analyze(trace)
        .collectives.sort("start_ns")
        .with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("lasted_ns"))
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without a delay."""
    folder = tmp_path_factory.mktemp("plain")
    make_run(folder, small())
    return folder


def test_collectives_end_together_but_for_the_clocks(plain: Path) -> None:
    first, other = (collectives(plain, rank)["end_ns"].to_list() for rank in (0, 1))
    clocks = [there - here for here, there in zip(first, other, strict=True)]
    assert max(clocks) - min(clocks) < 2_000 < 1_000_000 < abs(clocks[0])


@pytest.mark.parametrize("kind", ["host", "copies"])
def test_a_delayed_rank_is_last_and_costs_at_most_its_delay(tmp_path: Path, kind: Kind) -> None:
    truth = make_run(tmp_path, small(delay=Delay(kind, LATE, ns=2_000_000)))
    lasted = [collectives(tmp_path, rank)["lasted_ns"].sum() for rank in range(RANKS)]
    assert min(range(RANKS), key=lasted.__getitem__) == LATE
    assert 500_000 < truth["cost_step_ns"] <= 2_000_000


def test_groups_have_their_communicators_and_maybe_a_slow_link(tmp_path: Path) -> None:
    truth = make_run(tmp_path, small(tp=2, delay=Delay("link", group=("tp", 1), factor=4.0)))
    assert truth["groups"] == {"dp": [[0, 2], [1, 3]], "tp": [[0, 1], [2, 3]]}
    assert truth["cost_step_ns"] > 0
    ranks = [collectives(tmp_path, rank) for rank in range(RANKS)]
    usual, slow = (
        ranks[rank].filter(pl.col("bytes") == 8 << 20)["lasted_ns"].to_list() for rank in (0, 2)
    )
    assert min(slow) > 2 * min(usual)
    of_rank = [set(rank["communicator"]) for rank in ranks]
    assert [len(numbers) for numbers in of_rank] == [2] * RANKS
    assert len(of_rank[0] & of_rank[1]) == len(of_rank[0] & of_rank[2]) == 1
    assert not of_rank[0] & of_rank[3]


def tables(folder: Path, saved_step_ns: int | None) -> Path:
    """What was found of a run of four steps: rank 2 saves so much of each."""
    group = {"rank": LATE, "report": "rank2", "cost_ns": 8_000_000, "cost_step_ns": 2_000_000}
    late = {"saved_step_ns": saved_step_ns, "cost_host_ns": 6_000_000}
    pl.DataFrame([group | late]).write_csv(folder / "rank_groups.csv")
    steps = [{"rank": rank, "step": step} for rank in range(RANKS) for step in range(4)]
    pl.DataFrame(steps).write_csv(folder / "rank_steps.csv")
    return folder


def truth_of_steps(without_ns: int) -> dict[str, Any]:
    """Four steps of 10 ms, of which 1 and 3 are delayed."""
    steps = {"steps": 4, "steps_ns": [10_000_000] * 4, "steps_without_ns": [without_ns] * 4}
    return steps | {"delay": {"kind": "host", "rank": LATE}, "delayed_steps": [1, 3]}


def test_costs_are_compared_per_delayed_step_of_those_that_another_follows(tmp_path: Path) -> None:
    said = found_beside(tables(tmp_path, 1_100_000), truth_of_steps(9_000_000))
    assert said == (
        "rank2, 3 steps: found 3,300 us, true 3,000 us (+10.0 %);"
        " the others wait 2,000 us a step; 75 % host"
    )


OPS = ("kind", "start_ns", "end_ns", "device", "stream", "correlation", "short_name")
CALLS = ("start_ns", "end_ns", "correlation", "name")


def test_the_same_run_in_other_formats_has_the_same_events(tmp_path: Path) -> None:
    trace = load(DATA / "h200-train.sqlite.xz")
    kineto, rocpd = tmp_path / "run.pt.trace.json", tmp_path / "run.db"
    kineto.write_text("".join(kineto_text(trace)), "utf-8")
    write_rocpd(trace, rocpd)
    ops = trace.ops.filter(pl.col("kind") == "kernel").select(OPS)
    for other in map(load, (kineto, rocpd)):
        assert other.ops.filter(pl.col("kind") == "kernel").select(OPS).equals(ops)
        assert len(other.copy_details) == len(trace.copy_details)
        assert other.shapes.select(pl.exclude("registers")).equals(
            trace.shapes.select(pl.exclude("registers"))
        )
        assert other.calls.select(CALLS).equals(trace.calls.select(CALLS))
        assert sorted(other.ranges["name"]) == sorted(trace.ranges["name"])
