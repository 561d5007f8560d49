"""A program of one rank on more: what its collectives take, and what waits for them (§14.25)."""

from dataclasses import replace
from pathlib import Path
from statistics import median

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.analyze import analyze
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.collectives import LAUNCHED_NOTHING, delays_ns, with_collectives
from nsysflow.analysis.replay.curve import Collectives, CollectiveTime, Curve
from nsysflow.analysis.replay.whatif import WhatIf, whatif
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.base.errors import SelectionError
from tests.analyses import analysed
from tests.analysis.replay.replays import replayed as in_time
from tests.oracle.model import (
    Call,
    EventRecord,
    EventWait,
    Message,
    Op,
    PlainTrace,
    Range,
    to_trace,
)
from tests.reports import SAMPLES
from tests.tiny import AS_RECORDED, MAIN, PROCESS, copy, kernel, launch, plain_of

US = 1_000
COMPUTE, NCCL = 7, 16
SIZE = 1_000_000
CURVE = SAMPLES / "collectives-h200.csv"
ONE_RANK = SAMPLES / "ddp-no_overlap-one_rank.sqlite.xz"


def curve_of(gpu_us: int, *, host_us: int = 0, delay_pct: float = 0) -> Curve:
    """Two ranks whose all-reduces all take that."""
    time = CollectiveTime(bytes=SIZE, gpu_ns=gpu_us * US, host_ns=host_us * US, delay_pct=delay_pct)
    return Curve(ranks=2, rows=(("ncclAllReduce", (time,)),))


def asked_for(start_us: int, end_us: int, row: int = 1) -> Range:
    """NCCL's range around an all-reduce."""
    times = start_us * US, end_us * US
    return Range(*times, "push_pop", PROCESS, MAIN, "NCCL", "ncclAllReduce", row)


def event(start_us: int, number: int, name: str) -> Call:
    return launch(start_us * US, (start_us + 1) * US, number, name=f"cuda{name}")


def compute(start_us: int, end_us: int, number: int) -> Op:
    return kernel(start_us * US, end_us * US, number)


def data_parallel() -> PlainTrace:
    """Backward's first half, its gradients sent on a stream of their own, its second half, and the
    optimizer, which was told to wait for that stream."""
    rows = (
        launch(0, 2 * US, 1),
        compute(10, 110, 1),
        event(4, 91, "EventRecord"),
        event(6, 92, "StreamWaitEvent"),
        asked_for(8, 9),
        event(10, 93, "EventRecord"),
        launch(12 * US, 14 * US, 2),
        compute(111, 211, 2),
        event(16, 94, "StreamWaitEvent"),
        launch(18 * US, 20 * US, 3),
        compute(212, 262, 3),
    )
    return replace(
        plain_of(*rows),
        messages=(Message(8 * US, MAIN, SIZE, 1),),
        event_records=(
            EventRecord(PROCESS, 0, 91, COMPUTE, 1),
            EventRecord(PROCESS, 0, 93, NCCL, 2),
        ),
        waits=(EventWait(PROCESS, 0, 92, NCCL, 1), EventWait(PROCESS, 0, 94, COMPUTE, 2)),
    )


def replayed(plain: PlainTrace, collectives: Collectives) -> list[tuple[str, float, float]]:
    """Name, start and end in us of each operation on more ranks."""
    trace = with_collectives(to_trace(plain), collectives.curve, AS_RECORDED)
    timeline = Timeline(trace, AS_RECORDED)
    ran = in_time(timeline, Changes(collectives=collectives)).ops
    named = timeline.events.ops["short_name"].cast(pl.String)
    return [*zip(named, ran["start_ns"] / US, ran["end_ns"] / US, strict=True)]


@pytest.mark.parametrize(("gpu_us", "optimizer_us"), [(0, 212), (50, 212), (102, 213), (300, 411)])
def test_what_is_sent_beside_the_rest_of_backward_holds_up_the_optimizer(
    gpu_us: int, optimizer_us: int
) -> None:
    """It is sent when the first half is done, at 110, and the optimizer follows 1 us behind it, or
    behind the second half, whichever is later."""
    ran = replayed(data_parallel(), Collectives(curve=curve_of(gpu_us), delay=0.0))
    assert (LAUNCHED_NOTHING, 110, 110 + gpu_us) in ran
    assert ran[-1] == ("k", optimizer_us, optimizer_us + 50)


@pytest.mark.parametrize(("delay", "later_us"), [(0.0, 30), (0.5, 35), (1.0, 40)])
def test_work_beside_it_is_later(delay: float, later_us: int) -> None:
    """40 us of sending beside the second half: three quarters of what was measured at the least,
    all of their own time at the most."""
    ran = replayed(data_parallel(), Collectives(curve=curve_of(40, delay_pct=100), delay=delay))
    assert ran[-2][1:] == pytest.approx((111, 211 + later_us), abs=1)


def test_asking_takes_the_host_s_time() -> None:
    ran = replayed(data_parallel(), Collectives(curve=curve_of(0, host_us=300)))
    assert ran[-2] == ("k", 312 + 5, 417)  # launched 300 us later, and 5 us from launch to start


def test_a_graph_asks_for_all_that_is_in_it() -> None:
    """Two all-reduces in a graph, which takes 8 us to launch."""
    first = data_parallel()
    again = replace(first.messages[0], start_ns=21 * US)
    ranges = asked_for(21, 22, 2), replace(asked_for(0, 30, 3), domain=None, name="step")
    plain = replace(first, ranges=first.ranges + ranges, messages=(*first.messages, again))
    collectives = Collectives(curve=curve_of(0, host_us=300))
    trace = with_collectives(to_trace(plain), collectives.curve, AS_RECORDED)
    changes = Changes(collectives=collectives, graphs=("step",))
    ran = in_time(Timeline(trace, AS_RECORDED), changes)
    assert ran.calls["end_ns"].max() == (8 + 2 * 300) * US


def in_turn(moved: Op | None = None) -> PlainTrace:
    """An all-reduce on the stream of the work itself, between two kernels."""
    rows = (
        *(launch(0, 2 * US, 1), compute(10, 110, 1), asked_for(4, 9)),
        *((launch(5 * US, 6 * US, 4), moved) if moved is not None else ()),
        *(launch(12 * US, 14 * US, 2), compute(121, 221, 2)),
    )
    return replace(plain_of(*rows), messages=(Message(4 * US, MAIN, SIZE, 1),))


def test_without_a_stream_of_its_own_it_is_in_turn() -> None:
    ran = replayed(in_turn(), Collectives(curve=curve_of(50, delay_pct=100)))
    assert ran == [("k", 10, 110), (LAUNCHED_NOTHING, 110, 160), ("k", 171, 271)]


def test_a_copy_of_nccl_is_what_is_sent() -> None:
    """One rank that gathers from itself copies."""
    moved = copy(111 * US, 120 * US, 4, "DtoD", "device", "device")
    ran = replayed(in_turn(moved), Collectives(curve=curve_of(50)))
    assert ran == [("k", 10, 110), ("memcpy DtoD", 111, 161), ("k", 162, 262)]


def test_what_the_curve_does_not_know_stays_as_it_is() -> None:
    plain = in_turn(copy(111 * US, 120 * US, 4, "DtoD", "device", "device"))
    unknown = Range(3 * US, 10 * US, "push_pop", PROCESS, MAIN, "NCCL", "ncclReduce", 9)
    inner = replace(asked_for(2, 3), name="ncclAllReduce")
    reduced = replace(
        plain,
        ranges=(unknown, inner),
        messages=(Message(3 * US, MAIN, SIZE, 1), Message(2 * US, MAIN, SIZE, 1)),
    )
    ran = replayed(reduced, Collectives(curve=curve_of(0)))
    assert ("memcpy DtoD", 111, 120) in ran


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (plain_of(launch(0, 2, 1), kernel(9, 10, 1)), "no collective with its size"),
        (
            plain_of(launch(0, 2, 1), kernel(9, 10, 1, name="ncclDevKernel_AllReduce")),
            "run between ranks already",
        ),
        (replace(data_parallel(), messages=()), "no collective with its size"),
    ],
)
def test_what_asks_for_nothing_is_refused(plain: PlainTrace, said: str) -> None:
    with pytest.raises(SelectionError, match=said):
        with_collectives(to_trace(plain), curve_of(1), Options())


def test_a_collective_before_any_stream_is_known_is_left_out() -> None:
    plain = data_parallel()
    early = replace(
        plain,
        ranges=(asked_for(-5, -4, row=0), *plain.ranges),
        messages=(Message(-5 * US, MAIN, SIZE, 1), *plain.messages),
    )
    assert replayed(early, Collectives(curve=curve_of(40))) == replayed(
        plain, Collectives(curve=curve_of(40))
    )


intervals = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40)), min_size=1, max_size=8)


@given(intervals, intervals, st.data())
def test_a_delay_is_the_sum_over_each_instant(
    work: list[tuple[int, int]], sent: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Instant by instant: of the collectives on a device the one that started first counts."""
    rows = sorted([*((s, s + n, 0) for s, n in work), *((s, s + n, 1) for s, n in sent)])
    devices = data.draw(st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows)))
    op = [row for row, (_, _, kind) in enumerate(rows) if kind]
    factors = data.draw(
        st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(op), max_size=len(op))
    )
    ran = pl.DataFrame({"start_ns": [r[0] for r in rows], "end_ns": [r[1] for r in rows]})
    found = delays_ns(
        ran,
        pl.Series("device_no", devices, pl.UInt32),
        pl.Series(op, dtype=pl.UInt32),
        pl.Series(factors),
    )

    def delay(device: int, instant: int) -> float:
        for row, factor in zip(op, factors, strict=True):
            if devices[row] == device and rows[row][0] <= instant < rows[row][1]:
                return factor
        return 0.0

    for row, (start, end, _) in enumerate(rows):
        slow = sum(delay(devices[row], instant) for instant in range(start, end))
        assert found[row] == pytest.approx(slow, abs=0.5)


def step_of(scale: float, ranks: int = 2) -> WhatIf:
    """The real step of one rank on more, with collectives that many times as long."""
    curve = Curve.read(CURVE, ranks)
    rows = tuple(
        (name, tuple(replace(time, gpu_ns=time.gpu_ns * scale, host_ns=0.0) for time in times))
        for name, times in curve.rows
    )
    collectives = Collectives(curve=replace(curve, rows=rows))
    trace = with_collectives(nsysflow.load(ONE_RANK), collectives.curve, Options())
    return whatif(analyze(trace, Options()).timeline, Changes(collectives=collectives))


def test_nothing_to_send_leaves_a_real_step_as_it_is() -> None:
    without = whatif(analysed("ddp-no_overlap-one_rank").timeline, Changes())
    with_none = step_of(0)
    assert with_none.after.step_ns == pytest.approx(without.before.step_ns, rel=1e-3)


def test_a_real_step_grows_with_what_it_sends_and_lies_in_its_bounds() -> None:
    steps = [step_of(scale) for scale in (0.5, 1, 2, 8)]
    means = [step.after.step_ns or 0 for step in steps]
    assert means == sorted(set(means))
    for step, mean in zip(steps, means, strict=True):
        assert step.on_ranks is not None
        assert step.on_ranks.step_low_ns <= mean <= step.on_ranks.step_high_ns
        speed = step.on_ranks.ranks * (step.before.step_ns or 0) / mean
        assert 0 < step.on_ranks.speed_low <= speed <= step.on_ranks.speed_high <= 2


def test_two_ranks_were_recorded_as_one_foretells() -> None:
    """The same program on two GPUs, nine days earlier: its slower rank took a step as foretold."""
    foretold = step_of(1).on_ranks
    reports = [analysed(f"ddp-no_overlap-rank{rank}").judged for rank in (0, 1)]
    recorded_ns = max(median(report.steps["duration_ns"].to_list()) for report in reports)
    assert foretold is not None
    assert foretold.step_low_ns <= recorded_ns <= foretold.step_high_ns


def test_a_curve_is_what_was_measured_and_straight_between() -> None:
    curve = Curve.read(CURVE, 2)
    for name, times in curve.rows:
        for time in times:
            at = curve.at(name, time.bytes)
            assert (at.gpu_ns, at.host_ns) == (time.gpu_ns, time.host_ns)
        low, high = times[-2:]
        middle = curve.at(name, (low.bytes + high.bytes) // 2)
        assert middle.gpu_ns == pytest.approx((low.gpu_ns + high.gpu_ns) / 2)
        beyond = curve.at(name, high.bytes * 2)
        assert beyond.gpu_ns == pytest.approx(high.gpu_ns + 2 * (high.gpu_ns - low.gpu_ns))
        assert curve.at(name, 1).gpu_ns == times[0].gpu_ns
        assert curve.at(name, 1).delay_pct == next(t.delay_pct for t in times if t.delay_pct)


HEADER = "operation,ranks,bytes,gpu_ns,host_ns,delay_pct\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no column operation"),
        (HEADER.replace("host_ns", "host"), "has no column host_ns"),
        (HEADER, "has no times for 2 ranks, only for none"),
        (HEADER + "ncclAllReduce,4,8,1,1,\nncclAllReduce,8,8,1,1,\n", "only for 4, 8"),
        (HEADER + "ncclAllReduce,2,8,fast,1,\n", "line 2 of .* has no number"),
        (HEADER + "ncclAllReduce,2,8,1\n", "line 2 of .* has no number"),
        (HEADER + "ncclAllReduce,2,-8,1,1,\n", "line 2 of .* no size and no time"),
        (HEADER + "ncclAllReduce,2,8,nan,1,\n", "line 2 of .* no size and no time"),
        ("\xe9", "cannot be read"),
    ],
)
def test_what_is_no_curve_is_refused_with_what_to_type(
    text: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "curve.csv"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(SelectionError, match=said) as error:
        Curve.read(file, 2)
    assert error.value.command.startswith("torchrun --nproc-per-node 2")
