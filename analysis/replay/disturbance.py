"""The profiler's share of a recorded step, taken out of its program (spec §14.15 to §14.17)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.replay.replay import Program
from nsysflow.analysis.selection.timeline import Timeline

LEAST_CALL_NS: Final = 1_000
"""What a call costs in any case."""

MOST_NS: Final = 50_000
"""The profiler takes no more of the host's time at a call: 5 to 42 us on H100s, 2026-11-25."""

NEAR: Final = 0.002
"""A replayed step this near to the plain one is near enough: plain ones differ by more."""

MOST_TRIES: Final = 12
"""Every other one halves what is left: 800 ns a call after all of them."""


def without_disturbance(
    program: Program, unrecorded_step_ns: int, step_ns_of: Callable[[Program], int]
) -> Program:
    """`program` with so much less of the host's time at each call that a step takes as long as in
    the same program without a profiler. What cannot be taken from the host is left.

    Args:
        program: as recorded.
        unrecorded_step_ns: a step without the profiler.
        step_ns_of: how long a step of a program takes.
    """
    less_ns = cost_of_calls_ns(
        unrecorded_step_ns, lambda less_ns: step_ns_of(with_cheaper_host(program, less_ns))
    )
    return with_cheaper_host(program, less_ns) if less_ns else program


def cost_of_calls_ns(unrecorded_step_ns: int, step_ns_of: Callable[[int], int]) -> int:
    """What the profiler takes of the host's time at each call: with so much less, a step takes as
    long as without the profiler, or as near as `MOST_NS` less brings it.

    Args:
        unrecorded_step_ns: a step without the profiler.
        step_ns_of: how long a step takes with so much less at each call.
    """
    least, slow_ns = 0, step_ns_of(0)
    most, fast_ns = MOST_NS, step_ns_of(MOST_NS)
    wanted_ns = max(unrecorded_step_ns, fast_ns * (1 + NEAR))
    if slow_ns <= wanted_ns:
        return 0
    for attempt in range(MOST_TRIES):
        # most steps get shorter in proportion, up to where the GPU is the limit: hence turns
        share = (slow_ns - wanted_ns) / (slow_ns - fast_ns) if attempt % 2 == 0 else 0.5
        less_ns = round(least + share * (most - least))
        step_ns = step_ns_of(less_ns)
        if abs(step_ns - wanted_ns) <= NEAR * wanted_ns:
            return less_ns
        if step_ns > wanted_ns:
            least, slow_ns = less_ns, step_ns
        else:
            most, fast_ns = less_ns, step_ns
    return most


@dataclass(frozen=True, kw_only=True)
class RecordingCost:
    """What recording takes of the host's time, and of the GPU's.

    Attributes:
        pct: of the first `FULL_NS` at each call; a third of what is longer, as far as that is work:
            a long call copies or allocates, which no profiler slows.
        backtrace_ns: at each call that has a backtrace.
        gap_ns: between an operation and the next; `LEAST_GAP_NS` of it stay.
    """

    pct: int
    backtrace_ns: int
    gap_ns: int


FULL_NS: Final = 100_000
"""Recorded programs took 14 to 113 us a launch, and recording the same share of each. Long code
between calls only loses what samples take: a loader in Python 3 to 17 % (docs/facts.md)."""

LEAST_GAP_NS: Final = 500
"""As near kernels of a CUDA graph follow each other on an H100 that nothing records."""

LEAST_COST: Final = RecordingCost(pct=20, backtrace_ns=10_000, gap_ns=100)
MOST_COST: Final = RecordingCost(pct=60, backtrace_ns=35_000, gap_ns=700)
"""Of 40 recordings on H100s and H200s; backtraces of all launches cost 26 us each
(docs/facts.md). Recorded, six programs took 0.16 to 0.71 us a kernel more on the GPU."""


Shares = tuple[int, int]
"""What share of the host's time recording takes, in whole percent: at least, and at most."""


def shares_of(timeline: Timeline, step_ns_of: Callable[[RecordingCost], int]) -> Shares:
    """What share of the host's time recording takes: this machine's where they are known, else the
    usual ones. Where a step before the window was timed, at least so much that a step takes no
    longer than that one, which the profiler slowed less than the recorded ones (spec §14.16).

    Args:
        timeline: the trace.
        step_ns_of: how long a step takes without what recording costs.
    """
    least, most = timeline.options.recording_pct or (LEAST_COST.pct, MOST_COST.pct)
    warm_up_ns = _warm_up_step_ns(timeline)
    if warm_up_ns is None:
        return least, most
    between = cost_between((least, most))

    def step_ns(pct: int) -> int:
        return step_ns_of(replace(between, pct=pct))

    if step_ns(least) <= warm_up_ns:
        return least, most
    slowed = _smallest_pct(step_ns, warm_up_ns, least=least + 1)
    return slowed, max(most, slowed)


def _warm_up_step_ns(timeline: Timeline) -> int | None:
    """How long a step took before the window, with the profiler attached: the median of the
    processes that timed it. None where none did, and of a part or another loop."""
    options = timeline.options
    if options.step or options.steps or options.range or options.whole:
        return None
    median_ns = timeline.trace.captures["unprofiled_step_ns"].median()
    return round(median_ns) if isinstance(median_ns, float) else None


def extreme_costs(shares: Shares) -> tuple[RecordingCost, RecordingCost]:
    """The most and the least that recording costs, with these shares of the host's time."""
    least, most = shares
    return replace(MOST_COST, pct=most), replace(LEAST_COST, pct=least)


def cost_between(shares: Shares) -> RecordingCost:
    """The middle of the least and the most that recording costs."""
    most, least = extreme_costs(shares)
    return RecordingCost(
        pct=(least.pct + most.pct) // 2,
        backtrace_ns=(least.backtrace_ns + most.backtrace_ns) // 2,
        gap_ns=(least.gap_ns + most.gap_ns) // 2,
    )


ALL_TRACED: Final = 0.1
"""Where more launches than these have a line, each call has a backtrace. Of `waits`, 1 % had."""


def have_backtraces(calls: pl.DataFrame) -> bool:
    """Whether each call of a report has a backtrace, and not only those that wait.

    Args:
        calls: of `Events`.
    """
    launches = calls.filter(pl.col("class") == "launch")
    return launches["source"].is_not_null().sum() > ALL_TRACED * len(launches)


def behind_backtraces(program: Program, events: Events) -> pl.Series:
    """Of each call of a program, whether the one that it comes after has a backtrace: it is taken
    when that call returns. (Between a wait with one and the next call 37 us pass, and 15 us behind
    a launch without: `regulator`, docs/facts.md.)

    Args:
        program: as recorded.
        events: those that it is of.
    """
    pred = program.calls["pred"]
    if have_backtraces(events.calls):
        return pred.is_not_null()
    traced = events.trace.backtraces.join(events.threads[["thread", "thread_no"]], on="thread")
    key = ["thread_no", "start_ns"]
    nodes = program.calls.join(traced, on=key, how="semi")["node"]
    return pred.is_in(nodes.implode()).fill_null(value=False)


def without_cost(program: Program, cost: RecordingCost, *, traced: pl.Series) -> Program:
    """`program` without what recording takes: of the host's time at each call, of its work before
    what the call costs, and of the time between operations. The first call of a thread keeps its
    time.

    Args:
        program: as recorded.
        cost: what recording takes.
        traced: of each call, whether it comes after one with a backtrace.
    """
    work_ns = pl.when(pl.col("pred").is_not_null()).then(pl.col("work_ns").clip(lower_bound=0))
    host_ns = work_ns + pl.col("cost_ns").clip(lower_bound=0)
    host = program.calls.select(work_ns.alias("work_ns"), host_ns.alias("host_ns"))
    taken_ns = pl.when(pl.lit(traced)).then(cost.backtrace_ns).otherwise(0)
    backtrace_ns = pl.min_horizontal("host_ns", taken_ns)
    host = host.with_columns(backtrace_ns.alias("backtrace_ns"))
    rest_ns = pl.col("host_ns") - pl.col("backtrace_ns")
    first_ns = pl.min_horizontal(rest_ns, FULL_NS)
    longer_ns = pl.min_horizontal(rest_ns - first_ns, "work_ns")
    share_ns = cost.pct * (3 * first_ns + longer_ns) // 300
    less_ns = (pl.col("backtrace_ns") + share_ns).fill_null(0)
    host = host.select(pl.col("work_ns").fill_null(0), less_ns.alias("less_ns"))
    from_work_ns = host.select(pl.min_horizontal("work_ns", "less_ns")).to_series()
    nearer = replace(
        program,
        ops=program.ops.with_columns(_nearer("gap_ns", cost.gap_ns)),
        edges=program.edges.with_columns(_nearer("lag_ns", cost.gap_ns)),
    )
    return _with_less(nearer, pl.lit(host["less_ns"]), pl.lit(from_work_ns))


def _nearer(name: str, less_ns: int) -> pl.Expr:
    """A time between two operations, so much less of what is more than `LEAST_GAP_NS`."""
    spare = (pl.col(name) - LEAST_GAP_NS).clip(0, less_ns).fill_null(0)
    return pl.col(name) - spare


def undisturbed(
    program: Program, timeline: Timeline, step_ns_of: Callable[[Program], int]
) -> Program:
    """`program` without the profiler's share: with steps as long as one that was not recorded;
    where none is known, without the middle of what recording costs.

    Args:
        program: as recorded.
        timeline: the trace that it is of.
        step_ns_of: how long a step of a program takes.
    """
    unrecorded_ns = timeline.options.unrecorded_step_ns
    if unrecorded_ns is not None:
        return without_disturbance(program, unrecorded_ns, step_ns_of)
    traced = behind_backtraces(program, timeline.events)

    def without(cost: RecordingCost) -> Program:
        return without_cost(program, cost, traced=traced)

    shares = shares_of(timeline, lambda cost: step_ns_of(without(cost)))
    return without(cost_between(shares))


MOST_PCT: Final = 80
"""No recording was seen to take more than half of the host's time; more is not sought."""

HOST_BOUND: Final = 0.9
"""What recording takes of the host is only read from a step that a faster host would make shorter
than this share of it."""


MOST_SLOWED: Final = 2
"""A step that is this many times as long as one that was not recorded has other reasons, too."""


def recorded_pct(unrecorded_step_ns: int, step_ns_of: Callable[[RecordingCost], int]) -> int | None:
    """What share of the host's time recording took, so that a step without it takes as long as one
    that was not recorded; None where the step does not show it.

    Args:
        unrecorded_step_ns: a step without the profiler.
        step_ns_of: how long a step takes without what recording costs.
    """
    between = cost_between((0, MOST_PCT))

    def step_ns(pct: int) -> int:
        return step_ns_of(replace(between, pct=pct))

    recorded_ns = step_ns_of(RecordingCost(pct=0, backtrace_ns=0, gap_ns=0))
    if not unrecorded_step_ns < recorded_ns <= MOST_SLOWED * unrecorded_step_ns:
        return None  # the program did other work, or the machine was slower then
    if step_ns(MOST_COST.pct) > HOST_BOUND * recorded_ns or step_ns(MOST_PCT) > unrecorded_step_ns:
        return None
    return _smallest_pct(step_ns, unrecorded_step_ns)


def _smallest_pct(step_ns: Callable[[int], int], wanted_ns: int, *, least: int = 0) -> int:
    """The smallest share, from `least` to `MOST_PCT`, without which a step takes no longer than
    wanted; `MOST_PCT` where all take longer, and `least` above that.

    Args:
        step_ns: how long a step takes without a share of the host's time.
        wanted_ns: how long it shall take.
        least: the smallest share that is tried.
    """
    most = max(least, MOST_PCT)
    while least < most:
        middle = (least + most) // 2
        if step_ns(middle) > wanted_ns:
            least = middle + 1
        else:
            most = middle
    return least


def with_faster_host(program: Program, factor: float) -> Program:
    """`program` with the host's work and what its calls cost times `factor`, allocations apart."""
    work, cost = ((pl.col(name) * factor).round().cast(pl.Int64) for name in ("work_ns", "cost_ns"))
    allocates = pl.col("class") == "alloc"
    calls = program.calls.with_columns(
        work.alias("work_ns"), pl.when(allocates).then("cost_ns").otherwise(cost).alias("cost_ns")
    )
    return replace(program, calls=calls)


def with_cheaper_host(program: Program, less_ns: int) -> Program:
    """`program` with so much less of the host's time at each call: of its work before the call,
    then of what the call costs, of which `LEAST_CALL_NS` stay."""
    from_work = pl.min_horizontal(pl.col("work_ns").clip(lower_bound=0), less_ns)
    spare = (pl.col("cost_ns") - LEAST_CALL_NS).clip(lower_bound=0)
    return _with_less(program, from_work + pl.min_horizontal(spare, less_ns - from_work), from_work)


def _with_less(program: Program, less_ns: pl.Expr, from_work_ns: pl.Expr) -> Program:
    """`program` with so much less of the host's time at each call, and so much of that of its
    work."""
    calls = program.calls.with_columns(
        (pl.col("work_ns") - from_work_ns).alias("work_ns"),
        (pl.col("cost_ns") - (less_ns - from_work_ns)).alias("cost_ns"),
    )
    return replace(program, calls=calls)
